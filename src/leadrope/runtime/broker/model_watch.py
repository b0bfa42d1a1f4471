"""Watches one attempt's connection to its model: explains the agent's retries, and ends a run that cannot connect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from leadrope import spelling
from leadrope.core import events
from leadrope.core.request import RunRequest
from leadrope.providers import base
from leadrope.runtime.broker.reachability import Reach, Trouble, probe
from leadrope.runtime.limits.clocks import RunClocks, how_to_raise
from leadrope.runtime.preflight import Cause

EXPLAIN_S = 0.4
"""How long a retry event is held back for an explanation; the agent itself waits longer than that."""
_OF_BROKER = 502
"""The status with which the broker answers if the model's server is unreachable."""


class WatchHost(Protocol):
    """The attempt being watched."""

    def emit(self, event: events.Event) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    def end(
        self, cause: Cause, kind: str, message: str, *, clock: str | None = None, hint: str | None = None
    ) -> None: ...


class Then(Protocol):
    def __call__(self, *, is_reached: bool) -> None: ...


class ModelWatch:
    def __init__(
        self, host: WatchHost, reach: Reach, request: RunRequest, launch: base.Start, clocks: RunClocks
    ) -> None:
        self._host = host
        self._request = request
        self._launch = launch
        self._clocks = clocks
        self._looking: set[asyncio.Task[Any]] = set()
        self.reach = reach
        reach.trouble = None  # so that a problem announced in an earlier attempt is announced again
        reach.on_lost, reach.on_found = self._on_lost, self._on_found

    def stop_looking(self) -> None:
        """Stop probing: the agent is gone, and no probe must delay the end."""
        for task in self._looking:
            task.cancel()

    def close(self) -> None:
        self.reach.on_lost = self.reach.on_found = None

    # -- why the agent retries
    # ------------------------------------------------------------------------------------------

    def knows_reason(self, retry: events.RetryScheduled) -> bool:
        """Return whether the reason is known: the service answered, or a broker saw what happened."""
        return self.reach.look is not None or retry.by != "agent" or retry.api_status is not None

    def explained(self, retry: events.RetryScheduled) -> events.RetryScheduled:
        return _explained(retry, self.reach.trouble if retry.api_status in (None, _OF_BROKER) else None)

    def explain(self, retry: events.RetryScheduled, then: Then) -> None:
        """Record a retry once it is known whether the model can be reached; the result is passed to `then`."""
        self._spawn(self._explain(retry, then))

    async def _explain(self, retry: events.RetryScheduled, then: Then) -> None:
        looking = self._spawn(self._look())
        await asyncio.wait((looking,), timeout=EXPLAIN_S)
        is_told = not looking.done()
        if is_told:
            self._host.emit(retry)
        trouble = await looking
        if trouble is None:
            self.reach.reached()
        else:
            self.reach.failed(trouble)
        if not is_told:
            self._host.emit(_explained(retry, trouble))
        then(is_reached=trouble is None)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._host.spawn(work)
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)
        return task

    async def _look(self) -> Trouble | None:
        if self.reach.look is not None:
            return await self.reach.look()
        env = self._launch.env if isinstance(self._launch, base.Launch) else {}
        return await probe(self._launch.model_url, env)

    # -- time limit
    # -----------------------------------------------------------------------------------------------------

    @property
    def _limit_s(self) -> float:
        return self.reach.limit_s(self._request.limits.unreachable_s)

    def _on_lost(self, trouble: Trouble) -> None:
        message = str(trouble)
        if self._request.api_retries != 0:
            message += f"; retrying for up to {self._limit_s:g} s" if self._limit_s else "; retrying"
        self._host.emit(events.Notice(level="warning", code="model_unreachable", message=message))
        self._clocks.unreachable(self._limit_s)

    def _on_found(self, trouble: Trouble) -> None:
        self._clocks.reachable()
        message = f"{trouble.address} is reachable again"
        self._host.emit(events.Notice(level="info", code="model_reachable", message=message))

    def give_up(self) -> None:
        """Handle the expired time limit."""
        self._spawn(self._give_up())

    async def _give_up(self) -> None:
        """Probe once more before giving up: the agent's backoff grows, and its next attempt might succeed."""
        trouble = await self._look()
        if trouble is None:
            self.reach.reached()
            return
        check = f"Check the address ({spelling.option('base_url')})" if self._request.base_url else "Check your network"
        self._host.end(
            "failed",
            "connection_failed",
            f"{trouble}; gave up after {self._limit_s:g} s",
            clock="unreachable",
            hint=f"{check}, and whether the server is running. To wait longer, raise the limit "
            f"({how_to_raise('unreachable')}).",
        )


def _explained(retry: events.RetryScheduled, trouble: Trouble | None) -> events.RetryScheduled:
    """Add the reason if the agent does not know it."""
    return retry if trouble is None else msgspec.structs.replace(retry, error=str(trouble), api_status=None)
