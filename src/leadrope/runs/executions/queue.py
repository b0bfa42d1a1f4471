"""Executions of workflows that this process takes from the queue of the store, and carries to their end.

How an execution is carried out is the business of `carry`, which the process is started with; here are its turn, its
limits, and what becomes of it when this process ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import execution_events as events
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions.values import ExecutionInfo, NewExecution

if TYPE_CHECKING:
    from leadrope.runs.service import Service

log = logging.getLogger("leadrope.runs")

HOLD_S = 300.0
"""Between two tries at an execution that cannot be continued here: a login may come back."""
SOON_S = 60.0
"""An owner does not stay for an execution that may start later than this."""
STORE_S = 2.0
"""Between two tries to write to a store that cannot be used."""
FAILED_S = 30.0
"""Before the next try where leadrope itself failed."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution was handed over with and the store does not have."""

    environ: dict[str, str]
    inputs: dict[str, Any] | None = None
    """None: they are the stored ones, and the environment only adds to the stored one."""
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Given(…)"


class NotHere(errors.LeadropeError):
    """The execution cannot be continued by this process, as it is now; it waits, with the reason."""

    kind = "not_here"


Carry = Callable[["Service", ExecutionInfo, Given | None], Awaitable[None]]
"""One claimed execution to its end, or to the question that it waits for. NotHere where that is not possible."""


class ExecutionQueue:
    def __init__(self, service: Service, carry: Carry | None) -> None:
        """Without `carry` nothing is taken from the queue."""
        self._service = service
        self._carry = carry
        self._given: dict[str, Given] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: set[str] = set()
        """Those that could not be continued here, and wait for a person or a time."""
        self._is_closing = False

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def has_queue(self) -> bool:
        """Executions wait that this process will take up soon; for others whoever looks starts the next one."""
        if self._carry is None:
            return False
        waiting = await self._service.executions.queued_for(self._service.lease.owner.id, time.time() + SOON_S)
        return any(execution_id not in self._held for execution_id in waiting)

    async def add(self, new: NewExecution, redactor: Redactor, given: Given) -> ExecutionInfo:
        """Queue an execution that was handed to this process: it starts here, unless this process dies before."""
        executions = self._service.executions
        told = events.ExecutionQueued(reason=new.note)
        info = await executions.add(new, redactor, is_mine=True, most=self._service.settings.queued, told=(told,))
        self._given[info.id] = given
        return info

    async def take_up(self, execution_id: str, environ: Mapping[str, str]) -> ExecutionInfo:
        """Try an execution that waits in the queue now; `environ` has the variables that were not stored with it."""
        executions = self._service.executions
        info = await executions.get(execution_id)
        if info.id not in self._tasks and await executions.wake(info):
            self._given[info.id] = Given(environ=dict(environ))
            self._held.discard(info.id)
        return await executions.get(info.id)

    async def claim_one(self) -> bool:
        if self._carry is None or self._is_closing:
            return False
        executions, settings = self._service.executions, self._service.settings
        info = await executions.claim_next(settings.executions_at_once, recover=settings.recover)
        if info is None:
            return False
        self._held.discard(info.id)
        task = asyncio.create_task(self._carried(info), name=f"execution {info.id[:8]}")
        self._tasks[info.id] = task
        task.add_done_callback(lambda _: self._ended(info.id))
        return True

    def _ended(self, execution_id: str) -> None:
        self._tasks.pop(execution_id, None)
        self._service.poke()

    async def _carried(self, info: ExecutionInfo) -> None:
        """The task boundary of an execution: what goes wrong in one must not end the others."""
        if self._carry is None:
            raise AssertionError
        try:
            await self._carry(self._service, info, self._given.get(info.id))
            self._given.pop(info.id, None)
        except NotHere as error:
            await self._hold_back(info, error)
        except errors.NotOwner as error:
            log.warning("%s", error.message)
            self._given.pop(info.id, None)
        except errors.StoreError as error:
            # Never its end: it is continued when the store can be used again, with what it was handed over.
            log.warning("execution %s is put down: %s", info.id[:8], error.message)
            await self._left(info, f"{error.message}; it continues", 0.0)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the boundary of an execution
            log.exception("execution %s failed inside leadrope", info.id[:8])
            await self._left(info, f"leadrope itself failed: {error!r}; it is tried again", FAILED_S)

    async def _hold_back(self, info: ExecutionInfo, error: NotHere) -> None:
        log.warning("execution %s is held back: %s %s", info.id[:8], error.message, error.hint or "")
        self._held.add(info.id)
        self._given.pop(info.id, None)
        name = info.id[:8]
        note = f"it cannot continue: {error.message} (try again with `leadrope flow resume {name}`)"
        await self._left(info, note, HOLD_S)

    async def _left(self, info: ExecutionInfo, note: str, wait_s: float) -> None:
        """Back into the queue, as soon as the store takes it."""
        while not self._is_closing:
            try:
                await self._service.executions.requeue(info, note=note, not_before=time.time() + wait_s)
            except (errors.NotOwner, errors.UnknownRun):
                return  # it has left its state itself
            except errors.StoreError:
                await asyncio.sleep(STORE_S)
            else:
                return

    async def close(self, drain_s: float) -> None:
        """What runs is ended, and goes back into the queue."""
        self._is_closing = True
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=drain_s)
