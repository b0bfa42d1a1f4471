"""Markdown of an answer for a terminal with colours, styled lightly while it streams. Knows no screen.

Nothing that was written is ever taken back: no cursor moves, and lines are wrapped by the terminal itself. So a mark is
held back until it is known what it means, for HOLD characters or to the end of its line at most. What means nothing is
shown as it is, and so are tables, quotes, rules, HTML and single asterisks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from leadrope.regex import regex

HOLD = 240
"""The longest span that is styled. More would hold text back for long where a mark is never closed."""

BOLD, DIM, UNDERLINED, CODE = "1", "2", "4", "36"

_MARK = regex(r"[`*\[!\\]")
_TICKS = regex(r"`+")
_CODE = regex(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# Among letters and digits two asterisks are a power or an argument, not a mark.
_BOLD = regex(r"(?<![A-Za-z0-9_*])\*\*(?=[^\s*])(.+?)(?<=[^\s*])\*\*(?![A-Za-z0-9_*])")
_LINK = regex(r"!?\[([^\[\]]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
_MAY_BE_LINK = regex(r"!?\[[^\[\]]*(?:\](?:\([^()\s]*(?:\([^()\s]*\)?[^()\s]*)*)?)?")

_UNDECIDED = regex(r"[ \t]*(?:#{1,6}|`{1,2}|~{1,2}|[-*+])?")
_FENCE = regex(r"[ \t]*(`{3,}|~{3,})([^`]*)")
_HEADING = regex(r"#{1,6}[ \t]")
_ITEM = regex(r"([ \t]*)[-*+]([ \t]+)")


def paint(text: str, codes: tuple[str, ...]) -> str:
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if codes and text else text


class MarkdownStream:
    """Takes the text in pieces, and gives what can be shown by now.

    stream = MarkdownStream()
    print(stream.feed("**bo"), stream.feed("ld** text"), stream.end())
    """

    def __init__(self) -> None:
        self._fence = ""
        """Inside of a block of code: what ends it."""
        self._begin_line()

    def _begin_line(self) -> None:
        self._rest = ""
        """Of the current line: what has not been given yet."""
        self._before = ""
        """The last character that was given of it: it tells whether a mark stands in a word."""
        self._codes: tuple[str, ...] = ()
        """Of the whole line: a heading."""
        self._is_begun = False
        """What kind of line it is has been decided."""

    def feed(self, text: str) -> str:
        """What can be shown, with this piece."""
        shown = ""
        *lines, last = text.split("\n")
        for line in lines:
            self._rest += line
            shown += self._given(is_final=True) + "\n"
            self._begin_line()
        self._rest += last
        return shown + self._given(is_final=False)

    def end(self) -> str:
        """The rest of a message; the next one begins anew."""
        shown = self._given(is_final=True)
        self._fence = ""
        self._begin_line()
        return shown

    def _given(self, *, is_final: bool) -> str:
        head = ""
        if not self._is_begun:
            decided = self._begin(is_final=is_final)
            if decided is None:
                return ""
            head, self._is_begun = decided, True
        if self._fence:
            body, self._rest = paint(self._rest, (CODE,)), ""
            return head + body
        shown, kept = inline(self._rest, self._codes, before=self._before, is_final=is_final)
        given = self._rest[: len(self._rest) - len(kept)]
        self._before = given[-1:] or self._before
        self._rest = kept
        return head + shown

    def _begin(self, *, is_final: bool) -> str | None:
        """The first characters of a line as they are shown; None while it cannot be told what they mean."""
        if not is_final and _UNDECIDED.fullmatch(self._rest):
            return None
        if fence := _FENCE.fullmatch(self._rest):
            if not is_final and len(self._rest) <= HOLD:
                return None
            if is_final and len(self._rest) <= HOLD and self._is_fence(fence):
                line, self._rest = self._rest, ""
                return paint(line, (DIM,))
        if self._fence:
            return ""
        if _HEADING.match(self._rest):
            self._codes = (BOLD,)
        elif item := _ITEM.match(self._rest):
            self._rest = self._rest[item.end() :]
            return f"{item[1]}•{item[2]}"
        return ""

    def _is_fence(self, found: re.Match[str]) -> bool:
        """It begins or ends a block of code, and not only looks so inside of one."""
        if not self._fence:
            self._fence = found[1]
            return True
        is_end = found[1].startswith(self._fence) and not found[2].strip()
        if is_end:
            self._fence = ""
        return is_end


class _Span(NamedTuple):
    shown: str
    end: int


def inline(text: str, codes: tuple[str, ...] = (), *, before: str = "", is_final: bool = True) -> tuple[str, str]:
    """A part of a line with its spans styled, and what has to wait for more text. `before`: the character before it."""
    whole = before + text
    at = len(before)
    plain = shown = ""
    while found := _MARK.search(whole, at):
        start = found.start()
        span = _span(whole, start, codes)
        # The character after a closing mark counts, except after a link.
        is_settled = span is not None and (is_final or span.end < len(whole) or whole[span.end - 1] == ")")
        if not is_settled and not is_final and _may_come(whole, start):
            return shown + paint(plain + whole[at:start], codes), whole[start:]
        if span is not None and is_settled:
            shown += paint(plain + whole[at:start], codes) + span.shown
            plain, at = "", span.end
            continue
        # A backslash takes what follows with it; backticks belong together.
        ticks = _TICKS.match(whole, start)
        end = ticks.end() if ticks else min(len(whole), start + (2 if found[0] == "\\" else 1))
        plain += whole[at:end]
        at = end
    return shown + paint(plain + whole[at:], codes), ""


def _span(whole: str, start: int, codes: tuple[str, ...]) -> _Span | None:
    """The span that begins here; None where none does. Looks no further than HOLD characters, however long the line."""
    limit = start + HOLD + 1
    if (found := _CODE.match(whole, start, limit)) and found.end() < limit and found[2].strip():
        return _Span(paint(_code_of(found), (*codes, CODE)), found.end())
    if (found := _BOLD.match(whole, start, limit)) and found.end() < limit:
        inner = codes if BOLD in codes else (*codes, BOLD)
        return _Span(inline(found[1], inner)[0], found.end())
    if (found := _LINK.match(whole, start, limit)) and found.end() < limit and found[2]:
        return _Span("".join(_link(found, codes)), found.end())
    return None


def _code_of(found: re.Match[str]) -> str:
    text = found[2]
    is_padded = len(found[1]) > 1 and text.startswith(" ") and text.endswith(" ")
    return text[1:-1] if is_padded else text


def _link(found: re.Match[str], codes: tuple[str, ...]) -> Iterator[str]:
    """The address is always shown: what a text says it leads to may be something else."""
    text, address = found[1].strip(), found[2]
    if text and text != address:
        yield paint(text, (*codes, UNDERLINED))
        yield paint(f" ({address})", (*codes, DIM))
    else:
        yield paint(address, (*codes, UNDERLINED))


def _may_come(whole: str, start: int) -> bool:
    """With more text a span may begin here."""
    rest = whole[start:]
    if len(rest) > HOLD:
        return False
    match rest[0]:
        case "`":
            return True
        case "*":
            is_in_word = re.match(r"[A-Za-z0-9_*]", whole[start - 1 : start]) is not None
            return not is_in_word and (rest == "*" or re.match(r"\*\*(?:[^\s*]|$)", rest) is not None)
        case "\\":
            return rest == "\\"
        case "!":
            return rest == "!" or (rest[1] == "[" and _MAY_BE_LINK.fullmatch(rest) is not None)
        case _:
            return _MAY_BE_LINK.fullmatch(rest) is not None
