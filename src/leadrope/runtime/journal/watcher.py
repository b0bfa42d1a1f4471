"""Calls a program's `on_event` with every event of a run in order, in a task of its own.

A slow callback only makes the agent wait, and only once it is far behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from leadrope.core.events import Notice, Recorded
from leadrope.runtime.embedding import user_code

log = logging.getLogger("leadrope.run")

OnEvent = Callable[[Recorded], object | Awaitable[object]]

MOST_WAITING = 10_000
"""Queued events before the agent has to wait. Each piece of text is one, so a lower limit would slow a fast answer."""
FINISH_S = 10.0
"""Time limit for the queued events when the run has ended."""


class Watcher:
    """Passes events to `on_event`, one after another."""

    def __init__(self, function: OnEvent, notify: Callable[[Notice], None]) -> None:
        self._function = function
        self._notify = notify
        self._is_async = user_code.is_async(function)
        self._waiting: deque[list[Recorded]] = deque()
        self._behind = 0
        self._failed = 0
        self._is_stuck = False
        self._is_let_go = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the callback is so far behind that the agent has to wait."""
        return self._behind > MOST_WAITING and not self._is_let_go

    def let_go(self) -> None:
        """Never make the agent wait from now on: the run is ending."""
        self._is_let_go = True
        self._changed.set()

    def take(self, batch: list[Recorded]) -> None:
        """Queue a batch without waiting; the producer checks `is_full`."""
        self._waiting.append(batch)
        self._behind += len(batch)
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="leadrope on_event")

    async def room(self) -> None:
        """Wait until the callback is no longer far behind."""
        while self.is_full:
            self._changed.clear()
            await self._changed.wait()

    async def drain(self) -> None:
        """Wait until all events were handled, or for FINISH_S."""
        task = self._task
        if task is not None and not self._is_stuck:
            await asyncio.wait((task,), timeout=FINISH_S)
            self._is_stuck = not task.done()

    async def close(self) -> None:
        """Handle the last events, then end."""
        await self.drain()
        if self._task is not None:
            log.warning("on_event has not seen the last %d events of a run: it does not return", self._behind)
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)

    async def _work(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            if self._is_async:
                for recorded in batch:
                    await self._show(recorded)
            else:
                # One thread switch for a whole batch: a fast answer arrives in thousands of pieces.
                for error in await user_code.in_thread(lambda batch=batch: self._show_all(batch), "on_event"):  # type: ignore[misc]
                    self._tell(error)
            self._behind -= len(batch)
            self._changed.set()
        self._task = None

    async def _show(self, recorded: Recorded) -> None:
        try:
            got = self._function(recorded)
            if isinstance(got, Awaitable):
                await got
        except Exception as error:  # noqa: BLE001  # the program's own code; the run continues
            self._tell(error)

    def _show_all(self, batch: list[Recorded]) -> list[Exception]:
        found: list[Exception] = []
        for recorded in batch:
            try:
                self._function(recorded)
            except Exception as error:  # noqa: BLE001  # the program's own code; the next event is shown too
                found.append(error)
        return found

    def _tell(self, error: Exception) -> None:
        """Report an error once: a callback that fails for one event usually fails for all."""
        self._failed += 1
        if self._failed == 1:
            log.error("on_event failed; further failures of this run are not logged", exc_info=error)
            self._notify(Notice(level="warning", code="on_event_failed", message=f"on_event failed: {error!r}"))
