"""One claimed run, from its turn to its end in the store."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any

from leadrope import errors
from leadrope.runs import background, recover, run_controls
from leadrope.runs.approvals import grants, waiting
from leadrope.runs.approvals.stored_approver import StoredApprover
from leadrope.runs.approvals.waiting import Suspension
from leadrope.runs.budgets import held_by
from leadrope.runs.job import Job
from leadrope.runs.observe import jsonlog
from leadrope.runs.observe.observers import Observers
from leadrope.runs.records.values import RunInfo
from leadrope.runs.run_recorder import RunRecorder
from leadrope.runs.steering import RunSteering
from leadrope.runs.stored_starts import StoredStarts
from leadrope.runtime.gate.approvers import Approver, DenyAll

if TYPE_CHECKING:
    from leadrope.runs.run_endings import RunEndings
    from leadrope.runs.run_loop import RunsInHand
    from leadrope.runs.service import Service
    from leadrope.runtime.run import Run

log = logging.getLogger("leadrope.runs")


class RunExecution:
    """The one place of a service where runs are executed."""

    def __init__(
        self, service: Service, hand: RunsInHand, endings: RunEndings, observers: Observers, *, works: bool
    ) -> None:
        self._service = service
        self._hand = hand
        self._endings = endings
        self._observers = observers
        self._works = works
        self._stored = StoredStarts(service, hand)
        self._steering = RunSteering(service, hand)

    async def take(self, run: RunInfo) -> None:
        """Begin it; or put it back, where a budget is spent."""
        held = await held_by(self._service.budgets, self._service.store, run)
        if held is not None:
            # Whose run it was, it stays: somebody may sit before it.
            owner = self._service.lease.owner.id if run.id in self._hand.jobs else None
            await self._service.store.requeue(
                run, attempt=run.attempt, note=held.note, not_before=held.until, owner=owner
            )
            return
        if (suspended := self._hand.suspended.pop(run.id, None)) is not None:
            self._hand.jobs[run.id] = suspended.resumed()
        job = self._hand.jobs.get(run.id) or self._hand.take(run, None, None, None, None)
        job.info = run
        self._hand.held.discard(run.id)
        self._endings.lost_ends.reserve()
        job.recorder = RunRecorder(self._service.store, run, show=job.show, wait_s=self._service.settings.store_wait_s)
        job.recorder.on_limit = lambda until: self._hand.spawn(self._endings.hold_account(run, until))
        job.recorder.on_late_end = lambda result, count: self._endings.lost_ends.keep(
            run.id, result, job.redactor, count
        )
        with jsonlog.about(run.id, lambda: job.redactor):  # the task, and those it starts, keep it
            job.task = self._hand.spawn(self._execute(job))
            job.task.add_done_callback(functools.partial(self._executed, job))

    def _executed(self, job: Job, task: asyncio.Task[Any]) -> None:
        """Whoever waits for the run is told, even if leadrope failed while it told of a failure."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._hand.forget(job)
            job.settle(errors.LeadropeError(f"leadrope itself failed: {error!r}", hint="This is a bug."))

    async def _execute(self, job: Job) -> None:
        """One claimed run, to its end in the store. The task boundary of a run: what goes wrong here is its result."""
        run, recorder = job.info, job.recorder
        assert recorder is not None  # noqa: S101  # set where it was claimed
        try:
            earlier = await recover.all_events(self._service.store, run) if run.last_seq else []
            environ = await self._stored.environ_of(run)
            from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # workflows without agents do not need it

            stored = (await self._service.store.texts(run.id)).place
            place = run_workspace.RunWorkspace(self._service, run, environ, stored)
            request = await place.enter(await self._stored.request(run, earlier))
            is_alone = isinstance(job.approver, DenyAll)
            job.waits = bool(stored.get("waits")) and not is_alone
            suspension = Suspension(job, await self._stored.kept_for(run), self._hand.spawn) if job.waits else None
            asker: Approver = StoredApprover(
                self._service.store, run, job.approver, lambda: job.redactor, job.pauses, suspension
            )
            if is_alone and job.approver is not None:
                asker = job.approver  # who says that nobody is there is believed at once
            recorder.watch = await self._observers.watch(run, is_answerable=not is_alone)
            held = await self._steering.held_grants(run.id) if earlier else []
            answered = await self._service.store.unused_answers(run) if earlier else []
            from leadrope.runtime import run as runs  # noqa: PLC0415  # 40 ms that only those who run agents pay

            async with runs.Run(
                request,
                approver=asker,
                environ=environ,
                config=job.config or self._service.config,
                run_id=run.id,
                attempt=run.attempt,
                earlier=earlier,
                before_effect=place.before_effect,
                tap=recorder.feed if job.is_read else None,
                waits=job.waits,
                grants=[grant.pattern for grant in held if grant.call is None],
                standing=await grants.standing(self._service.store, run) if earlier else (),
                first=waiting.resolved(answered) if earlier else job.first_events(),
                **job.options,
            ) as opened:
                place.cwd = opened.request.cwd or place.cwd
                job.started(opened)
                self._hand.spawn(self._snapshot(run, opened))
                for control in job.later:
                    self._hand.spawn(run_controls.carry_out(self._service.store, job, control))
                await (recorder.stored(opened) if job.is_read else recorder.keep(opened))
                result = await opened.result()
            redactor = opened.redactor
            if isinstance(recorder.lost, errors.NotOwner):
                log.warning("%s", recorder.lost.message)
                self._hand.forget(job)
                job.settle(recorder.lost)
                return
            if not opened.is_suspended:
                try:
                    await place.leave(redactor)
                except errors.StoreError as error:
                    log.warning("run %s: what it changed could not be kept: %s", run.id[:8], error.message)
        except errors.LeadropeError as error:
            if not await self._endings.hold_back(job, error):
                await self._endings.not_started(job, error)
            return
        except asyncio.CancelledError:
            if job.given_up is None:
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # this is one
            await self._endings.ended_early(job, job.given_up)
            return
        except Exception as error:  # the boundary of a run
            log.exception("run %s failed inside leadrope", run.id[:8])
            where = (
                f"See {background.log_path(self._service.home)}." if self._works else "LEADROPE_DEBUG=1 shows where."
            )
            told = errors.LeadropeError(f"leadrope itself failed: {error!r}", hint=f"This is a bug. {where}")
            await self._endings.not_started(job, told)
            return
        try:
            if opened.is_suspended:
                await place.suspend()
                await self._endings.wait_for_answer(job)
            else:
                await self._endings.settle(job, result, redactor)
        except errors.StoreError as error:
            if opened.is_suspended or await self._endings.continues(run, result):
                self._endings.lost_ends.drop(run.id)  # it has not ended, and the next owner sees to it
            else:
                self._endings.end_later(run, result, redactor, recorder.lost_events)
            job.unstored = self._endings.removed(recorder, run, result) or recorder.not_stored(
                result, error, is_ended=False
            )
            self._hand.forget(job)
            job.settle(recorder.show_error or result)
            return
        if (removed := self._endings.removed(recorder, run, result)) is not None:
            job.unstored = removed
        elif recorder.lost is not None:
            job.unstored = recorder.not_stored(result, recorder.lost, is_ended=True)

    async def _snapshot(self, run: RunInfo, opened: Run) -> None:
        """Policy files change; what held for this run is kept with it."""
        try:
            await self._service.store.set_policy(run, opened.rules, opened.redactor)
        except errors.StoreError as error:
            log.warning("run %s: its rules could not be kept: %s", run.id[:8], error.message)
