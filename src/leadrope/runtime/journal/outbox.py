"""Queue of events for the consumer: whole batches, bounded by size, so that a slow consumer pauses the agent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from operator import length_hint

from leadrope.core.events import Recorded

# Large enough that a consumer that keeps up never makes the agent wait; small compared with the agent's own memory. The
# pipe and the reader hold up to 5 MiB more.
LIMIT_BYTES = 4 * 1024 * 1024


class Outbox:
    """Queue with one producer and one consumer. `weight` is roughly the memory that a batch takes."""

    def __init__(self, *, limit: int = LIMIT_BYTES) -> None:
        self._batches: deque[tuple[list[Recorded], int]] = deque()
        self._weight = 0
        self._limit = limit
        self._closed = False
        self._discarding = False
        self._is_held = True
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._current: Iterator[Recorded] = iter(())

    @property
    def is_full(self) -> bool:
        return self._is_held and self._weight > self._limit

    @property
    def is_read(self) -> bool:
        """Whether somebody is waiting for the next event."""
        return self._reader is not None and not self._reader.done()

    @property
    def is_drained(self) -> bool:
        """Whether everything so far was read."""
        return not self._batches and not length_hint(self._current)

    def put(self, batch: list[Recorded], weight: int) -> None:
        """Add a batch without blocking or dropping; the producer checks `is_full` and waits with `room`."""
        if self._discarding or not batch:
            return
        self._batches.append((batch, weight))
        self._weight += weight
        _wake(self._reader)

    async def room(self) -> None:
        while self.is_full:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def close(self) -> None:
        self._closed = True
        _wake(self._reader)

    def let_go(self) -> None:
        """Never make the producer wait from now on: what is still to come is bounded, or somebody reads it."""
        self._is_held = False
        _wake(self._room)

    def discard(self) -> None:
        """Drop the current and all later events: nobody will read them."""
        self.let_go()
        self._discarding = True
        self._batches.clear()
        self._weight = 0
        self._current = iter(())
        _wake(self._reader)

    async def events(self) -> AsyncIterator[Recorded]:
        """Iterate over all events. A new iteration continues where the previous one stopped."""
        while True:
            for recorded in self._current:
                yield recorded
            batch = await self._next()
            if batch is None:
                return
            self._current = iter(batch)

    async def batches(self) -> AsyncIterator[list[Recorded]]:
        """Iterate over whole batches, for storing them."""
        rest = list(self._current)
        if rest:
            yield rest
        while (batch := await self._next()) is not None:
            yield batch

    async def _next(self) -> list[Recorded] | None:
        while not self._batches:
            if self._closed or self._discarding:
                return None
            if self.is_read:
                raise RuntimeError("two tasks iterate the same run, and each would miss events; give it one reader")
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        batch, weight = self._batches.popleft()
        self._weight -= weight
        if not self.is_full:
            _wake(self._room)
        return batch


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
