"""Replacement lines for one parameter of an entry, starting with the smallest change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from leadrope.workflows.edit.source import Lines, Source, SourcePart
from leadrope.workflows.language import markdown_writer

Change = tuple[int, int, str]


def with_value(source: Source, entry: Lines, key: str, value: Any) -> Iterator[tuple[Change, ...]]:
    """Yields changes that set a parameter of an entry, or remove it (UNSET), smallest change first."""
    old = entry.part(key)
    if value is UNSET:
        if old is not None:
            yield from _removals(source, entry, old)
        return
    written = markdown_writer.write_value(old.key if old is not None else key, value, source.dialect)
    is_block = not written.startswith("- ")
    if old is not None:
        if old.is_block and isinstance(value, str):
            yield (_block_body(source, old, value),)
        if old.is_block == is_block:
            yield ((old.start, old.end, f"{written}\n"),)
        for removal in _removals(source, entry, old):
            yield (*removal, _addition(source, entry, written, is_block=is_block, but=old))
        return
    yield (_addition(source, entry, written, is_block=is_block),)


def _removals(source: Source, entry: Lines, old: SourcePart) -> Iterator[tuple[Change, ...]]:
    after = old.end < entry.own_end and not source.lines[old.end].strip()
    before = old.start > entry.start + 1 and not source.lines[old.start - 1].strip()
    if before and (after or old.end == entry.own_end):
        yield ((old.start - 1, old.end, ""),)
    yield ((old.start, old.end, ""),)


def _block_body(source: Source, old: SourcePart, value: str) -> Change:
    """Replaces the lines between the fences of a block; the fences stay as they are."""
    opening, closing = source.lines[old.start], source.lines[old.end - 1]
    indent = opening[: len(opening) - len(opening.lstrip(" "))]
    body = "".join(f"{indent}{line}\n" for line in value.split("\n"))
    marks = opening.strip()[:3]
    if marks in value:  # one of its own lines might end the block
        body = ""
    return old.start, old.end, f"{opening.rstrip()}\n{body}{closing.rstrip()}\n"


def _addition(source: Source, entry: Lines, written: str, *, is_block: bool, but: SourcePart | None = None) -> Change:
    lines = [part for part in entry.parts if not part.is_block and part != but]
    if not is_block and lines:
        at = lines[-1].end
        lead = "" if source.lines[at - 1].endswith("\n") else "\n"
        return at, at, f"{lead}{written}\n"
    blocks = [part for part in entry.parts if part.is_block and part != but]
    if not is_block and blocks:
        at = blocks[0].start
        lead = "" if not source.lines[at - 1].strip() else "\n"
        return at, at, f"{lead}{written}\n\n"
    at = source.content_end(entry)
    lead = "\n" if source.lines[at - 1].endswith("\n") else "\n\n"
    return at, at, f"{lead}{written}\n" + ("\n" if at == entry.own_end < len(source.lines) else "")
