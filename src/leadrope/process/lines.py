"""Splits chunks of bytes into bounded lines, and keeps the first and last lines of stderr."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

MIB = 1024 * 1024

LINE_LIMIT = 64 * MIB
"""Longer lines are kept in a file. With a lower limit, real answers with images would arrive as files; with a higher
one, a single line costs more memory than a whole supervisor."""

SPOOL_FROM = 32 * MIB
"""From this size a growing line is written to a file: kept in memory to its end, it would be copied while it is
large."""

SPOOL_LIMIT = 4096 * MIB
"""Limit for a child that never ends its line, so that it cannot fill the disk; further content is dropped and only
counted."""

_KEEP_BUFFER_FROM = MIB
"""From this size the collecting buffer itself is handed out: copying it into bytes would double the memory."""


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """A line over the limit, in a file of mode 0600. The receiver of the line owns the file and removes it."""

    path: str
    """Empty if the content could not be kept (disk full, or over the limit for spooled lines)."""
    size: int


Line = bytes | bytearray | Spooled


class Several(msgspec.Struct, frozen=True, gc=False):
    """One or more lines with their line ends. Taking them together saves a copy of each line."""

    data: bytes

    def split(self) -> list[bytes]:
        lines = self.data.split(b"\n")
        # JSON escapes a carriage return, so one in the bytes is rare. Searching one byte is ten times as fast as two.
        if b"\r" in self.data:
            lines = [line[:-1] if line.endswith(b"\r") else line for line in lines]
        return [line for line in lines if line]


Piece = Line | Several


def split(pieces: Iterable[Piece]) -> list[Line]:
    lines: list[Line] = []
    for piece in pieces:
        if isinstance(piece, Several):
            lines += piece.split()
        else:
            lines.append(piece)
    return lines


class LineFramer:
    r"""Splits on b"\n" only, since U+2028 and the like are data in JSON. Drops one trailing \r, and empty lines."""

    def __init__(
        self,
        *,
        spool_dir: str,
        limit: int = LINE_LIMIT,
        spool_from: int = SPOOL_FROM,
        spool_limit: int = SPOOL_LIMIT,
    ) -> None:
        self._spool_dir = spool_dir
        self._limit = limit
        self._spool_from = min(spool_from, limit)
        self._spool_limit = spool_limit
        self._held = bytearray()
        self._spool: _Spool | None = None

    def feed(self, chunk: bytes) -> list[Line]:
        return split(self.feed_whole(chunk))

    def feed_whole(self, chunk: bytes) -> list[Piece]:
        """Like `feed`, but keeps the lines in the middle of a chunk in one piece."""
        pieces: list[Piece] = []
        if len(chunk) > self._limit:  # never from a pipe; split, so that no line over the limit passes undivided
            for at in range(0, len(chunk), self._limit):
                pieces += self.feed_whole(chunk[at : at + self._limit])
            return pieces
        start = 0
        if self._held or self._spool is not None:
            start = chunk.find(b"\n") + 1
            if not start:
                self._hold(chunk)
                return []
            self._hold(chunk[: start - 1])
            pieces += self._finish()
        end = chunk.rfind(b"\n") + 1
        if end > start:
            pieces.append(Several(chunk[start:end]))
        if end < len(chunk):
            self._hold(chunk[end:])
        return pieces

    def close(self) -> list[Line]:
        """Ends the output; a last line without its newline is still a line."""
        return self._finish()

    def _hold(self, piece: bytes) -> None:
        if self._spool is None:
            self._held += piece
            if len(self._held) > self._spool_from:
                self._spool = _Spool(self._spool_dir, self._spool_limit)
                self._spool.add(self._held)
                self._held = bytearray()
        else:
            self._spool.add(piece)

    def _finish(self) -> list[Line]:
        if self._spool is not None:
            spool, self._spool = self._spool, None
            return [spool.finish(self._limit)]
        held = self._held
        if held.endswith(b"\r"):
            del held[-1:]
        if not held:
            return []
        if len(held) >= _KEEP_BUFFER_FROM:
            self._held = bytearray()
            return [held]
        line = bytes(held)
        held.clear()
        return [line]


class _Spool:
    """A long line that is written to a file. A failing disk loses the content, never the count or the framing."""

    def __init__(self, folder: str, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._ends_with_cr = False
        self._file: io.FileIO | None = None
        self._path = ""
        try:
            handle, self._path = tempfile.mkstemp(prefix="line-", dir=folder)
            self._file = io.FileIO(handle, "r+b")
        except OSError:
            self._drop()

    def add(self, piece: bytes | bytearray) -> None:
        if not piece:
            return
        self._size += len(piece)
        self._ends_with_cr = piece[-1] == 0x0D
        if self._file is None:
            return
        if self._size > self._limit:
            self._drop()
            return
        view = memoryview(piece)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError:
            self._drop()

    def finish(self, limit: int) -> Line:
        size = self._size - self._ends_with_cr
        if self._file is None:
            return Spooled(path="", size=size)
        try:
            if self._ends_with_cr:
                self._file.truncate(size)
            if size > limit:
                self._file.close()
                return Spooled(path=self._path, size=size)
            line = self._read_back(self._file, size)
        except OSError:
            self._drop()
            return Spooled(path="", size=size)
        self._drop()
        return line

    def _read_back(self, file: io.FileIO, size: int) -> bytearray:
        line = bytearray(size)
        view = memoryview(line)
        file.seek(0)
        while view:
            count = file.readinto(view)
            if not count:
                raise OSError(f"{self._path} became shorter while it was read")
            view = view[count:]
        return line

    def _drop(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # a late write error; the content is given up anyway
                self._file.close()
            self._file = None
        if self._path:
            with contextlib.suppress(OSError):  # the folder itself may be gone
                Path(self._path).unlink()
            self._path = ""


class HeadAndTail:
    """The first and the last lines of stderr, each cut at `width`, so that a chatty child costs bounded memory."""

    def __init__(
        self, *, head: int = 20, tail: int = 50, width: int = 4096, on_line: Callable[[str], None] | None = None
    ) -> None:
        self._head_size = head
        self._width = width
        self._on_line = on_line
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=tail)
        self._held = bytearray()

    @property
    def head(self) -> tuple[str, ...]:
        return tuple(self._head)

    @property
    def tail(self) -> tuple[str, ...]:
        return tuple(self._tail)

    def feed(self, chunk: bytes) -> None:
        pieces = chunk.split(b"\n")
        last = pieces.pop()
        for piece in pieces:
            self._hold(piece)
            self._finish()
        self._hold(last)

    def close(self) -> None:
        self._finish()

    def _hold(self, piece: bytes) -> None:
        room = self._width - len(self._held)
        if room > 0:
            self._held += piece[:room]

    def _finish(self) -> None:
        text = self._held.decode("utf-8", "replace").rstrip("\r")
        self._held.clear()
        if not text:
            return
        if len(self._head) < self._head_size:
            self._head.append(text)
        self._tail.append(text)
        if self._on_line is not None:
            self._on_line(text)
