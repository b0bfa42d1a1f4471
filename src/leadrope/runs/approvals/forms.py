"""Forms that a person fills in: fields with a type, and the values that fit them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from leadrope import errors

FieldType = Literal["text", "number", "choice", "boolean"]
_TRUE = ("true", "yes", "y", "on", "1")
_FALSE = ("false", "no", "n", "off", "0")
LONGEST_TEXT = 100_000
"""Characters of one value: it is stored with the answer and with the outcome of its step."""


class FormField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    type: FieldType = "text"
    label: str = ""
    """What the person reads; the name where there is none."""
    required: bool = True
    """Without a value, and without a default, the answer is refused."""
    default: Any | UnsetType = UNSET
    choices: tuple[str, ...] = ()
    """Of a `choice`: what can be chosen."""

    @property
    def title(self) -> str:
        return self.label or self.name

    @property
    def is_needed(self) -> bool:
        """Whether an answer without it is refused."""
        return self.required and self.default is UNSET

    @property
    def hint(self) -> str:
        """What can be given, in a few words."""
        match self.type:
            case "choice":
                return " | ".join(self.choices)
            case "boolean":
                return "yes | no"
            case _:
                return self.type


def values_of(fields: Sequence[FormField], given: Mapping[str, Any]) -> dict[str, Any]:
    """Every field with its value; BadValue names the field that is wrong, missing or unknown.

    Texts are read as what their field wants, so `3` is a number where one is asked for.
    """
    known = [field.name for field in fields]
    for name in given:
        if name not in known:
            raise errors.BadValue(name, "is not a field of this form", hint=f"It has: {', '.join(known)}.")
    found: dict[str, Any] = {}
    for field in fields:
        if field.name in given:
            try:
                found[field.name] = value_of(field, given[field.name])
            except ValueError as error:
                raise errors.BadValue(field.name, str(error)) from None
        elif field.is_needed:
            raise errors.BadValue(field.name, "is required", hint=f"Give {field.name}=VALUE ({field.hint}).")
        else:
            found[field.name] = None if field.default is UNSET else field.default
    return found


def value_of(field: FormField, given: Any) -> Any:
    """One value as its field wants it; ValueError says what is wrong with it."""
    match field.type:
        case "number":
            return _number(given)
        case "boolean":
            return _boolean(given)
        case "choice":
            return _choice(field, given)
        case _:
            return _text(field, given)


def _text(field: FormField, given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{given!r} is not a text")  # noqa: TRY004  # a value, told to whoever gave it
    if len(given) > LONGEST_TEXT:
        raise ValueError(f"it has {len(given):,} characters, and at most {LONGEST_TEXT:,} are taken")
    if field.required and not given.strip():
        raise ValueError("is empty")
    return given


def _number(given: Any) -> float | int:
    number: float | int | None = None
    if isinstance(given, str):
        try:
            number = int(given)
        except ValueError:
            try:
                number = float(given)
            except ValueError:
                number = None
    elif isinstance(given, int | float) and not isinstance(given, bool):
        number = given
    if number is None or abs(number) >= 2**63 or not math.isfinite(number):
        raise ValueError(f"{given!r} is not a number")
    return number


def _boolean(given: Any) -> bool:
    if isinstance(given, bool):
        return given
    word = given.strip().lower() if isinstance(given, str) else ""
    if word not in (*_TRUE, *_FALSE):
        raise ValueError(f"{given!r} is neither yes nor no")
    return word in _TRUE


def _choice(field: FormField, given: Any) -> str:
    if given in field.choices:
        return str(given)
    alike = [choice for choice in field.choices if isinstance(given, str) and choice.lower() == given.strip().lower()]
    if len(alike) != 1:
        raise ValueError(f"{given!r} is not one of: {', '.join(field.choices)}")
    return alike[0]
