"""What happens while a workflow runs, as values for whoever watches: a terminal, a page. Decides nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from leadrope.workflows.plan import Status
from leadrope.workflows.steps.base import Asked, Caution


class _Happening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    flow_id: str


class _OfStep(_Happening, frozen=True, kw_only=True):
    step: str
    iteration: int = 0
    item: int | None = None


class FlowStarted(_Happening, frozen=True, kw_only=True, tag="flow.started"):
    title: str
    steps: tuple[tuple[str, str], ...]
    """Name and kind of each, in the order of the file."""
    parent: str | None = None
    parent_key: str = ""
    """Which unit of the parent it is the work of: `call#0`, of a batch `call#0[2]`."""


class StepStarted(_OfStep, frozen=True, kw_only=True, tag="step.started"):
    kind: str
    count: int | None = None
    """Of a batch: how many items."""
    done: int = 0
    """Of these, before this execution went on."""


class StepActing(_OfStep, frozen=True, kw_only=True, tag="step.acting"):
    """What it does at the moment: the tool an agent uses, the line a command has written."""

    action: str
    cost_usd: float = 0.0


class StepRetried(_OfStep, frozen=True, kw_only=True, tag="step.retried"):
    attempt: int
    wait_s: float
    why: str


class StepWaits(_OfStep, frozen=True, kw_only=True, tag="step.waits"):
    """A person is asked."""

    token: str
    asked: Asked


class UnitEnded(_OfStep, frozen=True, kw_only=True, tag="unit.ended"):
    """One item of a batch, or one turn of a loop."""

    status: Status
    error: str = ""


class StepEnded(_OfStep, frozen=True, kw_only=True, tag="step.ended"):
    status: Status
    duration_s: float
    cost_usd: float = 0.0
    tokens: int = 0
    attempts: int = 1
    warnings: tuple[Caution, ...] = ()
    error: str = ""
    is_known: bool = False
    """It was done before; its outcome was taken from the journal."""
    is_cached: bool = False
    """Its outputs were taken from the cache, of all its items and turns; nothing was done."""


class FlowEnded(_Happening, frozen=True, kw_only=True, tag="flow.ended"):
    outcome: str
    outputs: dict[str, Any] = {}


Happening = FlowStarted | StepStarted | StepActing | StepRetried | StepWaits | UnitEnded | StepEnded | FlowEnded
