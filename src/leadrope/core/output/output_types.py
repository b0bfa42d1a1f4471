"""Python types as JSON Schemas, and JSON values as instances of them. Imports no library that the type does not use."""

from __future__ import annotations

import sys
from typing import Any, TypeVar, get_args

import msgspec

from leadrope import errors

V = TypeVar("V")


def schema_of(kind: Any, *, field: str = "output_type") -> dict[str, Any]:
    """The schema of a msgspec Struct, dataclass, TypedDict, pydantic model, or of a list, dict or union of them.

    RunRequest(prompt="…", output_schema=schema_of(Invoice))
    """
    try:
        found = _pydantic().TypeAdapter(kind).json_schema() if _is_pydantic(kind) else msgspec.json.schema(kind)
    except (TypeError, ValueError, RuntimeError) as error:
        raise errors.BadValue(
            field,
            f"{name_of(kind)} has no JSON Schema: {_reason(error)}",
            hint="Use a msgspec Struct, a dataclass, a TypedDict or a pydantic model with JSON fields.",
        ) from None
    return _opened(found)


def as_type(value: Any, kind: type[V]) -> V:
    """The JSON value as an instance; a ValueError says why it is none."""
    if _is_pydantic(kind):
        found: V = _pydantic().TypeAdapter(kind).validate_python(value)  # its ValidationError is a ValueError
        return found
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        try:
            # `1.0` is an integer in JSON Schema; only the lax way takes it.
            return msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError:
            raise ValueError(str(error)) from None


def as_strict_type(value: Any, kind: Any) -> Any:
    """The same without conversions of texts into numbers: what a program gets is what was written."""
    if _is_pydantic(kind):
        return as_type(value, kind)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _reason(error: Exception) -> str:
    """Without msgspec's advice on hooks, which nobody can pass here."""
    text = str(error)
    return text.rpartition("\n")[2] if text.startswith("Generating JSON schema") else text


def name_of(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _is_pydantic(kind: Any) -> bool:
    if isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate"):
        return True
    return any(_is_pydantic(inner) for inner in get_args(kind))


def _pydantic() -> Any:
    # Whoever has made a model has imported it.
    return sys.modules["pydantic"]


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    """A root that only refers to an object becomes that object, which an agent can be given as it is."""
    target = schema.get("$ref", "")
    if set(schema) != {"$ref", "$defs"} or not target.startswith("#/$defs/"):
        return schema
    name = target.removeprefix("#/$defs/")
    if schema["$defs"].get(name, {}).get("type") != "object":
        return schema
    rest = schema["$defs"]
    if target not in msgspec.json.encode(rest).decode():
        rest = {key: value for key, value in rest.items() if key != name}
    return {**schema["$defs"][name], **({"$defs": rest} if rest else {})}
