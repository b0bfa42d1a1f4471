"""Where a command stands: its folder, its input, and the here-document that feeds it. Knows no programs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from leadrope.policy.shell.words import UNKNOWN_PATH, Word
from leadrope.regex import regex

_DELIMITER = regex(r"(?:[\w.-]+|'[\w. -]+'|\"[\w. -]+\"|\\[\w.-]+)\Z")


class Scope:
    """What one shell process knows: where it is, and how its commands came to run."""

    __slots__ = ("cwd", "fed", "loose", "wrappers")

    def __init__(
        self, cwd: str | None = None, *, fed: bool = False, loose: bool = False, wrappers: tuple[str, ...] = ()
    ) -> None:
        self.cwd = cwd
        self.fed = fed
        """Its input is something that this command line gives it."""
        self.loose = loose
        """It may run again, later, or beside others (a loop, a function, `&`): order means nothing."""
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
    """Where the text of a here-document lies, if bash ends it at `end` too. `mark` ends at `start`, as written."""
    if not _DELIMITER.match(mark):
        return None
    last = mark.strip("'\"\\").encode()
    line_end = source.find(b"\n", start)
    rest = source[start:line_end]
    # A quote that stays open, or a second document, would move the place where bash begins to read the text.
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
