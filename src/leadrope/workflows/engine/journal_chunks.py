"""Writes the outcomes of small batch units in groups: a transaction for each would cost more than the unit itself.

An item frees its slot before its outcome is written, because no other item depends on it. After kill -9 the few
unwritten items run again, like any unit that is cut off between its effect and its outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from leadrope.runs.executions.values import Settled, UnitOutcome

CHUNK_S = 0.01
MOST_UNWRITTEN = 32
"""Number of unwritten outcomes after which adding one waits for the store."""
SMALL_S = 0.05
"""Units that took longer are written at once: repeating one would cost more than its transaction."""


def is_small(outcome: UnitOutcome) -> bool:
    is_plain = outcome.status == "succeeded" and outcome.attempts == 1 and outcome.item is not None
    is_free = not (outcome.cost_usd or outcome.tokens or outcome.run_id)
    return is_plain and is_free and outcome.ended - outcome.started < SMALL_S


class Chunks:
    def __init__(self, write: Callable[[Sequence[Settled]], Awaitable[None]]) -> None:
        self._write = write
        self._unwritten: list[Settled] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, settled: Settled) -> None:
        """Queue an outcome; returns before it is written unless the queue is full. Raises an earlier write's error."""
        if self._writing is not None and self._writing.done():
            self._writing.result()
            self._writing = None
        self._unwritten.append(settled)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="outcomes of a batch")
        if len(self._unwritten) >= MOST_UNWRITTEN:
            await self.written()

    async def written(self) -> None:
        """Wait until everything queued is in the journal. Cancelling only ends the wait."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write_all(self) -> None:
        while self._unwritten:
            if len(self._unwritten) < MOST_UNWRITTEN:
                await asyncio.sleep(CHUNK_S)
            chunk, self._unwritten = self._unwritten, []
            await self._write(chunk)
