"""Typed columns: converts rows to requested names and types, and reports what did not fit. Pure."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from leadrope import errors
from leadrope.core.output import coercion
from leadrope.regex import regex
from leadrope.workflows.problems import nearest

ColumnType = Literal["string", "integer", "number", "boolean", "date"]
TYPES: tuple[str, ...] = get_args(ColumnType)
_SPELLINGS = {"str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean"}

LISTED = 100
"""Mistakes listed individually; all are counted."""

_TRUE = ("true", "yes", "y", "on", "1", "✓", "✔", "✅")
_FALSE = ("false", "no", "n", "off", "0", "✗", "✘", "❌")
_NOTHING = ("", "-", "\u2013", "\u2014", "n/a", "na", "null", "none", "nil")
_THOUSANDS = regex(r"-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_YEAR_FIRST = regex(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ].{0,40})?")
_DOTS = regex(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_DAY_MONTH = regex(r"(\d{1,2})(?:st|nd|rd|th)?\.?[ -]([A-Za-z]{3,9})\.?,?[ -](\d{4})")
_MONTH_DAY = regex(r"([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    type: ColumnType = "string"
    required: bool = False
    """Rows without it are dropped."""
    description: str = ""
    """Shown to the model, in `ai` mode."""


class Mistake(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    row: int
    """Counted from 1."""
    column: str
    message: str


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    rows: list[dict[str, Any]]
    left_out: int
    """Rows dropped because a required column was empty."""
    bad_cells: int
    mistakes: tuple[Mistake, ...]
    """The first mistakes."""


def columns_of(given: Sequence[Column | str] | Mapping[str, str]) -> tuple[Column, ...]:
    """Read columns in any notation: {name, type, …}, `name`, `name: type`, {name: type}; a trailing `!` means required.

        columns_of(["title!", "price: number"])

    The order is kept.
    """
    if isinstance(given, Mapping):
        found = [_from_words(name, kind) for name, kind in given.items()]
    else:
        found = [one if isinstance(one, Column) else _from_words(*_halves(one)) for one in given]
    seen: set[str] = set()
    for one in found:
        if folded(one.name) in seen:
            raise errors.BadValue("columns", f"{one.name!r} is there twice", hint="Give each column a name of its own.")
        seen.add(folded(one.name))
    return tuple(found)


def typed(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> Typed:
    """Convert each row to exactly these columns and types. A cell that does not fit becomes null and is reported."""
    kept: list[dict[str, Any]] = []
    mistakes: list[Mistake] = []
    left_out = bad = 0
    for number, row in enumerate(rows, 1):
        by_name = {folded(str(key)): value for key, value in row.items()}
        found: dict[str, Any] = {}
        is_whole = True
        for column in columns:
            value = row.get(column.name, by_name.get(folded(column.name)))
            fitted = as_type(column.type, value)
            if fitted is msgspec.UNSET:
                bad += 1
                _note(mistakes, number, column.name, f"{_shown(value)} is no {column.type}")
                fitted = None
            elif column.required and (fitted is None or fitted == ""):
                _note(mistakes, number, column.name, "is missing, and required")
            found[column.name] = fitted
            is_whole = is_whole and not (column.required and (fitted is None or fitted == ""))
        if is_whole:
            kept.append(found)
        else:
            left_out += 1
    return Typed(rows=kept, left_out=left_out, bad_cells=bad, mistakes=tuple(mistakes))


def as_type(kind: str, value: Any) -> Any:
    """Convert a value to a type: null for nothing, `UNSET` if it does not fit. The conversion never loses information.

        as_type("integer", "1,200") == 1200

    `kind` is one of the types that a column may have.
    """
    if value is None or (kind != "string" and isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    if kind == "string":
        if isinstance(value, str):
            return value
        return (
            json.dumps(value, ensure_ascii=False)
            if isinstance(value, list | dict)
            else coercion.scalar("string", value)
        )
    if kind == "boolean":
        return _boolean(value)
    if kind == "date":
        return _date(value) if isinstance(value, str) else msgspec.UNSET
    if isinstance(value, bool):
        return msgspec.UNSET
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if kind == "number" else int(value) if value.is_integer() else msgspec.UNSET
    if isinstance(value, str):
        word = value.strip()
        if len(word) <= 300 and _THOUSANDS.fullmatch(word):
            word = word.replace(",", "")
        return coercion.scalar(kind, word.removeprefix("+"))
    return msgspec.UNSET


def folded(name: str) -> str:
    """Normalize a name: `Unit Price`, `unit_price` and `unit-price` are the same."""
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


def schema_of(columns: Sequence[Column]) -> dict[str, Any]:
    """Return the JSON Schema of one row, for a model."""
    return {
        "type": "object",
        "properties": {column.name: _cell_schema(column) for column in columns},
        "required": [column.name for column in columns],
        "additionalProperties": False,
    }


def _cell_schema(column: Column) -> dict[str, Any]:
    kind = "string" if column.type == "date" else column.type
    told = "; ".join(filter(None, (column.description, "a date, YYYY-MM-DD" if column.type == "date" else "")))
    # A model that must return a value invents one, so missing values may be null.
    schema: dict[str, Any] = {"type": kind if column.required else [kind, "null"]}
    return {**schema, "description": told} if told else schema


def _halves(text: str) -> tuple[str, str]:
    name, colon, kind = text.rpartition(":")
    return (name, kind) if colon else (text, "string")


def _from_words(name: str, kind: str) -> Column:
    name, kind = name.strip(), kind.strip()
    is_required = name.endswith("!") or kind.endswith("!")
    name, kind = name.removesuffix("!").strip(), kind.removesuffix("!").strip().lower() or "string"
    kind = _SPELLINGS.get(kind, kind)
    if not name or len(name) > 100:
        raise errors.BadValue("columns", f"{name[:40]!r} cannot be the name of a column")
    if kind not in TYPES:
        near = nearest(kind, (*TYPES, *_SPELLINGS))
        meant = f" Did you mean {_SPELLINGS.get(near, near)}?" if near else ""
        raise errors.BadValue(
            "columns", f"{name!r} has the unknown type {kind[:40]!r}", hint=f"Types are: {', '.join(TYPES)}.{meant}"
        )
    return msgspec.convert({"name": name, "type": kind, "required": is_required}, Column)


def _boolean(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    return True if word in _TRUE else False if word in _FALSE else msgspec.UNSET


def _date(text: str) -> Any:
    """Parse a date to YYYY-MM-DD. 3/4/2024 is ambiguous (day or month first) and is rejected."""
    word = text.strip()
    if len(word) > 60:
        return msgspec.UNSET
    if found := _YEAR_FIRST.fullmatch(word):
        year, month, day = found[1], found[2], found[3]
    elif found := _DOTS.fullmatch(word):
        year, month, day = found[3], found[2], found[1]
    elif found := _DAY_MONTH.fullmatch(word):
        year, month, day = found[3], _month(found[2]), found[1]
    elif found := _MONTH_DAY.fullmatch(word):
        year, month, day = found[3], _month(found[1]), found[2]
    else:
        return msgspec.UNSET
    try:
        return dt.date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return msgspec.UNSET


def _month(word: str) -> str:
    low = word.lower()
    return next((str(number) for number, name in enumerate(_MONTHS, 1) if name.startswith(low)), "0")


def _note(mistakes: list[Mistake], row: int, column: str, message: str) -> None:
    if len(mistakes) < LISTED:
        mistakes.append(Mistake(row=row, column=column, message=message))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
