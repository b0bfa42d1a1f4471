"""The loop of an owner: runs whose turn has come, what others ask for, owners that died."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from leadrope import errors
from leadrope.runs import recover
from leadrope.runs.observe.observers import Observers
from leadrope.runs.run_endings import DRAINED

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from leadrope.core.request import RunRequest
    from leadrope.runs.job import Job
    from leadrope.runs.records.values import RunControl, RunInfo
    from leadrope.runs.run_endings import RunEndings
    from leadrope.runs.run_recorder import Show
    from leadrope.runs.service import Service
    from leadrope.runtime.gate.approvers import Approver
    from leadrope.runtime.run import Run

log = logging.getLogger("leadrope.runs")

LOOK_S = 2.0
"""Between two looks for owners that died."""
BURST_S = 0.02
"""What is written within this time is looked at together."""


class RunsInHand:
    """Runs that this process has, from the queue to the end, and what it was given for them."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.suspended: dict[str, Job] = {}
        """Runs without an agent, which wait for a person and may come back here."""
        self.held: set[str] = set()
        """Runs that could not be started here, and wait for a person."""
        self.requests: dict[str, RunRequest] = {}
        """As they were asked for. The store's are redacted and have no credential; they are for looks and recovery."""
        self.environs: dict[str, Mapping[str, str]] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.poke = asyncio.Event()
        """Set when the queue is to be looked at now."""

    def take(
        self,
        run: RunInfo,
        approver: Approver | None,
        show: Show | None,
        environ: Mapping[str, str] | None,
        request: RunRequest | None,
    ) -> Job:
        from leadrope.runs.job import Job  # noqa: PLC0415  # workflows without agents do not need it

        job = Job(run, approver, show)
        self.jobs[run.id] = job
        if environ is not None:
            self.environs[run.id] = environ
        if request is not None:
            self.requests[run.id] = request
        self.poke.set()
        return job

    def forget(self, job: Job) -> None:
        self.jobs.pop(job.id, None)
        self.environs.pop(job.id, None)
        self.requests.pop(job.id, None)
        self.poke.set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


class RunLoop:
    """It claims; `run_execution` carries out."""

    def __init__(
        self,
        service: Service,
        hand: RunsInHand,
        endings: RunEndings,
        observers: Observers,
        *,
        works: bool,
        revives: bool,
    ) -> None:
        self._service = service
        self._hand = hand
        self._endings = endings
        self._observers = observers
        self._works = works
        self._revives = revives
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """It was never begun, was ended, or failed."""
        return self._task is None or self._task.done()

    def begin(self) -> None:
        self._task = asyncio.create_task(self.attend(), name="leadrope service")
        self._task.add_done_callback(self._attended)

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def drain(self, until: float) -> None:
        """Ends what runs here, and waits for it until then."""
        for job in self._hand.jobs.values():
            if job.recorder is not None:
                job.recorder.give_up()  # there is no time to wait for room in
            if not job.give_up(DRAINED) and job.run is not None:
                self._hand.spawn(self._drain(job, job.run))
        if self._hand.tasks:
            # What does not end in this time is left to the guardian, which outlives us, and to the next owner.
            await asyncio.wait(self._hand.tasks, timeout=max(1.0, until - time.monotonic()))
        for job in (*self._hand.jobs.values(), *self._hand.suspended.values()):
            job.settle(errors.RunClosed(f"run {job.id} was left in the queue: its service was closed"))

    async def attend(self) -> None:
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
        with self._service.store.notifier.listen() as heard:
            while True:
                self._hand.poke.clear()
                while await self._claim_one() or await self._service.execution_queue.claim_one():
                    pass
                for control in await self._service.store.take_controls(self._service.lease.owner.id):
                    self._hand.spawn(self._carry_out(control))
                await self._service.controls.attend()
                if loop.time() >= look_at:
                    await self._endings.end_late()
                    await recover.reconcile(self._service.store, self._service.executions, self._service.home)
                    if self._revives:
                        await self._service.revive()
                    look_at = loop.time() + LOOK_S
                now = time.time()
                times = (await self._service.store.next_due(now), await self._service.executions.next_due(now))
                due = min((at for at in times if at), default=None)
                wait_s = min(LOOK_S, max(0.01, due - now)) if due is not None else LOOK_S
                poked = asyncio.ensure_future(self._hand.poke.wait())
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
                        await self._hand.poke.wait()

    def _attended(self, task: asyncio.Task[None]) -> None:
        """A service that no longer attends must not look as if it did: whoever waits for a run is told."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the service of %s failed: %r", self._service.lease.owner.id, error, exc_info=error)
            for job in self._hand.jobs.values():
                if job.run is None:
                    job.settle(error)

    async def _claim_one(self) -> bool:
        mine = [job.id for job in self._hand.jobs.values() if job.run is None and job.recorder is None]
        mine += self._hand.suspended
        if not self._works and not mine:
            return False
        run = await self._service.store.claim(
            self._service.lease.owner.id, self._service.settings.limits(), only=None if self._works else mine
        )
        if run is None:
            return False
        from leadrope.runs.run_execution import RunExecution  # noqa: PLC0415  # workflows without agents do not need it

        await RunExecution(self._service, self._hand, self._endings, self._observers, works=self._works).take(run)
        return True

    async def _drain(self, job: Job, run: Run) -> None:
        """What a person is asked stays open, if the next owner can use the answer."""
        from leadrope.runs.approvals import waiting  # noqa: PLC0415  # as above

        if not (job.waits and await run.suspend(waiting.ENDED_WITH_OWNER)):
            await run.stop(DRAINED)

    async def _carry_out(self, control: RunControl) -> None:
        from leadrope.runs.steering import RunSteering  # noqa: PLC0415  # as above

        await RunSteering(self._service, self._hand).carry_out(control)
