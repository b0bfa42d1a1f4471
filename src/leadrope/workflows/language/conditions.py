"""Evaluates conditions such as `count > 3 and not is_empty(issues)` over named values; runs no code.

`_equal` and `_ordered` define how values of different types compare; nothing here raises a TypeError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from leadrope.workflows.language import templates
from leadrope.workflows.language.condition_syntax import (
    NUMBER,
    NUMBER_CHARS,
    BadExpression,
    CallNode,
    Compared,
    ConditionExpression,
    Joined,
    ListNode,
    LiteralNode,
    NameNode,
    Not,
    Text,
    parse,
)
from leadrope.workflows.language.templates import Reference, is_true

__all__ = ["BadExpression", "ConditionExpression", "evaluate", "holds", "names", "parse"]


def names(expression: ConditionExpression) -> tuple[Reference, ...]:
    """Returns every name that the condition needs, in order. Names in `exists()` may be missing."""
    found: list[Reference] = []
    for node, may_miss in _walk(expression.root, may_miss=False):
        value = f"${{{node.source}}}" if isinstance(node, NameNode) else node.template
        found += [
            msgspec.structs.replace(
                one,
                has_fallback=one.has_fallback or may_miss,
                is_alone=node is expression.root and one.is_alone,
                offset=node.at,
                text=expression.text,
            )
            for one in templates.references(value)
        ]
    return tuple(found)


def evaluate(expression: ConditionExpression, scope: Mapping[str, Any]) -> Any:
    """Returns the condition's value, which `templates.is_true` interprets. BadExpression if it has none."""
    try:
        return _Evaluator(expression.text, scope).value(expression.root)
    except RecursionError:
        raise BadExpression("its values are nested too deep to be compared", text=expression.text, at=0) from None


def holds(text: str, scope: Mapping[str, Any]) -> bool:
    return is_true(evaluate(parse(text), scope))


def _walk(node: Any, *, may_miss: bool) -> Iterator[tuple[NameNode | Text, bool]]:
    match node:
        case NameNode() | Text():
            yield node, may_miss
        case ListNode() | Joined() | CallNode():
            for item in node.items:
                yield from _walk(item, may_miss=may_miss or (isinstance(node, CallNode) and node.name == "exists"))
        case Not():
            yield from _walk(node.item, may_miss=may_miss)
        case Compared():
            yield from _walk(node.left, may_miss=may_miss)
            yield from _walk(node.right, may_miss=may_miss)


class _Evaluator:
    def __init__(self, text: str, scope: Mapping[str, Any]) -> None:
        self._text = text
        self._scope = scope

    def value(self, node: Any) -> Any:
        match node:
            case LiteralNode():
                return node.value
            case NameNode():
                return self._resolved(f"${{{node.source}}}", node.at)
            case Text():
                return templates.as_text(self._resolved(node.template, node.at))
            case ListNode():
                return [self.value(item) for item in node.items]
            case Not():
                return not is_true(self.value(node.item))
            case Joined(is_or=True):
                return any(is_true(self.value(item)) for item in node.items)
            case Joined():
                return all(is_true(self.value(item)) for item in node.items)
            case Compared():
                return self._compare(node)
            case CallNode():
                return self._call(node)
        raise AssertionError(node)

    def _resolved(self, template: str, at: int) -> Any:
        try:
            return templates.resolve(template, self._scope)
        except templates.Unresolved as error:
            raise BadExpression(str(error.missing[0]), text=self._text, at=at) from None

    def _compare(self, node: Compared) -> bool:
        left, right = self.value(node.left), self.value(node.right)
        match node.sign:
            case "==":
                return _equal(left, right)
            case "!=":
                return not _equal(left, right)
            case "in":
                return self._holds(right, left, node.at)
            case "contains":
                return self._holds(left, right, node.at)
        if left is None or right is None:
            return False
        ordered = _ordered(left, right)
        if ordered is None:
            raise BadExpression(
                f"{_kind(left)} and {_kind(right)} have no order for `{node.sign}`", text=self._text, at=node.at
            )
        one, other = ordered
        signs: Mapping[str, bool] = {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}
        return signs[node.sign]

    def _holds(self, container: Any, item: Any, at: int) -> bool:
        if container is None:
            return False
        if isinstance(container, str):
            return templates.as_text(item) in container
        if isinstance(container, Mapping):
            return isinstance(item, str) and item in container
        if isinstance(container, list | tuple):
            return any(_equal(item, one) for one in container)
        raise BadExpression(f"{_kind(container)} holds nothing that could be looked for", text=self._text, at=at)

    def _call(self, node: CallNode) -> Any:
        if node.name == "exists":
            # Resolved with a fallback, so that what a failed step left counts as missing.
            return templates.resolve(f"${{{node.items[0].source} ?? null}}", self._scope) is not None
        value = self.value(node.items[0])
        match node.name:
            case "is_empty":
                return not value.strip() if isinstance(value, str) else value is None or value in ([], {}, ())
            case "len":
                if value is None or isinstance(value, str | list | tuple | Mapping):
                    return 0 if value is None else len(value)
                raise BadExpression(f"{_kind(value)} has no length", text=self._text, at=node.at)
        text = templates.as_text(value)
        return {"lower": text.lower, "upper": text.upper, "trim": text.strip}[node.name]()


def _equal(one: Any, other: Any) -> bool:
    """Compares as JSON does: 1 equals 1.0 but not true. A text is compared with a number or boolean by its meaning.

    Outputs of commands are texts, so `count.stdout == 3` must work as expected.
    """
    if isinstance(one, str) != isinstance(other, str):
        text, value = (one, other) if isinstance(one, str) else (other, one)
        if isinstance(value, bool):
            return bool(text.strip().lower() == ("true" if value else "false"))
        return isinstance(value, int | float) and _as_number(text) == value
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal_inside, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal_inside(one[key], other[key]) for key in one)
    return bool(one == other)


def _equal_inside(one: Any, other: Any) -> bool:
    """Compares values inside of lists and objects, where a text only equals a text."""
    return isinstance(one, str) == isinstance(other, str) and _equal(one, other)


def _ordered(one: Any, other: Any) -> tuple[Any, Any] | None:
    """Returns both as numbers, or both as texts; None if they have no order. A text beside a number must be numeric."""
    if isinstance(one, str) and isinstance(other, str):
        return one, other
    numbers = [_as_number(value) if isinstance(value, str) else value for value in (one, other)]
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        return None
    return numbers[0], numbers[1]


def _as_number(text: str) -> float | None:
    word = text.strip()
    return json.loads(word) if len(word) <= NUMBER_CHARS and NUMBER.fullmatch(word) else None


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        shown = value if len(value) <= 40 else value[:39] + "…"
        return f"the text {json.dumps(shown, ensure_ascii=False)}"
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 10**20 else "a number"
    return "an object" if isinstance(value, Mapping) else "a list"
