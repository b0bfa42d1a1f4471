"""Clocks that stand still while a run is paused, beside one that does not: that one tells that the time has passed."""

from __future__ import annotations

import asyncio

import pytest

from leadrope.core.request import Limits
from leadrope.runtime.limits.clocks import RunClocks
from leadrope.runtime.limits.pauses import AnswerClock, Pauses

SHORT_S = 0.05


class Watched:
    def __init__(self, limits: Limits) -> None:
        self.over: list[str] = []
        self.rung = asyncio.Event()
        self.clocks = RunClocks(limits, self._expired)

    def _expired(self, name: str) -> None:
        self.over.append(name)
        self.clocks.stop()
        self.rung.set()


@pytest.mark.parametrize("clock", ["start", "wall", "idle", "tool t1"])
async def test_every_clock_of_a_run_stands_still_while_it_is_paused(clock: str) -> None:
    off = {"start_s": 0.0, "wall_s": 0.0, "idle_s": 0.0, "tool_s": 0.0}
    limits = Limits(**(off | {f"{clock.partition(' ')[0]}_s": SHORT_S}))
    paused, other = Watched(limits), Watched(limits)
    for each in (paused, other):
        each.clocks.start(asyncio.get_running_loop().time())
        if clock == "idle":
            each.clocks.heard()
        if clock == "tool t1":
            each.clocks.tool_begins("t1")
    paused.clocks.pause()
    await other.rung.wait()
    assert (paused.over, other.over) == ([], [clock])
    paused.clocks.unpause()
    await paused.rung.wait()
    assert paused.over == [clock]


async def test_a_tool_that_ends_during_a_pause_leaves_nothing_behind() -> None:
    watched = Watched(Limits(start_s=0, idle_s=SHORT_S, tool_s=60))
    watched.clocks.start(asyncio.get_running_loop().time())
    watched.clocks.heard()
    watched.clocks.tool_begins("t1")
    watched.clocks.pause()
    watched.clocks.tool_ends("t1")
    watched.clocks.unpause()
    await watched.rung.wait()
    assert watched.over == ["idle"]


async def over(clock: AnswerClock) -> bool:
    """Waits as long as it says, as often as it says so."""
    for _ in range(1000):
        if clock.is_over:
            return True
        await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=clock.look_s)
    return False


async def test_patience_counts_the_time_that_was_not_paused() -> None:
    pauses = Pauses()
    never, still, runs = pauses.clock(None), pauses.clock(SHORT_S), Pauses().clock(SHORT_S)
    pauses.begin()
    pauses.begin()  # a second word for the same pause
    assert await over(runs)
    assert not still.is_over
    assert still.left_s > 0
    assert still.look_s is not None
    assert still.look_s >= still.left_s
    pauses.end()
    assert pauses.spent_s > 0
    assert await over(still)
    assert never.look_s is None
    assert not never.is_over
