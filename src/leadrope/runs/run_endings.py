"""How runs of this process end, or are given back: in the store, now or as soon as it can be written."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from leadrope import errors
from leadrope.core.result import RunResult, not_started
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs import recover
from leadrope.runs.records import lost_ends, stored_environ
from leadrope.runs.records.values import RunInfo, ended_event

if TYPE_CHECKING:
    from leadrope.runs.job import Job
    from leadrope.runs.run_loop import RunsInHand
    from leadrope.runs.run_recorder import RunRecorder
    from leadrope.runs.service import Service

log = logging.getLogger("leadrope.runs")

DRAINED = "its owner was told to end"
HOLD_S = 300.0
"""Between two tries at a run that another process left and that cannot be started here: a login may come back."""
_NOT_HERE = (errors.RequestError, errors.InstallError, errors.NotAuthenticated, errors.GitFailed)
"""What keeps a run from starting and can be put right by a person."""
_NEVER_BEGAN = (errors.RequestError, errors.InstallError, errors.NotAuthenticated)
"""Wrong usage, no agent, no login: nothing was run, and lists and statistics do not count it."""


class RunEndings:
    """Nothing that ends is lost: what the store cannot take is tried again, and kept beside the lease meanwhile."""

    def __init__(self, service: Service, hand: RunsInHand) -> None:
        self._service = service
        self._hand = hand
        self._unended: dict[str, tuple[RunInfo, RunResult, Redactor, str]] = {}
        """Runs that have ended here, and whose end the store could not take yet; each with a note on what is lost."""
        self._lost_ends: lost_ends.LostEnds | None = None

    def begin(self, owner_id: str) -> None:
        self._lost_ends = lost_ends.LostEnds(self._service.home, owner_id)

    def close(self) -> None:
        self.lost_ends.close()

    @property
    def lost_ends(self) -> lost_ends.LostEnds:
        if self._lost_ends is None:
            raise AssertionError("the service is not open")
        return self._lost_ends

    @property
    def are_all_stored(self) -> bool:
        return not self._unended

    async def settle(self, job: Job, result: RunResult, redactor: Redactor) -> None:
        run = job.info
        if result.outcome == "parked" and result.resets_at is not None:
            await self.hold_account(run, result.resets_at)
        lost = job.recorder.lost_events if job.recorder is not None else 0
        if await self.continues(run, result):
            await self.give_back(run, attempt=(await self._service.store.get(run.id)).attempt + 1, reason=DRAINED)
        elif lost:
            last = ended_event(run.id, (await self._service.store.get(run.id)).attempt, 0, result)
            await self._service.store.end_run(run, result, redactor, last=last, note=lost_ends.describe(lost))
        else:
            await self._service.store.end_run(run, result, redactor)
        self.lost_ends.drop(run.id)
        self._hand.forget(job)
        job.settle((job.recorder and job.recorder.show_error) or result)

    def removed(self, recorder: RunRecorder, run: RunInfo, result: RunResult) -> errors.ResultNotStored | None:
        """What is told of a record that nobody can read, whatever else has gone wrong with it before."""
        if not self._service.store.is_removed:
            return None
        return errors.ResultNotStored(
            f"the run store {self._service.store.where} was removed while run {run.id[:8]} was working: "
            "its record is lost",
            result=result,
            is_timed_out=recorder.is_by_itself,
            hint="The next run makes a new store.",
        )

    async def continues(self, run: RunInfo, result: RunResult) -> bool:
        """This process was told to end, and the run goes back to the queue for the next one."""
        return self._service.is_closing and result.outcome == "stopped" and await self.is_continued(run)

    async def is_continued(self, run: RunInfo) -> bool:
        """By the next owner, of the queue or of the execution whose step it is."""
        return (await self._service.store.texts(run.id)).place.get("recover") in ("resume", "execution")

    async def give_back(self, run: RunInfo, *, attempt: int, reason: str) -> None:
        place = (await self._service.store.texts(run.id)).place
        owner, note = None, f"{reason}; it continues"
        if place.get("recover") == "execution":
            owner, note = recover.reserved(place)
        await self._service.store.requeue(run, attempt=attempt, note=note, owner=owner)

    def end_later(self, run: RunInfo, result: RunResult, redactor: Redactor, lost: int) -> None:
        """The store cannot take its end now. If this process ends first, the next one finds how the run ended."""
        self._unended[run.id] = (run, result, redactor, lost_ends.describe(lost) if lost else "")
        self.lost_ends.keep(run.id, result, redactor, lost)

    async def end_late(self) -> None:
        """Runs that ended while the store could not be written."""
        for run_id, (run, result, redactor, note) in list(self._unended.items()):
            last = ended_event(run.id, (await self._service.store.get(run.id)).attempt, 0, result)
            await self._service.store.end_run(run, result, redactor, last=last, note=note)
            self.lost_ends.drop(run_id)
            del self._unended[run_id]

    async def not_started(self, job: Job, error: errors.LeadropeError) -> None:
        if isinstance(error, _NEVER_BEGAN) and await self._is_forgotten(job):
            self._hand.forget(job)
            job.settle(error)
            return
        result = not_started(error, run_id=job.id, attempts=job.info.attempt)
        await self._end_unread(job, result)
        self._hand.forget(job)
        job.settle(error)

    async def _is_forgotten(self, job: Job) -> bool:
        """What never began is not a run: whoever sits before it has the message. A detached one keeps its record."""
        try:
            if (await self._service.store.texts(job.id)).place.get("waits") or (
                await self._service.store.get(job.id)
            ).last_seq:
                return False
            from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # the same

            await run_workspace.forget(self._service, job.info)
            return await self._service.store.forget_unstarted(job.id)
        except (errors.StoreError, errors.GitFailed, errors.UnsafeFile, OSError) as error:
            log.debug("run %s could not be forgotten: %s", job.id[:8], error)
            return False

    async def ended_early(self, job: Job, reason: str) -> None:
        """It was told to end while it was being started; nothing of it is left."""
        result = recover.stopped(job.info, (), reason)
        if self._service.is_closing and await self.is_continued(job.info):
            await self.give_back(job.info, attempt=job.info.attempt, reason=reason)
        else:
            await self._end_unread(job, result)
        self._hand.forget(job)
        job.settle(result)

    async def _end_unread(self, job: Job, result: RunResult) -> None:
        """The end of a run that has told none itself."""
        run = job.info
        from leadrope.runs.stored_starts import StoredStarts  # noqa: PLC0415  # workflows without agents do not need it

        stored = StoredStarts(self._service, self._hand)
        redactor = stored.redactor(self._hand.requests.get(run.id), self._hand.environs.get(run.id))
        try:
            seq = (await self._service.store.get(run.id)).last_seq + 1
            await self._service.store.end_run(run, result, redactor, last=ended_event(run.id, run.attempt, seq, result))
        except errors.StoreError:
            # The store itself is what failed. Whoever waits is told all the same.
            log.exception("run %s: its end could not be stored", run.id[:8])
            self.end_later(run, result, redactor, 0)

    async def hold_back(self, job: Job, error: errors.LeadropeError) -> bool:
        """A detached run that another process left, and that cannot be started here, waits; True if it is one."""
        run = job.info
        if not isinstance(error, _NOT_HERE) or isinstance(error, errors.StoreError):
            return False
        if job.run is not None or run.id in self._hand.requests:
            return False
        if stored_environ.KEY not in (await self._service.store.texts(run.id)).place:
            return False
        note = f"it cannot continue: {error.message} (try again with `leadrope runs resume {run.id[:8]}`)"
        log.warning("run %s is held back: %s %s", run.id[:8], error.message, error.hint or "")
        await self._service.store.requeue(run, attempt=run.attempt, note=note, not_before=time.time() + HOLD_S)
        self._hand.held.add(run.id)
        self._hand.forget(job)
        job.settle(error)
        return True

    async def hold_account(self, run: RunInfo, until: float) -> None:
        """The runs of the same credential need not find out for themselves."""
        note = f"usage limit of {run.account} until {time.strftime('%H:%M', time.localtime(until))}"
        try:
            await self._service.store.hold_account(run.account, until, note)
        except errors.StoreError as error:
            log.warning("run %s: the queue of its account could not be held: %s", run.id[:8], error.message)

    async def wait_for_answer(self, job: Job) -> None:
        """Its agent is gone, and its slot is free; the last answer puts it back into the queue."""
        await self._service.store.suspend(job.info, attempt=(await self._service.store.get(job.id)).attempt)
        self._hand.jobs.pop(job.id, None)
        self._hand.suspended[job.id] = job
        self._hand.poke.set()
