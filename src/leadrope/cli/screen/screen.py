"""Two streams that a person may see as one: answer text on stdout, lines about it on stderr. Knows no events."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from leadrope.cli.screen import table

# What is not a terminal has no width; a log with very long lines helps nobody.
PIPED_WIDTH = 160


class Style:
    """Colour words, or nothing at all."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text

    def dim(self, text: str) -> str:
        return self._paint("2", text)

    def bold(self, text: str) -> str:
        return self._paint("1", text)

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        return self._paint("31", text)

    def warn(self, text: str) -> str:
        return self._paint("33", text)


class Screen:
    """`text` streams to stdout; `line` puts a line of its own on stderr and never into the middle of a text."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        colour: bool,
        width: int,
        is_live: bool,
        can_redraw: bool = False,
        styles_answer: bool = False,
    ) -> None:
        self._out = out
        self._err = err
        self.style = Style(enabled=colour)
        self.width = width
        self.is_live = is_live
        """Somebody watches stdout: text is shown as it comes, and cleaned."""
        self.can_redraw = can_redraw
        """Lines of stderr can be taken away again: it is a terminal that moves its cursor."""
        self.styles_answer = styles_answer
        """Stdout is a terminal with colours: the Markdown of an answer is styled."""
        self.is_lent = False
        """Another program has the terminal, an editor: keys like Ctrl-C are meant for that."""
        self._in_line = False
        self._held = False
        self._waiting: list[tuple[bool, str]] = []
        self.before: Callable[[], None] | None = None
        """Called before anything is written: whoever has lines that change below the last one takes them away."""

    @classmethod
    def of_process(cls, environ: Mapping[str, str] | None = None) -> Screen:
        environ = os.environ if environ is None else environ
        out, err = sys.stdout, sys.stderr
        for stream in (out, err):
            # A character that the terminal's encoding lacks must not end a run.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        width = shutil.get_terminal_size().columns if err.isatty() else PIPED_WIDTH
        return cls(
            out,
            err,
            colour=wants_colour(err, environ),
            width=max(40, width),
            is_live=out.isatty(),
            can_redraw=err.isatty() and environ.get("TERM", "dumb") != "dumb",
            styles_answer=wants_colour(out, environ) and bool(environ.get("TERM")),
        )

    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal behind stderr as it is now; stdout may be a pipe, and windows change."""
        try:
            columns, rows = os.get_terminal_size(self._err.fileno())
        except (OSError, ValueError):  # no terminal, no descriptor
            columns, rows = 0, 0
        said = shutil.get_terminal_size()  # what COLUMNS and LINES say counts more, and there is a last resort
        return (
            columns if columns and not os.environ.get("COLUMNS") else said.columns,
            rows if rows and not os.environ.get("LINES") else said.lines,
        )

    def text(self, text: str) -> None:
        if not text:
            return
        if self._held:
            self._waiting.append((True, text))
            return
        self._make_room()
        self._out.write(text)
        self._out.flush()
        self._in_line = not text.endswith("\n")

    def line(self, text: str = "", *, now: bool = False) -> None:
        """`now`: also into an open question, for what the person has just asked for."""
        if self._held and not now:
            self._waiting.append((False, text))
            return
        self._make_room()
        self.end_line()
        # An open question has left the cursor behind its prompt.
        self._err.write(("\n" if self._held else "") + text + "\n")
        self._err.flush()

    def say(self, text: str, *, hanging: str = "") -> None:
        """A sentence on lines of its own; a terminal gets it broken between words, a log in one piece."""
        for line in table.wrapped(text, self.width, hanging=hanging) if self._err.isatty() else [text]:
            self.line(line)

    def fitted(self, text: str, *, hanging: str = "") -> list[str]:
        """A sentence for stdout, in lines: broken between words on a terminal, whole for a program."""
        return table.wrapped(text, self.width, hanging=hanging) if self.is_live else [text]

    def end_line(self) -> None:
        """What follows begins a new line."""
        if self._in_line and not self._held:
            self._out.write("\n")
            self._out.flush()
            self._in_line = False

    def draw(self, text: str) -> None:
        """To stderr as it is, for lines that change; `before` must know how to take them away."""
        self._err.write(text)
        self._err.flush()

    @property
    def is_in_line(self) -> bool:
        """The answer streams, and its last line has not ended."""
        return self._in_line

    def _make_room(self) -> None:
        if self.before is not None and not self._held:
            self.before()

    @property
    def is_held(self) -> bool:
        return self._held

    def hold(self) -> None:
        """A person is being asked: whatever comes waits until the question is answered."""
        self._make_room()
        self.end_line()
        self._held = True

    def release(self) -> None:
        self._held = False
        waiting, self._waiting = self._waiting, []
        for is_text, text in waiting:
            if is_text:
                self.text(text)
            else:
                self.line(text)


class ScreenLog(logging.Handler):
    """Log records as lines of the screen, so that they do not tear a streaming text."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._screen.line(self._screen.style.dim(self.format(record)))
        except (OSError, ValueError):
            # Whoever read stderr is gone. A record that nobody sees must not end what is being recorded.
            self.handleError(record)


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
