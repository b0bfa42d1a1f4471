"""The gate before the units of an execution: closed by a pause, and clocks that stand still meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from leadrope.workflows.engine.gate import ExecutionGate


class Clock:
    def __init__(self) -> None:
        self.stops = 0

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.stops += 1
        try:
            yield
        finally:
            self.stops -= 1


async def test_nothing_passes_while_it_is_closed() -> None:
    gate = ExecutionGate()
    await gate.passed()
    gate.pause()
    waiting = asyncio.ensure_future(gate.passed())
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.resume()
    await waiting


async def test_clocks_stand_still_for_as_long_as_anything_holds_them() -> None:
    gate, early, late = ExecutionGate(), Clock(), Clock()
    with gate.clock(early.stopped):
        gate.pause()
        gate.pause()
        assert early.stops == 1
        with gate.clocks_stopped(), gate.clock(late.stopped):
            assert (early.stops, late.stops) == (1, 1), "one that begins meanwhile stands still too"
            gate.resume()
            assert (early.stops, late.stops) == (1, 1), "the store is still waited for"
        assert (early.stops, late.stops) == (0, 0)
        with gate.clocks_stopped():
            assert not gate.is_closed
            assert early.stops == 1
        assert early.stops == 0
        gate.pause()
    assert early.stops == 0, "a clock that has ended is let go"
    gate.resume()
