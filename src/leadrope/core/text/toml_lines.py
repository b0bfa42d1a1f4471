"""On which line of a TOML file a key stands, for messages about it. A look at the text, not a parser."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

from leadrope.regex import regex

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = regex(rf"\s*\[\[?\s*({_KEY})\s*\]\]?\s*(?:#.*)?")
_ENTRY = regex(rf"\s*({_KEY})\s*=")


def line_of(text: str, path: Sequence[str]) -> int | None:
    r"""The line of the entry, else that of the table or inline table which holds it; None where neither is found.

    >>> line_of('[run]\nmode = "plan"\n', ("run", "mode"))
    2
    """
    wanted = tuple(path)
    table: tuple[str, ...] = ()
    best, depth = None, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _TABLE.fullmatch(line):
            table = _parts(found[1])
            key: tuple[str, ...] = table
        elif found := _ENTRY.match(line):
            key = (*table, *_parts(found[1]))
        else:
            continue
        if key == wanted:
            return number
        if len(key) > depth and wanted[: len(key)] == key:
            best, depth = number, len(key)
    return best


def in_words(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str, str]:
    """Where a text is not TOML: the line, what is wrong there, and how it is written."""
    message, _, at = str(error).partition(" (at ")
    place = re.match(r"line (\d+), ", at)
    line = int(place[1]) if place else max(1, len(text.splitlines()))  # "at end of document"
    if twice := re.fullmatch(r"Cannot declare \((.*?),?\) twice", message):
        table = dotted(*re.findall(r"'([^']*)'", twice[1]))
        return line, f"the table [{table}] is there twice", f"Write its keys under one [{table}]."
    if message == "Cannot overwrite a value":
        return line, "the key is there twice", "Remove one of the two lines."
    hints = {
        "Invalid value": 'Write one =, and put text in quotes: mode = "plan".',
        "Expected ']' at the end of a table declaration": "Close the bracket: [run].",
    }
    return line, message, hints.get(message, 'Write a table as [run], and a value as mode = "plan".')


def dotted(*parts: str) -> str:
    """A path as it is written in TOML: `worktree.projects."~/shop"`."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in parts)


def leading_key(text: str) -> tuple[str, ...]:
    """The path that a message starts with, as `dotted` has written it; empty where it starts with none."""
    found = re.match(_KEY, text)
    return _parts(found[0]) if found else ()


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))
