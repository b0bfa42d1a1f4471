"""What is kept of workflows: one execution (a flow), its units, what it asks of people, cached outputs, datasets.

Values only, no database. The words of a workflow's own files (steps, batches, templates) mean nothing here: a unit is
known by the name of its step and two numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from leadrope.core.execution_events import ExecutionEvent

if TYPE_CHECKING:
    from leadrope.storage.db import Db

ExecutionState = Literal["queued", "running", "waiting", "paused", "interrupted", "ended"]
"""queued: the next owner that works takes it, or the one that it names. running: has a living owner. waiting: for a
person, without an owner, for days if need be; an answer queues it. paused: by a person; its owner, if it has one,
starts nothing more. interrupted: its owner died or left it, and a person decides. All but `ended` can be claimed."""
Recover = Literal["fail", "resume"]
"""What becomes of an execution whose owner died: `resume` puts it back into the queue, `fail` leaves it interrupted."""
ExecutionOutcome = Literal["succeeded", "degraded", "failed", "stopped"]
UnitStatus = Literal["succeeded", "degraded", "failed", "skipped"]

DIED = "its owner died"
UNIT_BYTES = 100_000
"""Of the outputs of a unit that are shown; a page freezes on half a megabyte."""
STEP_TOTAL = -1
"""The iteration of what a step with a loop or a batch came to as a whole; it has no item."""


class UnitKey(Protocol):
    """A unit of a flow: `(step, iteration, item)`. The workflow's own keys fit, and so do outcomes."""

    @property
    def step(self) -> str: ...
    @property
    def iteration(self) -> int:
        """From 0; STEP_TOTAL for the step itself, where that is not its only unit."""
        ...

    @property
    def item(self) -> int | None: ...


class NewExecution(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    text: str
    """The workflow as it is started, whole."""
    name: str = ""
    file: str = ""
    title: str = ""
    cwd: str = ""
    inputs: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    """What it was started with beside its inputs."""
    called: Mapping[str, Any] = {}
    """The texts of the workflows that it calls, and where they are."""
    parent: str | None = None
    parent_key: str = ""
    """Which unit of the parent it is the work of."""
    labels: dict[str, str] = {}
    state: Literal["running", "queued"] = "running"
    recover: Recover = "fail"
    priority: int = 0
    not_before: float = 0.0
    note: str = ""


class ExecutionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One flow as a row: cheap to list, no text, no outcomes."""

    n: int
    """The store's own number; ids are for people."""
    id: str
    name: str = ""
    file: str = ""
    title: str = ""
    digest: str
    """sha256 of the text as it was given. A stored text that lost a secret has another one."""
    cwd: str = ""
    state: ExecutionState
    outcome: ExecutionOutcome | None = None
    owner: str | None = None
    epoch: int = 0
    """How often it was claimed. What an owner writes names its own number, and is refused after the next claim."""
    recover: Recover = "fail"
    priority: int = 0
    not_before: float = 0.0
    note: str = ""
    """Why it waits."""
    created: float
    started: float | None = None
    """When it was claimed first."""
    ended: float | None = None
    """Or when it was interrupted."""
    last_seq: int = 0
    first_seq: int = 1
    """Above 1 when older events were pruned."""
    cost_usd: float = 0.0
    """Of the units so far, and of the end when it is told."""
    tokens: int = 0
    parent: str | None = None
    parent_key: str = ""
    labels: dict[str, str] = {}


class ExecutionTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The long parts of a flow, read one flow at a time."""

    text: str
    inputs: dict[str, Any]
    settings: dict[str, Any]
    called: dict[str, Any] = {}
    """The workflows that it calls, as they were when it was started."""
    result: Any = None
    redacted: frozenset[str] = frozenset()
    """Which of these lost a secret when they were stored, and are not good for another start."""


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    state: ExecutionState | None = None
    outcome: ExecutionOutcome | None = None
    is_open: bool = False
    """Only executions that run or can be continued: not ended, or stopped."""
    is_top: bool = False
    """Only executions that are not part of another one."""
    name: str | None = None
    file: str | None = None
    cwd: str | None = None
    label: tuple[str, str] | None = None
    since: float = 0.0
    before: int | None = None
    """The `n` of the last flow of the page before."""
    limit: int = 50


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A warning. `kind` is for programs."""

    kind: str
    message: str


class UnitProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    message: str
    hint: str | None = None
    code: int | None = None
    """The exit code that the author of the workflow has chosen."""


class UnitOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one unit came to. There is one for each key of a flow, for ever."""

    step: str
    iteration: int = 0
    item: int | None = None
    status: UnitStatus
    branch: str | None = None
    outputs: dict[str, Any] = {}
    warnings: tuple[Remark, ...] = ()
    error: UnitProblem | None = None
    cost_usd: float = 0.0
    tokens: int = 0
    run_id: str | None = None
    attempts: int = 1
    started: float = 0.0
    ended: float = 0.0
    """0: when it is stored."""
    is_sum: bool = False
    """Cost and tokens are those of other units, and are not counted once more; so for every whole."""
    is_redacted: bool = False
    """Set by the store: a secret was taken out, so these are not the values that later steps would need."""
    n: int = 0
    """The store's own number, in the order in which units were settled; for those who follow."""

    @property
    def is_whole(self) -> bool:
        return self.iteration == STEP_TOTAL

    @property
    def key(self) -> tuple[str, int, int | None]:
        return self.step, self.iteration, self.item


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that was started."""

    step: str
    iteration: int
    item: int | None
    times: int
    """Above 1: it was cut off before."""
    first: float
    last: float


class UnitData(msgspec.Struct, frozen=True, kw_only=True):
    """What one unit was given and what it gave, for whoever looks: secrets are masked, long values are cut."""

    step: str
    iteration: int
    item: int | None
    times: int
    """How often it was begun."""
    inputs: dict[str, Any]
    """A value that is too long is `{"cut": its beginning, "bytes": its size}`, here and in the outputs."""
    inputs_bytes: int
    """Of all of them, as JSON."""
    status: UnitStatus | None = None
    """None: it has no outcome yet."""
    outputs: dict[str, Any] = {}
    outputs_bytes: int = 0
    run_id: str | None = None


class ExecutionControl(msgspec.Struct, frozen=True, kw_only=True):
    """What another process wants of an execution's owner: stop, pause, unpause."""

    n: int
    execution_id: str
    kind: str
    body: dict[str, Any]


class ExecutionTruncated(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="truncated"):
    """In place of events that were asked for and are no longer kept: never a silent gap."""

    execution_id: str
    first_seq: int
    last_seq: int


class Cached(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    type: str
    """Of the step."""
    created: float
    outputs: dict[str, Any]


class DatasetInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    columns: tuple[str, ...]
    count: int
    bytes: int
    """Of its rows as JSON."""
    execution_id: str | None
    """Who wrote it last; that flow may be gone."""
    updated: float
    is_redacted: bool = False


class Dataset(DatasetInfo, frozen=True, kw_only=True):
    rows: list[dict[str, Any]]


class Settled(NamedTuple):
    """An outcome that is ready to be written, with the events that are stored together with it."""

    write: Callable[[Db], None]
    told: Sequence[ExecutionEvent]
    is_redacted: bool
