"""Observers of running runs and executions: the trace collector, and the person notified of waiting runs.

Opened with the first run that a service starts, so that read-only use costs nothing; no observer can end a run.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from leadrope.core.config import Config
from leadrope.core.events import ApprovalRequested, QuestionRequested, Recorded
from leadrope.core.execution_events import ExecutionRecord, StepAsked
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runs.records.values import RunInfo

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import WatchRecord
    from leadrope.runs.observe.notify import Notifier
    from leadrope.runs.observe.telemetry import Telemetry

log = logging.getLogger("leadrope.runs")

Watch = Callable[[Recorded, Redactor], None]
NOTIFY_S = 2.0
"""For pending notifications when the service ends: by then nobody waits for an answer any more."""
TELEMETRY_S = 3.0


class Observers:
    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._opening = asyncio.Lock()
        self._is_open = False
        self._telemetry: Telemetry | None = None
        self._notifier: Notifier | None = None

    async def watch(self, run: RunInfo, *, is_answerable: bool) -> Watch | None:
        """Return the callback for each event of a run; None if there is no observer.

        `is_answerable`: somebody can still approve. Nobody is notified of a run that denies by itself.
        """
        await self._opened()
        telemetry, notifier = self._telemetry, self._notifier if is_answerable else None
        if telemetry is None and notifier is None:
            return None

        def see(recorded: Recorded, redactor: Redactor) -> None:
            if telemetry is not None:
                telemetry.add(recorded, redactor)
            if notifier is not None and isinstance(recorded.event, ApprovalRequested | QuestionRequested):
                _tell(notifier, recorded, redactor, run)

        return see

    async def watch_execution(self, execution: ExecutionInfo, *, is_answerable: bool) -> WatchRecord | None:
        """Return the callback for the events of a workflow's execution."""
        await self._opened()
        telemetry, notifier = self._telemetry, self._notifier if is_answerable else None
        if telemetry is None and notifier is None:
            return None

        def see(record: ExecutionRecord, redactor: Redactor) -> None:
            if telemetry is not None:
                telemetry.add_execution(record)
            if notifier is not None and isinstance(record.event, StepAsked):
                _tell_asked(notifier, record, redactor, execution)

        return see

    async def _opened(self) -> None:
        async with self._opening:
            if not self._is_open:
                await self._open()
                self._is_open = True

    async def close(self, timeout_s: float = TELEMETRY_S) -> None:
        """Wait at most this long, in total, for everything that is being sent."""
        telemetry, self._telemetry = self._telemetry, None
        notifier, self._notifier = self._notifier, None
        work = []
        if notifier is not None:
            work.append(notifier.close(min(NOTIFY_S, timeout_s)))
        if telemetry is not None:
            work.append(_close(telemetry, min(TELEMETRY_S, timeout_s)))
        await asyncio.gather(*work)

    async def _open(self) -> None:
        # Imported here: one costs half a second, the other imports TLS.
        if self._config.notify:
            from leadrope.runs.observe import notify  # noqa: PLC0415

            found = notify.settings(self._config.notify, self._environ, source=self._config.source)
            if not found.is_silent:
                self._notifier = notify.Notifier(found, environ=self._environ, terminal=sys.stderr)
        if self._config.telemetry or any(name.startswith("OTEL_") for name in self._environ):
            from leadrope.runs.observe import telemetry  # noqa: PLC0415

            wanted = telemetry.settings(self._environ, self._config.telemetry, source=self._config.source)
            if wanted is not None:
                self._telemetry = await asyncio.to_thread(telemetry.open_, wanted)


async def _close(telemetry: Telemetry, timeout_s: float) -> None:
    await asyncio.to_thread(telemetry.close, timeout_s)


def _tell(notifier: Notifier, recorded: Recorded, redactor: Redactor, run: RunInfo) -> None:
    from leadrope.runs.observe.notify import word_of  # noqa: PLC0415  # there is a notifier, so it is imported already

    try:
        word = word_of(recorded, redactor, cwd=run.cwd, labels=run.labels)
        if word is not None:
            notifier.tell(word)
    except Exception:  # error boundary: the question remains open, and the run continues
        log.exception("run %s: the notification that it waits could not be sent", run.id[:8])


def _tell_asked(notifier: Notifier, record: ExecutionRecord, redactor: Redactor, execution: ExecutionInfo) -> None:
    from leadrope.runs.observe.notify import word_of_step  # noqa: PLC0415  # as above

    try:
        word = word_of_step(record, redactor, cwd=execution.cwd, labels=execution.labels)
        if word is not None:
            notifier.tell(word)
    except Exception:  # error boundary, as above
        log.exception("execution %s: the notification that it waits could not be sent", execution.id[:8])
