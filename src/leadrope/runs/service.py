"""The one door to runs for everything above: start, list, follow, answer, stop, and what comes after a crash.

    async with Service(environ) as service:
        job = await service.start(RunRequest(prompt="fix the failing test"), approver=console, show=print)
        result = await job.result()

Every process that owns runs has one. They share the store: a run is started by one of them, and seen, answered and
stopped from any.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from leadrope import errors
from leadrope.core import actors, home
from leadrope.core import config as configs
from leadrope.core.execution_events import ExecutionRecord
from leadrope.core.request import RunRequest
from leadrope.runs import leases, recover, settings, stores
from leadrope.runs.executions.controls import ExecutionControls
from leadrope.runs.executions.queue import Carry, ExecutionQueue
from leadrope.runs.executions.values import ExecutionInfo, ExecutionTruncated
from leadrope.runs.observe.observers import Observers
from leadrope.runs.queries import Queries
from leadrope.runs.records import lost_ends
from leadrope.runs.records.values import LIVE, Approval, RunInfo
from leadrope.runs.run_endings import RunEndings
from leadrope.runs.run_loop import RunLoop, RunsInHand
from leadrope.runtime.gate.approvers import Answer, Approve, Approver
from leadrope.storage import patience
from leadrope.storage.patience import Patience

if TYPE_CHECKING:
    from leadrope.runs.approvals.step_approvals import StepApprovals
    from leadrope.runs.cleanup import Pruned
    from leadrope.runs.executions.protocols import ExecutionStore, WatchRecord
    from leadrope.runs.job import Job
    from leadrope.runs.reruns import Continuation, Tell
    from leadrope.runs.run_recorder import Show
    from leadrope.runs.run_starts import Functions, RunStarts
    from leadrope.runs.steering import RunSteering
    from leadrope.runs.stored_starts import StoredStarts
    from leadrope.runtime.run import Run


log = logging.getLogger("leadrope.runs")

DRAIN_S = 8.0
"""What runs get to end in when their owner is told to end; the whole takes at most 10 s."""
OPEN_S = 2.0
"""How long whoever only looks waits for a process that holds the store."""


class Service(Queries):
    """The runs and executions of one user: start, list, follow and stop them, and answer what they ask.

    async with Service() as service:
        job = await service.start(RunRequest(prompt="Say hello", mode="plan"))
        result = await job.result()

    Leaving it ends the runs that it started, except for detached ones, which another process continues.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        kind: str = "terminal",
        config: configs.Config | None = None,
        works: bool = False,
        revives: bool = False,
        reads: bool = False,
        carry: Carry | None = None,
    ) -> None:
        """`works`: takes runs from the queue whoever put them there; else only those that it was given itself.

        `carry`: carries out executions of workflows, which it then takes from the queue as well. `revives`: starts the
        background process for what is in the queue and nobody owns, for as long as it is open.
        `reads`: for looking alone. A store that is full, read-only or locked is then opened for reading (`read_only`).
        """
        self._environ = dict(os.environ if environ is None else environ)
        self.home = home.leadrope_home(self._environ)
        known = {**home.load_env(self.home), **self._environ}
        self.config = config or configs.load(known)
        self.settings, self.budgets = settings.read(self.config.service, self.config.budgets, self.config.source)
        settings.check_others(self.config)
        found = stores.of(self.home, lambda: self.lease.owner.id)
        super().__init__(found.runs, found.executions)
        self.executions: ExecutionStore = found.executions
        self.execution_queue = ExecutionQueue(self, carry)
        self.controls = ExecutionControls(self)
        self._observers = Observers(self.config, known)
        self._kind = kind
        self._works = works
        self._reads = reads
        self.read_only: errors.LeadropeError | None = None
        """Why the store could be opened for reading only."""
        self._hand = RunsInHand()
        self._endings = RunEndings(self, self._hand)
        self._loop = RunLoop(self, self._hand, self._endings, self._observers, works=works, revives=revives)
        self._closing = asyncio.Event()
        self._impatient = asyncio.Event()
        """Set when nobody waits for the store any more."""

    # -- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except (errors.StoreFull, errors.StoreBusy, errors.StoreUnreadable, errors.BadConfig) as error:
            if not self._reads:
                raise
            # Whoever only looks is shown what is there, whatever keeps others from writing.
            self.store, self.executions = stores.of(self.home)
            self.store.open_read_only(error)
            self.read_only = error
            return self
        self._loop.begin()
        return self

    async def _open(self) -> None:
        home.ensure(self.home)
        self.store.start(OPEN_S if self._reads else None)
        try:
            self.lease = leases.Lease(self.home, self._kind)
            self._endings.begin(self.lease.owner.id)
            try:
                await recover.reconcile(self.store, self.executions, self.home)
                await self.store.add_owner(self.lease.owner)
            except BaseException:
                self.lease.release()
                raise
        except BaseException:
            self.store.close()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Ends what runs here and says so in the store. A detached run goes back to the queue, for the next owner."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._impatient.set()
        if self.read_only is not None:
            self.store.close()
            return
        began = time.monotonic()
        await self._loop.end()
        await self.execution_queue.close(drain_s)
        await self._loop.drain(began + drain_s)
        await self._observers.close(max(0.5, DRAIN_S + 1 - (time.monotonic() - began)))
        self.store.hurry()
        try:
            await self._endings.end_late()
            await self.executions.release()
            await self.store.drop_owner(self.lease.owner.id)
        except errors.StoreError as error:
            # The lease ends with this process, and the next one that can write puts the rows right.
            log.debug("the store could not be told that %s ends: %s", self.lease.owner.id, error.message)
        self._endings.close()
        self.lease.release()
        self.store.close()

    def patience(self, name: str, hold: patience.Hold) -> Patience:
        """How long an execution waits for a store that is full or locked; the background process waits for ever."""
        wait_s = math.inf if self._works else self.settings.store_wait_s
        return Patience(name, wait_s, self._impatient, hold)

    def stop_waiting(self) -> None:
        """Nothing waits for room in the store any more, now or at its end: what cannot be written is lost."""
        self._impatient.set()
        for job in self._hand.jobs.values():
            if job.recorder is not None:
                job.recorder.give_up()

    @property
    def is_closing(self) -> bool:
        """It was told to end: what it leaves is continued by the next owner."""
        return self._closing.is_set()

    @property
    def is_attending(self) -> bool:
        """It takes runs whose turn has come, and carries out what others ask for."""
        return not self._loop.is_over

    @property
    def is_idle(self) -> bool:
        """No run and no execution is in hand here."""
        return not self._hand.jobs and self.execution_queue.is_idle

    @property
    def is_at_work(self) -> bool:
        """An agent or an execution is at work here."""
        return any(job.run is not None for job in self._hand.jobs.values()) or not self.execution_queue.is_idle

    async def has_queue(self) -> bool:
        """Runs or executions wait that this process will take up; not those that it could not start."""
        waiting = await self.store.waiting_for(self.lease.owner.id)
        if not self._endings.are_all_stored or await self.execution_queue.has_queue():
            return True
        return any(run_id not in self._hand.held for run_id in waiting)

    @property
    def step_approvals(self) -> StepApprovals:
        """What the steps of executions have asked."""
        from leadrope.runs.approvals.step_approvals import StepApprovals  # noqa: PLC0415  # few steps ask

        return StepApprovals(self.store)

    @property
    def is_store_removed(self) -> bool:
        """Somebody has deleted the store: what is written now, nobody reads."""
        return self.store.is_removed

    @property
    def environ(self) -> Mapping[str, str]:
        """That of the process, or what it was given in its place."""
        return self._environ

    def poke(self) -> None:
        """Look at the queue now."""
        self._hand.poke.set()

    def configured(self, config: configs.Config) -> Service:
        """This service, for whoever starts runs with another configuration: an execution has the one it began with."""
        import copy  # noqa: PLC0415  # only here

        other = copy.copy(self)
        other.config = config
        return other

    async def _noted(self, rows: list[RunInfo]) -> list[RunInfo]:
        """Where nothing can be put right, a run whose owner has died says so."""
        rows = await super()._noted(rows)
        if self.read_only is None:
            return rows
        owners = {owner.id: owner for owner in await self.store.owners()}

        def is_left(row: RunInfo) -> bool:
            owner = owners.get(row.owner or "")
            return row.state in LIVE and (owner is None or not leases.is_alive(self.home, owner))

        def noted(row: RunInfo) -> RunInfo:
            end = lost_ends.of_owner(self.home, row.owner or "").get(row.id)
            note = f"it ended {end.outcome}; {lost_ends.REASON}" if end else "its owner has died"
            return msgspec.structs.replace(row, note=note)

        try:
            return [noted(row) if is_left(row) else row for row in rows]
        except errors.StoreError:
            return rows  # another user's: nobody can tell

    def follow_execution(
        self, execution_id: str, from_seq: int = 1, *, live: bool = True
    ) -> AsyncIterator[ExecutionRecord | ExecutionTruncated]:
        """What is stored of an execution, then what comes: each event once, in order."""
        from leadrope.runs import feed  # noqa: PLC0415  # only who follows one

        return feed.follow_execution(self.store, self.executions, execution_id, from_seq, live=live)

    async def watch_execution(self, execution: ExecutionInfo, *, is_answerable: bool) -> WatchRecord | None:
        """Who looks on while an execution runs here; None where nobody does."""
        return await self._observers.watch_execution(execution, is_answerable=is_answerable)

    async def revive(self) -> str | None:
        """Start the background process if the queue holds runs that nobody owns; see `background.revive`."""
        if self._works or self.read_only is not None:
            return None
        from leadrope.runs import background  # noqa: PLC0415  # only where there is a queue

        return await background.revive(self.store, self.executions, self.home)

    # Agents are what these are for; a workflow of commands does not load them. They keep nothing: see `RunsInHand`.

    def _starting(self) -> RunStarts:
        from leadrope.runs.run_starts import RunStarts  # noqa: PLC0415  # as said above

        return RunStarts(self, self._hand, self._stored())

    def _stored(self) -> StoredStarts:
        from leadrope.runs.stored_starts import StoredStarts  # noqa: PLC0415  # the same

        return StoredStarts(self, self._hand)

    def _steering(self) -> RunSteering:
        from leadrope.runs.steering import RunSteering  # noqa: PLC0415  # the same

        return RunSteering(self, self._hand)

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def start(
        self,
        request: RunRequest,
        *,
        approver: Approver | None = None,
        show: Show | None = None,
        environ: Mapping[str, str] | None = None,
        is_detached: bool = False,
        functions: Functions = (),
        execution_id: str | None = None,
        **options: Any,
    ) -> Job:
        """Queue a run and take it up here, and nowhere else, as soon as its turn comes.

        `is_detached`: nobody sits before it. If this process dies, another one goes on with it. `functions` are those
        of `open_run`; a run that has some lives and dies with this process. `execution_id`: it is the work of a step of
        this execution, which continues it if this process dies.
        """
        return await self._starting().start(
            request,
            approver=approver,
            show=show,
            environ=environ,
            is_detached=is_detached,
            functions=functions,
            execution_id=execution_id,
            **options,
        )

    async def adopt(
        self,
        run: RunInfo,
        request: RunRequest,
        execution_id: str,
        *,
        approver: Approver | None,
        show: Show | None,
        environ: Mapping[str, str],
    ) -> Job | None:
        """Continue the run of a step that waits for its execution, here; None when it does not wait like that."""
        return await self._starting().adopt(run, request, execution_id, approver=approver, show=show, environ=environ)

    async def open(
        self,
        request: RunRequest,
        *,
        approver: Approver | Approve | None = None,
        environ: Mapping[str, str] | None = None,
        config: configs.Config | None = None,
        functions: Functions = (),
        place: dict[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        """A started run whose events the caller reads himself, as `open_run` gives it; kept like every other."""
        return await self._starting().open_run(
            request, approver=approver, environ=environ, config=config, functions=functions, place=place, **options
        )

    async def enqueue(self, request: RunRequest, *, functions: Functions = (), **options: Any) -> RunInfo:
        """Queue a run for any owner that works; its credential is the owner's to find. It takes no functions."""
        return await self._starting().enqueue(request, functions=functions, **options)

    async def take_up(self, run_id: str, *, environ: Mapping[str, str]) -> RunInfo:
        """Start a run of the queue that nobody owns, now; `environ` has the variables that were not stored with it.

        Raises what would keep it in the queue: a secret or a credential that is not found.
        """
        return await self._starting().take_up(run_id, environ=environ)

    async def control(self, run_id: str, kind: str, **body: Any) -> None:
        """Ask the run's owner, whoever that is."""
        await self._steering().control(run_id, kind, **body)

    async def stop(self, run_id: str, reason: str = "stopped by a person") -> None:
        """A run that waits is ended here and now; one that runs is ended by its owner."""
        await self._steering().stop(run_id, reason)

    async def interrupt(self, run_id: str) -> None:
        """End the current turn; the conversation continues."""
        await self._steering().interrupt(run_id)

    async def send(self, run_id: str, text: str) -> None:
        """Send a message to a conversation."""
        await self._steering().send(run_id, text)

    async def pause(self, run_id: str) -> None:
        """Hold the next tool call, or the next turn; the clocks stand still until `unpause`."""
        await self._steering().pause(run_id)

    async def unpause(self, run_id: str) -> None:
        """Continue after `pause`."""
        await self._steering().unpause(run_id)

    async def revoke(self, run_id: str, pattern: str, *, by: str = actors.USER) -> None:
        """End a grant of a run, wherever that runs. Returns when it no longer holds; what it let through stays done."""
        await self._steering().revoke(run_id, pattern, by=by)

    async def answer(self, approval_id: str, answer: Answer) -> Approval:
        """Answer a pending approval, once; the first answer counts, and continues what has waited for it.

        One that does not fit what is asked now is refused, and the approval stays pending.
        """
        return await self._steering().answer(approval_id, answer)

    # -- doing again, and forgetting ----------------------------------------------------------------------------------

    async def again(self, run_id: str, *, prompt: str | None = None) -> tuple[RunInfo, RunRequest]:
        """The request of a run that has ended: the same once more, or with a prompt in its session."""
        from leadrope.runs.reruns import Reruns  # noqa: PLC0415  # only here

        return await Reruns(self, self._stored()).again(run_id, prompt=prompt)

    async def resume(self, run_id: str, prompt: str | None, environ: Mapping[str, str], *, tell: Tell) -> Continuation:
        """Continue a run: one that is paused, one that nobody supervises any more, or an ended one; see `Reruns`."""
        from leadrope.runs.reruns import Reruns  # noqa: PLC0415  # only here

        return await Reruns(self, self._stored()).resume(run_id, prompt, environ, tell=tell)

    async def retry(self, run_id: str, environ: Mapping[str, str], *, tell: Tell) -> str:
        """Run the same request again, from the beginning, in the background; the id of the new run."""
        from leadrope.runs.reruns import Reruns  # noqa: PLC0415  # only here

        return await Reruns(self, self._stored()).retry(run_id, environ, tell=tell)

    async def delete(self, run_ids: Iterable[str]) -> int:
        """Ended runs, with their events, worktrees and checkpoints; one that has not ended is refused."""
        from leadrope.runs.cleanup import Cleanup  # noqa: PLC0415  # only here

        return await Cleanup(self).delete(run_ids)

    async def prune(
        self, *, keep_days: float | None = None, keep_runs: int | None = None, dry_run: bool = False
    ) -> Pruned:
        """Delete old runs and executions, by default as configured; see `Cleanup`."""
        from leadrope.runs.cleanup import Cleanup  # noqa: PLC0415  # only here

        return await Cleanup(self).prune(keep_days=keep_days, keep_runs=keep_runs, dry_run=dry_run)

    async def keep_changes(self, run_id: str, changes: str) -> None:
        """What `runs diff` shows of a run whose folder will be gone."""
        from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # as above

        await self.store.add_artifact(await self.get(run_id), run_workspace.CHANGES, "text/x-diff", changes.encode())
