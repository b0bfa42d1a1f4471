"""Reads what the servers of connections write to stderr while an agent lives, and keeps the end of it.

The agent starts the servers and drops their stderr, so each writes into a named pipe of ours instead. A pipe is always
read, whatever comes: a server never waits for us, and what it writes costs a bounded amount of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

from leadrope.process.lines import HeadAndTail
from leadrope.process.sandbox.command_domain import START_MARK

CHUNK = 64 * 1024
"""One read, which empties a pipe of the usual size; other work of the event loop comes between two of them."""
KEPT_BYTES = 16 * 1024
"""Of each server. More than is shown: the beginning may be the end of a secret, which no redactor recognises."""
SHOWN_CHARS = 4 * 1024
SHOWN_LINES = 20
_LAST_READS = 16
"""Before the end is shown. A server that writes faster than it is read must not hold us here."""

Trace = Callable[[str, str], None]
"""Takes the name of a connection and a line."""


class ConnectionStderr:
    """The pipes of one start, by connection. `harmless` takes secrets and control characters out of a text."""

    def __init__(self, pipes: Mapping[str, int], *, harmless: Callable[[str], str], trace: Trace | None = None) -> None:
        """The descriptors must not block; they are closed by `close`."""
        self._harmless = harmless
        self._loop = asyncio.get_running_loop()
        self._pipes = {name: _Pipe(name, handle, trace) for name, handle in pipes.items()}
        for pipe in self._pipes.values():
            self._loop.add_reader(pipe.handle, pipe.read)

    def tail(self, name: str) -> tuple[str, ...]:
        """The last lines of a server, fit to be shown; none if it has no pipe or wrote nothing."""
        pipe = self._pipes.get(name)
        if pipe is None:
            return ()
        for _ in range(_LAST_READS):
            if not pipe.read():
                break
        return shown(bytes(pipe.kept), self._harmless, is_cut=pipe.is_cut)

    def close(self) -> None:
        """Take what is left, and let go of the pipes; a server that still lives gets EPIPE."""
        pipes, self._pipes = self._pipes, {}
        for pipe in pipes.values():
            self._loop.remove_reader(pipe.handle)
            pipe.close()


class _Pipe:
    def __init__(self, name: str, handle: int, trace: Trace | None) -> None:
        self.handle = handle
        self.kept = bytearray()
        self.is_cut = False
        self._lines = HeadAndTail(head=0, tail=0, on_line=self._on_line) if trace else None
        self._name, self._trace = name, trace

    def read(self) -> bool:
        """One chunk; False if there was nothing."""
        try:
            chunk = os.read(self.handle, CHUNK)
        except BlockingIOError:
            return False
        self.kept += chunk
        if len(self.kept) > KEPT_BYTES:
            self.is_cut = True
            del self.kept[:-KEPT_BYTES]
        if self._lines is not None:
            self._lines.feed(chunk)
        return bool(chunk)

    def _on_line(self, line: str) -> None:
        if self._trace is not None and line != START_MARK:
            self._trace(self._name, line)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            for _ in range(_LAST_READS):
                if not self.read():
                    break
        if self._lines is not None:
            self._lines.close()
        os.close(self.handle)


def shown(kept: bytes, harmless: Callable[[str], str], *, is_cut: bool) -> tuple[str, ...]:
    r"""The last lines of what was kept, of the last start that said something. `is_cut`: something came before it.

    >>> shown(b"one\ntwo\n\n", str, is_cut=False)
    ('one', 'two')
    """
    text = kept.decode("utf-8", "replace")
    if is_cut:
        _, newline, rest = text.partition("\n")
        text = rest if newline else text
    text = next((part for part in reversed(text.split(f"{START_MARK}\n")) if part.strip()), "")
    # Shortened afterwards, so that a secret that was cut in two is among what is left out.
    text = harmless(text).rstrip()
    if len(text) > SHOWN_CHARS:
        text = "…" + text[-SHOWN_CHARS:]
    return tuple(line.rstrip() for line in text.split("\n") if line.strip())[-SHOWN_LINES:]
