"""The one door to runs for everything above: start, list, follow, answer, stop, and what comes after a crash.

    async with Service(environ) as service:
        job = await service.start(RunRequest(prompt="fix the failing test"), approver=console, show=print)
        result = await job.result()

Every process that owns runs has one. They share the store: a run is started by one of them, and seen, answered and
stopped from any.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from leadrope import errors
from leadrope.core import actors, events, home
from leadrope.core import config as configs
from leadrope.core.execution_events import ExecutionRecord
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import check_text
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunResult, not_started
from leadrope.core.secrets.redaction import Redactor, redact
from leadrope.runs import background, feed, grants, leases, recover, run_controls, session_names, settings, stores
from leadrope.runs.approvals import answers, waiting
from leadrope.runs.approvals.step_approvals import StepApprovals
from leadrope.runs.approvals.stored_approver import StoredApprover
from leadrope.runs.approvals.waiting import Suspension
from leadrope.runs.budgets import held_by, remaining
from leadrope.runs.cleanup import Cleanup, Pruned
from leadrope.runs.executions.controls import ExecutionControls
from leadrope.runs.executions.protocols import ExecutionStore, WatchRecord
from leadrope.runs.executions.queue import Carry, ExecutionQueue
from leadrope.runs.executions.values import ExecutionInfo, ExecutionTruncated
from leadrope.runs.observe import jsonlog
from leadrope.runs.observe.observers import Observers
from leadrope.runs.queries import Queries
from leadrope.runs.records import lost_ends, stored_environ, stored_secrets
from leadrope.runs.records.stored_requests import account_of, check_account, placed
from leadrope.runs.records.values import (
    LIVE,
    RESERVED,
    Approval,
    Decided,
    NewRun,
    RunControl,
    RunInfo,
    State,
    ended_event,
)
from leadrope.runs.reruns import FUNCTIONS, Continuation, Reruns, Tell
from leadrope.runs.run_recorder import RunRecorder, Show
from leadrope.runtime.gate.approvers import Answer, Approve, Approver, DenyAll, as_approver
from leadrope.runtime.sessions import session_secrets
from leadrope.runtime.sessions.files import Sessions
from leadrope.storage import patience
from leadrope.storage.patience import Patience

if TYPE_CHECKING:
    from leadrope.runs.job import Job
    from leadrope.runs.run_recorder import RunRecorder, Show
    from leadrope.runtime.connections.functions import Function
    from leadrope.runtime.run import Run

Functions = Sequence["Function[..., Any] | Callable[..., Any]"]

log = logging.getLogger("leadrope.runs")

LOOK_S = 2.0
"""Between two looks for owners that died."""
BURST_S = 0.02
"""What is written within this time is looked at together."""
DRAIN_S = 8.0
"""What runs get to end in when their owner is told to end; the whole takes at most 10 s."""
OPEN_S = 2.0
"""How long whoever only looks waits for a process that holds the store."""
TAKE_UP_S = 5.0
"""How long `take_up` waits for a run that is just being started to be at work, or back in the queue."""
DRAINED = "its owner was told to end"
HOLD_S = 300.0
"""Between two tries at a run that another process left and that cannot be started here: a login may come back."""
_NOT_HERE = (errors.RequestError, errors.InstallError, errors.NotAuthenticated, errors.GitFailed)
"""What keeps a run from starting and can be put right by a person."""
_NEVER_BEGAN = (errors.RequestError, errors.InstallError, errors.NotAuthenticated)
"""Wrong usage, no agent, no login: nothing was run, and lists and statistics do not count it."""


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
        self.step_approvals = StepApprovals(self.store)
        self._cleanup = Cleanup(self)
        self._reruns = Reruns(self)
        self.execution_queue = ExecutionQueue(self, carry)
        self.controls = ExecutionControls(self)
        self._observers = Observers(self.config, known)
        self._kind = kind
        self._works = works
        self._revives = revives
        self._reads = reads
        self.read_only: errors.LeadropeError | None = None
        """Why the store could be opened for reading only."""
        self._unended: dict[str, tuple[RunInfo, RunResult, Redactor, str]] = {}
        """Runs that have ended here, and whose end the store could not take yet; each with a note on what is lost."""
        self._held: set[str] = set()
        """Runs that could not be started here, and wait for a person."""
        self._jobs: dict[str, Job] = {}
        """Runs that this process has in hand, from the queue to the end."""
        self._environs: dict[str, Mapping[str, str]] = {}
        self._suspended: dict[str, Job] = {}
        """Runs without an agent, which wait for a person and may come back here."""
        self._requests: dict[str, RunRequest] = {}
        """As they were asked for. The store's are redacted and have no credential; they are for looks and recovery."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._impatient = asyncio.Event()
        """Set when nobody waits for the store any more."""
        self._poke = asyncio.Event()

    # -- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except (errors.StoreFull, errors.StoreBusy, errors.StoreUnreadable, errors.BadConfig) as error:
            if not self._reads:
                raise
            # Whoever only looks is shown what is there, whatever keeps others from writing.
            self.store, self.executions = stores.of(self.home)
            self.step_approvals = StepApprovals(self.store)
            self.store.open_read_only(error)
            self.read_only = error
            return self
        self._loop_task = asyncio.create_task(self._attend(), name="leadrope service")
        self._loop_task.add_done_callback(self._attended)
        return self

    async def _open(self) -> None:
        home.ensure(self.home)
        self.store.start(OPEN_S if self._reads else None)
        try:
            self.lease = leases.Lease(self.home, self._kind)
            self._lost_ends = lost_ends.LostEnds(self.home, self.lease.owner.id)
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
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.wait((self._loop_task,))
        await self.execution_queue.close(drain_s)
        for job in self._jobs.values():
            if job.recorder is not None:
                job.recorder.give_up()  # there is no time to wait for room in
            if not job.give_up(DRAINED) and job.run is not None:
                self._spawn(self._drain(job, job.run))
        if self._tasks:
            # What does not end in this time is left to the guardian, which outlives us, and to the next owner.
            await asyncio.wait(self._tasks, timeout=max(1.0, drain_s - (time.monotonic() - began)))
        for job in (*self._jobs.values(), *self._suspended.values()):
            job.settle(errors.RunClosed(f"run {job.id} was left in the queue: its service was closed"))
        await self._observers.close(max(0.5, DRAIN_S + 1 - (time.monotonic() - began)))
        self.store.hurry()
        try:
            await self._end_late()
            await self.executions.release()
            await self.store.drop_owner(self.lease.owner.id)
        except errors.StoreError as error:
            # The lease ends with this process, and the next one that can write puts the rows right.
            log.debug("the store could not be told that %s ends: %s", self.lease.owner.id, error.message)
        self._lost_ends.close()
        self.lease.release()
        self.store.close()

    async def _drain(self, job: Job, run: Run) -> None:
        """What a person is asked stays open, if the next owner can use the answer."""
        from leadrope.runs.approvals import waiting  # noqa: PLC0415  # workflows without agents do not need it

        if not (job.waits and await run.suspend(waiting.ENDED_WITH_OWNER)):
            await run.stop(DRAINED)

    def patience(self, name: str, hold: patience.Hold) -> Patience:
        """How long an execution waits for a store that is full or locked; the background process waits for ever."""
        wait_s = math.inf if self._works else self.settings.store_wait_s
        return Patience(name, wait_s, self._impatient, hold)

    def stop_waiting(self) -> None:
        """Nothing waits for room in the store any more, now or at its end: what cannot be written is lost."""
        self._impatient.set()
        for job in self._jobs.values():
            if job.recorder is not None:
                job.recorder.give_up()

    @property
    def is_closing(self) -> bool:
        """It was told to end: what it leaves is continued by the next owner."""
        return self._closing.is_set()

    @property
    def is_idle(self) -> bool:
        """No run and no execution is in hand here."""
        return not self._jobs and self.execution_queue.is_idle

    @property
    def is_at_work(self) -> bool:
        """An agent or an execution is at work here."""
        return any(job.run is not None for job in self._jobs.values()) or not self.execution_queue.is_idle

    async def has_queue(self) -> bool:
        """Runs or executions wait that this process will take up; not those that it could not start."""
        waiting = await self.store.waiting_for(self.lease.owner.id)
        if self._unended or await self.execution_queue.has_queue():
            return True
        return any(run_id not in self._held for run_id in waiting)

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
        self._poke.set()

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
        return feed.follow_execution(self.store, self.executions, execution_id, from_seq, live=live)

    async def watch_execution(self, execution: ExecutionInfo, *, is_answerable: bool) -> WatchRecord | None:
        """Who looks on while an execution runs here; None where nobody does."""
        return await self._observers.watch_execution(execution, is_answerable=is_answerable)

    async def revive(self) -> str | None:
        """Start the background process if the queue holds runs that nobody owns; see `background.revive`."""
        if self._works or self.read_only is not None:
            return None
        return await background.revive(self.store, self.executions, self.home)

    # -- starting -----------------------------------------------------------------------------------------------------

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
        if execution_id is not None and self.settings.recover == "resume":
            options["place"] = {**(options.get("place") or {}), "recover": "execution", "execution": execution_id}
        if is_detached:
            _refuse(functions)
        if functions:
            options["place"] = {**(options.get("place") or {}), FUNCTIONS: _names(functions)}
        then = self.settings.recover if is_detached else "fail"
        if is_detached:
            around = self._environ if environ is None else environ
            options["place"] = {
                **(options.get("place") or {}),
                stored_environ.KEY: stored_environ.kept(around),
                stored_environ.NEEDED: stored_environ.needed(
                    request, self.config.forward_env, around, home.load_env(self.home)
                ),
            }
        run = await self._add(
            request, recover=then, waits=is_detached, owner=self.lease.owner.id, environ=environ, **options
        )
        job = self._take(run, approver, show, environ, request)
        job.config = self.config
        if is_detached and then == "resume":
            job.notice = await self._not_recoverable(run)
        if functions:
            job.options = {"functions": functions}
        return job

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
        if not await self.store.adopt(run, execution_id, self.lease.owner.id):
            return None
        job = self._take(await self.store.get(run.id), approver, show, environ, request)
        job.config = self.config
        return job

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
        place = {**(place or {}), FUNCTIONS: _names(functions)} if functions else place
        run = await self._add(request, recover="fail", owner=self.lease.owner.id, environ=environ, place=place)
        job = self._take(run, as_approver(approver), None, environ, request)
        return await job.read({**options, **({"functions": functions} if functions else {})})

    async def enqueue(self, request: RunRequest, *, functions: Functions = (), **options: Any) -> RunInfo:
        """Queue a run for any owner that works; its credential is the owner's to find. It takes no functions."""
        _refuse(functions)
        return await self._add(request, recover=self.settings.recover, waits=True, **options)

    async def take_up(self, run_id: str, *, environ: Mapping[str, str]) -> RunInfo:
        """Start a run of the queue that nobody owns, now; `environ` has the variables that were not stored with it.

        Raises what would keep it in the queue: a secret or a credential that is not found.
        """
        run = await self.store.find(run_id)
        give_up = time.monotonic() + TAKE_UP_S
        with self.store.notifier.listen() as heard:
            # Taken from the queue a moment ago, with what is stored. If that is not enough, it is back there soon.
            while (job := self._jobs.get(run.id)) is not None and job.is_taken and job.run is None:
                if time.monotonic() > give_up:
                    break
                await heard.wait(0.1)
        run = await self.store.get(run.id)
        if run.id not in self._jobs and run.owner is None:
            stored = stored_environ.restored((await self.store.texts(run.id)).place, self.home)
            self._environs[run.id] = {**environ, **(stored or {})}
            is_taken = False
            try:
                await self.stored_request(
                    run, is_resumed=recover.has_session(await recover.all_events(self.store, run))
                )
                is_taken = await self.store.wake(run)
            finally:
                if not is_taken and run.id not in self._jobs:
                    del self._environs[run.id]
                    self._held.add(run.id)
            self._poke.set()
        return await self.store.get(run.id)

    def _take(
        self,
        run: RunInfo,
        approver: Approver | None,
        show: Show | None,
        environ: Mapping[str, str] | None,
        request: RunRequest | None,
    ) -> Job:
        from leadrope.runs.job import Job  # noqa: PLC0415  # workflows without agents do not need it

        job = Job(run, approver, show)
        self._jobs[run.id] = job
        if environ is not None:
            self._environs[run.id] = environ
        if request is not None:
            self._requests[run.id] = request
        self._poke.set()
        return job

    async def _add(
        self,
        request: RunRequest,
        *,
        recover: str,
        waits: bool = False,
        run_id: str | None = None,
        title: str = "",
        priority: int = 0,
        lane: str | None = None,
        parent: str | None = None,
        place: dict[str, Any] | None = None,
        owner: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunInfo:
        from leadrope.runs.records import stored_secrets  # noqa: PLC0415  # workflows without agents do not need it

        # The rest is checked where it starts; this could not even be stored.
        check_text(msgspec.structs.asdict(msgspec.structs.replace(request, credential=None)))
        request = placed(await self._with_session(request))
        own, around = home.load_env(self.home), self._environ if environ is None else environ
        redactor, files = self._redactor(request, around), (place or {}).get(stored_secrets.FILES, {})
        places_ = stored_secrets.SecretSources(config=self.config, env_file=own)
        new = NewRun(
            id=run_id or uuid.uuid4().hex,
            request=request,
            policy=request.policy,
            title=title,
            priority=priority,
            lane=lane
            if lane is not None
            else ",".join(f"{key}={value}" for key, value in sorted(request.labels.items())),
            account=account_of(request, around, own),
            owner=owner,
            parent=parent,
            place={
                "recover": recover,
                "pending": self.settings.pending,
                "waits": waits,
                **(place or {}),
                stored_secrets.KEY: stored_secrets.referenced(request, redactor, places_, files),
            },
        )
        return await self.store.add_run(new, self.settings.limits(), redactor=redactor)

    async def _with_session(self, request: RunRequest) -> RunRequest:
        """With the whole id of the session it resumes. An unknown one is refused here: it would name this run's row."""
        if request.resume is None or request.provider != "claude-code":
            return request
        runs = await self.store.with_prefix(request.resume)
        known = session_names.resolve(request.resume, Sessions(self.home), runs)
        return msgspec.structs.replace(request, resume=known)

    def _redactor(self, request: RunRequest | None, environ: Mapping[str, str] | None) -> Redactor:
        """That of a run which has not started; `environ`: the one that it was given, if not the service's own."""
        if request is None:
            return Redactor()
        return redactor_of(request, {**home.load_env(self.home), **(self._environ if environ is None else environ)})

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        """Takes runs whose turn has come, carries out what others ask for, looks for owners that died."""
        while True:
            try:
                await self._attend_all()
            except errors.StoreError as error:
                log.debug("the store cannot be used: %s", error.message)  # each run tells it for itself
                await asyncio.sleep(LOOK_S)

    async def _attend_all(self) -> None:
        loop = asyncio.get_running_loop()
        look_at = loop.time() + LOOK_S
        with self.store.notifier.listen() as heard:
            while True:
                self._poke.clear()
                while await self._claim_one() or await self.execution_queue.claim_one():
                    pass
                for control in await self.store.take_controls(self.lease.owner.id):
                    self._spawn(self._carry_out(control))
                await self.controls.attend()
                if loop.time() >= look_at:
                    await self._end_late()
                    await recover.reconcile(self.store, self.executions, self.home)
                    if self._revives:
                        await self.revive()
                    look_at = loop.time() + LOOK_S
                now = time.time()
                due = min(
                    (at for at in (await self.store.next_due(now), await self.executions.next_due(now)) if at),
                    default=None,
                )
                wait_s = min(LOOK_S, max(0.01, due - now)) if due is not None else LOOK_S
                poked = asyncio.ensure_future(self._poke.wait())
                rung = asyncio.ensure_future(heard.wait(wait_s))
                try:
                    await asyncio.wait((poked, rung), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    poked.cancel()
                    rung.cancel()
                    await asyncio.wait((poked, rung))
                # A run, or a workflow of quick steps, commits hundreds of times a second: a burst is one look.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BURST_S):
                        await self._poke.wait()

    def _attended(self, task: asyncio.Task[None]) -> None:
        """A service that no longer attends must not look as if it did: whoever waits for a run is told."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the service of %s failed: %r", self.lease.owner.id, error, exc_info=error)
            for job in self._jobs.values():
                if job.run is None:
                    job.settle(error)

    async def _claim_one(self) -> bool:
        mine = [job.id for job in self._jobs.values() if job.run is None and job.recorder is None]
        mine += self._suspended
        if not self._works and not mine:
            return False
        run = await self.store.claim(self.lease.owner.id, self.settings.limits(), only=None if self._works else mine)
        if run is None:
            return False
        held = await held_by(self.budgets, self.store, run)
        if held is not None:
            # Whose run it was, it stays: somebody may sit before it.
            owner = self.lease.owner.id if run.id in self._jobs else None
            await self.store.requeue(run, attempt=run.attempt, note=held.note, not_before=held.until, owner=owner)
            return True
        if (suspended := self._suspended.pop(run.id, None)) is not None:
            self._jobs[run.id] = suspended.resumed()
        job = self._jobs.get(run.id) or self._take(run, None, None, None, None)
        job.info = run
        self._held.discard(run.id)
        self._lost_ends.reserve()
        job.recorder = RunRecorder(self.store, run, show=job.show, wait_s=self.settings.store_wait_s)
        job.recorder.on_limit = lambda until: self._spawn(self._hold(run, until))
        job.recorder.on_late_end = lambda result, count: self._lost_ends.keep(run.id, result, job.redactor, count)
        with jsonlog.about(run.id, lambda: job.redactor):  # the task, and those it starts, keep it
            job.task = self._spawn(self._execute(job))
            job.task.add_done_callback(functools.partial(self._executed, job))
        return True

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _executed(self, job: Job, task: asyncio.Task[Any]) -> None:
        """Whoever waits for the run is told, even if leadrope failed while it told of a failure."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._forget(job)
            job.settle(errors.LeadropeError(f"leadrope itself failed: {error!r}", hint="This is a bug."))

    async def _execute(self, job: Job) -> None:
        """One claimed run, to its end in the store. The task boundary of a run: what goes wrong here is its result."""
        run, recorder = job.info, job.recorder
        assert recorder is not None  # noqa: S101  # set where it was claimed
        try:
            earlier = await recover.all_events(self.store, run) if run.last_seq else []
            environ = await self._environ_of(run)
            from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # workflows without agents do not need it

            place = run_workspace.RunWorkspace(self, run, environ, (await self.store.texts(run.id)).place)
            request = await place.enter(await self._request(run, earlier))
            is_alone = isinstance(job.approver, DenyAll)
            job.waits = bool((await self.store.texts(run.id)).place.get("waits")) and not is_alone
            suspension = Suspension(job, await self._kept_for(run), self._spawn) if job.waits else None
            asker: Approver = StoredApprover(
                self.store, run, job.approver, lambda: job.redactor, job.pauses, suspension
            )
            if is_alone and job.approver is not None:
                asker = job.approver  # who says that nobody is there is believed at once
            recorder.watch = await self._observers.watch(run, is_answerable=not is_alone)
            held = await self._held_grants(run.id) if earlier else []
            from leadrope.runtime import run as runs  # noqa: PLC0415  # 40 ms that only those who run agents pay

            async with runs.Run(
                request,
                approver=asker,
                environ=environ,
                config=job.config or self.config,
                run_id=run.id,
                attempt=run.attempt,
                earlier=earlier,
                before_effect=place.before_effect,
                tap=recorder.feed if job.is_read else None,
                waits=job.waits,
                grants=[grant.pattern for grant in held if grant.call is None],
                standing=await grants.standing(self.store, run) if earlier else (),
                first=waiting.resolved(await self.store.unused_answers(run)) if earlier else job.first_events(),
                **job.options,
            ) as opened:
                place.cwd = opened.request.cwd or place.cwd
                job.started(opened)
                self._spawn(self._snapshot(run, opened))
                for control in job.later:
                    self._spawn(run_controls.carry_out(self.store, job, control))
                await (recorder.stored(opened) if job.is_read else recorder.keep(opened))
                result = await opened.result()
            redactor = opened.redactor
            if isinstance(recorder.lost, errors.NotOwner):
                log.warning("%s", recorder.lost.message)
                self._forget(job)
                job.settle(recorder.lost)
                return
            if not opened.is_suspended:
                try:
                    await place.leave(redactor)
                except errors.StoreError as error:
                    log.warning("run %s: what it changed could not be kept: %s", run.id[:8], error.message)
        except errors.LeadropeError as error:
            if not await self._hold_back(job, error):
                await self._not_started(job, error)
            return
        except asyncio.CancelledError:
            if job.given_up is None:
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # this is one
            await self._ended_early(job, job.given_up)
            return
        except Exception as error:  # the boundary of a run
            from leadrope.runs import background  # noqa: PLC0415  # where the log lies

            log.exception("run %s failed inside leadrope", run.id[:8])
            where = f"See {background.log_path(self.home)}." if self._works else "LEADROPE_DEBUG=1 shows where."
            told = errors.LeadropeError(f"leadrope itself failed: {error!r}", hint=f"This is a bug. {where}")
            await self._not_started(job, told)
            return
        try:
            if opened.is_suspended:
                await place.suspend()
                await self._wait_for_answer(job)
            else:
                await self._settle(job, result, redactor)
        except errors.StoreError as error:
            if opened.is_suspended or await self._continues(run, result):
                self._lost_ends.drop(run.id)  # it has not ended, and the next owner sees to it
            else:
                self._end_later(run, result, redactor, recorder.lost_events)
            job.unstored = self._removed(recorder, run, result) or recorder.not_stored(result, error, is_ended=False)
            self._forget(job)
            job.settle(recorder.show_error or result)
            return
        if (removed := self._removed(recorder, run, result)) is not None:
            job.unstored = removed
        elif recorder.lost is not None:
            job.unstored = recorder.not_stored(result, recorder.lost, is_ended=True)

    def _removed(self, recorder: RunRecorder, run: RunInfo, result: RunResult) -> errors.ResultNotStored | None:
        """What is told of a record that nobody can read, whatever else has gone wrong with it before."""
        if not self.store.is_removed:
            return None
        return errors.ResultNotStored(
            f"the run store {self.store.where} was removed while run {run.id[:8]} was working: its record is lost",
            result=result,
            is_timed_out=recorder.is_by_itself,
            hint="The next run makes a new store.",
        )

    async def _wait_for_answer(self, job: Job) -> None:
        """Its agent is gone, and its slot is free; the last answer puts it back into the queue."""
        await self.store.suspend(job.info, attempt=(await self.store.get(job.id)).attempt)
        self._jobs.pop(job.id, None)
        self._suspended[job.id] = job
        self._poke.set()

    async def _settle(self, job: Job, result: RunResult, redactor: Redactor) -> None:
        run = job.info
        if result.outcome == "parked" and result.resets_at is not None:
            await self._hold(run, result.resets_at)
        lost = job.recorder.lost_events if job.recorder is not None else 0
        if await self._continues(run, result):
            await self._give_back(run, attempt=(await self.store.get(run.id)).attempt + 1, reason=DRAINED)
        elif lost:
            last = ended_event(run.id, (await self.store.get(run.id)).attempt, 0, result)
            await self.store.end_run(run, result, redactor, last=last, note=lost_ends.describe(lost))
        else:
            await self.store.end_run(run, result, redactor)
        self._lost_ends.drop(run.id)
        self._forget(job)
        job.settle((job.recorder and job.recorder.show_error) or result)

    async def _continues(self, run: RunInfo, result: RunResult) -> bool:
        """This process was told to end, and the run goes back to the queue for the next one."""
        return self.is_closing and result.outcome == "stopped" and await self._is_continued(run)

    async def _is_continued(self, run: RunInfo) -> bool:
        """By the next owner, of the queue or of the execution whose step it is."""
        return (await self.store.texts(run.id)).place.get("recover") in ("resume", "execution")

    async def _give_back(self, run: RunInfo, *, attempt: int, reason: str) -> None:
        place = (await self.store.texts(run.id)).place
        owner, note = None, f"{reason}; it continues"
        if place.get("recover") == "execution":
            owner, note = recover.reserved(place)
        await self.store.requeue(run, attempt=attempt, note=note, owner=owner)

    def _end_later(self, run: RunInfo, result: RunResult, redactor: Redactor, lost: int) -> None:
        """The store cannot take its end now. If this process ends first, the next one finds how the run ended."""
        self._unended[run.id] = (run, result, redactor, lost_ends.describe(lost) if lost else "")
        self._lost_ends.keep(run.id, result, redactor, lost)

    async def _end_late(self) -> None:
        """Runs that ended while the store could not be written."""
        for run_id, (run, result, redactor, note) in list(self._unended.items()):
            last = ended_event(run.id, (await self.store.get(run.id)).attempt, 0, result)
            await self.store.end_run(run, result, redactor, last=last, note=note)
            self._lost_ends.drop(run_id)
            del self._unended[run_id]

    async def _snapshot(self, run: RunInfo, opened: Run) -> None:
        """Policy files change; what held for this run is kept with it."""
        try:
            await self.store.set_policy(run, opened.rules, opened.redactor)
        except errors.StoreError as error:
            log.warning("run %s: its rules could not be kept: %s", run.id[:8], error.message)

    async def _hold(self, run: RunInfo, until: float) -> None:
        """The runs of the same credential need not find out for themselves."""
        note = f"usage limit of {run.account} until {time.strftime('%H:%M', time.localtime(until))}"
        try:
            await self.store.hold_account(run.account, until, note)
        except errors.StoreError as error:
            log.warning("run %s: the queue of its account could not be held: %s", run.id[:8], error.message)

    async def _environ_of(self, run: RunInfo) -> Mapping[str, str]:
        """That of whoever has handed it in; else what was stored with it, and not that of whoever takes it up."""
        given = self._environs.get(run.id)
        if given is None:
            given = stored_environ.restored((await self.store.texts(run.id)).place, self.home)
        return self._environ if given is None else given

    async def _hold_back(self, job: Job, error: errors.LeadropeError) -> bool:
        """A detached run that another process left, and that cannot be started here, waits; True if it is one."""
        run = job.info
        if not isinstance(error, _NOT_HERE) or isinstance(error, errors.StoreError):
            return False
        if job.run is not None or run.id in self._requests:
            return False
        if stored_environ.KEY not in (await self.store.texts(run.id)).place:
            return False
        note = f"it cannot continue: {error.message} (try again with `leadrope runs resume {run.id[:8]}`)"
        log.warning("run %s is held back: %s %s", run.id[:8], error.message, error.hint or "")
        await self.store.requeue(run, attempt=run.attempt, note=note, not_before=time.time() + HOLD_S)
        self._held.add(run.id)
        self._forget(job)
        job.settle(error)
        return True

    async def _not_started(self, job: Job, error: errors.LeadropeError) -> None:
        if isinstance(error, _NEVER_BEGAN) and await self._is_forgotten(job):
            self._forget(job)
            job.settle(error)
            return
        result = not_started(error, run_id=job.id, attempts=job.info.attempt)
        await self._end_unread(job, result)
        self._forget(job)
        job.settle(error)

    async def _is_forgotten(self, job: Job) -> bool:
        """What never began is not a run: whoever sits before it has the message. A detached one keeps its record."""
        try:
            if (await self.store.texts(job.id)).place.get("waits") or (await self.store.get(job.id)).last_seq:
                return False
            from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # the same

            await run_workspace.forget(self, job.info)
            return await self.store.forget_unstarted(job.id)
        except (errors.StoreError, errors.GitFailed, errors.UnsafeFile, OSError) as error:
            log.debug("run %s could not be forgotten: %s", job.id[:8], error)
            return False

    async def _ended_early(self, job: Job, reason: str) -> None:
        """It was told to end while it was being started; nothing of it is left."""
        result = recover.stopped(job.info, (), reason)
        if self.is_closing and await self._is_continued(job.info):
            await self._give_back(job.info, attempt=job.info.attempt, reason=reason)
        else:
            await self._end_unread(job, result)
        self._forget(job)
        job.settle(result)

    async def _end_unread(self, job: Job, result: RunResult) -> None:
        """The end of a run that has told none itself."""
        run = job.info
        redactor = self._redactor(self._requests.get(run.id), self._environs.get(run.id))
        try:
            seq = (await self.store.get(run.id)).last_seq + 1
            await self.store.end_run(run, result, redactor, last=ended_event(run.id, run.attempt, seq, result))
        except errors.StoreError:
            # The store itself is what failed. Whoever waits is told all the same.
            log.exception("run %s: its end could not be stored", run.id[:8])
            self._end_later(run, result, redactor, 0)

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        self._environs.pop(job.id, None)
        self._requests.pop(job.id, None)
        self._poke.set()

    async def stored_request(self, run: RunInfo, *, is_resumed: bool) -> RunRequest:
        """What the store has of it, with its secrets; a RequestError names those that are not found here."""
        texts = await self.store.texts(run.id)
        references = stored_secrets.of_place(texts.place, texts.request)
        environ = self._environ if run.state == "ended" else await self._environ_of(run)
        around = stored_secrets.SecretSources(config=self.config, env_file=home.load_env(self.home), environ=environ)
        request = stored_secrets.resolved(texts.request, references, around, is_resumed=is_resumed)
        # What has ended is started as another run, and a run of the queue without an environment takes the owner's.
        if run.state != "ended" and stored_environ.KEY in texts.place:
            if names := stored_environ.lacking(texts.place, environ, around.env_file):
                raise errors.RequestError(
                    f"it needs {' and '.join(names)}, and that is not stored; set {' and '.join(names)} in your shell",
                    hint=f"Then try again with `leadrope runs resume {run.id[:8]}`.",
                )
            check_account(run, request, environ, around.env_file, await recover.all_events(self.store, run))
        return request

    async def _not_recoverable(self, run: RunInfo) -> str:
        """What another process could not find to continue the run with, in words; empty if it could."""
        texts = await self.store.texts(run.id)
        own = home.load_env(self.home)
        environ = stored_environ.restored(texts.place, self.home)
        environ = self._environ if environ is None else environ
        around = stored_secrets.SecretSources(config=self.config, env_file=own, environ=environ)
        references = stored_secrets.of_place(texts.place, texts.request)
        missing = stored_secrets.missing(references, around, is_resumed=True)
        lost = [*(one.told for one in missing), *stored_environ.lacking(texts.place, environ, own)]
        has_credential = any(one.path == (stored_secrets.CREDENTIAL,) for one in references)
        if not has_credential and account_of(texts.request, environ, own) != run.account:
            lost.append("its credential")
        if not lost:
            return ""
        remedy = "Start it anew then. "
        if all(one.is_variable for one in missing):
            remedy = f"Continue it then with `leadrope runs resume {run.id[:8]}` in a terminal that has it. "
        return (
            f"leadrope cannot recover this run if its background process ends: {', '.join(lost)} came from this "
            f"terminal and is not stored. {remedy}To avoid this, use a file (--credential-file, --secret-file), the "
            ".env of LEADROPE_HOME or your config"
        )

    async def _kept_for(self, run: RunInfo) -> float:
        """How long an agent stays while a person is asked; 0: as long as it takes."""
        return 0.0 if await self._not_recoverable(run) else self.settings.waiting_agent_s

    async def _request(self, run: RunInfo, earlier: list[events.Recorded]) -> RunRequest:
        request = self._requests.get(run.id)
        if request is None:
            request = await self.stored_request(run, is_resumed=recover.has_session(earlier))
        if earlier:
            request = waiting.told(recover.resumed(request, earlier), await self.store.unused_answers(run))
        left = await remaining(self.budgets, self.store, run)
        if left is None:
            return request
        # As a rule, which can only tighten: as the run's own budget it would lift the shipped one.
        return msgspec.structs.replace(request, policies=(*request.policies, {"max_budget_usd": max(left, 0.000001)}))

    # -- what others ask for ------------------------------------------------------------------------------------------

    async def _carry_out(self, control: RunControl) -> None:
        job = self._jobs.get(control.run_id)
        if job is None:
            return
        from leadrope.runs import run_controls  # noqa: PLC0415  # workflows without agents do not need it

        if control.kind == "stop" and not job.is_taken:
            await self.stop(job.id, run_controls.reason_of(control))
        else:
            await run_controls.carry_out(self.store, job, control)

    async def control(self, run_id: str, kind: str, **body: Any) -> None:
        """Ask the run's owner, whoever that is."""
        run = await self.store.find(run_id)
        if run.state == "ended":
            raise errors.WrongState(f"run {run.id[:8]} has ended", hint="`leadrope runs show` tells how.")
        await self.store.add_control(run, kind, body)

    async def stop(self, run_id: str, reason: str = "stopped by a person") -> None:
        """A run that waits is ended here and now; one that runs is ended by its owner."""
        run = await self.store.find(run_id)
        clean = self._cleaner(run)
        job = self._jobs.get(run.id)
        # One that another process has queued is that one's to end: somebody may wait for it there.
        is_reserved = run.owner is not None and run.owner.startswith(RESERVED)
        is_here = run.owner in (None, self.lease.owner.id) and not (job is not None and job.is_taken)
        is_here = is_here or is_reserved
        is_suspended = run.state == "waiting" and run.owner is None
        if is_suspended or (run.state in ("queued", "parked") and is_here):
            result = recover.stopped(run, await recover.all_events(self.store, run), clean(reason))
            last = ended_event(run.id, run.attempt, run.last_seq + 1, result)
            states: tuple[State, ...] = ("waiting",) if is_suspended else ("queued", "parked")
            if await self.store.end_run(run, result, Redactor(), last=last, only=states, unowned=is_suspended):
                job = job or self._suspended.pop(run.id, None)
                if job is not None:
                    self._forget(job)
                    job.settle(result)
                return
        await self.control(run.id, "stop", reason=clean(reason))

    def _cleaner(self, run: RunInfo) -> Callable[[str], str]:
        """For what others say to a run. Where another process has its redactor, its session has the digests."""
        job = self._jobs.get(run.id)
        if job is not None:
            return job.redactor.clean

        try:
            finder = session_secrets.finder(self.home, home.sessions_dir(self.home) / (run.session_id or ""))
        except (session_secrets.Unknown, errors.BadConfig):
            return redact
        return lambda text: redact(finder.clean_text(text))

    async def interrupt(self, run_id: str) -> None:
        """End the current turn; the conversation continues."""
        await self.control(run_id, "interrupt")

    async def send(self, run_id: str, text: str) -> None:
        """Send a message to a conversation."""
        if not text.strip():
            raise errors.EmptyPrompt("the prompt is empty")
        if self._cleaner(await self.store.find(run_id))(text) != text:
            raise errors.BadValue(
                "text", "holds what looks like a secret, and secrets are not stored", hint="Say it at the run itself."
            )
        await self.control(run_id, "send", text=text)

    async def pause(self, run_id: str) -> None:
        """Hold the next tool call, or the next turn; the clocks stand still until `unpause`."""
        await self.control(run_id, "pause")

    async def unpause(self, run_id: str) -> None:
        """Continue after `pause`."""
        await self.control(run_id, "unpause")

    async def revoke(self, run_id: str, pattern: str, *, by: str = actors.USER) -> None:
        """End a grant of a run, wherever that runs. Returns when it no longer holds; what it let through stays done."""
        run = await self.store.find(run_id)
        if run.state == "ended":
            raise errors.WrongState(
                f"run {run.id[:8]} has ended, and its grants with it", hint="Nothing is to be done."
            )
        held = [grant.pattern for grant in await self._held_grants(run.id)]
        if pattern not in held:
            hint = f"It has: {', '.join(held)}." if held else "`leadrope runs show` lists the grants of a run."
            raise errors.BadValue("pattern", f"{pattern!r} is not a grant of run {run.id[:8]}", hint=hint)
        by = actors.read(by)
        revoked = events.GrantRevoked(pattern=pattern, by=by)
        if run.owner is None and await self.store.add_event(run, revoked, Redactor()):
            return  # it waits without an agent: the next attempt reads it in the log
        await self.control(run.id, "revoke", pattern=pattern, by=by)
        with self.store.notifier.listen() as heard:
            while any(grant.pattern == pattern for grant in await self._held_grants(run.id)):
                await heard.wait(LOOK_S)

    async def _held_grants(self, run_id: str) -> list[grants.RunGrant]:
        return [grant for grant in await self.grants(run_id) if grant.state == "active"]

    async def answer(self, approval_id: str, answer: Answer) -> Approval:
        """Answer a pending approval, once; the first answer counts, and continues what has waited for it.

        One that does not fit what is asked now is refused, and the approval stays pending.
        """
        found = await self.store.approval(approval_id)
        if found.state != "pending":
            raise answers.not_open(found)
        answer = answers.checked(found, answer)
        text = msgspec.json.encode(answer)
        clean = self._cleaner(await self.store.find(found.run_id)) if found.run_id else redact
        if clean(text.decode()).encode() != text:
            raise errors.BadValue(
                "answer",
                "holds what looks like a secret, and secrets are not stored",
                hint="Answer in the terminal where it runs.",
            )
        state: Decided = "approved" if answer.approved else "denied"
        # Compared once more by the write itself: what is asked may have changed since it was read.
        if not await self.store.decide(
            found.id, state, by=answer.by, reason=answer.reason, answer=text, fingerprint=found.fingerprint
        ):
            now = await self.store.approval(found.id)
            raise answers.stale(now.id) if now.state == "pending" else answers.not_open(now)
        return await self.store.approval(found.id)

    # -- doing again, and forgetting ----------------------------------------------------------------------------------

    async def again(self, run_id: str, *, prompt: str | None = None) -> tuple[RunInfo, RunRequest]:
        """The request of a run that has ended: the same once more, or with a prompt in its session."""
        return await self._reruns.again(run_id, prompt=prompt)

    async def resume(self, run_id: str, prompt: str | None, environ: Mapping[str, str], *, tell: Tell) -> Continuation:
        """Continue a run: one that is paused, one that nobody supervises any more, or an ended one; see `Reruns`."""
        return await self._reruns.resume(run_id, prompt, environ, tell=tell)

    async def retry(self, run_id: str, environ: Mapping[str, str], *, tell: Tell) -> str:
        """Run the same request again, from the beginning, in the background; the id of the new run."""
        return await self._reruns.retry(run_id, environ, tell=tell)

    async def delete(self, run_ids: Iterable[str]) -> int:
        """Ended runs, with their events, worktrees and checkpoints; one that has not ended is refused."""
        return await self._cleanup.delete(run_ids)

    async def prune(
        self, *, keep_days: float | None = None, keep_runs: int | None = None, dry_run: bool = False
    ) -> Pruned:
        """Delete old runs and executions, by default as configured; see `Cleanup`."""
        return await self._cleanup.prune(keep_days=keep_days, keep_runs=keep_runs, dry_run=dry_run)

    async def keep_changes(self, run_id: str, changes: str) -> None:
        """What `runs diff` shows of a run whose folder will be gone."""
        from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # as above

        await self.store.add_artifact(await self.get(run_id), run_workspace.CHANGES, "text/x-diff", changes.encode())


def _names(functions: Functions) -> list[str]:
    from leadrope.runtime.connections import functions as functions_of  # noqa: PLC0415  # most runs have none

    return list(functions_of.collect(functions))


def _refuse(functions: Functions) -> None:
    if functions:
        raise errors.BadValue(
            "functions",
            f"{', '.join(_names(functions))}: a run that another process may take up cannot call functions of this one",
            hint="Run it in this process (`leadrope.run`, or `start` without is_detached), or offer the functions by "
            "an MCP server (`connections`).",
        )
