"""What an execution of a workflow came to: a value that the store, the terminal and a page share."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from leadrope.workflows.steps.base import Caution

FlowOutcome = Literal["succeeded", "degraded", "failed", "stopped", "waiting"]
StepState = Literal["succeeded", "degraded", "failed", "skipped", "blocked", "left_out", "waiting", "not_run"]


class StepError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    message: str
    hint: str | None = None


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    state: StepState
    duration_s: float = 0.0
    cost_usd: float = 0.0
    tokens: int = 0
    attempts: int = 1
    """Of all its units together, the most that one took."""
    units: int = 1
    """Items of a batch, turns of a loop."""
    warnings: tuple[Caution, ...] = ()
    error: StepError | None = None
    is_handled: bool = False
    """It failed, and its `on-error` took over."""
    is_cached: bool = False
    """Its outputs were taken from the cache, of all its items and turns: they tell of an earlier execution."""
    run_ids: tuple[str, ...] = ()


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person is asked before it goes on."""

    token: str
    step: str
    title: str
    detail: str = ""
    choices: tuple[str, ...] = ()


class FlowResult(msgspec.Struct, frozen=True, kw_only=True):
    flow_id: str
    name: str
    outcome: FlowOutcome
    outputs: dict[str, Any] = {}
    missing_outputs: tuple[str, ...] = ()
    """Declared, and without a value: their step failed, or the way to it was not taken."""
    steps: tuple[StepReport, ...] = ()
    cost_usd: float = 0.0
    """An estimate at list prices."""
    tokens: int = 0
    duration_s: float = 0.0
    waits: tuple[Waiting, ...] = ()
    reason: str = ""
    """Of a stop."""

    @property
    def ok(self) -> bool:
        return self.outcome in ("succeeded", "degraded")

    @property
    def warnings(self) -> dict[str, tuple[Caution, ...]]:
        return {step.id: step.warnings for step in self.steps if step.warnings}

    @property
    def failures(self) -> tuple[StepReport, ...]:
        """Steps that failed, and nothing took over."""
        return tuple(step for step in self.steps if step.state == "failed" and not step.is_handled)
