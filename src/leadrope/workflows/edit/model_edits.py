"""The same edits of the model, which the new text must match when it is read back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope import errors
from leadrope.workflows import model
from leadrope.workflows.language import markdown_writer, model_builder
from leadrope.workflows.problems import BadWorkflow, Findings

Steps = tuple[model.Step, ...]


def mapped(steps: Steps, change: Callable[[model.Step], model.Step | None]) -> Steps:
    """Changes every step, those inside groups before the groups; None removes a step."""
    found = []
    for step in steps:
        inner = mapped(step.steps, change)
        changed = change(msgspec.structs.replace(step, steps=inner) if inner != step.steps else step)
        if changed is not None:
            found.append(changed)
    return tuple(found)


def with_step(workflow: model.Workflow, new: model.Step) -> model.Workflow:
    """Replaces the step of the same name."""
    steps = mapped(workflow.steps, lambda step: new if step.id == new.id else step)
    return msgspec.structs.replace(workflow, steps=steps)


def without(workflow: model.Workflow, name: str) -> model.Workflow:
    steps = mapped(workflow.steps, lambda step: None if step.id == name else step)
    return with_known_layout(msgspec.structs.replace(workflow, steps=steps))


def inserted(workflow: model.Workflow, new: model.Step, *, group: str | None, index: int) -> model.Workflow:
    def put(steps: Steps) -> Steps:
        return (*steps[:index], new, *steps[index:])

    if group is None:
        return msgspec.structs.replace(workflow, steps=put(workflow.steps))
    around = workflow.step(group)
    return with_step(workflow, msgspec.structs.replace(around, steps=put(around.steps)))


def with_known_layout(workflow: model.Workflow) -> model.Workflow:
    """Drops the positions of removed steps."""
    names = {step.id for step in workflow.every_step}
    layout = {name: at for name, at in workflow.settings.layout.items() if name in names}
    return msgspec.structs.replace(workflow, settings=msgspec.structs.replace(workflow.settings, layout=layout))


def with_value(step: model.Step, key: str, value: Any, dialect: model.Dialect) -> model.Step:
    """Returns the step with a value under the key, as in a file; UNSET removes it."""
    wanted = model.attribute(key) or key
    every = markdown_writer.said_by(step, dialect)
    said = {name: one for name, one in every if (model.attribute(name) or name) != wanted}
    if value is not UNSET:
        said[key] = value
    findings = Findings()
    found = model_builder.step(step.id, step.description, said, model_builder.Shape(findings, ("steps", step.id)))
    if wrong := [problem for problem in findings if problem.severity == "error"]:
        raise BadWorkflow("the edit", wrong)
    if found.type != model.GROUP and step.steps:
        raise errors.BadValue("type", f"{step.id!r} has steps inside it", hint="Move them out of the group first.")
    return msgspec.structs.replace(found, steps=step.steps)


def siblings(workflow: model.Workflow, group: str | None) -> Sequence[model.Step]:
    """Returns the steps of the file, or of one group."""
    return workflow.steps if group is None else workflow.step(group).steps


def is_same(one: msgspec.Struct, other: msgspec.Struct) -> bool:
    """Compares as JSON: 1, 1.0 and true are equal in Python, but not in a file."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
