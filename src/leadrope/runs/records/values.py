"""What is kept of runs: values, no database."""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

from leadrope.core.cost.usage import CostLabel
from leadrope.core.events import Recorded, RunEnded
from leadrope.core.request import RunRequest
from leadrope.core.result import Outcome, RunResult

State = Literal["queued", "starting", "running", "waiting", "paused", "parked", "ended"]
LIVE: tuple[State, ...] = ("starting", "running", "waiting", "paused")
"""States that need a living owner; a run in one of them whose owner is dead is reconciled before anybody sees it. Only
`waiting` is also the state of a run without an owner, whose agent was ended until a person has answered."""
RESERVED = "execution:"
"""Before the id of an execution, in place of an owner: the run of a step, which waits until that is continued."""
Decided = Literal["approved", "denied", "expired", "withdrawn"]
ApprovalKind = Literal["tool_call", "question", "plan", "step"]
"""`tool_call`: of an agent, or a command of a step that a rule wants approved. `question`, `plan`: of an agent. `step`:
a step `approval`, or one that says `approval: required`."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run as a row: cheap to list, no request, no events."""

    n: int
    """The store's own number; ids are for people."""
    id: str
    created: float
    started: float | None = None
    ended: float | None = None
    state: State
    outcome: Outcome | None = None
    owner: str | None = None
    epoch: int = 0
    """How often it was claimed. What an owner writes names its own number, and is refused after the next claim."""
    attempt: int = 1
    last_seq: int = 0
    first_seq: int = 1
    """Above 1 when older events were pruned."""
    priority: int = 0
    lane: str = ""
    """Runs of one lane share its turn in the queue."""
    account: str = ""
    """Which credential it will use, as far as that is known; never the credential."""
    not_before: float = 0.0
    note: str = ""
    """Why it waits."""
    title: str = ""
    cwd: str = ""
    provider: str = ""
    agent: str = ""
    model: str = ""
    session_id: str | None = None
    parent: str | None = None
    """The run that this one retries or continues."""
    cost_usd: float = 0.0
    cost_label: CostLabel = "estimate"
    tokens: int = 0
    last_action: str = ""
    error_kind: str | None = None
    labels: dict[str, str] = {}


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    request: RunRequest
    """Without its credential: that is never stored."""
    policy: dict[str, Any] = {}
    title: str = ""
    state: State = "queued"
    owner: str | None = None
    priority: int = 0
    lane: str = ""
    account: str = ""
    not_before: float = 0.0
    note: str = ""
    parent: str | None = None
    place: dict[str, Any] = {}


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """A media type."""
    created: float
    size: int


Spending = tuple[str, str, dict[str, str], float, CostLabel, int, str | None]
"""Of one run: day, model, labels, cost and what to call it, tokens, outcome."""


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """The long texts of a run, read one run at a time."""

    request: RunRequest
    policy: dict[str, Any]
    place: dict[str, Any]
    """What belongs to the folder it works in: worktree, checkpoint."""
    result: RunResult | None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What changes in the row with a batch of events."""

    state: State
    attempt: int
    cost_usd: float
    cost_label: CostLabel = "estimate"
    tokens: int
    model: str
    session_id: str | None
    last_action: str
    cwd: str = ""
    """For a row that does not know it yet: a session that is resumed goes on in its own folder."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    state: State | None = None
    outcome: Outcome | None = None
    is_open: bool = False
    """Only runs that have not ended."""
    cwd: str | None = None
    agent: str | None = None
    label: tuple[str, str] | None = None
    since: float = 0.0
    before: int | None = None
    """The `n` of the last run of the page before."""
    limit: int = 50


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is, or was, asked: by a run, or by a step of an execution."""

    id: str
    """Begins with the id of the run or the execution that asks."""
    kind: ApprovalKind
    state: Literal["pending"] | Decided
    run_id: str = ""
    """Empty where a step asks."""
    attempt: int = 1
    asked_id: str = ""
    """In the events of the run."""
    outermost_id: str = ""
    """The outermost execution; empty where a run asks."""
    execution_id: str = ""
    """The execution that the step belongs to: that one, or one that it has called."""
    step: str = ""
    iteration: int = 0
    item: int | None = None
    fingerprint: str
    requested: float
    decided: float | None = None
    by: str = ""
    """See `leadrope.core.actors`."""
    reason: str = ""
    used: bool = False
    """The run or the step has got this answer; it counts for nothing more."""
    asked: bytes
    """The request, as JSON; see `runs.approvals.requests`."""
    answer: bytes | None = None
    """As JSON; see `runtime.approvals.Answer`."""
    cwd: str = ""
    title: str = ""
    """Of the run or the workflow."""


class RunControl(msgspec.Struct, frozen=True, kw_only=True):
    n: int
    run_id: str
    kind: str
    body: dict[str, Any]


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    pid: int
    boot: str
    kind: str
    started: float


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs at once, on this machine, by all processes together."""

    running: int
    starting: int
    queued: int


class Truncated(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="truncated"):
    """In place of events that were asked for and are no longer kept: never a silent gap."""

    run_id: str
    first_seq: int
    last_seq: int


def ended_event(run_id: str, attempt: int, seq: int, result: RunResult) -> Recorded:
    return Recorded(run_id, attempt, seq, time.time(), "supervisor", RunEnded(result=result))
