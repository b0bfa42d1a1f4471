"""The result of a workflow's execution, shared by the store, the terminal and the page."""

from __future__ import annotations

import shlex
from typing import Any, Literal

import msgspec

from leadrope.runs.approvals.forms import FormField
from leadrope.runs.approvals.requests import StepRequest
from leadrope.runs.records.values import Approval, ApprovalKind
from leadrope.workflows.steps.base import Caution

ExecutionOutcome = Literal["succeeded", "degraded", "failed", "stopped", "waiting"]
StepState = Literal["succeeded", "degraded", "failed", "skipped", "blocked", "left_out", "waiting", "not_run"]


class StepError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    message: str
    hint: str | None = None
    code: int | None = None
    """The exit code chosen by the workflow's author."""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    state: StepState
    duration_s: float = 0.0
    cost_usd: float = 0.0
    tokens: int = 0
    attempts: int = 1
    """The highest number of attempts of any of its units."""
    units: int = 1
    """Number of batch items or loop turns."""
    warnings: tuple[Caution, ...] = ()
    error: StepError | None = None
    is_handled: bool = False
    """It failed, and its `on-error` handler took over."""
    is_cached: bool = False
    """All its outputs were taken from the cache: they describe an earlier execution."""
    run_ids: tuple[str, ...] = ()


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that must be answered before the execution continues."""

    id: str
    kind: ApprovalKind
    execution_id: str
    """The execution that asks: this one, or one that it called."""
    step: str
    iteration: int = 0
    item: int | None = None
    title: str = ""
    detail: str = ""
    values: dict[str, Any] = {}
    choices: tuple[str, ...] = ()
    fields: tuple[FormField, ...] = ()
    needed: tuple[str, ...] = ()
    """Names of the required fields."""
    reason: str = ""
    rule: str = ""
    layer: str = ""
    requested: float = 0.0


def pending_of(approval: Approval) -> PendingApproval:
    """Convert a stored approval, which contains no secrets."""
    asked = msgspec.json.decode(approval.asked, type=StepRequest)
    return PendingApproval(
        id=approval.id,
        kind=approval.kind,
        execution_id=approval.execution_id,
        step=approval.step,
        iteration=approval.iteration,
        item=approval.item,
        title=asked.title,
        detail=asked.detail,
        values=asked.values,
        choices=asked.choices,
        fields=asked.fields,
        needed=tuple(field.name for field in asked.fields if field.is_needed),
        reason=asked.reason,
        rule=asked.rule,
        layer=asked.layer,
        requested=approval.requested,
    )


def answer_command(asked: PendingApproval) -> str:
    """Return the command that answers it from a terminal."""
    choice = f" --choose {shlex.quote(asked.choices[0])}" if asked.choices else ""
    if asked.needed:
        given = " ".join(f"{name}=…" for name in asked.needed)
        return f"leadrope approvals answer {asked.id} {given}{choice}"
    if asked.kind == "question":
        return f"leadrope approvals answer {asked.id} …"
    return f"leadrope approvals approve {asked.id}{choice}"


class LastStep(msgspec.Struct, frozen=True, kw_only=True):
    """The output of the last step; null if it only has side effects."""

    step: str
    result: Any = None


class ExecutionResult(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    name: str
    outcome: ExecutionOutcome
    outputs: dict[str, Any] = {}
    missing_outputs: tuple[str, ...] = ()
    """Declared outputs without a value: their step failed, did not run, or has no such value."""
    missing_reasons: dict[str, str] = {}
    """The reason for each of them."""
    stdout: str = ""
    """The output that alone is printed to standard output, if one is declared so."""
    last: LastStep | None = None
    """Only for a workflow that declares no outputs and did not fail."""
    steps: tuple[StepReport, ...] = ()
    cost_usd: float = 0.0
    """An estimate at list prices."""
    tokens: int = 0
    duration_s: float = 0.0
    approvals: tuple[PendingApproval, ...] = ()
    reason: str = ""
    """Why it was stopped."""
    notices: tuple[Caution, ...] = ()
    """What the sandbox reported, besides the warnings of steps."""
    error: StepError | None = None
    """Why it could not be started, or was lost; steps have their own errors."""

    @property
    def ok(self) -> bool:
        return self.outcome in ("succeeded", "degraded")

    @property
    def warnings(self) -> dict[str, tuple[Caution, ...]]:
        return {step.id: step.warnings for step in self.steps if step.warnings}

    @property
    def failures(self) -> tuple[StepReport, ...]:
        """Return the steps that failed without a handler."""
        return tuple(step for step in self.steps if step.state == "failed" and not step.is_handled)

    @property
    def code(self) -> int | None:
        """Return the exit code chosen by a `fail` step; of several, the first in the file."""
        chosen = (step.error.code for step in self.failures if step.error is not None)
        return next((code for code in chosen if code is not None), None)
