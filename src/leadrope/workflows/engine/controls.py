"""Stop, pause and continue for a running execution, whoever requests them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leadrope.core.execution_events import ExecutionPaused, ExecutionUnpaused
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runs.records.values import Filter
from leadrope.workflows.engine.execution_context import ExecutionContext


class ControlledExecution:
    """The outermost execution; nested ones follow through the gate that they share."""

    def __init__(
        self,
        host: ExecutionContext,
        info: ExecutionInfo,
        stop: Callable[[str], None],
        family: Callable[[], Iterable[str]],
    ) -> None:
        """`family` returns the ids of this execution and of the running executions inside it."""
        self.id = info.id
        self._host = host
        self._info = info
        self._stop = stop
        self._family = family

    def stop(self, reason: str) -> None:
        self._stop(reason)

    async def pause(self, by: str) -> None:
        """Start no further unit; running agents are paused, and running commands are finished."""
        if self._host.gate.is_closed:
            return
        self._host.gate.pause()
        executions = self._host.service.executions
        await executions.set_paused(self._info, self._host.log, ExecutionPaused(by=by), is_paused=True)
        for run_id in await self._open_runs():
            await self._host.service.pause(run_id)

    async def unpause(self, by: str) -> None:
        if not self._host.gate.is_closed:
            return
        executions = self._host.service.executions
        await executions.set_paused(self._info, self._host.log, ExecutionUnpaused(by=by), is_paused=False)
        for run_id in await self._open_runs():
            await self._host.service.unpause(run_id)
        self._host.gate.resume()

    async def _open_runs(self) -> list[str]:
        """The agents of its steps that run, in called workflows too."""
        found = []
        for execution_id in self._family():
            wanted = Filter(is_open=True, label=("workflow", execution_id[:12]))
            found += [run.id for run in await self._host.service.listing(wanted)]
        return found
