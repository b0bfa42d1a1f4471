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
import logging
import os
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import events, home
from leadrope.core.redaction import Redactor, redact
from leadrope.core.request import RunRequest, check_text
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunError, RunResult
from leadrope.runs import database, jsonlog, leases, orders, places, recover, settings
from leadrope.runs.asking import StoredApprover
from leadrope.runs.budgets import held_by, remaining
from leadrope.runs.flows import Flows
from leadrope.runs.job import Job
from leadrope.runs.keeper import Keeper, Show
from leadrope.runs.looks import Looks
from leadrope.runs.observers import Observers
from leadrope.runs.sqlite import Sqlite, ended_event
from leadrope.runs.store import Approval, NewRun, Order, RunInfo
from leadrope.runs.stored_requests import account_of, placed, whole
from leadrope.runtime import session_secrets
from leadrope.runtime.approvals import Answer, Approve, Approver, DenyAll, QuestionAnswer, as_approver

if TYPE_CHECKING:
    from leadrope.runtime.run import Run

log = logging.getLogger("leadrope.runs")

LOOK_S = 2.0
"""Between two looks for owners that died."""
BURST_S = 0.02
"""What is written within this time is looked at together."""
DRAIN_S = 8.0
"""What runs get to end in when their owner is told to end; the whole takes at most 10 s."""
DRAINED = "its owner was told to end"


class Service(Looks):
    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        kind: str = "terminal",
        config: configs.Config | None = None,
        works: bool = False,
    ) -> None:
        """`works`: takes runs from the queue whoever put them there; else only those that it was given itself."""
        self._environ = dict(os.environ if environ is None else environ)
        self.home = home.leadrope_home(self._environ)
        known = {**home.load_env(self.home), **self._environ}
        self.config = config or configs.load(known)
        self.settings, self.budgets = settings.read(self.config.service, self.config.budgets, self.config.source)
        super().__init__(Sqlite(database.path_in(self.home)))
        self.flows = Flows(self.store, lambda: self.lease.owner.id)
        self._observers = Observers(self.config, known)
        self._kind = kind
        self._works = works
        self._jobs: dict[str, Job] = {}
        """Runs that this process has in hand, from the queue to the end."""
        self._environs: dict[str, Mapping[str, str]] = {}
        self._requests: dict[str, RunRequest] = {}
        """As they were asked for. The store's are redacted and have no credential; they are for looks and recovery."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._poke = asyncio.Event()

    # -- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        home.ensure(self.home)
        self.store.__enter__()
        try:
            self.lease = leases.Lease(self.home, self._kind)
            await recover.reconcile(self.store, self.home)
            await self.store.add_owner(self.lease.owner)
        except BaseException:
            self.store.close()
            raise
        self._loop_task = asyncio.create_task(self._attend(), name="leadrope service")
        self._loop_task.add_done_callback(self._attended)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Ends what runs here and says so in the store. A detached run goes back to the queue, for the next owner."""
        if self._is_closing:
            return
        self._is_closing = True
        began = time.monotonic()
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.wait((self._loop_task,))
        for job in self._jobs.values():
            if not job.give_up(DRAINED) and job.run is not None:
                self._spawn(job.run.stop(DRAINED))
        if self._tasks:
            # What does not end in this time is left to the guardian, which outlives us, and to the next owner.
            await asyncio.wait(self._tasks, timeout=drain_s)
        for job in list(self._jobs.values()):
            job.settle(errors.RunClosed(f"run {job.id} was left in the queue: its service was closed"))
        await self._observers.close(max(0.5, DRAIN_S + 1 - (time.monotonic() - began)))
        await self.flows.release()
        await self.store.drop_owner(self.lease.owner.id)
        self.lease.release()
        self.store.close()

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    # -- starting -----------------------------------------------------------------------------------------------------

    async def start(
        self,
        request: RunRequest,
        *,
        approver: Approver | None = None,
        show: Show | None = None,
        environ: Mapping[str, str] | None = None,
        is_detached: bool = False,
        **options: Any,
    ) -> Job:
        """Queue a run and take it up here, and nowhere else, as soon as its turn comes.

        `is_detached`: nobody sits before it. If this process dies, another one goes on with it.
        """
        then = self.settings.recover if is_detached else "fail"
        run = await self._add(request, recover=then, owner=self.lease.owner.id, environ=environ, **options)
        return self._take(run, approver, show, environ, request)

    async def open(
        self,
        request: RunRequest,
        *,
        approver: Approver | Approve | None = None,
        environ: Mapping[str, str] | None = None,
        config: configs.Config | None = None,
        **options: Any,
    ) -> Run:
        """A started run whose events the caller reads himself, as `open_run` gives it; kept like every other."""
        run = await self._add(request, recover="fail", owner=self.lease.owner.id, environ=environ)
        job = self._take(run, as_approver(approver), None, environ, request)
        return await job.read(options)

    async def enqueue(self, request: RunRequest, **options: Any) -> RunInfo:
        """Queue a run for any owner that works; its credential is the owner's to find."""
        return await self._add(request, recover=self.settings.recover, **options)

    def _take(
        self,
        run: RunInfo,
        approver: Approver | None,
        show: Show | None,
        environ: Mapping[str, str] | None,
        request: RunRequest | None,
    ) -> Job:
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
        run_id: str | None = None,
        title: str = "",
        priority: int = 0,
        lane: str | None = None,
        parent: str | None = None,
        place: dict[str, Any] | None = None,
        owner: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunInfo:
        # The rest is checked where it starts; this could not even be stored.
        check_text(msgspec.structs.asdict(msgspec.structs.replace(request, credential=None)))
        request = placed(request)
        own, around = home.load_env(self.home), self._environ if environ is None else environ
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
            place={"recover": recover, "pending": self.settings.pending, **(place or {})},
        )
        return await self.store.add_run(new, self.settings.limits(), redactor=self._redactor(request, around))

    def _redactor(self, request: RunRequest | None, environ: Mapping[str, str] | None) -> Redactor:
        """That of a run which has not started; `environ`: the one that it was given, if not the service's own."""
        if request is None:
            return Redactor()
        return redactor_of(request, {**home.load_env(self.home), **(self._environ if environ is None else environ)})

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        """Takes runs whose turn has come, carries out what others ask for, looks for owners that died."""
        loop = asyncio.get_running_loop()
        look_at = loop.time() + LOOK_S
        with self.store.bell.listen() as heard:
            while True:
                self._poke.clear()
                while await self._claim_one():
                    pass
                for order in await self.store.take_orders(self.lease.owner.id):
                    self._spawn(self._obey(order))
                if loop.time() >= look_at:
                    await recover.reconcile(self.store, self.home)
                    look_at = loop.time() + LOOK_S
                due = self.store.next_due(time.time())
                wait_s = min(LOOK_S, max(0.01, due - time.time())) if due is not None else LOOK_S
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
        waiting = [job.id for job in self._jobs.values() if job.run is None and job.keeper is None]
        if not self._works and not waiting:
            return False
        run = await self.store.claim(self.lease.owner.id, self.settings.limits(), only=None if self._works else waiting)
        if run is None:
            return False
        held = held_by(self.budgets, self.store, run)
        if held is not None:
            # Whose run it was, it stays: somebody may sit before it.
            owner = self.lease.owner.id if run.id in self._jobs else None
            await self.store.requeue(run, attempt=run.attempt, note=held.note, not_before=held.until, owner=owner)
            return True
        job = self._jobs.get(run.id) or self._take(run, None, None, None, None)
        job.info = run
        job.keeper = Keeper(self.store, run, show=job.show)
        job.keeper.on_limit = lambda until: self._spawn(self._hold(run, until))
        with jsonlog.about(run.id, lambda: job.redactor):  # the task, and those it starts, keep it
            job.task = self._spawn(self._execute(job))
        return True

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _execute(self, job: Job) -> None:
        """One claimed run, to its end in the store. The task boundary of a run: what goes wrong here is its result."""
        run, keeper = job.info, job.keeper
        assert keeper is not None  # noqa: S101  # set where it was claimed
        try:
            earlier = recover.all_events(self.store, run) if run.last_seq else []
            environ = self._environs.get(run.id, self._environ)
            place = places.Place(self, run, environ)
            request = await place.enter(self._request(run, earlier))
            asker: Approver = StoredApprover(self.store, run, job.approver, lambda: job.redactor, job.pauses)
            if is_alone := isinstance(job.approver, DenyAll):
                asker = job.approver  # who says that nobody is there is believed at once
            keeper.watch = await self._observers.watch(run, is_answerable=not is_alone)
            from leadrope.runtime.run import open_run  # noqa: PLC0415  # 40 ms that only those who run agents pay

            async with open_run(
                request,
                approver=asker,
                environ=environ,
                config=self.config,
                run_id=run.id,
                attempt=run.attempt,
                earlier=earlier,
                before_effect=place.before_effect,
                tap=keeper.feed if job.is_read else None,
                **job.options,
            ) as opened:
                job.started(opened)
                self._spawn(self._snapshot(run, opened))
                for order in job.later:
                    self._spawn(orders.carry_out(self.store, job, order))
                await (keeper.stored(opened) if job.is_read else keeper.keep(opened))
                result = await opened.result()
            redactor = opened.redactor
            await place.leave(redactor)
        except errors.LeadropeError as error:
            await self._not_started(job, error)
            return
        except asyncio.CancelledError:
            if job.given_up is None:
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # this is one
            await self._ended_early(job, job.given_up)
            return
        except Exception as error:  # the boundary of a run
            log.exception("run %s failed inside leadrope", run.id[:8])
            told = errors.LeadropeError(f"leadrope itself failed: {error!r}", hint="Report it, with the log.")
            await self._not_started(job, told)
            return
        try:
            await self._settle(job, result, redactor)
        except errors.StoreError as error:
            log.exception("run %s: its end could not be stored", run.id[:8])
            self._forget(job)
            job.settle(error)

    async def _settle(self, job: Job, result: RunResult, redactor: Redactor) -> None:
        run = job.info
        if result.outcome == "parked" and result.resets_at is not None:
            await self._hold(run, result.resets_at)
        place = self.store.texts(run.id).place
        if self._is_closing and result.outcome == "stopped" and place.get("recover") == "resume":
            attempt = self.store.get(run.id).attempt + 1
            await self.store.requeue(run, attempt=attempt, note="its owner was told to end; it goes on")
        else:
            await self.store.end_run(run, result, redactor)
        self._forget(job)
        job.settle((job.keeper and job.keeper.show_error) or result)

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

    async def _not_started(self, job: Job, error: errors.LeadropeError) -> None:
        result = recover.not_started(error, run_id=job.id, attempts=job.info.attempt)
        await self._end_unread(job, result)
        self._forget(job)
        job.settle(error)

    async def _ended_early(self, job: Job, reason: str) -> None:
        """It was told to end while it was being started; nothing of it is left."""
        result = _stopped(job.info, reason)
        if self._is_closing and self.store.texts(job.id).place.get("recover") == "resume":
            await self.store.requeue(job.info, attempt=job.info.attempt, note=f"{reason}; it goes on")
        else:
            await self._end_unread(job, result)
        self._forget(job)
        job.settle(result)

    async def _end_unread(self, job: Job, result: RunResult) -> None:
        """The end of a run that has told none itself."""
        run = job.info
        try:
            seq = self.store.get(run.id).last_seq + 1
            request = self._requests.get(run.id)
            redactor = self._redactor(request, self._environs.get(run.id))
            await self.store.end_run(run, result, redactor, last=ended_event(run.id, run.attempt, seq, result))
        except errors.StoreError:
            # The store itself is what failed. Whoever waits is told all the same; the next owner puts the row right.
            log.exception("run %s: its end could not be stored", run.id[:8])

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        self._environs.pop(job.id, None)
        self._requests.pop(job.id, None)
        self._poke.set()

    def _request(self, run: RunInfo, earlier: list[events.Recorded]) -> RunRequest:
        request = self._requests.get(run.id) or whole(self.store.texts(run.id).request)
        if earlier:
            request = recover.resumed(request, earlier)
        left = remaining(self.budgets, self.store, run)
        if left is None:
            return request
        # As a rule, which can only tighten: as the run's own budget it would lift the shipped one.
        return msgspec.structs.replace(request, policies=(*request.policies, {"max_budget_usd": max(left, 0.000001)}))

    # -- what others ask for ------------------------------------------------------------------------------------------

    async def _obey(self, order: Order) -> None:
        job = self._jobs.get(order.run_id)
        if job is None:
            return
        if order.kind == "stop" and not job.is_taken:
            await self.stop(job.id, orders.reason_of(order))
        else:
            await orders.carry_out(self.store, job, order)

    async def order(self, run_id: str, kind: str, **body: Any) -> None:
        """Ask the run's owner, whoever that is."""
        run = self.store.find(run_id)
        if run.state == "ended":
            raise errors.WrongState(f"run {run.id[:8]} has ended", hint="`leadrope runs show` tells how.")
        await self.store.add_order(run, kind, body)

    async def stop(self, run_id: str, reason: str = "stopped by a person") -> None:
        """A run that waits is ended here and now; one that runs is ended by its owner."""
        run = self.store.find(run_id)
        clean = self._cleaner(run)
        job = self._jobs.get(run.id)
        # One that another process has queued is that one's to end: somebody may wait for it there.
        is_here = run.owner in (None, self.lease.owner.id) and not (job is not None and job.is_taken)
        if run.state in ("queued", "parked") and is_here:
            result = _stopped(run, clean(reason))
            last = ended_event(run.id, run.attempt, run.last_seq + 1, result)
            if await self.store.end_run(run, result, Redactor(), last=last, only=("queued", "parked")):
                if job is not None:
                    self._forget(job)
                    job.settle(result)
                return
        await self.order(run.id, "stop", reason=clean(reason))

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
        await self.order(run_id, "interrupt")

    async def send(self, run_id: str, text: str) -> None:
        if not text.strip():
            raise errors.EmptyPrompt("the prompt is empty")
        if self._cleaner(self.store.find(run_id))(text) != text:
            raise errors.BadValue(
                "text", "holds what looks like a secret, and secrets are not stored", hint="Say it at the run itself."
            )
        await self.order(run_id, "send", text=text)

    async def pause(self, run_id: str) -> None:
        """Hold the next tool call, or the next turn; the clocks stand still until `unpause`."""
        await self.order(run_id, "pause")

    async def unpause(self, run_id: str) -> None:
        await self.order(run_id, "unpause")

    async def revoke(self, run_id: str, pattern: str, *, by: str = "person") -> None:
        """End a grant of a run, wherever that runs. Returns when it no longer holds; what it let through stays done."""
        run = self.store.find(run_id)
        if run.state == "ended":
            raise errors.WrongState(
                f"run {run.id[:8]} has ended, and its grants with it", hint="Nothing is to be done."
            )
        held = self._held_grants(run.id)
        if pattern not in held:
            hint = f"It has: {', '.join(held)}." if held else "`leadrope runs show` lists the grants of a run."
            raise errors.BadValue("pattern", f"{pattern!r} is not a grant of run {run.id[:8]}", hint=hint)
        await self.order(run.id, "revoke", pattern=pattern, by=by)
        with self.store.bell.listen() as heard:
            while pattern in self._held_grants(run.id):
                await heard.wait(LOOK_S)

    def _held_grants(self, run_id: str) -> list[str]:
        return [grant.pattern for grant in self.grants(run_id) if grant.state == "active"]

    async def answer(self, approval_id: str, answer: Answer | QuestionAnswer) -> Approval:
        """One word on a pending request; refused when it is no longer pending."""
        found = self.store.approval(approval_id)
        text = msgspec.json.encode(answer)
        if self._cleaner(self.store.find(found.run_id))(text.decode()).encode() != text:
            raise errors.BadValue(
                "answer", "holds what looks like a secret, and secrets are not stored", hint="Answer at the run itself."
            )
        yes = answer.approved if isinstance(answer, Answer) else answer.answered
        if isinstance(answer, Answer) != (found.kind == "approval"):
            raise errors.WrongState(f"{approval_id} is a {found.kind}", hint="Approvals and questions differ.")
        state: Any = "approved" if yes else "denied"
        if not await self.store.decide(approval_id, state, by=answer.by, reason=answer.reason, answer=text):
            now = self.store.approval(approval_id)
            raise errors.WrongState(
                f"{approval_id} is no longer open: {now.state} by {now.by or 'somebody'}",
                hint="The first answer counts.",
            )
        return self.store.approval(approval_id)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    async def delete(self, run_ids: Iterable[str]) -> int:
        """Ended runs, with their events; a run that lives is refused."""
        deleted = 0
        for run_id in run_ids:
            run = self.store.find(run_id)
            if run.state != "ended":
                raise errors.WrongState(f"run {run.id[:8]} has not ended", hint="Stop it first.")
            deleted += await self.store.delete_run(run.id)
        return deleted


def _stopped(run: RunInfo, reason: str) -> RunResult:
    problem = RunError(kind="stopped", message=reason)
    return RunResult(run_id=run.id, outcome="stopped", error=problem, attempts=run.attempt)
