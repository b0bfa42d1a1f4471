"""Rehearsed executions: a script on loopback replaces the model, the user's account and the network."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from leadrope import errors
from leadrope.core.text import rehearsal_label
from leadrope.workflows import model
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import StepFailed

if TYPE_CHECKING:
    from leadrope.rehearsal.model import ModelServer
    from leadrope.rehearsal.script import Script
    from leadrope.runs.executions.values import ExecutionInfo
    from leadrope.workflows.engine.unit_progress import Key

_ASK_A_MODEL = ("agent", "claude-code", "llm")
_REPLACEABLE = ("http", "mcp", "email", "shell", "code")


class Rehearsal:
    """The script of one running execution."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server

    def request_fields(self, key: Key, labels: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a step's run request; they override those of the step and the user."""
        return {
            "base_url": self._server.step_url(key.step, key.item),
            "credential": rehearsal_label.KEY,
            "credential_kind": "api_key",
            "billing": "api_key",
            "labels": {**labels, **rehearsal_label.LABELS},
        }

    def outputs(self, step: str) -> dict[str, Any] | None:
        """Return scripted outputs that replace running the step."""
        found = self._server.script.steps.get(step)
        return found.outputs if found is not None else None

    @staticmethod
    def refuse_network(what: str, key: Key) -> StepFailed:
        return StepFailed(
            f"{what}: a rehearsal sends nothing to other machines",
            kind="rehearsal_failed",
            hint=f"Write in the script what the step gives: steps.{key.step}.outputs.",
        )


def check(script: Script, workflows: Iterable[model.Workflow]) -> None:
    """Reject a script that names steps that do not exist or cannot be scripted in that way."""
    from leadrope.rehearsal.script import BadScript  # noqa: PLC0415  # only rehearsals need it

    kinds: dict[str, str] = {}
    for workflow in workflows:
        kinds |= {step.id: registry.kind_of(step.type).name for step in workflow.every_step}
    for name, step in script.steps.items():
        place = f"steps.{name}"
        if name not in kinds:
            near = nearest(name, kinds)
            hint = f"Did you mean {near}?" if near else f"The steps are: {', '.join(kinds)}."
            raise BadScript(place, "the workflow has no such step", hint=hint)
        wanted: Collection[str] = _ASK_A_MODEL if step.outputs is None else _REPLACEABLE
        if kinds[name] in wanted:
            continue
        if step.outputs is None:
            raise BadScript(place, f"a step of type {kinds[name]} asks no model, so it needs no turns")
        allowed = ", ".join(_REPLACEABLE)
        raise BadScript(f"{place}.outputs", f"a step of type {kinds[name]} is always run (replaceable: {allowed})")


def refuse_continuing(execution: ExecutionInfo) -> None:
    """Refuse to resume: the scripted model is gone, and the user's own must not be used."""
    if execution.labels.get(rehearsal_label.LABEL) == rehearsal_label.REHEARSAL:
        raise errors.WrongState(
            f"{execution.id[:8]} is a rehearsal, which cannot be continued",
            hint="Start it anew: leadrope flow run … --rehearse SCRIPT.",
        )
