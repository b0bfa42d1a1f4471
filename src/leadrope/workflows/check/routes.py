"""Checks code steps that set `next` against the steps that they declare for it."""

from __future__ import annotations

from leadrope.workflows import routing
from leadrope.workflows.model import Step, Workflow
from leadrope.workflows.problems import Findings


def look(workflow: Workflow, findings: Findings) -> None:
    for step in workflow.steps:
        found = routing.routes_in(step.parameters) if step.type == "code" else None
        if found is None:
            continue
        path = ("steps", step.id, "code")
        is_said = bool(step.next) or step.branches is not None
        if not is_said and (workflow.dialect == "flow" or found.is_dynamic):
            findings.add(
                "undeclared_next",
                f"the code of {step.id!r} sets `next`, and the step does not declare the steps that may follow",
                path=path,
                hint=_how_to_declare(found.literals),
            )
        elif step.batch is not None:
            findings.add(
                "batch_chooses",
                f"the code of {step.id!r} sets `next`, and each item of a batch could set another",
                path=path,
                hint="Choose in a step after it, or give the variable another name.",
            )
        else:
            _literals(step, found.literals, workflow, findings)


def _how_to_declare(literals: tuple[str, ...]) -> str:
    named = ", ".join(literals) or "one, other"
    return f"Write `next: [{named}]` in the step, or give the variable another name if it is not meant as a choice."


def _literals(step: Step, literals: tuple[str, ...], workflow: Workflow, findings: Findings) -> None:
    ways = routing.ways(step, workflow.dialect) or {}
    steps = [one.id for one in workflow.steps]
    for name in literals:
        # In pflow's files a name in the code is a target by itself, so it must be a step.
        known = [*steps, routing.END] if workflow.dialect == "pflow" and step.branches is None else list(ways)
        if name not in known and "else" not in ways:
            findings.add(
                "unknown_branch",
                f"the code of {step.id!r} sets `next` to {name!r}, which "
                + ("is not a step" if workflow.dialect == "pflow" else "the step does not declare"),
                path=("steps", step.id, "code"),
                found=name,
                available=known,
            )
