"""The grammar of conditions: parses text into a tree, in linear time.

condition  = all { or all }
all        = one { and one }
one        = { not } operand [ == != < <= > >= | in | not in | contains | not contains  operand ]
operand    = "text" | 'text' | number | true | false | null | [ conditions ] | function( condition ) | ( condition )
           | name { .key | [index] } | ${ template }

A name means the same as in a template, and so does `${name}`. A quoted text may contain templates.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from leadrope import errors
from leadrope.regex import regex
from leadrope.workflows.language import template_syntax
from leadrope.workflows.problems import nearest

T = TypeVar("T")

CHARS_LIMIT = 10_000
"""Far longer than any real condition; a longer text is a value in the wrong place."""
DEPTH_LIMIT = 40
"""Maximum nesting of brackets. Each is six levels of recursion here, and Python's limit is a thousand."""

_SPACE = regex(r"[ \t\r\n]*")
_STRING = regex(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL)
NUMBER = regex(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])")
_NAME = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
_PATH = regex(
    r"[A-Za-z_][A-Za-z0-9_-]*"
    r"(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*|\[[ \t]*(?:-?[0-9]{1,9}|\*|\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\{[^{}]*\})[ \t]*\])*",
    re.DOTALL,
)
_SIGN = regex(r"==|!=|<=|>=|<|>")
_SHOWN = regex(r"[A-Za-z0-9_]+|&&|\|\||[^\s]")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_RESERVED = ("and", "or", "not", "in", "contains")
_FUNCTIONS = ("exists", "is_empty", "len", "lower", "trim", "upper")
_INSTEAD = {"=": "==", "===": "==", "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "<>": "!="}
NUMBER_CHARS = 300
"""No real count is longer, and parsing a number takes quadratic time."""


class BadExpression(errors.RequestError):
    """A condition that cannot be parsed or has no value. `column` counts from 1."""

    kind = "bad_expression"

    def __init__(self, message: str, *, text: str, at: int, suggestion: str | None = None) -> None:
        self.column = at + 1
        self.suggestion = suggestion
        told = f"column {self.column}: {message}" + (f"; did you mean {suggestion}?" if suggestion else "")
        shown = text if len(text) <= 200 else text[:199] + "…"
        super().__init__(told, hint=f"The condition is: {shown}")


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    """Offset in the text."""


class LiteralNode(_Node, frozen=True, kw_only=True):
    value: Any


class NameNode(_Node, frozen=True, kw_only=True):
    source: str
    """As in a template between `${` and `}`."""


class Text(_Node, frozen=True, kw_only=True):
    """A quoted text with templates in it."""

    template: str


class ListNode(_Node, frozen=True, kw_only=True):
    items: tuple[Any, ...]


class Not(_Node, frozen=True, kw_only=True):
    item: Any


class Joined(_Node, frozen=True, kw_only=True):
    is_or: bool
    items: tuple[Any, ...]


class Compared(_Node, frozen=True, kw_only=True):
    sign: str
    left: Any
    right: Any


class CallNode(_Node, frozen=True, kw_only=True):
    name: str
    items: tuple[Any, ...]


Node = LiteralNode | NameNode | Text | ListNode | Not | Joined | Compared | CallNode


class ConditionExpression(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    root: Any
    """A Node."""


@functools.lru_cache(maxsize=256)
def parse(text: str) -> ConditionExpression:
    """Parses a condition into a tree; BadExpression has the column of the error.

    evaluate(parse("count > 3 and not is_empty(review.issues)"), scope)
    """
    if len(text) > CHARS_LIMIT:
        raise BadExpression(
            f"the condition has {len(text)} characters, and at most {CHARS_LIMIT} are read", text=text, at=0
        )
    return ConditionExpression(text=text, root=_Parser(text).whole())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._templates: dict[int, template_syntax.Expression] | None = None
        """By offset; read once, so that many of them cost no more than one."""

    def whole(self) -> Node:
        self._space()
        if self._at == len(self._text):
            self._fail("the condition is empty")
        root = self._either()
        if self._at < len(self._text):
            self._unexpected("`and`, `or`, a comparison or the end")
        return root

    # -- the grammar, in order of increasing precedence ----------------------------------------------------------------

    def _either(self) -> Node:
        return self._joined("or", lambda: self._joined("and", self._one))

    def _joined(self, word: str, part: Callable[[], Node]) -> Node:
        at = self._at
        items = [part()]
        while self._word(word):
            items.append(part())
        return items[0] if len(items) == 1 else Joined(at=at, is_or=word == "or", items=tuple(items))

    def _one(self) -> Node:
        self._space()
        at, count = self._at, 0
        while self._word("not"):
            count += 1
        item = self._compared()
        # `not not x` is a boolean and no longer x; further pairs change nothing.
        for _ in range(count if count < 2 else 2 - count % 2):
            item = Not(at=at, item=item)
        return item

    def _compared(self) -> Node:
        left = self._operand()
        at = self._at
        sign = self._sign()
        if sign is None:
            return left
        right = self._operand()
        behind = self._at
        if self._sign() is not None:
            self._at = behind
            self._fail("a comparison stands between two values; join a further one with `and`")
        is_negated, sign = sign.startswith("not "), sign.removeprefix("not ")
        found = Compared(at=at, sign=sign, left=left, right=right)
        return Not(at=at, item=found) if is_negated else found

    def _sign(self) -> str | None:
        self._space()
        if found := _SIGN.match(self._text, self._at):
            # `=>`, `===` and `<>` are not operators here; the error is reported at their position.
            if self._text[self._at : self._at + 3] == "===" or self._text[self._at : self._at + 2] == "<>":
                self._unexpected("a comparison")
            self._move(found.end())
            return found[0]
        for word in ("in", "contains"):
            if self._word(word):
                return word
        before = self._at
        if self._word("not"):
            for word in ("in", "contains"):
                if self._word(word):
                    return f"not {word}"
            self._at = before
        return None

    def _operand(self) -> Node:
        self._space()
        at, text = self._at, self._text
        if text.startswith("${", at):
            return self._template(at)
        if found := _STRING.match(text, at):
            self._move(found.end())
            return self._string(found[0], at)
        if found := NUMBER.match(text, at):
            self._move(found.end())
            return LiteralNode(at=at, value=self._number(found[0], at))
        if text.startswith("(", at):
            return self._deeper(self._bracketed)
        if text.startswith("[", at):
            self._move(at + 1)
            return ListNode(at=at, items=self._deeper(lambda: self._items("]")))
        if (found := _NAME.match(text, at)) and found[0] not in _RESERVED:
            if found[0] in _WORDS and text[found.end() : found.end() + 1] not in ("(", ".", "["):
                self._move(found.end())
                return LiteralNode(at=at, value=_WORDS[found[0]])
            if text.startswith("(", found.end()):
                return self._call(found[0], at, found.end())
            return self._path(at)
        return self._unexpected("a value")

    def _bracketed(self) -> Node:
        opened = self._at
        self._move(opened + 1)
        found = self._either()
        if not self._text.startswith(")", self._at):
            self._unexpected(f"`)` for the `(` of column {opened + 1}")
        self._move(self._at + 1)
        return found

    def _items(self, closing: str) -> tuple[Node, ...]:
        items: list[Node] = []
        self._space()
        while not self._text.startswith(closing, self._at):
            if items:
                if not self._text.startswith(",", self._at):
                    self._unexpected(f"`,` or `{closing}`")
                self._move(self._at + 1)
            items.append(self._either())
        self._move(self._at + 1)
        return tuple(items)

    def _call(self, name: str, at: int, end: int) -> Node:
        if name not in _FUNCTIONS:
            self._fail(f"there is no function {name}() (there are: {', '.join(_FUNCTIONS)})", nearest(name, _FUNCTIONS))
        self._move(end + 1)
        items = self._deeper(lambda: self._items(")"))
        if len(items) != 1:
            self._at = at
            self._fail(f"{name}() takes one value, and {len(items)} are given")
        if name == "exists" and not isinstance(items[0], NameNode):
            self._at = items[0].at
            self._fail("exists() takes a name, as in exists(review.result)")
        return CallNode(at=at, name=name, items=items)

    def _path(self, at: int) -> Node:
        found = _PATH.match(self._text, at)
        source = found[0] if found else ""
        end = at + len(source)
        if self._text[end : end + 1] in (".", "["):
            self._at = end
            self._fail(f"{source} has no key after it: expected a name after the dot, or an index in brackets")
        self._move(end)
        return NameNode(at=at, source=source)

    def _template(self, at: int) -> Node:
        if self._templates is None:
            self._templates = {
                one.offset: one
                for one in template_syntax.scan(self._text)[0]
                if isinstance(one, template_syntax.Expression)
            }
        found = self._templates.get(at)
        if found is None:
            # After an error, or a `$`, the scan of the whole text may have split it differently.
            pieces, problems = template_syntax.scan(self._text[at:])
            if problems and problems[0].offset == 0:
                self._fail(problems[0].message)
            first = pieces[0]
            if not isinstance(first, template_syntax.Expression):
                self._fail("this is not a template")
            found = first
        self._move(at + len(found.source))
        return NameNode(at=at, source=found.source[2:-1])

    def _string(self, quoted: str, at: int) -> Node:
        if quoted.startswith("'"):
            value = quoted[1:-1]
        else:
            try:
                value = str(json.loads(quoted, strict=False))
            except ValueError:
                self._at = at
                self._fail(f"{quoted[:40]} is not a JSON string: a backslash is written twice")
        if "${" not in value:
            return LiteralNode(at=at, value=value)
        problems = template_syntax.scan(value)[1]
        if problems:
            self._at = at
            self._fail(f"{problems[0].source}: {problems[0].message}")
        return Text(at=at, template=value)

    def _number(self, word: str, at: int) -> float:
        if len(word) > NUMBER_CHARS:
            self._at = at
            self._fail("this number is too long")
        found: int | float = json.loads(word)
        if isinstance(found, float) and not math.isfinite(found):
            self._at = at
            self._fail(f"{word} is too large for a number")
        return found

    # -- words and positions -------------------------------------------------------------------------------------------

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _move(self, to: int) -> None:
        self._at = to
        self._space()

    def _word(self, word: str) -> bool:
        self._space()
        found = _NAME.match(self._text, self._at)
        if found is None or found[0] != word:
            return False
        self._move(found.end())
        return True

    def _deeper(self, part: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            self._fail(f"brackets are nested more than {DEPTH_LIMIT} deep")
        found = part()
        self._depth -= 1
        return found

    def _unexpected(self, wanted: str) -> NoReturn:
        self._space()
        found = _SHOWN.match(self._text, self._at)
        if found is None:
            self._fail(f"expected {wanted}, found the end of the condition")
        for length in (3, 2, 1):
            if (sign := self._text[self._at : self._at + length]) in _INSTEAD:
                self._fail(f"expected {wanted}, found `{sign}`", f"`{_INSTEAD[sign]}`")
        near = next((word for word in _RESERVED if word == found[0].lower()), None)
        if found[0] in ("'", '"'):
            self._fail(f"expected {wanted}, found a text whose quote is never closed")
        self._fail(f"expected {wanted}, found `{found[0][:40]}`", f"`{near}`" if near and near != found[0] else None)

    def _fail(self, message: str, suggestion: str | None = None) -> NoReturn:
        raise BadExpression(message, text=self._text, at=self._at, suggestion=suggestion)
