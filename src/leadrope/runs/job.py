"""A run in the hands of this process, from the queue to its result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leadrope import errors
from leadrope.core import events
from leadrope.core.config import Config
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.values import RunControl, RunInfo
from leadrope.runs.run_recorder import RunRecorder, Show
from leadrope.runtime.gate.approvers import Approver
from leadrope.runtime.limits.pauses import Pauses

if TYPE_CHECKING:
    from leadrope.runtime.run import Run


class Job:
    """A run that this process has started, or will when its turn comes."""

    def __init__(self, run: RunInfo, approver: Approver | None, show: Show | None) -> None:
        self.info = run
        self.id = run.id
        self.approver = approver
        self.show = show
        self.run: Run | None = None
        self.recorder: RunRecorder | None = None
        self.config: Config | None = None
        """The configuration that it was started with; None: that of the service."""
        self.options: dict[str, Any] = {}
        """What `open_run` is told beside what every run is."""
        self.task: asyncio.Task[None] | None = None
        """Which carries it to its end, from its turn on."""
        self.later: list[RunControl] = []
        """What was asked of it before it ran; carried out when it does."""
        self.pauses = Pauses()
        self.waits = False
        """A person may take any time to answer; see `runs.waiting`."""
        self.unstored: errors.ResultNotStored | None = None
        """Its result, where the store could not take all of the run."""
        self.notice = ""
        """What its user should know from the beginning."""
        self.given_up: str | None = None
        """Why it was ended before it ran."""
        self._opened: asyncio.Future[Run] | None = None
        self._done: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()

    @property
    def is_taken(self) -> bool:
        """Its turn has come."""
        return self.recorder is not None

    @property
    def redactor(self) -> Redactor:
        """Knows the secrets of the run, once it has started."""
        return self.run.redactor if self.run is not None else Redactor()

    @property
    def is_read(self) -> bool:
        """Whoever has started it reads its events himself."""
        return self._opened is not None

    async def read(self, options: dict[str, Any]) -> Run:
        """The run itself, once it has started; raises what keeps it from starting."""
        self.options = options
        self._opened = asyncio.get_running_loop().create_future()
        return await self._opened

    def first_events(self) -> tuple[events.Event, ...]:
        if not self.notice:
            return ()
        return (events.Notice(level="info", code="not_recoverable", message=self.notice),)

    def resumed(self) -> Job:
        """After a suspension: as before its first turn."""
        self.run = self.recorder = self.task = None
        self.later, self.pauses = [], Pauses()
        return self

    def started(self, run: Run) -> None:
        self.run = run
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(run)

    def give_up(self, reason: str) -> bool:
        """End it while it is being started; False when there is nothing to end that way (yet, or any more)."""
        if self.run is not None or self.task is None:
            return False
        if self.given_up is None:
            self.given_up = reason
            self.task.cancel()
        return True

    async def result(self) -> RunResult:
        """Raises what kept the run from starting; a run that ends badly is a result."""
        return await asyncio.shield(self._done)

    def settle(self, result: RunResult | BaseException) -> None:
        if self._opened is not None and not self._opened.done():
            early = RuntimeError("the run has ended before it started") if isinstance(result, RunResult) else result
            self._opened.set_exception(early)
        if self._done.done():
            return
        if isinstance(result, RunResult):
            self._done.set_result(result)
        else:
            self._done.set_exception(result)
            self._done.exception()  # looked at: a job that nobody awaits is no forgotten error, it is in the store
