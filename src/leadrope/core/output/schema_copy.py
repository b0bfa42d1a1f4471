"""The copy of a schema that an agent is given: an object at its root, and only words that every reader understands.

Model APIs read schemas by draft 2020-12 and want `"type": "object"` at the root; agents check answers with readers of
draft 7 that refuse a keyword they do not know. The copy keeps what both read alike. It never refuses an answer that
the schema itself would take: the judge is elsewhere, and it has the whole schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from leadrope.core.output.schema import Schema
from leadrope.core.output.schema_flat import DYNAMIC
from leadrope.regex import regex

WRAPPED_IN = "value"
"""The property that holds the answer where the schema's root is not a plain object."""

_TOLD_CHARS = 8000
"""A schema longer than this is not told in words: the corrective turn still shows it."""

_COMBINE = ("anyOf", "oneOf", "allOf", "enum", "const", "$ref", "not", "if")
_NOTES = frozenset(("title", "description", "default", "examples", "format"))
_PLAIN = frozenset(
    (
        *("type", "enum", "const", "required", "minItems", "uniqueItems", "minLength", "maxLength"),
        *("multipleOf", "minProperties", "maxProperties"),
    )
)
# They assert something that readers of draft 7 do not know. Any other word is a note, and to drop it changes nothing.
_MISSED = frozenset(
    ("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties")
)
_QUANTIFIER = regex(r"\{\d+(?:,\d*)?\}")
_ESCAPED = frozenset("dDwWsSbBtnrfv0^$\\.*+?()[]{}|/")


class SchemaCopy(msgspec.Struct, frozen=True, kw_only=True):
    document: dict[str, Any]
    is_wrapped: bool

    def unwrap(self, value: Any) -> Any:
        """What the agent handed over, in the caller's shape."""
        if self.is_wrapped and isinstance(value, dict) and list(value) == [WRAPPED_IN]:
            return value[WRAPPED_IN]
        return value


def copy_of(schema: Schema) -> SchemaCopy:
    copying = _Copying(schema, is_lossy=False)
    copy = copying.copy()
    # What was left out below `not`, `if` or `oneOf` would turn their verdicts around.
    return _Copying(schema, is_lossy=True).copy() if copying.left_out else copy


class _Copying:
    def __init__(self, schema: Schema, *, is_lossy: bool) -> None:
        self._schema = schema
        self._is_lossy = is_lossy
        self.left_out = not schema.flat.is_exact
        self._ways: dict[str, Callable[[str, dict[str, Any], Any, dict[str, Any]], None]] = {
            "$ref": self._ref,
            "minimum": self._bound,
            "maximum": self._bound,
            "exclusiveMinimum": self._exclusive,
            "exclusiveMaximum": self._exclusive,
            "pattern": self._pattern,
            "properties": self._properties,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional,
            "propertyNames": self._names,
            "items": self._items,
            "prefixItems": self._prefix,
            "maxItems": self._max_items,
            "contains": self._contains,
            "anyOf": self._several,
            "oneOf": self._several,
            "allOf": self._several,
            "not": self._turning,
            "if": self._turning,
            "then": self._turning,
            "else": self._turning,
        }

    def copy(self) -> SchemaCopy:
        flat = self._schema.flat
        root = self._node(flat.root)
        defs = {name: self._node(node) for name, node in flat.defs.items()}
        is_wrapped = not isinstance(root, dict) or root.get("type") != "object" or any(key in root for key in _COMBINE)
        if is_wrapped:
            root = {
                "type": "object",
                "properties": {WRAPPED_IN: root},
                "required": [WRAPPED_IN],
                "additionalProperties": False,
            }
        if self._is_lossy:
            whole = msgspec.json.encode(self._schema.document).decode()
            if len(whole) <= _TOLD_CHARS:
                where = f" `{WRAPPED_IN}`" if is_wrapped else ""
                told = f"The answer{where} must fit this JSON Schema: {whole}"
                root = {**root, "description": "\n".join(filter(None, (root.get("description"), told)))}
        return SchemaCopy(document={**root, "$defs": defs} if defs else root, is_wrapped=is_wrapped)

    def _node(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node if isinstance(node, bool) else True
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key in _PLAIN or key in _NOTES:
                out[key] = value
            elif key in self._ways:
                self._ways[key](key, node, value, out)
            elif key in _MISSED:
                self.left_out = True
        return out

    # -- keywords with a way of their own ---------------------------------------------------------------------------

    def _ref(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        if DYNAMIC not in node:
            out[key] = value

    def _bound(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        # Draft 4 says with a boolean that the bound itself is out.
        if node.get("exclusive" + key.capitalize()) is not True:
            out[key] = value

    def _exclusive(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        bound = node.get(key.removeprefix("exclusive").lower())
        if not isinstance(value, bool):
            out[key] = value
        elif value and bound is not None:
            out[key] = bound

    def _pattern(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        if is_portable(value):
            out["pattern"] = value
        else:
            self.left_out = True

    def _properties(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        out["properties"] = {name: self._node(one) for name, one in value.items()}

    def _pattern_properties(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        kept = {name: self._node(one) for name, one in value.items() if is_portable(name)}
        if len(kept) == len(value):
            out["patternProperties"] = kept
        else:
            self.left_out = True

    def _additional(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        # It speaks of what the patterns have not matched: without them it would speak of too much.
        if all(is_portable(name) for name in node.get("patternProperties", ())):
            out["additionalProperties"] = self._node(value)
        else:
            self.left_out = True

    def _names(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        out["propertyNames"] = self._node(value)

    def _items(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        first = value if isinstance(value, list) else node.get("prefixItems")
        rest = node.get("additionalItems", True) if isinstance(value, list) else value
        if first is None:
            out["items"] = self._node(value)
        else:
            self._tuple(first, rest, out)

    def _prefix(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        if "items" not in node:
            self._tuple(value, True, out)

    def _tuple(self, first: list[Any], rest: Any, out: dict[str, Any]) -> None:
        """The drafts disagree on how to write it; that each member is one of the forms is read alike."""
        self.left_out = True
        if rest is False:
            out["maxItems"] = min(out.get("maxItems", len(first)), len(first))
        elif rest is True:
            return
        forms = [*first, *(() if rest is False else (rest,))]
        out["items"] = {"anyOf": [self._node(one) for one in forms]} if forms else True

    def _max_items(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        out["maxItems"] = min(value, out.get("maxItems", value))

    def _contains(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        if node.get("minContains", 1) == 0:
            self.left_out = True
            return
        out["contains"] = self._node(value)
        if "minContains" in node or "maxContains" in node:
            self.left_out = True

    def _several(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        parts = [self._node(one) for one in value]
        if key == "oneOf" and self._is_lossy:
            key = "anyOf"
            if key in node:
                out.setdefault("allOf", []).append({"anyOf": parts})
                return
        out[key] = [*out.get(key, ()), *parts] if key == "allOf" else parts

    def _turning(self, key: str, node: dict[str, Any], value: Any, out: dict[str, Any]) -> None:
        if self._is_lossy:
            return
        if key == "not" or ("if" in node and ("then" in node or "else" in node)):
            out[key] = self._node(value)


def is_portable(pattern: str) -> bool:
    """Whether every engine of regular expressions reads it alike; JavaScript's is the strictest."""
    at, in_class = 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            if pattern[at + 1 : at + 2] not in _ESCAPED and not (in_class and pattern[at + 1 : at + 2] == "-"):
                return False
            at += 2
            continue
        if in_class:
            if sign == "[" or pattern.startswith(("&&", "--", "~~"), at):
                return False
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
            at += pattern.startswith("^", at + 1)
            if pattern.startswith("]", at + 1):
                return False
        elif sign in "{}]":
            found = _QUANTIFIER.match(pattern, at)
            if found is None:
                return False
            at = found.end()
            if pattern.startswith("+", at):
                return False
            continue
        elif sign == "(" and pattern.startswith("?", at + 1) and pattern[at + 2 : at + 3] not in (":", "=", "!"):
            return False  # a named group, a flag, a look behind: each engine has its own
        if sign in "*+?" and not in_class and pattern.startswith("+", at + 1):
            return False
        at += 1
    return not in_class
