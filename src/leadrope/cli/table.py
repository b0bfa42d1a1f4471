"""Rows for a terminal: columns as wide as they must be, the last one cut to what is left. Knows no run."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence


def width_of(text: str) -> int:
    """Columns on the screen, not characters."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    kept, used = "", 0
    for c in text:
        used += width_of(c)
        if used > width - 1:
            break
        kept += c
    return kept + "…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines, the first of them the head. The last column takes what the others leave."""
    widths = [max(width_of(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
    left = max(10, width - sum(widths) - 2 * len(widths))
    lines = []
    for row in (head, *rows):
        cells = [cell + " " * (wide - width_of(cell)) for cell, wide in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, cut(row[-1], left)]).rstrip())
    return lines


def age(seconds: float) -> str:
    """One unit is enough to tell runs apart."""
    for limit, unit, size in ((90, "s", 1), (90 * 60, "m", 60), (36 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{max(0, round(seconds / size))}{unit}"
    return f"{round(seconds / 86400)}d"


def ago(moment: float) -> str:
    return age(time.time() - moment)
