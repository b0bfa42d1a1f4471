"""Scalars of the wrong type brought to the type that a schema declares, where nothing is lost by it. Pure.

    coerce(schema, {"count": "3", "done": "True"})  ->  {"count": 3, "done": True}

A value that fits is returned as it is, and what is returned always fits: else there is no result (`UNSET`).
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgspec

from leadrope.core.output.schema import NODES_LIMIT, Schema, has_more_than
from leadrope.regex import regex

DEPTH_LIMIT = 100
"""Levels of an answer that are looked into; one level costs a few frames of Python's stack."""

_DIGITS = 300
"""A longer number is nobody's count, and turning it into one takes time that grows with its square."""
_NUMBER = regex(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class _TooMuch(Exception):
    """The answer is too large or too deep to be looked at value by value."""


def coerce(schema: Schema, value: Any) -> Any:
    """The value if it fits, else the same with scalars converted if that makes it fit, else `msgspec.UNSET`."""
    if schema.is_valid(value):
        return value
    if has_more_than(NODES_LIMIT, value):
        return msgspec.UNSET
    try:
        fitted = _Fitting(schema).fit(schema.flat.root, value, 0)
    except _TooMuch:
        return msgspec.UNSET
    return fitted if schema.is_valid(fitted) else msgspec.UNSET


def scalar(kind: str, value: Any) -> Any:
    """One scalar as the named type, or `UNSET` where that is not possible without loss.

    >>> scalar("integer", "9007199254740993")
    9007199254740993
    """
    if kind == "string":
        return _text(value)
    if not isinstance(value, str):
        return msgspec.UNSET
    word = value.strip()
    if kind == "boolean":
        return {"true": True, "false": False}.get(word.lower(), msgspec.UNSET)
    if kind in ("integer", "number") and len(word) <= _DIGITS and _NUMBER.fullmatch(word):
        return _number(kind, word)
    return msgspec.UNSET


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # Python refuses to write a number of thousands of digits.
        return str(value) if value.bit_length() < _DIGITS * 4 else msgspec.UNSET
    return repr(value) if isinstance(value, float) and math.isfinite(value) else msgspec.UNSET


def _number(kind: str, word: str) -> Any:
    exact = Decimal(word)
    if word.lstrip("-").isdigit():
        return int(word)
    if kind == "integer":
        # `3.0` and `1e3` are whole; a large exponent would write a number of that many digits.
        is_whole = exact.adjusted() <= _DIGITS and exact == exact.to_integral_value()
        return int(exact) if is_whole else msgspec.UNSET
    found = float(word)
    # The shortest text of the float must mean the same number: else digits would be lost, or all of it (1e400).
    return found if math.isfinite(found) and Decimal(repr(found)) == exact else msgspec.UNSET


class _Fitting:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._seen = 0

    def fit(self, node: Any, value: Any, depth: int) -> Any:
        """The value as one schema would have it, as far as conversion goes; whether it fits is judged afterwards."""
        self._seen += 1
        if depth > DEPTH_LIMIT or self._seen > 2 * NODES_LIMIT:
            raise _TooMuch
        if not isinstance(node, dict):
            return value
        if "$ref" in node:
            # A reference to a reference to itself would go round for ever at the same value.
            value = self.fit(self._schema.flat.defs[node["$ref"].removeprefix("#/$defs/")], value, depth + 1)
        for part in node.get("allOf", ()):
            value = self.fit(part, value, depth + 1)
        if isinstance(value, dict):
            value = self._object(node, value, depth)
        elif isinstance(value, list):
            value = self._array(node, value, depth)
        else:
            value = self._scalar(node, value)
        for key in ("anyOf", "oneOf"):
            if key in node:
                value = self._one_of(key, node[key], value, depth)
        if "if" in node:
            holds = self._schema.part_is_valid(node["if"], value)
            value = self.fit(node.get("then" if holds else "else", True), value, depth + 1)
        return value

    def _scalar(self, node: dict[str, Any], value: Any) -> Any:
        declared = node.get("type")
        kinds = [declared] if isinstance(declared, str) else declared
        if not kinds or value is None:
            return value
        if any(_is_of(kind, value) for kind in kinds) and (len(kinds) == 1 or self._schema.part_is_valid(node, value)):
            return value
        for kind in kinds:
            found = scalar(kind, value)
            if found is not msgspec.UNSET and (len(kinds) == 1 or self._schema.part_is_valid(node, found)):
                return found
        return value

    def _one_of(self, key: str, branches: list[Any], value: Any, depth: int) -> Any:
        if any(self._schema.part_is_valid(branch, value) for branch in branches):
            return value
        for branch in branches:
            found = self.fit(branch, value, depth + 1)
            if self._schema.part_is_valid(branch, found):
                others = [other for other in branches if other is not branch]
                if key == "anyOf" or not any(self._schema.part_is_valid(other, found) for other in others):
                    return found
        return value

    def _object(self, node: dict[str, Any], value: dict[str, Any], depth: int) -> dict[str, Any]:
        named, patterns = node.get("properties", {}), node.get("patternProperties", {})
        rest = node.get("additionalProperties", node.get("unevaluatedProperties", True))
        if named or patterns or isinstance(rest, dict):
            fitted = {}
            for name, inner in value.items():
                parts = [named[name]] if name in named else []
                parts += [part for pattern, part in patterns.items() if self._schema.matches(pattern, name)]
                for part in parts or [rest]:
                    inner = self.fit(part, inner, depth + 1)  # noqa: PLW2901  # each schema gets what the last one made of it
                fitted[name] = inner
            value = fitted
        for key in ("dependentSchemas", "dependencies"):
            for name, part in node.get(key, {}).items():
                if name in value and isinstance(part, dict):
                    value = self.fit(part, value, depth + 1)
        return value

    def _array(self, node: dict[str, Any], value: list[Any], depth: int) -> list[Any]:
        items = node.get("items", node.get("unevaluatedItems", True))
        first = items if isinstance(items, list) else node.get("prefixItems", [])
        rest = node.get("additionalItems", True) if isinstance(items, list) else items
        if not first and not isinstance(rest, dict):
            return value
        return [
            self.fit(first[number] if number < len(first) else rest, inner, depth + 1)
            for number, inner in enumerate(value)
        ]


def _is_of(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    return kind == "string" and isinstance(value, str)
