"""Whether a value that contains templates can match a JSON Schema: unknown values match. Needs no library.

Supports what the schemas of step types use: type, enum, const, bounds, items, properties, anyOf, oneOf and local $ref.
Other keywords are ignored.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from leadrope.workflows.language import templates
from leadrope.workflows.language.template_syntax import Each, Part
from leadrope.workflows.problems import nearest

_DEPTH = 60
_CLOSED = frozenset(("integer", "number", "boolean", "null"))
"""Values of these types contain nothing; a text may be JSON."""
NAME_HINT = "A name starts with a letter or _, followed by letters, digits, _ and -."
_FORMS = {"^[A-Za-z_][A-Za-z0-9_-]*$": ("name", NAME_HINT)}
"""Descriptions of the patterns that texts must match."""
QUOTES_HINT = 'In quotes it is a text: "{}".'
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}
_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_MORE_WORDS = {"array": "a list", "object": "a map", "null": "null"}


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    path: tuple[str, ...] = ()
    found: str | None = None
    available: tuple[str, ...] = ()
    suggestion: str | None = None
    is_unknown: bool = False
    """The key itself is wrong."""
    hint: str | None = None


class DeadEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A path that leads nowhere in the values of a schema."""

    message: str
    part: str
    available: tuple[str, ...] = ()
    suggestion: str | None = None
    """The whole path that was probably meant."""
    is_certain: bool = True
    """False: the schema allows values to contain more than it names."""


def misfits(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> tuple[Misfit, ...]:
    """Returns everything that is wrong with the value; `root` has the `$defs`."""
    return tuple(_misfits(value, schema, root or schema, (), 0))


def types_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> frozenset[str]:
    """Returns the JSON types that a schema allows; empty if it allows any."""
    schema = _followed(schema, root)
    if "type" in schema:
        said = schema["type"]
        return frozenset([said] if isinstance(said, str) else said)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            each = [types_of(one, root) for one in schema[key]]
            return frozenset().union(*each) if all(each) else frozenset()
    return frozenset(type_of(one) for one in schema.get("enum", ()))


def dead_end(schema: Mapping[str, Any], parts: tuple[Part, ...], way: str) -> DeadEnd | None:
    """Returns where a path into the values of a schema leads nowhere; None if it may exist.

    `way` is the name of the value itself: `a.exit_code`.
    """
    at: Any = schema
    for part in parts:
        if not isinstance(at, Mapping):
            return None
        at = _followed(at, schema)
        kinds = types_of(at, schema)
        if kinds and kinds <= _CLOSED:
            written = "[*]" if isinstance(part, Each) else str(part)
            return DeadEnd(message=f"{way} is {spoken(kinds)}, and has nothing inside", part=written)
        if isinstance(part, Each):
            if kinds == {"object"}:
                return DeadEnd(message=f"{way} is a map, and `[*]` takes every item of a list", part="[*]")
            at = at.get("items")
            way += "[*]"
            continue
        is_index = isinstance(part, int) or (part.isascii() and part.isdecimal())
        if kinds == {"array"} and not is_index:
            hint = f"{way}[*].{part}"
            return DeadEnd(message=f"{way} is a list, and {part!r} is not an index", part=str(part), suggestion=hint)
        known = at.get("properties")
        if isinstance(known, Mapping) and not (is_index and "array" in kinds):
            if str(part) not in known:
                near = nearest(str(part), known)
                return DeadEnd(
                    message=f"{way} has no {str(part)!r}",
                    part=str(part),
                    available=tuple(known),
                    suggestion=f"{way}.{near}" if near else None,
                    is_certain=at.get("additionalProperties") is False,
                )
            at = known[str(part)]
        else:
            at = at.get("items" if is_index else "additionalProperties")
        way += f"[{part}]" if isinstance(part, int) else f".{part}"
    return None


def types_at(schema: Mapping[str, Any], path: tuple[str, ...], root: Mapping[str, Any]) -> frozenset[str]:
    """Returns the types of a nested value; empty if any type is possible or nothing is known."""
    schema = _followed(schema, root)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return frozenset().union(*(types_at(one, path, root) for one in schema[key]))
    if not path:
        return types_of(schema, root)
    inner = schema.get("properties", {}).get(path[0])
    if inner is None:
        inner = schema.get("items" if path[0].isdecimal() else "additionalProperties")
    return types_at(inner, path[1:], root) if isinstance(inner, Mapping) else frozenset()


def wants_text(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether the schema only takes texts, so that a number or boolean is meant as spelled."""
    kinds = types_of(schema, root)
    return "string" in kinds and not kinds & {"integer", "number", "boolean"}


def type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, kinds in _KINDS.items() if isinstance(value, kinds)), "any")


def spoken(kinds: frozenset[str]) -> str:
    return " or ".join(_WORDS.get(kind) or _MORE_WORDS.get(kind) or kind for kind in sorted(kinds))


def can_be(given: frozenset[str], wanted: frozenset[str]) -> bool:
    """Whether a value of one of these types can be used; an empty set on either side allows everything."""
    if not given or not wanted or "any" in given:
        return True
    # A text may contain JSON or a number, which is known only at run time.
    return (
        bool(given & wanted)
        or "string" in given
        or ("integer" in given and "number" in wanted)
        or ("number" in given and "integer" in wanted)
        # A number used as a text is converted.
        or ("string" in wanted and given <= {"integer", "number", "boolean"})
    )


def _misfits(
    value: Any, schema: Mapping[str, Any] | bool, root: Mapping[str, Any], path: tuple[str, ...], depth: int
) -> Iterator[Misfit]:
    if isinstance(schema, bool) or depth > _DEPTH:
        return
    schema = _followed(schema, root)
    kinds = types_of(schema, root)
    if isinstance(value, str) and templates.is_template(value):
        is_text = len(templates.references(value)) != 1 or not templates.references(value)[0].is_alone
        if is_text and kinds and "string" not in kinds and not _is_fallback(value):
            yield Misfit(message=f"expected {spoken(kinds)}, found text", path=path, found=value[:60])
        return
    shown = templates.as_text(value)[:60] if value is not None else "null"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            each = [tuple(_misfits(value, one, root, path, depth + 1)) for one in schema[key]]
            if all(each):
                # The branch for the value's own type gives the best message.
                fitting = [
                    some for some, one in zip(each, schema[key], strict=True) if _is_kind(value, types_of(one, root))
                ]
                if fitting:
                    yield from fitting[0]
                else:
                    yield _other_type(kinds, value, shown, path)
            return
    if kinds and not _is_kind(value, kinds):
        yield _other_type(kinds, value, shown, path)
        return
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if allowed is not None and value not in allowed:
        names = tuple(templates.as_text(one) for one in allowed)
        yield Misfit(
            message=f"{shown!r} is not one of the values that it can be",
            path=path,
            found=shown,
            available=names,
            suggestion=nearest(shown, names),
        )
    yield from _out_of_bounds(value, schema, path, shown)
    if isinstance(value, list | tuple) and isinstance(schema.get("items"), Mapping):
        for index, inner in enumerate(value):
            yield from _misfits(inner, schema["items"], root, (*path, str(index)), depth + 1)
    if isinstance(value, dict):
        yield from _object_misfits(value, schema, root, path, depth)


def _other_type(kinds: frozenset[str], value: Any, shown: str, path: tuple[str, ...]) -> Misfit:
    wanted = spoken(kinds - {"null"} or kinds) or "another value"
    hint = None
    if "string" in kinds and isinstance(value, bool | int | float):
        hint = QUOTES_HINT.format(shown)
    elif kinds - {"null"} == {"array"} and isinstance(value, str) and "\n" not in value and value == shown:
        hint = f"A list is written [{value}]."
    return Misfit(message=f"expected {wanted}, found {shown}", path=path, found=shown, hint=hint)


def _object_misfits(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], path: tuple[str, ...], depth: int
) -> Iterator[Misfit]:
    known: Mapping[str, Any] = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for key in schema.get("required", ()):
        if key not in value:
            yield Misfit(message=f"{key!r} is missing", path=(*path, key))
    for key, inner in value.items():
        if key in known:
            yield from _misfits(inner, known[key], root, (*path, key), depth + 1)
        elif others is False:
            yield Misfit(
                message=f"there is no {key!r}",
                path=(*path, key),
                found=key,
                available=tuple(known),
                suggestion=nearest(key, known),
                is_unknown=True,
            )
        elif isinstance(others, Mapping):
            yield from _misfits(inner, others, root, (*path, key), depth + 1)


_BOUNDS: tuple[tuple[str, str, Callable[[float, float], bool]], ...] = (
    ("minimum", "at least", operator.ge),
    ("maximum", "at most", operator.le),
    ("exclusiveMinimum", "more than", operator.gt),
    ("exclusiveMaximum", "less than", operator.lt),
)


def _out_of_bounds(value: Any, schema: Mapping[str, Any], path: tuple[str, ...], shown: str) -> Iterator[Misfit]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for key, words, holds in _BOUNDS:
            if key in schema and not holds(value, schema[key]):
                yield Misfit(message=f"must be {words} {schema[key]}, found {shown}", path=path, found=shown)
    if isinstance(value, str) and schema.get("pattern") in _FORMS and not re.search(schema["pattern"], value):
        what, hint = _FORMS[schema["pattern"]]
        yield Misfit(message=f"{shown!r} is no {what}", path=path, found=shown, hint=hint)
    if isinstance(value, str | list | tuple | dict):
        what = "Length" if isinstance(value, str) else "Properties" if isinstance(value, dict) else "Items"
        least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
        if least is not None and len(value) < least:
            yield Misfit(message=f"needs at least {least} {_counted(value)}, has {len(value)}", path=path, found=shown)
        if most is not None and len(value) > most:
            yield Misfit(message=f"takes at most {most} {_counted(value)}, has {len(value)}", path=path, found=shown)


def _counted(value: Any) -> str:
    return "characters" if isinstance(value, str) else "keys" if isinstance(value, dict) else "items"


def _is_kind(value: Any, kinds: frozenset[str]) -> bool:
    kind = type_of(value)
    return (
        kind in kinds
        or (kind == "integer" and "number" in kinds)
        or (isinstance(value, float) and value.is_integer() and "integer" in kinds)
    )


def _is_fallback(text: str) -> bool:
    """Whether it is a single `${a ?? b}`, whose type is that of one of its operands."""
    found = templates.references(text)
    return (
        text.startswith("${")
        and text.endswith("}")
        and len({one.offset for one in found}) == 1
        and found[0].offset == 0
    )


def _followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_DEPTH):
        name = schema.get("$ref")
        if not isinstance(name, str) or not name.startswith("#/"):
            return schema
        found: Any = root
        for part in name[2:].split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        schema = found if isinstance(found, Mapping) else {}
    return {}
