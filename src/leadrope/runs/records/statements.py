"""Named SQL out of the .sql files beside this one; knows no database.

The files are aiosql's: a section starts with `-- name: NAME`, a mark behind the name says what kind of statement it is,
and parameters are written `:name`. They are read by the few lines below all the same: importing aiosql and loading the
files with it takes 20 to 50 ms, a tenth of a whole `runs list`, and here it takes 2.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from leadrope.regex import regex

_SECTION = regex(r"^-- name: (\w+)(?:!|<!|\*!|\^|\$|#)?\s*$", re.MULTILINE)
_MIGRATION = regex(r"(\d{3})_\w+\.sql")
_FOLDER = Path(__file__).with_name("sql")
"""A path, and no resource: importlib.resources takes longer to import than all of it to read."""
FILES = ("runs.sql", "events.sql", "approvals.sql", "queue.sql", "executions.sql")


def parse(text: str) -> dict[str, str]:
    """Name -> statement, without its final semicolon."""
    parts = _SECTION.split(text)
    found: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name in found:
            raise ValueError(f"the statement {name} is written twice")
        found[name] = body.strip().removesuffix(";")
    return found


@cache
def _all() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in FILES:
        for name, statement in parse((_FOLDER / file).read_text(encoding="utf-8")).items():
            if name in found:
                raise ValueError(f"the statement {name} is written in two files")
            found[name] = statement
    return found


def sql(name: str) -> str:
    """One of the statements of our own files; nothing that came from outside is ever part of it."""
    return _all()[name]


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Version -> script, in order."""
    found = [
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in _FOLDER.iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    ]
    return tuple(sorted(found))
