"""Events on their way to the consumer: whole batches, bounded by size, so that a slow consumer holds the agent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from operator import length_hint

from leadrope.core.events import Recorded

# Enough that a consumer that keeps up never makes the agent wait; small beside the agent's own memory. The pipe and the
# reader hold up to 5 MiB more.
LIMIT_BYTES = 4 * 1024 * 1024


class Outbox:
    """One producer, one consumer. `weight` is about what a batch costs in memory."""

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
        """Somebody waits for the next event at this moment."""
        return self._reader is not None and not self._reader.done()

    @property
    def is_drained(self) -> bool:
        """All that has come was read."""
        return not self._batches and not length_hint(self._current)

    def put(self, batch: list[Recorded], weight: int) -> None:
        """Never blocks and never drops; the producer asks `is_full` and waits with `room`."""
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
        """From here on the producer is never held: what is still to come is bounded, or somebody reads it."""
        self._is_held = False
        _wake(self._room)

    def discard(self) -> None:
        """Nobody will read any more: drop what is here and all that comes."""
        self.let_go()
        self._discarding = True
        self._batches.clear()
        self._weight = 0
        self._current = iter(())
        _wake(self._reader)

    async def events(self) -> AsyncIterator[Recorded]:
        """To the end. An iteration that was left goes on where it stopped when another one begins."""
        while True:
            for recorded in self._current:
                yield recorded
            batch = await self._next()
            if batch is None:
                return
            self._current = iter(batch)

    async def batches(self) -> AsyncIterator[list[Recorded]]:
        """The same by whole batches, for whoever stores them."""
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
