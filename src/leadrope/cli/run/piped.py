"""What is piped into a command beside its prompt: `git diff | leadrope run "review this"`.

Standard input counts as input if it is a file, or a pipe or socket into which somebody writes. A terminal, /dev/null, a
closed one and an empty one do not. Jobs of CI services, cron and ssh inherit pipes that nobody ever writes to or
closes, so the wait is bounded:

- no first byte within 3 seconds, and no other command holds the pipe: there is no input;
- another command of a pipeline writes to it (`pytest | leadrope run …` says nothing until its end): it is waited for,
  as every filter does, unless it is silent for ten minutes;
- input that has begun is never cut: if it does not end, or is too long, the run is refused.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable

from leadrope import errors
from leadrope.cli.screen.live_lines import seconds
from leadrope.cli.screen.screen import Screen
from leadrope.process import pipes

MOST_BYTES = 1024 * 1024
"""As much as a text that is attached."""
FIRST_S = 3.0
"""For the first byte, where no command is known to write."""
REST_S = 30.0
"""Of silence after it, in the same case."""
COMMAND_S = 600.0
"""Of silence, while another command holds the pipe."""
_LOOK_S = 0.5
_READ_BYTES = 64 * 1024


def read(screen: Screen, *, fd: int = 0) -> str | None:
    """The text on standard input; None where there is none. Never blocks for longer than the module says."""
    try:
        kind = os.fstat(fd).st_mode
    except OSError:
        return None  # closed
    if stat.S_ISREG(kind):
        data = _all_of(fd)
    elif (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)) and not os.isatty(fd):
        data = _waited_for(fd, _Notice(screen))
    else:
        return None
    return _text(data) if data else None


def with_input(prompt: str, text: str | None) -> str:
    """The prompt, and after it the input as a document of its own."""
    if text is None:
        return prompt
    tag, number = "stdin", 1
    while f"</{tag}>" in text:  # what is inside must not look like the end
        number += 1
        tag = f"stdin-{number}"
    return f"{prompt.rstrip()}\n\n<{tag}>\n{text.rstrip()}\n</{tag}>"


def _all_of(fd: int) -> bytes:
    data = b""
    while len(data) <= MOST_BYTES and (piece := _read(fd)):
        data += piece
    return _bounded(data)


def _waited_for(fd: int, say: Callable[[str], None]) -> bytes:
    data = b""
    last = time.monotonic()
    is_fed = False
    while True:
        ready, _, _ = select.select([fd], [], [], _LOOK_S)
        now = time.monotonic()
        if ready:
            piece = _read(fd)
            if not piece:
                say("")
                return data
            data = _bounded(data + piece)
            last = now
            continue
        silent_s = now - last
        if silent_s < min(FIRST_S, REST_S):
            continue
        is_fed = pipes.is_fed(fd)
        if silent_s >= (COMMAND_S if is_fed else REST_S if data else FIRST_S):
            break
        say(f"waiting for standard input {seconds(silent_s, digits=0)}")
    say("")
    if data or is_fed:
        told = f"it has said nothing for {silent_s:.0f} s" if data else f"nothing has come for {silent_s:.0f} s"
        raise errors.RequestError(
            f"standard input does not end: {told}",
            hint="Write it to a file and use `< FILE`, or `< /dev/null` for no input.",
        )
    return b""


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except OSError as error:
        raise errors.RequestError(f"standard input cannot be read: {error.strerror}") from None


def _bounded(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise errors.RequestError(
            f"standard input is larger than {MOST_BYTES // 1024**2} MiB",
            hint="Pipe less, or write it to a file and name that in the prompt: the agent can read it in pieces.",
        )
    return data


def _text(data: bytes) -> str | None:
    hint = "Only text can be piped. --attach hands over images and PDF files."
    if b"\0" in data:
        raise errors.RequestError("standard input is binary data", hint=hint)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise errors.RequestError(f"standard input is not UTF-8 text (byte {error.start})", hint=hint) from None
    return text if text.strip() else None


class _Notice:
    """One line that changes, on a terminal; elsewhere the first one is written and stays."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._is_shown = False

    def __call__(self, text: str) -> None:
        if self._screen.can_redraw:
            above = "\x1b[1A\x1b[J" if self._is_shown else ""
            self._screen.draw(above + (self._screen.style.dim(f"⋯ {text}") + "\n" if text else ""))
            self._is_shown = bool(text)
        elif text and not self._is_shown:
            self._screen.line("waiting for standard input to end")
            self._is_shown = True
