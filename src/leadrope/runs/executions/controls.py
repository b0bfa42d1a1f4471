"""Stop, pause and resume of executions, from any process: done here where nobody owns one, else by its owner."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from leadrope import errors
from leadrope.core import execution_events as events
from leadrope.core.secrets.redaction import redact
from leadrope.runs.executions.values import ExecutionControl, ExecutionInfo

if TYPE_CHECKING:
    from leadrope.runs.service import Service

log = logging.getLogger("leadrope.runs")

BY_A_PERSON = "stopped by a person"


class Controlled(Protocol):
    """An execution that runs in this process."""

    @property
    def id(self) -> str: ...
    def stop(self, reason: str) -> None: ...
    async def pause(self, by: str) -> None: ...
    async def unpause(self, by: str) -> None: ...


class ExecutionControls:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: dict[str, Controlled] = {}

    @contextlib.contextmanager
    def reaching(self, execution: Controlled) -> Iterator[None]:
        """Controls reach the execution meanwhile; those that came before it was ready, too."""
        self._running[execution.id] = execution
        self._service.poke()
        try:
            yield
        finally:
            del self._running[execution.id]

    async def attend(self) -> None:
        """Carry out what others have asked for."""
        for control in await self._service.executions.take_controls(frozenset(self._running)) if self._running else ():
            if (execution := self._running.get(control.execution_id)) is not None:
                try:
                    await self._carry_out(execution, control)
                except errors.NotOwner as error:
                    log.warning("%s", error.message)

    async def _carry_out(self, execution: Controlled, control: ExecutionControl) -> None:
        by = str(control.body.get("by") or "person")
        match control.kind:
            case "stop":
                execution.stop(str(control.body.get("reason") or BY_A_PERSON))
            case "pause":
                await execution.pause(by)
            case "unpause":
                await execution.unpause(by)
            case _:
                log.warning("execution %s: nobody knows the control %r", execution.id[:8], control.kind)

    # -- what a person asks for ---------------------------------------------------------------------------------------

    async def stop(self, execution_id: str, reason: str = BY_A_PERSON, *, by: str = "person") -> ExecutionInfo:
        """One that nobody owns, or that is in the queue, is ended here and now; another one by its owner."""
        executions = self._service.executions
        info = await self._outermost(execution_id)
        told = events.ExecutionEnded(outcome="stopped", reason=redact(reason))
        if not await executions.end_unowned(info, told):
            await self._ask_owner(info, "stop", reason=redact(reason), by=by)
        return await executions.get(info.id)

    async def pause(self, execution_id: str, *, by: str = "person") -> ExecutionInfo:
        """What runs is finished, except for agents, which are held; nothing more starts until `resume`."""
        executions = self._service.executions
        info = await self._outermost(execution_id)
        if info.state == "paused":
            return info
        if info.state == "interrupted":
            raise errors.WrongState(f"execution {info.id[:8]} is interrupted, and does not run")
        if not await executions.pause_unowned(info, events.ExecutionPaused(by=by)):
            await self._ask_owner(info, "pause", by=by)
        return await executions.get(info.id)

    async def unpause(self, execution_id: str, *, by: str = "person") -> ExecutionInfo:
        """One that has no owner goes back into the queue."""
        executions = self._service.executions
        info = await self._outermost(execution_id)
        if info.state != "paused":
            raise errors.WrongState(f"execution {info.id[:8]} is not paused: it is {info.state}")
        if not await executions.queue_paused(info, events.ExecutionUnpaused(by=by)):
            await self._ask_owner(info, "unpause", by=by)
        return await executions.get(info.id)

    async def _outermost(self, execution_id: str) -> ExecutionInfo:
        """One inside another follows it: they share steps, folder and people."""
        executions = self._service.executions
        info = await executions.outermost(await executions.find(execution_id))
        if info.state == "ended":
            raise errors.WrongState(
                f"execution {info.id[:8]} has ended: {info.outcome}",
                hint=f"`leadrope flow report {info.id[:8]}` shows the outcome.",
            )
        return info

    async def _ask_owner(self, info: ExecutionInfo, kind: str, **body: str) -> None:
        await self._service.executions.add_control(info, kind, body)
