"""The context of a command: its folder, its input, and the here-document that feeds it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from leadrope.policy.shell.words import UNKNOWN_PATH, Word
from leadrope.regex import regex

_DELIMITER = regex(r"(?:[\w.-]+|'[\w. -]+'|\"[\w. -]+\"|\\[\w.-]+)\Z")


class Scope:
    """The state of one shell process: its folder, and how its commands came to run."""

    __slots__ = ("cwd", "fed", "loose", "wrappers")

    def __init__(
        self, cwd: str | None = None, *, fed: bool = False, loose: bool = False, wrappers: tuple[str, ...] = ()
    ) -> None:
        self.cwd = cwd
        self.fed = fed
        """Whether this command line provides its input."""
        self.loose = loose
        """It may run again, later, or in parallel (a loop, a function, `&`): the order is meaningless."""
        self.wrappers = wrappers

    def inner(self, *, fed: bool = False, loose: bool = False, wrappers: tuple[str, ...] = ()) -> Scope:
        return Scope(self.cwd, fed=self.fed or fed, loose=self.loose or loose, wrappers=self.wrappers + wrappers)


def moved(cwd: str | None, words: Sequence[Word]) -> str | None:
    operands = [word for word in words[1:] if word.text not in ("-P", "-L", "-e", "--")]
    if words[0].text != "cd" or len(operands) > 1:
        return UNKNOWN_PATH
    if not operands:
        return "~"
    target = operands[0]
    if (
        target.text is None
        or target.splits
        or target.glob
        or target.text == "-"
        or (cwd == UNKNOWN_PATH and target.text[:1] not in "/~")
    ):
        return UNKNOWN_PATH
    if target.text[:1] in "/~":
        return posixpath.normpath(target.text)
    return posixpath.normpath(posixpath.join(cwd or ".", target.text))


def document(source: bytes, mark: str, start: int, end: int, *, dashed: bool) -> tuple[int, int] | None:
    """Returns the span of a here-document's text if bash also ends it at `end`; None otherwise.

    `mark` ends at `start`, as written.
    """
    if not _DELIMITER.match(mark):
        return None
    last = mark.strip("'\"\\").encode()
    line_end = source.find(b"\n", start)
    rest = source[start:line_end]
    # An unclosed quote, or a second document, would change where bash begins to read the text.
    if line_end < 0 or re.search(rb"<<|[\\`]", rest) or rest.count(b"'") % 2 or rest.count(b'"') % 2:
        return None
    at = line_end + 1
    while at <= len(source):
        stop = source.find(b"\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop]
        if (line.lstrip(b"\t") if dashed else line) == last:
            return (line_end + 1, at) if stop == end else None
        at = stop + 1
    return None
