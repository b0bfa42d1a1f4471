"""Renames a step, in its heading and wherever it is named: links, templates, the layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from leadrope import errors
from leadrope.workflows import links, model
from leadrope.workflows.edit import entry_lines
from leadrope.workflows.edit.entry_lines import Change
from leadrope.workflows.edit.references import LINK_KEYS, Names
from leadrope.workflows.edit.source import Lines, Source, SourcePart
from leadrope.workflows.edit.steps import check_name, first_right
from leadrope.workflows.language import markdown, markdown_writer


def rename(text: str, old: str, new: str, *, dialect: model.Dialect = "flow") -> str:
    """Returns the text with the step renamed. Only its heading and the parameters that name it change."""
    source = Source(text, dialect)
    entry = source.step(old)
    if new == old:
        return text
    check_name(new, source.workflow)
    if any(new in links.scope_names(step) for step in source.workflow.every_step):
        raise errors.BadValue("name", f"a batch or a loop provides its steps with a value called {new!r}")
    names = Names(old, new, tuple(_around(source, entry)))
    expected = names.workflow(source.workflow)
    heading = source.lines[entry.start]
    begin = re.sub(rf"^(#+[ \t]+){re.escape(old)}", rf"\g<1>{new}", heading)
    changes: list[Change] = [(entry.start, entry.start + 1, begin.replace("\r\n", "\n"))]
    for one in source.entries:
        if one.level > 2 and one.section in ("steps", "outputs"):
            changes += _changes(source, one, names)
    return first_right(source, [(*changes, *more) for more in _layouts(source, names, expected)], expected)


def _around(source: Source, entry: Lines) -> list[str]:
    found: list[str] = []
    while entry.group is not None:
        found.insert(0, entry.group)
        entry = source.step(entry.group)
    return found


def _changes(source: Source, entry: Lines, names: Names) -> list[Change]:
    """Returns the changes of one entry, with the smallest one that reads back correctly."""
    before, after = _said(source, entry, names)
    parts = [part for part in entry.parts if before.get(_key(part)) != after.get(_key(part))]
    if not parts:
        return []
    templated: tuple[Callable[[str], str], ...] = (names.in_text, names.loosely_in)
    for rewrite in templated:
        changes = [
            (part.start, part.end, _part_text(source, part, names.as_target if _is_link(part) else rewrite))
            for part in parts
        ]
        if _reads(source, entry, changes) == after:
            return changes
    return [
        (part.start, part.end, markdown_writer.write_value(part.key, after[_key(part)], source.dialect) + "\n")
        for part in parts
    ]


def _part_text(source: Source, part: SourcePart, rewrite: Callable[[str], str]) -> str:
    """Returns the lines of a part with the value rewritten, and the key unchanged."""
    raw = "".join(source.lines[part.start : part.end]).replace("\r\n", "\n")
    cut = raw.index("\n") if part.is_block else raw.index(":", raw.index(part.key) if part.key in raw else 0)
    return raw[:cut] + rewrite(raw[cut:])


def _said(source: Source, entry: Lines, names: Names) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the entry's current values, and the values that it should have."""
    if entry.section == "outputs":
        (output,) = [one for one in source.workflow.outputs if one.name == entry.name]
        return {"source": output.source}, {"source": names.value(output.source, ())}
    step = source.workflow.step(entry.name)
    outer = [name for group in _around(source, entry) for name in links.scope_names(source.workflow.step(group))]
    return _as_said(step, source.dialect), _as_said(names.step(step, outer), source.dialect)


def _as_said(step: model.Step, dialect: model.Dialect) -> dict[str, Any]:
    return {model.attribute(key) or key: value for key, value in markdown_writer.said_by(step, dialect)}


def _reads(source: Source, entry: Lines, changes: list[Change]) -> dict[str, Any] | None:
    """Returns the entry's values after these changes, parsed on its own."""
    lines = list(source.lines[entry.start : entry.own_end])
    for start, end, text in sorted(changes, reverse=True):
        lines[start - entry.start : end - entry.start] = [text]
    text = "".join(("#" * 3 + lines[0].lstrip("#"), *lines[1:]))
    alone = text if entry.section == "steps" else f"## Outputs\n\n{text}"
    workflow = markdown.read(alone, dialect=source.dialect).workflow
    if entry.section == "outputs":
        return {"source": workflow.outputs[0].source} if workflow.outputs else None
    return _as_said(workflow.steps[0], source.dialect) if workflow.steps else None


def _layouts(source: Source, names: Names, expected: model.Workflow) -> Iterator[tuple[Change, ...]]:
    section = source.section("settings")
    part = section.part("layout") if section is not None else None
    if section is None or part is None or names.old not in source.workflow.settings.layout:
        yield ()
        return
    yield ((part.start, part.end, _part_text(source, part, names.as_key)),)
    layout = msgspec.to_builtins(expected.settings.layout)
    yield from entry_lines.with_value(source, section, "layout", layout)


def _key(part: SourcePart) -> str:
    return model.attribute(part.key) or part.key


def _is_link(part: SourcePart) -> bool:
    return _key(part) in LINK_KEYS
