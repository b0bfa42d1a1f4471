"""The content of a workflow's picture in any format: lines between steps, labels, texts that fit. Pure."""

from __future__ import annotations

import re
import unicodedata

import msgspec

from leadrope.runtime.terminal_text import clean
from leadrope.workflows import model
from leadrope.workflows.links import Kind, Links

COLOURS = {
    "mind": ("agent", "claude-code", "llm"),
    "work": ("shell", "code", "mcp", "http", "email"),
    "person": ("approval",),
    "way": ("condition", "switch", "fail", "wait", "note", "workflow", "group"),
}
"""The groups of step types that share a colour; all others are about files and data."""
_PLAIN: tuple[Kind, ...] = ("order", "after", "next")


class DrawnLine(msgspec.Struct, frozen=True, kw_only=True):
    """All links of one kind between the same two steps."""

    source: str
    target: str
    sort: str
    """plain, branch, error or data."""
    label: str = ""


def lines_of(links: Links, *, all_data: bool = False) -> list[DrawnLine]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for link in links.all:
        sort = "plain" if link.kind in _PLAIN else link.kind
        if sort == "data" and not all_data:
            continue
        found.setdefault((link.source, link.target, sort), []).append(link.label or "")
    lines = [
        DrawnLine(
            source=source,
            target=target,
            sort=sort,
            label=", ".join(dict.fromkeys(labels)) if sort == "branch" else "on error" if sort == "error" else "",
        )
        for (source, target, sort), labels in found.items()
    ]
    if all_data:
        joined = {(line.source, line.target) for line in lines if line.sort != "data"}
        return [line for line in lines if line.sort != "data" or (line.source, line.target) not in joined]
    behind = {name: _behind(name, links) for name in {link.source for link in links.all if link.kind == "data"}}
    return lines + [
        DrawnLine(source=link.source, target=link.target, sort="data")
        for link in links.all
        if link.kind == "data" and link.target not in behind[link.source]
    ]


def _behind(name: str, links: Links) -> set[str]:
    """Returns the steps that come after it by order alone, without templates."""
    found: set[str] = set()
    todo = [name]
    while todo:
        for link in links.out_of[todo.pop()]:
            if link.kind != "data" and link.target not in found:
                found.add(link.target)
                todo.append(link.target)
    return found


def marks(step: model.Step) -> list[str]:
    """Returns a step's attributes besides its type, in a word or two each."""
    found = []
    if step.when is not None:
        found.append("when …")
    if step.approval:
        found.append("asks first")
    if step.batch is not None:
        found.append(f"batch, {step.batch.at_once} at once" if step.batch.at_once > 1 else "batch")
    if step.loop is not None:
        most = step.loop.max_iterations
        found.append(f"loop ≤{most}" if isinstance(most, int) else "loop")
    if step.retry is not None:
        found.append(f"up to {step.retry.max} attempts")
    if step.cache:
        found.append("cached")
    return found


def colour_of(kind: str) -> str:
    return next((name for name, kinds in COLOURS.items() if kind in kinds), "file")


# -- texts ------------------------------------------------------------------------------------------------------------


def one_line(text: str, limit: int) -> str:
    """Returns the text on one line, without invisible characters and those that XML does not allow."""
    return " ".join(plain(text[: limit * 4]).split())[:limit]


def short(text: str, limit: int) -> str:
    """Truncates by columns: a Chinese character is as wide as two others."""
    if _columns(text) <= limit:
        return text
    while _columns(text) > limit - 1:
        text = text[:-1]
    return text + "…"


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def wide(text: str) -> float:
    """Estimates the width in pixels; no common font exceeds it."""
    broad = "mwMWÖÄÜ@%—…"
    return sum(
        13.5 if unicodedata.east_asian_width(one) in "WF" else 13.6 if one in broad else 9.6 if one.isupper() else 7.6
        for one in text
    )


def plain(text: str) -> str:
    return re.sub("[\ufffe\uffff]", "", clean(text))  # XML does not allow these two
