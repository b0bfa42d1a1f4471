"""Checks steps that call other workflows against the descriptions of those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope.workflows.check.step import StepCheck
from leadrope.workflows.inputs import takes
from leadrope.workflows.language import schema_match, templates
from leadrope.workflows.language.markdown import SUFFIXES
from leadrope.workflows.model import BATCH_ITEM_KEYS, DEPTH_MOST, Input, Step, Workflow
from leadrope.workflows.problems import Findings, Path
from leadrope.workflows.routing import ways

BAD_INNER = "bad_inner_workflow"


class CalledWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known, before anything runs, of the workflow that a step calls."""

    name: str
    """As written in the step."""
    file: str = ""
    """As displayed; empty if there is none."""
    missing: str | None = None
    """Why it was not found."""
    there: tuple[str, ...] = ()
    """Which workflows could have been named instead, if it was not found."""
    broken: str | None = None
    """What is wrong with it or inside it, in one sentence."""
    inputs: tuple[Input, ...] | None = None
    """None if unknown."""
    outputs: tuple[str, ...] | None = None
    circle: tuple[str, ...] = ()
    """The names on the way back to the workflow that calls it."""
    is_endless: bool = False
    """No condition can end the cycle."""
    depth: int = 1
    """Depth of nested calls, from it to the innermost."""
    sure_depth: int = 1
    """The same, counting only unconditional calls."""


def is_sure(step: Step, workflow: Workflow) -> bool:
    """Whether the step is always reached; a workflow in which that depends on values may end a cycle."""
    chooses = any(one.on_error is not None or ways(one, workflow.dialect) is not None for one in workflow.steps)
    return step in workflow.steps and step.when is None and step.batch is None and not chooses


class InsideCheck:
    def __init__(
        self, workflow: Workflow, inner: Mapping[str, CalledWorkflow], findings: Findings, of_steps: StepCheck
    ) -> None:
        self._workflow = workflow
        self._inner = inner
        self._findings = findings
        self._of_steps = of_steps
        self._told: set[str] = set()

    def look(self, step: Step) -> None:
        called = self._inner.get(step.id)
        if called is None:
            return
        path = ("steps", step.id, "workflow")
        if called.missing is not None:
            self._missing(step, called, called.missing, path)
        if called.broken is not None and (called.file or called.name) not in self._told:
            self._told.add(called.file or called.name)
            self._findings.add(BAD_INNER, f"workflow: {called.broken}", path=path, found=called.name)
        if called.circle:
            self._findings.add(
                "contains_itself",
                f"workflow: {called.circle[0]} contains itself: " + " -> ".join(called.circle),
                path=path,
                found=called.name,
                hint=f"At most {DEPTH_MOST} can be inside each other."
                if not called.is_endless
                else "It would never end. To do a step again, give it a `loop`; a call with a `when` can end.",
                warns=not called.is_endless,
            )
        elif 1 + called.depth > DEPTH_MOST:
            self._findings.add(
                "too_deep",
                f"workflow: with {called.file} there are {1 + called.depth} workflows inside each other; "
                f"at most {DEPTH_MOST}",
                path=path,
                found=called.name,
                warns=1 + called.sure_depth <= DEPTH_MOST or not is_sure(step, self._workflow),
            )
        if called.inputs is not None:
            self._inputs(step, called, called.inputs)
        for name in BATCH_ITEM_KEYS if step.batch is not None else ():
            if name in (called.outputs or ()):
                self._findings.add(
                    "hidden_output",
                    f"workflow: the output {name!r} of {called.file} cannot be read in `results`, which have "
                    f"{name!r} of the batch",
                    path=path,
                    found=name,
                    warns=True,
                    hint="Give that output another name.",
                )

    def _missing(self, step: Step, called: CalledWorkflow, why: str, path: Path) -> None:
        # A file mentioned by another step may exist when this one starts, so it is not a certain error.
        name = called.name.replace("\\", "/").rpartition("/")[2]
        files = (name,) if name.endswith(".md") else tuple(name + suffix for suffix in SUFFIXES)
        others = [one.parameters for one in self._workflow.every_step if one.type != step.type]
        is_spoken_of = any(_speaks_of(one, file) for one in others for file in files if name)
        self._findings.add(
            "unknown_workflow",
            f"workflow: {why}" + (" yet" if is_spoken_of else ""),
            path=path,
            found=called.name,
            available=called.there,
            warns=is_spoken_of,
        )

    def _inputs(self, step: Step, called: CalledWorkflow, inputs: tuple[Input, ...]) -> None:
        given = step.parameters.get("inputs", {})
        path = ("steps", step.id, "inputs")
        if not isinstance(given, Mapping) or self._of_steps.is_unreadable(path):
            return
        known = {one.name: one for one in inputs}
        meant = set()
        for name in given:
            if name not in known:
                problem = self._findings.add(
                    "unknown_input",
                    f"inputs: {called.file} has no input {name!r}",
                    path=(*path, name),
                    found=name,
                    available=known,
                    hint=None if known else "It takes no inputs.",
                    at_key=True,
                )
                meant.add(problem.suggestion)
        for one in inputs:
            if one.name in given:
                self._value(one, given[one.name], (*path, one.name))
            elif one.required and one.default is UNSET and one.name not in meant:
                self._findings.add(
                    "missing_input",
                    f"inputs: {called.file} needs the input {one.name!r}",
                    path=path,
                    hint=f"It takes: {takes(inputs)}",
                )

    def _value(self, one: Input, value: Any, path: Path) -> None:
        if one.type == "any" or (value is None and not one.required):
            return
        if one.type in ("array", "object") and isinstance(value, str):
            if templates.is_template(value) and value.lstrip().startswith(("[", "{")):
                return  # a text that may become JSON, which is known only at run time
            value = templates.opened(value)
        for misfit in schema_match.misfits(value, {"type": one.type}):
            self._findings.add(
                "wrong_type",
                f"inputs.{one.name}: {misfit.message}",
                path=path,
                found=misfit.found,
                hint=self._of_steps.hint(misfit, path),
            )


def literal_name(step: Step) -> str | None:
    """Returns the workflow that a step calls, if it is known before anything runs."""
    said = templates.settled(step.parameters).get("workflow") if step.type == "workflow" else None
    return said if isinstance(said, str) else None


def _speaks_of(value: Any, name: str) -> bool:
    if isinstance(value, str):
        return name in value
    if isinstance(value, Mapping):
        return any(_speaks_of(inner, name) for inner in value.values())
    return isinstance(value, list | tuple) and any(_speaks_of(inner, name) for inner in value)
