"""What was measured beside its bar, as a table for people; measures nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    measured: float
    unit: str
    bar: float | None = None
    """None: told for comparison, nothing is promised."""
    is_floor: bool = False
    """The bar is the least that is wanted, and not the most."""
    note: str = ""

    @property
    def verdict(self) -> Literal["ok", "MISSED", ""]:
        if self.bar is None:
            return ""
        kept = self.measured >= self.bar if self.is_floor else self.measured <= self.bar
        return "ok" if kept else "MISSED"

    def cells(self) -> tuple[str, ...]:
        bar = "" if self.bar is None else f"{'>=' if self.is_floor else '<='} {number(self.bar)} {self.unit}".rstrip()
        return self.what, f"{number(self.measured)} {self.unit}".rstrip(), bar, self.verdict, self.note


class Table(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    rows: tuple[Row, ...]

    @property
    def missed(self) -> int:
        return sum(row.verdict == "MISSED" for row in self.rows)


HEAD = ("what", "measured", "bar", "", "note")


def number(value: float) -> str:
    """Three digits that say something: 311000, 25.1, 1.52."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def as_text(cells: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns also stand under each other on a terminal."""
    rows = [tuple(row) for row in cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def shown(table: Table) -> str:
    return f"### {table.title}\n\n{as_text([HEAD, *(row.cells() for row in table.rows)])}\n"
