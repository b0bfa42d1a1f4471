"""What is kept of workflows, and what callers may ask of whatever keeps it. Signatures, no database.

As `records.protocols`: every read is awaited, and what an owner writes names its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from leadrope.core.execution_events import ExecutionEvent, ExecutionRecord
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions import bodies
from leadrope.runs.executions.values import (
    DIED,
    UNIT_BYTES,
    Begun,
    Cached,
    Dataset,
    DatasetInfo,
    ExecutionControl,
    ExecutionFilter,
    ExecutionInfo,
    ExecutionOutcome,
    ExecutionTexts,
    NewExecution,
    Recover,
    Settled,
    UnitData,
    UnitKey,
    UnitOutcome,
)
from leadrope.runs.records.values import Approval, ApprovalKind

ShowRecord = Callable[[ExecutionRecord], None]
WatchRecord = Callable[[ExecutionRecord, Redactor], None]


class ExecutionReads(Protocol):
    """Executions as they are stored; see `ExecutionInfo`."""

    async def get(self, execution_id: str) -> ExecutionInfo: ...

    async def find(self, prefix: str) -> ExecutionInfo:
        """A flow by its id or the beginning of it."""
        ...

    async def ids_beginning(self, prefix: str) -> list[str]:
        """Only the first few; none for nothing."""
        ...

    async def listing(self, wanted: ExecutionFilter = ...) -> list[ExecutionInfo]:
        """The newest first."""
        ...

    async def last_of(self, *, name: str = "", file: str = "") -> ExecutionInfo | None:
        """The newest flow of that file, or of that name; not one that is part of another."""
        ...

    async def children(self, execution_id: str, parent_key: str = "") -> list[ExecutionInfo]:
        """Flows that are the work of one of its units, the oldest first."""
        ...

    async def outermost(self, execution: ExecutionInfo) -> ExecutionInfo:
        """The execution that called it, and so on: whose log, queue and controls are those of all inside it."""
        ...

    async def texts(self, execution_id: str) -> ExecutionTexts: ...

    async def text(self, execution_id: str) -> str: ...

    async def inputs(self, execution_id: str) -> dict[str, Any]: ...

    async def result(self, execution_id: str) -> Any:
        """What `end` was given; None while it has not ended."""
        ...

    async def outcomes(self, execution_id: str, *, step: str | None = None, after: int = 0) -> list[UnitOutcome]:
        """In the order in which they were settled; `after` the one of that `n`, for those who follow."""
        ...

    async def begun(self, execution_id: str, *, is_all: bool = False) -> list[Begun]:
        """Units that were started and have no outcome: they run, or were cut off. `is_all`: also those that have."""
        ...

    async def done_units(self, execution_id: str) -> int:
        """How many outcomes it has, those of called workflows included."""
        ...

    async def unit(
        self, execution_id: str, step: str, iteration: int = 0, item: int | None = None, *, most: int = UNIT_BYTES
    ) -> UnitData:
        """What events refer to: the values of one unit, at most so many bytes of its outputs."""
        ...

    async def read_events(
        self, execution: ExecutionInfo, seq: int, limit: int, *, type_: str | None = None
    ) -> list[ExecutionRecord]:
        """Of its log, from `seq` on; none when there are no more. Called workflows have theirs in the caller's log."""
        ...

    async def events(self, execution: ExecutionInfo, seq: int, limit: int = 500) -> list[ExecutionRecord]:
        """As `read_events`, in a thread."""
        ...

    async def all_events(self, execution: ExecutionInfo, *, type_: str | None = None) -> list[ExecutionRecord]: ...

    async def queued_for(self, owner: str, until: float) -> list[str]:
        """Executions in the queue that this owner may take up by then."""
        ...

    async def left_over(self, now: float) -> list[str]:
        """Executions that may start and have no owner, the first first."""
        ...

    async def next_due(self, now: float) -> float | None:
        """When an execution that waits for a time may start."""
        ...


class ExecutionWrites(Protocol):
    """The life of an execution.

    Whoever writes has claimed it (`ExecutionInfo.owner`, `epoch`), and gets NotOwner after the next claim.
    """

    async def add(
        self,
        new: NewExecution,
        redactor: Redactor,
        *,
        is_mine: bool = False,
        most: int | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """A flow that runs, here; or one that is queued, for any owner or, `is_mine`, for this one.

        `most`: of all that may be queued; QueueFull beyond. `told` are its first events, of one that is queued.
        """
        ...

    async def claim(self, execution_id: str) -> ExecutionInfo:
        """Take over a flow that is queued, waits, was interrupted or was stopped. Of several that try, one gets it.

        From then on whoever had it, or a flow inside it, can write nothing more: each claim has a number of its own.
        """
        ...

    async def claim_next(self, most: int, *, recover: Recover) -> ExecutionInfo | None:
        """The next execution of the queue, now this owner's; None where none may start. `most` are carried at once.

        Whoever started it has left: `recover` says what becomes of it if this owner dies.
        """
        ...

    async def set_state(
        self,
        execution: ExecutionInfo,
        state: Literal["waiting", "interrupted", "queued", "paused"],
        note: str = "",
        *,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """This owner leaves it, for whoever claims it next."""
        ...

    async def requeue(
        self,
        execution: ExecutionInfo,
        *,
        note: str,
        not_before: float = 0.0,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> None:
        """This owner leaves it to the next one, which does not begin before that time."""
        ...

    async def wake(self, execution: ExecutionInfo) -> bool:
        """Let an execution that waits in the queue for a time start at once; False when it does not wait like that."""
        ...

    async def wait_for(
        self,
        execution: ExecutionInfo,
        approval_ids: Sequence[str],
        *,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """This owner leaves it until one of these is answered; it is queued at once if one was answered meanwhile."""
        ...

    async def change_text(
        self, execution: ExecutionInfo, text: str, redactor: Redactor, *, title: str | None = None
    ) -> ExecutionInfo:
        """It goes on as another text than it was started with; somebody has said so."""
        ...

    async def end(
        self,
        execution: ExecutionInfo,
        outcome: ExecutionOutcome,
        result: Any,
        redactor: Redactor,
        *,
        cost_usd: float = 0.0,
        tokens: int = 0,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """`result` as JSON, for later. Cost and tokens count where they are more than those of the units."""
        ...

    async def release(self) -> int:
        """Every flow that this owner has left unfinished is interrupted or queued: it ends, and says so itself."""
        ...

    async def abandon(self, left: Sequence[tuple[str, str]], reason: str = DIED) -> int:
        """Executions, with their owners, that nobody works on any more are queued or interrupted; how many."""
        ...

    async def stale(self, *, keep_s: float, keep_executions: int) -> list[str]:
        """Ended and interrupted executions that are older than `keep_s`, beyond the newest `keep_executions`."""
        ...

    async def delete(self, execution_ids: Iterable[str]) -> int:
        """With everything that belongs to them, also the executions inside. One that runs or waits is refused."""
        ...


class Units(Protocol):
    """Each unit of an execution, and its one outcome."""

    async def begin(self, execution: ExecutionInfo, *keys: UnitKey) -> None:
        """These units start now. Refused for one that has an outcome: it would be done twice."""
        ...

    def begin_soon(self, execution: ExecutionInfo, key: UnitKey, inputs: bodies.Excerpt | None = None) -> None:
        """A unit starts now. Written with the next outcome, or in a moment: it tells of what was cut off, and no more.

        `inputs`: its parameters as they were resolved, for whoever looks. What keeps it from being written keeps the
        outcome from it too, and is told there.
        """
        ...

    async def settled(
        self,
        execution: ExecutionInfo,
        outcome: UnitOutcome,
        redactor: Redactor,
        *,
        told: Callable[[int], Sequence[ExecutionEvent]] = lambda _: (),
    ) -> Settled:
        """The outcome of a unit for `settle_all`; nothing is written yet."""
        ...

    async def settle(
        self,
        execution: ExecutionInfo,
        outcome: UnitOutcome,
        redactor: Redactor,
        *,
        log: EventLog | None = None,
        told: Callable[[int], Sequence[ExecutionEvent]] = lambda _: (),
    ) -> bool:
        """The one outcome of a unit; WrongState for a second. True when a secret was taken out of what is kept.

        `told` gives the events that are stored with it in one transaction; it gets the size of the outputs. TooLarge
        and BadValue (outputs that are no JSON) are raised before anything is written.
        """
        ...

    async def settle_all(self, settled: Sequence[Settled], *, log: EventLog | None = None) -> None:
        """Several outcomes in one transaction: all of them, or none."""
        ...

    async def carry(self, source: ExecutionInfo, execution: ExecutionInfo, steps: Iterable[str]) -> int:
        """The outcomes that these steps have in another flow are this one's too. Their cost is not counted again."""
        ...

    async def ask(
        self,
        execution: ExecutionInfo,
        key: UnitKey,
        kind: ApprovalKind,
        asked: Any,
        *,
        outermost_id: str,
        fingerprint: str,
        redactor: Redactor,
        log: EventLog | None = None,
        told: Callable[[str], ExecutionEvent] | None = None,
    ) -> Approval:
        """A question of a unit; the one that is there already, with its answer, where the same was asked before.

        `outermost_id`: the outermost execution, which continues after the answer. `told` makes the event of a new
        question, which is stored together with it.
        """
        ...


class ControlQueue(Protocol):
    """Stop, pause and resume, from any process."""

    async def set_paused(
        self, execution: ExecutionInfo, log: EventLog | None, told: ExecutionEvent, *, is_paused: bool
    ) -> None:
        """Its owner has paused it, or lets it continue."""
        ...

    async def end_unowned(self, execution: ExecutionInfo, told: ExecutionEvent) -> bool:
        """Stop an execution that nobody works on; False where somebody does."""
        ...

    async def pause_unowned(self, execution: ExecutionInfo, told: ExecutionEvent) -> bool:
        """Pause an execution that waits, in the queue or for a person; False where somebody works on it."""
        ...

    async def queue_paused(self, execution: ExecutionInfo, told: ExecutionEvent) -> bool:
        """Let a paused execution without an owner continue; False where it has one."""
        ...

    async def add_control(self, execution: ExecutionInfo, kind: str, body: Mapping[str, str]) -> None: ...

    async def take_controls(self, execution_ids: Collection[str]) -> list[ExecutionControl]:
        """What others want of these executions of this owner, each once."""
        ...


class StepCache(Protocol):
    """Outputs of steps that other executions may use."""

    async def cache_get(self, key: str) -> Cached | None: ...

    async def cache_put(self, key: str, type_: str, outputs: Mapping[str, Any], redactor: Redactor) -> bool:
        """False for what is not kept: outputs with a secret, which would come back without it, and large ones."""
        ...

    async def cache_clear(self, type_: str = "") -> int:
        """All of it, or the outputs of one type of step."""
        ...

    async def cached(self, type_: str = "") -> int:
        """How many outputs are kept, of all steps or of one type."""
        ...


class Datasets(Protocol):
    """Tables that executions keep for later ones."""

    async def dataset(self, name: str) -> Dataset: ...

    async def datasets(self) -> list[DatasetInfo]: ...

    async def put_dataset(
        self,
        name: str,
        rows: Iterable[Mapping[str, Any]],
        redactor: Redactor,
        *,
        columns: Sequence[str] | None = None,
        execution_id: str | None = None,
        is_added: bool = False,
        key: str | None = None,
    ) -> DatasetInfo:
        """In place of the rows that are there or, `is_added`, behind them. Columns are found where none are given.

        `key`: a column; a new row stands in the place of the one that has the same value in it.
        """
        ...

    async def delete_dataset(self, name: str) -> None: ...


class EventLog(Protocol):
    """The numbered events of one claimed execution. An event is shown once it is stored."""

    watch: WatchRecord | None
    """Who looks on beside the one who is shown it."""

    def tell(self, *events: ExecutionEvent) -> None:
        """Stored with what is written next, or in a moment. What cannot be stored yet is tried again."""
        ...

    async def flush(self) -> None:
        """Returns when all that was told so far is stored and shown."""
        ...

    async def shown(self) -> None:
        """Returns when all that is stored is shown: whoever waits for a write goes on before its events are."""
        ...


class ExecutionStore(ExecutionReads, ExecutionWrites, Units, ControlQueue, StepCache, Datasets, Protocol):
    """All of it."""

    def log_of(
        self, execution: ExecutionInfo, *, redactor: Callable[[], Redactor], show: ShowRecord | None = None
    ) -> EventLog:
        """The log of an execution that this owner has claimed. `show` gets each event once it is stored."""
        ...
