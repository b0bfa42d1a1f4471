"""Events of executions: one tagged union for all that happens while a workflow runs, whoever runs it.

Each event is stored and streamed inside `ExecutionRecord`, which says when and in which order. A workflow that calls
others has one log for all of them: events of a called workflow name its execution. Values of steps are not in the log.
An event names the unit (step, iteration, item) and how large its values are; the store has the values.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import msgspec

SCHEMA_VERSION = 1
"""Of the events of executions: a reader that knows this number understands every log that says it."""
MOST_OUTPUTS = 16 * 1024
"""Bytes of JSON. The outputs of an execution that take more are not in its last event; the store has them."""
MOST_TEXT = 2000
"""Characters of what a person is asked; the approval itself has all of it."""

Status = Literal["succeeded", "degraded", "failed", "skipped"]
ExecutionOutcome = Literal["succeeded", "degraded", "failed", "stopped"]


class StepName(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    """For programs: `denied`, `timed_out`, `over_budget` …"""
    message: str
    hint: str | None = None


class _ExecutionEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    execution: str = ""
    """The id of a called workflow's execution; left out for the one that the log belongs to."""


class _StepEvent(_ExecutionEvent, frozen=True, kw_only=True):
    step: str
    iteration: int = 0
    """Of a loop, from 0."""
    item: int | None = None
    """Of a batch, from 0."""


class ExecutionQueued(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.queued"):
    """It waits for an owner: it was started detached, a person has answered, or its owner is gone."""

    reason: str = ""


class ExecutionStarted(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.started"):
    title: str
    name: str = ""
    file: str = ""
    steps: tuple[StepName, ...]
    """In the order of the file."""
    parent: str | None = None
    """Of a called workflow: the execution that called it."""
    parent_key: str = ""
    """Which unit of the parent it is the work of: `call#0`, of a batch `call#0[2]`."""
    # A factory, so that it is written: `omit_defaults` leaves out what equals a plain default.
    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)


class ExecutionResumed(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.resumed"):
    """It was claimed again: after an answer, a stop, a pause or the death of its owner. What is done stays done."""

    owner: str = ""
    done: int = 0
    """Units that the journal has, of all steps and of called workflows."""


class ExecutionWaiting(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.waiting"):
    """Nothing more can be done until a person has answered; nobody owns it meanwhile."""

    approvals: tuple[str, ...] = ()


class ExecutionPaused(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.paused"):
    """By a person: no further step is started, and the agents of those that run are held."""

    by: str = ""


class ExecutionUnpaused(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.unpaused"):
    by: str = ""


class ExecutionInterrupted(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.interrupted"):
    """Its owner died or left it, and a person decides whether it continues."""

    reason: str = ""


class ExecutionEnded(_ExecutionEvent, frozen=True, kw_only=True, tag="execution.ended"):
    outcome: ExecutionOutcome
    reason: str = ""
    """Of a stop."""
    error: Failure | None = None
    """Why it could not be started; errors of steps are in theirs."""
    outputs: dict[str, Any] = {}
    """Left out where they are large."""
    outputs_bytes: int = 0
    """Of all of them, as JSON."""
    missing_outputs: tuple[str, ...] = ()
    """Declared, and without a value."""
    cost_usd: float = 0.0
    tokens: int = 0
    duration_s: float = 0.0


class StepStarted(_StepEvent, frozen=True, kw_only=True, tag="step.started"):
    kind: str
    count: int | None = None
    """Of a batch: how many items."""
    done: int = 0
    """Of these, before it was resumed."""


class StepProgress(_StepEvent, frozen=True, kw_only=True, tag="step.progress"):
    """What a step does at the moment; at most one in half a second, so not every action has one."""

    action: str = ""
    """The tool that an agent uses, the line that a command has written."""
    count: int | None = None
    done: int = 0
    """Items or turns, those that failed included."""
    failed: int = 0
    cost_usd: float = 0.0
    """Of all units of the step so far."""


class StepRetried(_StepEvent, frozen=True, kw_only=True, tag="step.retried"):
    attempt: int
    """The one that follows."""
    wait_s: float
    reason: str


class StepAsked(_StepEvent, frozen=True, kw_only=True, tag="step.asked"):
    """A person is asked; the execution continues when the approval is answered."""

    approval_id: str
    kind: Literal["tool_call", "question", "plan", "step"]
    """`step`: the step itself; `tool_call`: a call of it, or of its agent, that a rule wants approved."""
    title: str
    detail: str = ""
    """The beginning, where it is long."""
    values: dict[str, Any] = {}
    """Shown beside it; a value that is too long is `{"cut": its beginning, "bytes": its size}`."""
    choices: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Of a form: those that must be filled in."""
    reason: str = ""
    rule: str = ""
    """The rule that wants it approved."""
    layer: str = ""
    """Where that rule comes from."""
    risk: Literal["", "low", "medium", "high"] = ""
    expires_s: float = 0.0
    """Seconds from this event until silence becomes a no; 0: never."""
    fingerprint: str = ""
    """The hash of exactly what is asked; an answer that names another one is refused."""
    run_id: str = ""
    """Of a step's agent: the run that asks, and gets the answer."""


class StepAnswered(_StepEvent, frozen=True, kw_only=True, tag="step.answered"):
    approval_id: str
    approved: bool
    choice: str = ""
    by: str = ""
    """Who answered: `user:ID`, `program`, `nobody` …"""
    reason: str = ""


class UnitEnded(_StepEvent, frozen=True, kw_only=True, tag="unit.ended"):
    """One item of a batch or one turn of a loop that failed, cost something or took its time; others are only counted
    in `step.progress`.
    """

    status: Status
    duration_s: float = 0.0
    cost_usd: float = 0.0
    tokens: int = 0
    attempts: int = 1
    run_id: str | None = None
    """The agent's run."""
    failure: Failure | None = None
    outputs_bytes: int = 0


class StepEnded(_StepEvent, frozen=True, kw_only=True, tag="step.ended"):
    """Stored together with the outcome of the step: there is one for each step that is done."""

    status: Status
    branch: str | None = None
    """Which way of its `next` was taken."""
    duration_s: float = 0.0
    cost_usd: float = 0.0
    tokens: int = 0
    attempts: int = 1
    """The most that one of its units took."""
    units: int = 1
    """Items of a batch, turns of a loop."""
    run_id: str | None = None
    """The agent's run, of a step with one unit."""
    failure: Failure | None = None
    is_known: bool = False
    """An earlier execution has done it; its outcome was taken over."""
    is_cached: bool = False
    """Its outputs were taken from the cache."""
    outputs_bytes: int = 0


class StepWarning(_StepEvent, frozen=True, kw_only=True, tag="warning"):
    """Why a step is degraded, or what its author should know."""

    kind: str
    message: str


class CostUpdated(_ExecutionEvent, frozen=True, kw_only=True, tag="cost.updated"):
    """What the whole execution has cost so far, an estimate at list prices; at most one in a second."""

    cost_usd: float
    tokens: int = 0


class UnknownEvent(_ExecutionEvent, frozen=True, kw_only=True, tag="unrecognised"):
    """Of a later version of leadrope, kept as it is stored."""

    reason: str
    raw: str


ExecutionEvent = (
    ExecutionQueued
    | ExecutionStarted
    | ExecutionResumed
    | ExecutionWaiting
    | ExecutionPaused
    | ExecutionUnpaused
    | ExecutionInterrupted
    | ExecutionEnded
    | StepStarted
    | StepProgress
    | StepRetried
    | StepAsked
    | StepAnswered
    | UnitEnded
    | StepEnded
    | StepWarning
    | CostUpdated
    | UnknownEvent
)


class ExecutionRecord(msgspec.Struct, frozen=True, gc=False):
    """An event in its place: `seq` has no gaps within an execution."""

    execution_id: str
    epoch: int
    """Which claim of the execution wrote it; 0 before the first."""
    seq: int
    time: float
    """Seconds since the epoch."""
    event: ExecutionEvent


@functools.cache
def decoder() -> msgspec.json.Decoder[ExecutionEvent]:
    return msgspec.json.Decoder(ExecutionEvent)
