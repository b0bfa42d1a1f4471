"""The lines of a Markdown table: its cells, and the line of dashes below its head."""

from __future__ import annotations

from leadrope.regex import regex

_RULE_CELL = regex(r"[ \t]*:?-{1,}:?[ \t]*")
_ESCAPED_PIPE = "\x00"


def is_rule(line: str) -> bool:
    """The line of dashes below the head of a table."""
    return "-" in line and "|" in line and all(_RULE_CELL.fullmatch(part) for part in cells(line))


def cells(line: str) -> list[str]:
    """The cells of one line of a table, unescaped."""
    text = line.strip().replace("\\\\", "\x01").replace("\\|", _ESCAPED_PIPE)
    text = text.removeprefix("|").removesuffix("|")
    return [part.strip().replace(_ESCAPED_PIPE, "|").replace("\x01", "\\") for part in text.split("|")]
