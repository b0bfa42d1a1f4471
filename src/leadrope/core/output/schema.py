"""A JSON Schema that an answer must fit: checked before its use, closed to the outside. Knows no agent and no run."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from leadrope import errors

DEPTH_LIMIT = 200
"""Levels of a schema. Deeper ones are made by machines gone wrong, and a walk over them ends in a RecursionError."""

NODES_LIMIT = 50_000
"""Values in an answer that are looked at one by one, which takes up to 0.2 s and holds the event loop meanwhile.
Whether an answer fits is told for larger ones too: that takes a few ms for a megabyte."""
LISTED_NODES = 5_000
"""Up to here all mistakes of an answer are looked for; of a larger one only the first is told. The library lists them
all before it gives the first, which took 1.5 s for 100,000 values."""

ERRORS_LIMIT = 20
_ERROR_CHARS = 300

_FIELD = "output_schema"
_SAYS_NOTHING = frozenset(
    (
        *("$schema", "$id", "id", "$anchor", "$comment", "$defs", "definitions", "title", "description"),
        *("default", "examples", "deprecated", "readOnly", "writeOnly", "$vocabulary"),
    )
)

_KEYWORDS = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if"),
        *("then", "else", "properties", "patternProperties", "additionalProperties", "propertyNames", "required"),
        *("minProperties", "maxProperties", "dependencies", "dependentRequired", "dependentSchemas", "extends"),
        *("unevaluatedProperties", "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
        *("minContains", "maxContains", "minItems", "maxItems", "uniqueItems", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "divisibleBy", "minLength", "maxLength", "pattern"),
        *("format", "contentEncoding", "contentMediaType", "contentSchema", "disallow", "nullable", "$dynamicAnchor"),
    )
)
"""Of all drafts. A schema without any of them constrains nothing; the library takes other keys for remarks."""

_OTHER_TYPES = {
    **{name: name for name in ("string", "integer", "number", "boolean", "object", "array", "null")},
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
}

# Up to draft 7 whatever stands beside a $ref counts for nothing.
_IGNORE_BESIDE_REF = ("draft-04/schema", "draft-06/schema", "draft-07/schema")


class Schema:
    """What `read` gives: a judge of values.

    schema = read({"type": "array", "items": {"type": "integer"}})
    schema.is_valid([1, 2])
    """

    def __init__(self, document: dict[str, Any]) -> None:
        import jsonschema_rs  # noqa: PLC0415  # costs 85 ms, and most runs have no schema

        self.document = document
        denied: list[str] = []

        def deny(uri: str) -> Any:
            denied.append(uri)
            raise errors.BadValue(_FIELD, f"{uri} is not fetched")

        self._rs = jsonschema_rs
        try:
            self._judge = jsonschema_rs.validator_for(document, retriever=deny, validate_formats=True)
        except ValueError as error:
            raise _refusal(error, denied, document.get("$schema")) from None
        is_old = document.get("$schema", "").rstrip("#").endswith(_IGNORE_BESIDE_REF)
        from leadrope.core.output import schema_flat  # noqa: PLC0415  # most runs have no schema

        self.flat = schema_flat.flatten(document, jsonschema_rs, deny, ignores_beside_ref=is_old)
        self._parts: dict[int, Any] = {}
        self._patterns: dict[str, Any] = {}

    def is_valid(self, value: Any) -> bool:
        return _holds(self._judge, value)

    def part_is_valid(self, node: Any, value: Any) -> bool:
        """The same for one of the schemas inside `flat`."""
        if isinstance(node, bool):
            return node
        judge = self._parts.get(id(node))
        if judge is None:
            whole = {"allOf": [node], "$defs": self.flat.defs}
            if "$schema" in self.document:
                whole["$schema"] = self.document["$schema"]
            judge = self._rs.validator_for(whole, validate_formats=True, offline=True)
            self._parts[id(node)] = judge
        return _holds(judge, value)

    def matches(self, pattern: str, name: str) -> bool:
        """Whether a property's name fits a pattern of `patternProperties`.

        By the judge's own engine. Python's takes `([a-z]+)*$` for years at a name of forty letters and a `!`, which an
        agent is free to write.
        """
        judge = self._patterns.get(pattern)
        if judge is None:
            judge = self._patterns[pattern] = self._rs.validator_for({"pattern": pattern}, offline=True)
        return _holds(judge, name)

    def errors(self, value: Any) -> tuple[str, ...]:
        """What is wrong with a value, each with its place; only the first thing if the value is huge."""
        if has_more_than(LISTED_NODES, value):
            try:
                self._judge.validate(value)
            except self._rs.ValidationError as error:
                return (_told(error),)
            except ValueError as error:
                return (str(error)[:_ERROR_CHARS],)
            return ()
        try:
            return tuple(_told(error) for error in itertools.islice(self._judge.iter_errors(value), ERRORS_LIMIT))
        except ValueError as error:
            return (str(error)[:_ERROR_CHARS],)


def read(document: Any) -> Schema:
    """The schema, or what is wrong with it as `errors.BadValue`. Starts nothing and fetches nothing."""
    if not isinstance(document, dict):
        raise errors.BadValue(
            _FIELD,
            f"a schema is a JSON object, and this is {msgspec.json.encode(document)[:40].decode()}",
            hint='For instance {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}.',
        )
    try:
        return _read(msgspec.json.encode(document))
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError, RecursionError) as error:
        raise errors.BadValue(_FIELD, f"cannot be written as JSON: {error}") from None


@functools.lru_cache(maxsize=16)
def _read(encoded: bytes) -> Schema:
    # Decoded again: what the caller does with his own copy later must not change the judge.
    document = msgspec.json.decode(encoded)
    unknown = [key for key in document if key not in _SAYS_NOTHING and key not in _KEYWORDS]
    if unknown and (_SAYS_NOTHING | set(unknown)).issuperset(document):
        raise errors.BadValue(_FIELD, _no_keyword(unknown), hint=_as_properties(document, unknown))
    if _SAYS_NOTHING.issuperset(document):
        raise errors.BadValue(
            _FIELD,
            "is empty: every answer would fit" if not document else "says nothing about the answer: everything fits",
            hint='Say what is wanted, for instance {"type": "object", "properties": {…}, "required": […]}.',
        )
    if _depth(document) > DEPTH_LIMIT:
        raise errors.BadValue(_FIELD, f"is nested more than {DEPTH_LIMIT} levels deep", hint="Use $defs and $ref.")
    return Schema(document)


def _no_keyword(unknown: list[str]) -> str:
    names = ", ".join(repr(key) for key in unknown[:5]) + (" …" if len(unknown) > 5 else "")
    return f"has no keyword of JSON Schema, only {names}: every answer would fit"


def _as_properties(document: dict[str, Any], unknown: list[str]) -> str:
    """The schema that `{field: {type: str}}` stands for in other programs."""
    properties = {}
    for key in unknown:
        given = document[key]
        name = given.get("type") if isinstance(given, dict) else given
        wanted = _OTHER_TYPES.get(str(name), name)
        properties[key] = {"type": wanted} if wanted in _OTHER_TYPES.values() else {}
    meant = {"type": "object", "properties": properties, "required": unknown}
    return f"Put the fields below `properties`: {msgspec.json.encode(meant).decode()[:_ERROR_CHARS]}"


def has_more_than(limit: int, value: Any) -> bool:
    """Whether a value holds more values than that, itself counted."""
    return next(itertools.islice(_values(value), limit, None), _END) is not _END


_END = object()


def _values(value: Any) -> Iterator[Any]:
    todo = [value]
    while todo:
        one = todo.pop()
        yield one
        if isinstance(one, dict):
            todo.extend(one.values())
        elif isinstance(one, list | tuple):
            todo.extend(one)


def _depth(document: Any) -> int:
    level, deepest = [document], 0
    while level and deepest <= DEPTH_LIMIT:
        deepest += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return deepest


def _holds(judge: Any, value: Any) -> bool:
    try:
        return bool(judge.is_valid(value))
    except ValueError:
        # Half of a surrogate pair, or a key that is not text: no JSON can hold it.
        return False


def _told(error: Any) -> str:
    place = "".join(f"/{part}" for part in error.instance_path)
    message = str(error.message)
    branches = getattr(error.kind, "context", None) if error.kind.name in ("anyOf", "oneOf") else None
    if branches:
        inner = [_short(branch[0]) for branch in branches[:3] if branch]
        message = f"fits none of the allowed forms ({'; '.join(inner)})" if inner else message
    return f"{place or '(root)'}: {message}"[:_ERROR_CHARS]


def _short(error: Any) -> str:
    place = "".join(f"/{part}" for part in error.instance_path)
    return f"{place + ': ' if place else ''}{error.message}"[:120]


def _refusal(error: ValueError, denied: list[str], draft: Any) -> errors.BadValue:
    message = str(getattr(error, "message", error)).strip().splitlines()[0][:_ERROR_CHARS]
    if "meta-schema" in message or draft in denied:
        return errors.BadValue(
            _FIELD,
            f"its $schema {draft} is not known",
            hint="Known are the drafts 4, 6, 7, 2019-09 and 2020-12; leave $schema out for the last one.",
        )
    if denied or "No base URI" in message:
        target = denied[0] if denied else message.partition("'")[2].partition("'")[0]
        return errors.BadValue(
            _FIELD,
            f"refers to {target}, which is not part of it",
            hint="Put that schema under $defs and refer to it with #/$defs/NAME: nothing is fetched.",
        )
    place = "".join(f"/{part}" for part in getattr(error, "instance_path", ()))
    return errors.BadValue(
        _FIELD, f"is not a valid JSON Schema: {place + ': ' if place else ''}{message}", hint="Correct the schema."
    )
