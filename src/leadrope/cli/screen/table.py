"""Rows for a terminal: columns as wide as they must be, the last one cut to what is left. Knows no run."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterator, Sequence

from leadrope.regex import regex


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


LAST_COLUMN = 16
"""Below this the last column says nothing, and another one is left out."""


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, droppable: Sequence[str] = ()
) -> list[str]:
    """Lines, the first of them the head. The last column takes what the others leave.

    Where that is too little, columns of `droppable` are left out, in that order.
    """
    for name in droppable:
        fixed = sum(max(width_of(row[i]) for row in (head, *rows)) + 2 for i in range(len(head) - 1))
        if width - fixed >= LAST_COLUMN or name not in head:
            continue
        place = list(head).index(name)
        head, *rows = ([*row[:place], *row[place + 1 :]] for row in (head, *rows))
    widths = [max(width_of(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
    left = max(10, width - sum(widths) - 2 * len(widths))
    lines = []
    for row in (head, *rows):
        cells = [cell + " " * (wide - width_of(cell)) for cell, wide in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, cut(row[-1], left)]).rstrip())
    return lines


def joined(parts: Sequence[str], width: int, *, indent: str = "  ") -> list[str]:
    """Parts in one line with dots between them; in further lines where they do not fit. No part is broken in two."""
    found = list(parts[:1])
    for part in parts[1:]:
        longer = f"{found[-1]} · {part}"
        if width_of(longer) <= width:
            found[-1] = longer
        else:
            found.append(indent + part)
    return found


def wrapped(text: str, width: int, *, hanging: str = "", breaks_paths: bool = False) -> list[str]:
    """A line, broken between words only; `hanging` begins the further lines. A command in backticks stays whole.

    `breaks_paths`: a path that no line can hold is broken after a slash. Without it the terminal breaks it.

    >>> wrapped("Log in with `leadrope login`, or set a token.", 24, hanging="  ")
    ['Log in with', '  `leadrope login`, or', '  set a token.']
    """
    found, line = [], ""
    for space, word in _words(text, width - len(hanging), breaks_paths):
        longer = f"{line}{space}{word}"
        if line.strip() and width_of(_STYLES.sub("", longer)) > width:
            found.append(line)
            line = f"{hanging}{word}"
        else:
            line = longer
    return [*found, line]


_STYLES = regex(r"\x1b\[[0-9;]*m")
_WORDS = regex(r"(\s*)([^\s`]*`[^`]*`[^\s`]*|\S+)")
_PLAIN_WORDS = regex(r"(\s*)(\S+)")


def _words(text: str, most: int, breaks_paths: bool) -> Iterator[tuple[str, str]]:
    """Each with the blanks before it."""
    for space, word in _WORDS.findall(text):
        if width_of(_STYLES.sub("", word)) <= most:
            yield space, word
            continue
        for gap, plain in _PLAIN_WORDS.findall(f"{space}{word}"):
            first, *rest = _parts(plain, most) if breaks_paths else [plain]
            yield gap, first
            yield from (("", part) for part in rest)


def _parts(path: str, most: int) -> list[str]:
    """Each as long as a line can hold it."""
    found = [""]
    for name in re.findall(r"[^/]*/|[^/]+", path):
        if found[-1] and width_of(found[-1] + name) > most:
            found.append(name)
        else:
            found[-1] += name
    return found


def command_lines(command: str, width: int) -> list[str]:
    r"""A command that is typed as it is printed, in further lines where it is too long.

    >>> command_lines('leadrope run "explain it" --mode plan', 30)
    ['leadrope run "explain it" \\', '  --mode plan']
    """
    found = [""]
    for part in re.findall(r"""--?\w[\w-]*(?: (?!-)(?:"[^"]*"|\S+))?|"[^"]*"|\S+""", command):
        longer = f"{found[-1]} {part}" if found[-1] else part
        if found[-1] and width_of(longer) > width - 2:
            found[-1] += " \\"
            found.append(f"  {part}")
        else:
            found[-1] = longer
    if width_of(command) <= width:
        return [command]
    return found


def cut_start(text: str, width: int) -> str:
    """Without its beginning where it is too long: the end of a path says most."""
    if width_of(text) <= width:
        return text
    kept = text
    while kept and width_of(kept) > width - 1:
        kept = kept[1:]
    return "…" + kept


def age(seconds: float) -> str:
    """One unit is enough to tell runs apart."""
    for limit, unit, size in ((90, "s", 1), (90 * 60, "m", 60), (36 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{max(0, round(seconds / size))}{unit}"
    return f"{round(seconds / 86400)}d"


def ago(moment: float) -> str:
    return age(time.time() - moment)
