"""Approvals of a workflow's own steps that are given before it starts: `flow run --auto-approve STEP`.

They answer what the workflow asks about a step, never what a policy asks about a tool call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leadrope import errors
from leadrope.core import actors
from leadrope.runs.approvals import forms
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import model
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps.base import StepQuestion

OPTION = "--auto-approve"


def read(workflow: model.Workflow, words: Iterable[str]) -> dict[str, str]:
    """STEP or STEP=CHOICE, as step -> choice; refused where the step does not ask, or does not ask this."""
    steps = {step.id: step for step in workflow.every_step}
    found: dict[str, str] = {}
    for word in words:
        name, equals, choice = word.partition("=")
        if name not in steps:
            near = nearest(name, steps)
            asking = [step.id for step in steps.values() if _asks(step)]
            known = f"Steps that ask: {', '.join(asking)}." if asking else "No step of this workflow asks a person."
            hint = f"Did you mean {near}? {known}" if near else known
            raise errors.BadValue(OPTION, f"there is no step {name!r}", hint=hint)
        step = steps[name]
        if not _asks(step):
            raise errors.BadValue(
                OPTION,
                f"the step {name!r} does not ask a person",
                hint="Only `approval` steps and steps with `approval: required` do. What a policy asks about is not "
                "covered: allow it in your policy.",
            )
        _check_choice(step, choice, is_given=bool(equals))
        found[name] = choice
    return found


def _asks(step: model.Step) -> bool:
    return step.type == "approval" or bool(step.approval)


def _check_choice(step: model.Step, choice: str, *, is_given: bool) -> None:
    from leadrope.workflows.steps import approval  # noqa: PLC0415  # only where one is given

    choices = [one for one in approval.branches(step.parameters) or () if one != "denied"]
    has_choices = step.type == "approval" and "choices" in step.parameters
    if not has_choices:
        if is_given:
            raise errors.BadValue(OPTION, f"the step {step.id!r} offers no choices", hint=f"Write {OPTION} {step.id}.")
        return
    if not choice or (choices and choice not in choices):
        offered = ", ".join(choices) or "known when it runs"
        said = f"does not offer {choice!r}" if choice else "offers choices, and none was given"
        example = choices[0] if choices else "CHOICE"
        raise errors.BadValue(
            OPTION,
            f"the step {step.id!r} {said}",
            hint=f"Choices: {offered}. Write {OPTION} {step.id}={example}.",
        )


def answer(approved: Mapping[str, str], step: str, asked: StepQuestion) -> Answer | None:
    """The answer that was given beforehand to what this step asks; None where a person must be asked."""
    if asked.kind != "step" or step not in approved:
        return None
    choice = approved[step]
    if asked.choices and choice not in asked.choices:
        return None  # the choices came from a template, and this is not one of them
    try:
        filled = forms.values_of(asked.fields, {})
    except errors.BadValue:
        return None  # a field without a default
    return Answer(approved=True, choice=choice, answers=filled, by=actors.system_user(), reason=OPTION)
