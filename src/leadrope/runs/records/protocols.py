"""What is kept of runs, and what callers may ask of whatever keeps it. Signatures, no database.

Every read is awaited, so that another database can stand behind it. A store that cannot be read is an error, and never
no row. Writes return when they are kept; readers never hold a writer up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from leadrope import errors
from leadrope.core.events import Event, Recorded
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.values import (
    Approval,
    Artifact,
    Decided,
    Filter,
    NewRun,
    Owner,
    Progress,
    RunControl,
    RunInfo,
    RunLimits,
    Spending,
    State,
    Texts,
)
from leadrope.storage.change_notifier import ChangeNotifier


class RunReads(Protocol):
    """Runs as they are stored; see `RunInfo`."""

    async def get(self, run_id: str) -> RunInfo: ...

    async def find(self, prefix: str) -> RunInfo:
        """A run by its id or the beginning of it, as git does with commits."""
        ...

    async def with_prefix(self, prefix: str) -> list[RunInfo]:
        """The runs whose ids begin so: a few of them, if there are many."""
        ...

    async def listing(self, wanted: Filter = ...) -> list[RunInfo]: ...

    async def texts(self, run_id: str) -> Texts: ...

    async def read(self, run: RunInfo, seq: int, limit: int, *, type_: str | None = None) -> list[Recorded]:
        """From `seq` on, at most `limit` events, and fewer where they are large; none when there are no more."""
        ...

    async def events(self, run: RunInfo, seq: int, limit: int = 500) -> list[Recorded]:
        """As `read`, in a thread: a page may hold megabytes."""
        ...

    async def artifacts(self, run: RunInfo) -> list[Artifact]:
        """What is kept of a run beside its events, without the bodies."""
        ...

    async def artifact(self, run: RunInfo, name: str) -> bytes | None: ...

    async def states(self) -> dict[str, int]: ...

    async def cost_since(self, since: float, *, agent: str = "", label: tuple[str, str] | None = None) -> float: ...

    async def spending(self, since: float) -> list[Spending]:
        """What every run since then has cost."""
        ...


class RunWrites(Protocol):
    """The life of a run.

    Whoever writes names the claim by which it has the run (`RunInfo.owner`, `epoch`), and gets NotOwner after the next.
    """

    async def add_run(
        self, new: NewRun, limits: RunLimits | None = None, *, redactor: Redactor | None = None
    ) -> RunInfo:
        """`redactor`: of somebody who knows more secrets than the request itself holds."""
        ...

    async def append(
        self,
        run: RunInfo,
        records: Sequence[Recorded],
        progress: Progress,
        redactor: Redactor,
        *,
        durable: bool = False,
    ) -> None:
        """Events in their order, each once: what is there already is passed over, a gap is refused."""
        ...

    async def add_event(self, run: RunInfo, event: Event, redactor: Redactor) -> bool:
        """An event of a run that waits without an owner, after all that it has; False when it has one, or has ended."""
        ...

    async def set_state(self, run: RunInfo, state: str, note: str = "") -> None: ...

    async def set_policy(self, run: RunInfo, policy: Any, redactor: Redactor) -> None:
        """The rules that hold for it, when all layers have spoken; before its start it has the request's own."""
        ...

    async def set_place(self, run: RunInfo, place: dict[str, Any]) -> None: ...

    async def add_artifact(self, run: RunInfo, name: str, kind: str, body: bytes) -> None: ...

    async def end_run(
        self,
        run: RunInfo,
        result: RunResult,
        redactor: Redactor,
        *,
        last: Recorded | None = None,
        note: str = "",
        only: Sequence[State] = (),
        unowned: bool = False,
    ) -> bool:
        """The outcome, and its event where it is not stored yet; False when the run had ended before.

        `only`: False, too, when the run is in no state of these any more; `unowned`: or when it has an owner.
        """
        ...

    async def requeue(
        self, run: RunInfo, *, attempt: int, note: str, not_before: float = 0.0, owner: str | None = None
    ) -> None:
        """`owner`: the only one who may take it up again."""
        ...

    async def suspend(self, run: RunInfo, *, attempt: int) -> bool:
        """Without an owner until all that it has asked is answered; False when that is so already, and it is queued."""
        ...

    async def adopt(self, run: RunInfo, execution_id: str, owner: str) -> bool:
        """Give a run that is reserved for an execution to the owner of that; False when it is not so any more."""
        ...

    async def wake(self, run: RunInfo) -> bool:
        """Let a run that waits for a time, and for no owner, start at once; False when it does not wait like that."""
        ...

    async def forget_unstarted(self, run_id: str) -> bool:
        """Delete a run that never came to its first event."""
        ...

    async def delete_run(self, run_id: str) -> bool: ...

    async def shrink(self) -> None:
        """Give the room of what was deleted back to the disk."""
        ...


class RunQueue(Protocol):
    """Whose turn it is, and what others ask of a run."""

    async def claim(self, owner: str, limits: RunLimits, *, only: Iterable[str] | None = None) -> RunInfo | None:
        """The next run whose turn it is, now this owner's; None when none may start. `only` these, if given.

        A run that was queued with an owner waits for that one. Runs that are not for the asker keep their turn: the
        asker gets one of its own where there is room for it behind all that come first.
        """
        ...

    async def ahead_of(self, run_id: str) -> int: ...

    async def waiting_for(self, owner: str) -> list[str]:
        """Runs in the queue that this owner may take up, now or later."""
        ...

    async def left_over(self, now: float) -> list[str]:
        """Runs that may start and have no owner, the oldest first."""
        ...

    async def next_due(self, now: float) -> float | None:
        """When something that waits for a time may go on."""
        ...

    async def hold_account(self, account: str, until: float, note: str) -> None: ...

    async def holds(self, now: float) -> dict[str, tuple[float, str]]: ...

    async def add_control(self, run: RunInfo, kind: str, body: dict[str, Any]) -> None: ...

    async def take_controls(self, owner: str) -> list[RunControl]:
        """What others want of this owner's runs, each once."""
        ...


class Owners(Protocol):
    """The processes that have runs and executions, and what dead ones have left."""

    async def add_owner(self, owner: Owner) -> None: ...

    async def drop_owner(self, owner_id: str) -> None: ...

    async def owners(self) -> list[Owner]: ...

    async def runs_of(self, owner: str) -> list[str]: ...

    async def orphans(self) -> list[str]:
        """Runs of owners that nobody knows any more."""
        ...

    async def reserved_in_vain(self) -> list[str]:
        """Runs of steps that wait for an execution which has ended, or is gone."""
        ...

    async def executions_without_owner(self) -> list[tuple[str, str]]:
        """Workflow runs, with the owners they had, that say `running` and are not."""
        ...


class ApprovalStore(Protocol):
    """What people are asked, by runs and by steps; see `Approval`."""

    async def approval(self, approval_id: str) -> Approval: ...

    async def approvals(
        self,
        *,
        state: str = "pending",
        run_id: str = "",
        outermost_id: str = "",
        execution_id: str = "",
        limit: int = 500,
    ) -> list[Approval]:
        """The oldest first; `state` may be empty for all of them.

        `outermost_id`: of an execution with those that it has called; `execution_id`: of one execution alone.
        """
        ...

    async def pending_ids(self, outermost_id: str) -> set[str]:
        """Of an execution with those that it has called; all of them."""
        ...

    async def approvals_beginning(self, prefix: str) -> list[Approval]:
        """Those whose id begins so, pending ones first; only the first few."""
        ...

    async def unused_answers(self, run: RunInfo) -> list[Approval]:
        """Answers of people to earlier attempts of a run that no call has got yet."""
        ...

    async def decide(
        self,
        approval_id: str,
        state: Decided,
        *,
        by: str,
        reason: str = "",
        answer: bytes | None = None,
        fingerprint: str | None = None,
    ) -> bool:
        """True for the one whose answer counts: an approval leaves `pending` once, and only as what was answered.

        What has waited for the answer without an owner is queued in the same transaction.
        """
        ...

    async def use_approval(self, approval_id: str) -> bool:
        """True once for an answer: whoever gets it acts on it, and nobody does again."""
        ...

    async def add_approval(self, run: RunInfo, approval: Approval, *, has_clock: bool = False) -> str:
        """The id of the row that is to be watched: that of an earlier attempt, where the same is still open.

        `has_clock`: the time to answer begins anew.
        """
        ...

    async def close_approvals(self, run: RunInfo, state: Decided, *, by: str, reason: str, attempt: int) -> int: ...

    async def use_earlier(self, run: RunInfo, attempt: int, kind: str, fingerprint: str) -> bytes | None:
        """An answer that came too late for the process that asked, for the same call to the letter; given once."""
        ...

    async def give_back(self, approval_ids: Sequence[str]) -> None:
        """Answers that were taken, and led to nothing yet: the same question finds them again."""
        ...


class RunStore(RunReads, RunWrites, RunQueue, Owners, ApprovalStore, Protocol):
    """All of it, and the life of the store itself."""

    @property
    def where(self) -> str:
        """As messages name it."""
        ...

    @property
    def notifier(self) -> ChangeNotifier:
        """Rung after every change, by whatever process."""
        ...

    @property
    def is_removed(self) -> bool:
        """What is written now, nobody reads."""
        ...

    @property
    def is_for_this_user(self) -> bool:
        """Whether a process of this user could write it."""
        ...

    def start(self, busy_s: float | None = None) -> None:
        """`busy_s`: how long another process that holds the store is waited for."""
        ...

    def close(self) -> None: ...

    def hurry(self) -> None:
        """Wait for other processes for a moment only; see `Writer.hurry`."""
        ...

    def open_read_only(self, reason: errors.LeadropeError | None = None) -> None:
        """For looking alone: every write raises `reason`."""
        ...
