"""The grammar of templates: parses text into pieces, in linear time; `templates` fills them in.

template   = text with ${ expression }, and $${ for a literal ${
expression = operand { ?? operand }
operand    = "text" | 'text' | number | true | false | null | JSON list or object | name { .key | [index] }
index      = whole number | "key" | * | ${ expression }
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from leadrope.regex import regex

DEPTH_LIMIT = 8
"""Maximum nesting of templates inside brackets. Two are useful; each level is a level of recursion here."""

_SPACE = regex(r"[ \t\r\n]*")
_NAME = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
KEY = regex(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
LITERAL_CHARS = 2_000
"""Maximum length of a list or object inside a template, which keeps parsing linear."""

_INDEX = regex(r"-?[0-9]{1,9}(?=[ \t]*\])")
_UNCLOSED = regex(r"-?[0-9]{1,9}(?![0-9A-Za-z_.-])[ \t]*")
"""An index without a closing bracket."""
_NUMBER = regex(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.-])")
_DOUBLE = regex(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SINGLE = regex(r"'([^']*)'")
_STAR = regex(r"\*(?=[ \t]*\])")
_CONTAINER = regex(r"[\[{]")


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant)
_WORDS = {"true": True, "false": False, "null": None}


class Literal(msgspec.Struct, frozen=True):
    value: Any


class Each(msgspec.Struct, frozen=True):
    """`[*]`: applies the rest of the path to every item of a list."""


EACH: Final = Each()
Part = str | int | Each


class Path(msgspec.Struct, frozen=True):
    root: str
    parts: tuple[Part | Expression, ...]
    source: str
    offset: int = 0
    """Offset in the text."""

    @property
    def names(self) -> tuple[Part, ...]:
        """The parts known without values: up to the first template inside brackets."""
        known: list[Part] = []
        for part in self.parts:
            if isinstance(part, Expression):
                break
            known.append(part)
        return tuple(known)


class Expression(msgspec.Struct, frozen=True):
    operands: tuple[Path | Literal, ...]
    offset: int
    """Offset of its `${` in the text."""
    source: str
    """Including `${` and `}`."""


class SyntaxProblem(ValueError):
    """The text is not a valid template. `offset` is the position of its `${`."""

    def __init__(self, message: str, offset: int, source: str) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.source = source


Piece = str | Expression


def parse(text: str) -> tuple[Piece, ...]:
    """Returns the pieces of a text, in order.

    parse("Hi ${name}") == ("Hi ", Expression(…))
    """
    pieces, problems = scan(text)
    if problems:
        raise problems[0]
    return pieces


def scan(text: str) -> tuple[tuple[Piece, ...], tuple[SyntaxProblem, ...]]:
    """Like `parse`, but also returns all errors; a broken template stays in the pieces as text."""
    pieces: list[Piece] = []
    problems: list[SyntaxProblem] = []
    plain: list[str] = []
    done = 0
    while True:
        start = text.find("${", done)
        if start < 0:
            break
        if start > done and text[start - 1] == "$":
            plain.append(text[done : start - 1] + "${")
            done = start + 2
            continue
        plain.append(text[done:start])
        reader = _Reader(text)
        try:
            expression = reader.expression(start, 0)
        except _Broken as broken:
            # Continues after the position of the error, which keeps the parsing linear.
            problems.append(SyntaxProblem(broken.message, start, _shown(text, start)))
            done = max(start + 2, broken.at)
            plain.append(text[start:done])
            continue
        if "".join(plain):
            pieces.append("".join(plain))
        plain = []
        pieces.append(expression)
        done = reader.at
    plain.append(text[done:])
    if "".join(plain):
        pieces.append("".join(plain))
    return tuple(pieces), tuple(problems)


class _Broken(Exception):
    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def expression(self, start: int, depth: int) -> Expression:
        if depth >= DEPTH_LIMIT:
            raise _Broken(f"templates in brackets are nested more than {DEPTH_LIMIT} deep", start)
        self.at = start + 2
        operands = [self._operand(depth)]
        while self._skipped("??"):
            operands.append(self._operand(depth))
        if not self._skipped("}"):
            raise _Broken(self._unexpected("`}`, `??`, `.` or `[`"), self.at)
        return Expression(tuple(operands), start, self.text[start : self.at])

    def _operand(self, depth: int) -> Path | Literal:
        self._space()
        if found := self._match(_DOUBLE):
            try:
                return Literal(json.loads(found[0], strict=False))
            except ValueError:
                raise _Broken(f"{found[0][:40]} is not a JSON string", self.at) from None
        if found := self._match(_SINGLE):
            return Literal(found[1])
        if found := self._match(_NUMBER):
            return Literal(json.loads(found[0]))
        if _CONTAINER.match(self.text, self.at):
            return self._container()
        start = self.at
        found = self._match(_NAME)
        if not found:
            raise _Broken(self._unexpected("a name or a literal"), self.at)
        root = found[0]
        parts: list[Part | Expression] = []
        while True:
            if self._follows("."):
                key = self._match(KEY)
                if not key:
                    raise _Broken(self._unexpected("a key after the dot"), self.at)
                parts.append(key[0])
            elif self._follows("["):
                parts.append(self._index(depth))
            else:
                break
        if not parts and root in _WORDS:
            return Literal(_WORDS[root])
        return Path(root, tuple(parts), self.text[start : self.at], start)

    def _container(self) -> Literal:
        """Parses a list or object in JSON: `[]`, `{"a": 1}`."""
        start = self.at
        try:
            value, length = _JSON.raw_decode(self.text[start : start + LITERAL_CHARS])
        except (ValueError, RecursionError):
            raise _Broken(f"{_shown(self.text, start)} is neither a list nor an object in JSON", start) from None
        self.at = start + length
        return Literal(value)

    def _index(self, depth: int) -> Part | Expression:
        self._space()
        part: Part | Expression
        if found := self._match(_INDEX):
            part = int(found[0])
        elif self._match(_STAR):
            part = EACH
        elif found := self._match(_SINGLE):
            part = found[1]
        elif found := self._match(_DOUBLE):
            try:
                part = str(json.loads(found[0], strict=False))
            except ValueError:
                raise _Broken(f"{found[0][:40]} is not a JSON string", self.at) from None
        elif self.text.startswith("${", self.at):
            part = self.expression(self.at, depth + 1)
        elif found := self._match(_UNCLOSED):
            raise _Broken(self._unexpected("`]`"), self.at)
        else:
            raise _Broken(self._unexpected("a whole number, a quoted key, `*` or a template in the brackets"), self.at)
        if not self._skipped("]"):
            raise _Broken(self._unexpected("`]`"), self.at)
        return part

    def _space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        if found:
            self.at = found.end()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def _follows(self, mark: str) -> bool:
        if self.text.startswith(mark, self.at):
            self.at += len(mark)
            return True
        return False

    def _skipped(self, mark: str) -> bool:
        self._space()
        return self._follows(mark)

    def _unexpected(self, wanted: str) -> str:
        found = self.text[self.at : self.at + 1]
        return f"expected {wanted}, found " + (f"`{found}`" if found else "the end of the text")


def _shown(text: str, start: int) -> str:
    end = text.find("}", start, start + 80)
    line_end = text.find("\n", start, start + 80)
    if end >= 0 and (line_end < 0 or end < line_end):
        return text[start : end + 1]
    return text[start : line_end if line_end >= 0 else start + 40]
