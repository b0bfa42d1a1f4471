"""Adds, removes, moves, describes and places steps, and sets their values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope import errors
from leadrope.workflows import model
from leadrope.workflows.edit import entry_lines, model_edits
from leadrope.workflows.edit.entry_lines import Change
from leadrope.workflows.edit.model_edits import is_same
from leadrope.workflows.edit.source import Lines, Source, is_readable, unknown_step
from leadrope.workflows.language import markdown, markdown_blocks, markdown_writer
from leadrope.workflows.language.model_builder import NOTHING
from leadrope.workflows.model import Dialect


def set_value(text: str, name: str, key: str, value: Any = UNSET, *, dialect: Dialect = "flow") -> str:
    """Sets a parameter or an attribute (`when`, `loop`, …) of a step, as in a file; UNSET removes it."""
    source = Source(text, dialect)
    entry = source.step(name)
    step = model_edits.with_value(source.workflow.step(name), key, value, dialect)
    if is_same(step, source.workflow.step(name)):
        return text
    expected = model_edits.with_step(source.workflow, step)
    changes = entry_lines.with_value(source, entry, key, value)
    return first_right(source, [*changes, (_rewritten(source, entry, step),)], expected)


def describe(text: str, name: str, description: str, *, dialect: Dialect = "flow") -> str:
    """Replaces the prose of a step. Lines of prose between its parameters are moved above them."""
    source = Source(text, dialect)
    entry = source.step(name)
    step = msgspec.structs.replace(source.workflow.step(name), description=model.tidied(description))
    expected = model_edits.with_step(source.workflow, step)
    taken = {line for part in entry.parts for line in range(part.start, part.end)}
    prose = markdown_blocks.escaped_prose(step.description, is_top=False, in_group=entry.level > 3)
    first = min(taken, default=entry.own_end)
    begin = entry.start + 1
    loose = [line for line in range(first, entry.own_end) if line not in taken and source.lines[line].strip()]
    changes: list[Change] = [(line, line + 1, "") for line in loose]
    changes.append((begin, first, f"\n{prose}\n\n" if prose else "\n"))
    return first_right(source, [tuple(changes), (_rewritten(source, entry, step),)], expected)


def add(
    text: str,
    step: model.Step,
    *,
    below: str | None = None,
    group: str | None = None,
    dialect: Dialect = "flow",
) -> str:
    """Adds a step below another one, or as the last one of the file or of a group."""
    source = Source(text, dialect)
    check_name(step.id, source.workflow)
    if below is not None and group is None:
        group = source.step(below).group
    index = _index(source.workflow, below, group, default=len(model_edits.siblings(source.workflow, group)))
    expected = model_edits.inserted(source.workflow, step, group=group, index=index)
    level = 3 if group is None else source.step(group).level + 1
    _check_level(step, level)
    written = markdown_writer.write_step(step, dialect, level)
    return first_right(source, [(_put(source, written, group, index),)], expected)


def remove(text: str, name: str, *, dialect: Dialect = "flow") -> str:
    """Removes a step with the steps inside it. Steps that name it keep doing so; `check` reports them."""
    source = Source(text, dialect)
    entry = source.step(name)
    return first_right(source, [((entry.start, entry.end, ""),)], model_edits.without(source.workflow, name))


def move(
    text: str,
    name: str,
    *,
    below: str | None = None,
    group: str | None = None,
    dialect: Dialect = "flow",
) -> str:
    """Moves a step below another one, or to the beginning of the file or of a group; its lines stay as they are."""
    source = Source(text, dialect)
    entry = source.step(name)
    step = source.workflow.step(name)
    if below is not None and group is None:
        group = source.step(below).group
    if group is not None and group in {one.id for one in model.each_of((step,))}:
        raise errors.BadValue("group", f"{name!r} cannot be moved into itself")
    level = 3 if group is None else source.step(group).level + 1
    _check_level(step, level)
    rest = model_edits.without(source.workflow, name)
    index = _index(rest, below, group, default=0)
    layout = source.workflow.settings.layout
    expected = model_edits.inserted(rest, step, group=group, index=index)
    settings = msgspec.structs.replace(expected.settings, layout=layout)
    expected = msgspec.structs.replace(expected, settings=settings)
    others = [one.id for one in model_edits.siblings(rest, group)]
    if entry.group == group and [one.id for one in model_edits.siblings(expected, group)] == [
        one.id for one in model_edits.siblings(source.workflow, group)
    ]:
        return text
    written = "".join(_relevelled(source, entry, level - entry.level)).replace("\r\n", "\n").rstrip("\n ")
    at = _line_for(source, others, group, index)
    return first_right(source, [((entry.start, entry.end, ""), source.inserted(at, written))], expected)


def place(text: str, name: str, x: float, y: float, *, dialect: Dialect = "flow") -> str:
    """Sets the position of a step on the canvas, in the `layout` of the settings."""
    source = Source(text, dialect)
    source.step(name)
    layout = {**source.workflow.settings.layout, name: (float(x), float(y))}
    return with_layout(source, layout, source.workflow)


# -- shared
# -------------------------------------------------------------------------------------------------------------


def first_right(source: Source, candidates: Iterable[tuple[Change, ...]], expected: model.Workflow) -> str:
    """Returns the first candidate text that reads back as expected."""
    for changes in candidates:
        text = source.joined(*changes)
        document = markdown.read(text, dialect=source.dialect)
        if is_readable(document) and is_same(document.workflow, expected):
            return text
    raise errors.BadValue(
        "workflow", "the edit cannot be written so that it reads back the same", hint="Edit the file by hand."
    )


def with_layout(source: Source, layout: dict[str, tuple[float, float]], workflow: model.Workflow) -> str:
    """Sets these positions in the text, which already matches the rest of the workflow."""
    settings = msgspec.structs.replace(workflow.settings, layout=layout)
    expected = msgspec.structs.replace(workflow, settings=settings)
    order = [step.id for step in workflow.every_step]
    value: Any = {name: list(layout[name]) for name in order if name in layout} or UNSET
    section = source.section("settings")
    if section is None:
        if value is UNSET:
            return source.text
        written = f"## Settings\n\n{markdown_writer.write_value('layout', value, source.dialect)}"
        return first_right(source, [(source.inserted(len(source.lines), written),)], expected)
    return first_right(source, entry_lines.with_value(source, section, "layout", value), expected)


def check_name(name: str, workflow: model.Workflow) -> None:
    if not model.ID.fullmatch(name) or name.lower() in NOTHING:
        raise errors.BadValue("name", f"no step can be called {name!r}", hint="Use letters, digits, `_` and `-`.")
    taken = [*(step.id for step in workflow.every_step), *(one.name for one in workflow.inputs)]
    if name in taken:
        raise errors.BadValue("name", f"there is already something called {name!r}", hint="Choose another name.")


def _index(workflow: model.Workflow, below: str | None, group: str | None, *, default: int) -> int:
    with contextlib.suppress(KeyError):
        others = [step.id for step in model_edits.siblings(workflow, group)]
        if below is None:
            return default
        if below in others:
            return others.index(below) + 1
        where = f"in the group {group!r}" if group is not None else "outside of groups"
        raise errors.BadValue("below", f"{below!r} is not a step {where}")
    raise unknown_step(group or "", workflow)


def _check_level(step: model.Step, level: int) -> None:
    depth = 0
    steps = step.steps
    while steps:
        depth += 1
        steps = tuple(inner for one in steps for inner in one.steps)
    if level + depth > 3 + model.GROUPS_MOST:
        raise errors.BadValue("group", f"{step.id!r} would be inside more than {model.GROUPS_MOST} groups")


def _put(source: Source, written: str, group: str | None, index: int) -> Change:
    others = [one.id for one in model_edits.siblings(source.workflow, group)]
    if not others and group is None and source.section("steps") is None:
        after = [entry.start for entry in source.entries if entry.section in ("outputs", "settings")]
        return source.inserted(min(after, default=len(source.lines)), f"## Steps\n\n{written}")
    return source.inserted(_line_for(source, others, group, index), written)


def _line_for(source: Source, others: list[str], group: str | None, index: int) -> int:
    """Returns the line before which to insert a step that gets this index among the others."""
    if index > 0:
        return source.step(others[index - 1]).end
    if others:
        return source.step(others[0]).start
    if group is not None:
        return source.step(group).own_end
    section = source.section("steps")
    return section.own_end if section is not None else len(source.lines)


def _rewritten(source: Source, entry: Lines, step: model.Step) -> Change:
    """Rewrites the whole entry in its canonical form, without the steps inside it."""
    alone = msgspec.structs.replace(step, steps=())
    return entry.start, source.content_end(entry), markdown_writer.write_step(alone, source.dialect, entry.level) + "\n"


def _relevelled(source: Source, entry: Lines, by: int) -> Iterator[str]:
    headings = {one.start for one in source.entries if entry.start <= one.start < entry.end}
    for number in range(entry.start, entry.end):
        line = source.lines[number]
        yield ("#" * by + line if by >= 0 else line[-by:]) if number in headings else line
