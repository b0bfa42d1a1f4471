"""Extracts records from text: Markdown tables, separated values and `key: value` lines; also formats tables. Pure,
linear.

JSON in a text is `core.json_in_text`'s. What a column's type makes of a cell is told by `columns`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from leadrope.core.text.table_lines import cells, is_rule
from leadrope.regex import regex

TEXT_CHARS = 4 * 1024 * 1024
ROWS_LIMIT = 20_000
COLUMNS_LIMIT = 200

How = Literal["json", "markdown", "csv", "tsv", "pairs"]

_PAIR = regex(
    r"[ \t]*(?:[-*+][ \t]+)?(?:\*\*|__)?([^\W_][^:=|.!?;\n]{0,60}?)(?:\*\*|__)?[ \t]*[:=](?:\*\*|__)?[ \t]+(.*)"
)
_BARE_PAIR = regex(r"[ \t]*([A-Za-z_][A-Za-z0-9_.-]{0,60})[:=](\S.*)?")
_BREAK = regex(r"-{3,}|\*{3,}|={3,}|_{3,}|")


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Rows found in a text, all with the same columns."""

    how: How
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    ragged: int = 0
    """Rows with more or fewer cells than the header."""
    is_cut: bool = False
    """There were more rows than the limit."""
    share: float = 1.0
    """Share of the text's lines that belong to it; small if prose with colons was taken for pairs."""


def candidates(text: str) -> list[Records]:
    """Return what the text may contain, likeliest first: its largest Markdown table, separated values, `key: value`
    lines.
    """
    text = text[:TEXT_CHARS].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    inner = unfenced(text)
    others = [one for one in (separated(inner), pairs(inner)) if one is not None]
    return [*sorted(markdown_tables(text), key=lambda one: -len(one.rows)), *others]


def markdown_tables(text: str) -> list[Records]:
    """Return every table: a header, a line of dashes, rows up to the first line without a `|`."""
    lines = text.split("\n")
    found: list[Records] = []
    at = 1
    while at < len(lines):
        if not is_rule(lines[at]) or "|" not in lines[at - 1]:
            at += 1
            continue
        head, width = cells(lines[at - 1]), len(cells(lines[at]))
        if len(head) != width:
            at += 1
            continue
        at += 1
        body: list[list[str]] = []
        while at < len(lines) and "|" in lines[at] and len(body) <= ROWS_LIMIT:
            body.append(cells(lines[at]))
            at += 1
        found.append(_records("markdown", head, body))
    return [one for one in found if one.rows]


def separated(text: str) -> Records | None:
    """Parse comma, semicolon or tab separated values with a header, if all lines have the same number of them."""
    lines = text.strip("\n").split("\n", 5)
    for delimiter in ("\t", ";", ","):
        if len(lines) < 2 or delimiter not in lines[0] or delimiter not in lines[1]:
            continue
        try:
            read = csv.reader(
                io.StringIO(text.strip("\n"), newline=""), delimiter=delimiter, strict=True, skipinitialspace=True
            )
            rows = [
                row for _, row in zip(range(ROWS_LIMIT + 2), read, strict=False) if any(cell.strip() for cell in row)
            ]
        except csv.Error:
            continue
        head, body = rows[0], rows[1:]
        # Prose has commas too: it is a table only if the rows agree and the header has short, distinct names.
        agreeing = sum(len(row) == len(head) for row in body)
        names = [cell.strip() for cell in head]
        if (
            agreeing * 10 < len(body) * 9
            or len(set(names)) < len(names)
            or not all(0 < len(name) <= 60 for name in names)
        ):
            continue
        return _records("tsv" if delimiter == "\t" else "csv", head, body)
    return None


def pairs(text: str) -> Records | None:
    """Parse lines of `key: value`; an empty line, a rule or a repeated key starts the next record."""
    records: list[dict[str, Any]] = []
    record: dict[str, Any] = {}
    lines = used = 0
    for line in text.split("\n"):
        found = _PAIR.fullmatch(line) or _BARE_PAIR.fullmatch(line)
        if found is None:
            lines += bool(line.strip())
            if _BREAK.fullmatch(line.strip()) and record:
                records.append(record)
                record = {}
            continue
        lines, used = lines + 1, used + 1
        key, value = found[1].strip(), _plain(found[2] or "")
        if key in record:
            records.append(record)
            record = {}
        if len(record) < COLUMNS_LIMIT:
            record[key] = value
        if len(records) > ROWS_LIMIT:
            break
    records += [record] if record else []
    if not records:
        return None
    is_cut, rows = len(records) > ROWS_LIMIT, _merged(records[:ROWS_LIMIT])
    return Records(how="pairs", columns=names_of(rows), rows=rows, is_cut=is_cut, share=used / lines)


def names_of(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return all keys in order of appearance."""
    return tuple(dict.fromkeys(key for row in rows for key in row))


def to_markdown(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Format a table that every viewer reads the same way: one line per row, pipes escaped."""
    if not columns:
        return ""
    lines = [_line(columns), _line(["---"] * len(columns))]
    lines += [_line([cell(row.get(name)) for name in columns]) for row in rows]
    return "\n".join(lines) + "\n"


def cell(value: Any) -> str:
    """Format a value as the text of a cell."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def unfenced(text: str) -> str:
    """Return the content of the first fenced block, if there is one: models like to wrap their answers."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        mark = line.strip()[:3]
        if mark in ("```", "~~~"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == mark), None)
            return text if end is None else "\n".join(lines[at + 1 : end])
    return text


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|") for text in cells) + " |"


def _records(how: How, head: Sequence[str], body: Sequence[Sequence[str]]) -> Records:
    names = _different([_plain(name) or f"column_{number}" for number, name in enumerate(head[:COLUMNS_LIMIT], 1)])
    rows = [
        {name: _plain(row[place]) if place < len(row) else "" for place, name in enumerate(names)}
        for row in body[:ROWS_LIMIT]
    ]
    ragged = sum(len(row) != len(head) for row in body[:ROWS_LIMIT])
    return Records(how=how, columns=tuple(names), rows=rows, ragged=ragged, is_cut=len(body) > ROWS_LIMIT)


def _different(names: list[str]) -> list[str]:
    """Make column names unique by numbering duplicates."""
    found: dict[str, None] = {}
    for name in names:
        number, free = 2, name
        while free in found:
            free, number = f"{name}_{number}", number + 1
        found[free] = None
    return list(found)


def _plain(text: str) -> str:
    """Remove the markup around a whole cell: **bold**, `code`."""
    text = text.strip()
    for mark in ("**", "__", "`"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            inner = text[len(mark) : -len(mark)]
            if mark not in inner:
                return inner.strip()
    return text


def _merged(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge records without common keys: they are one record that empty lines divide."""
    if len(records) > 1 and len(names_of(records)) == sum(len(record) for record in records):
        return [{key: value for record in records for key, value in record.items()}]
    return records
