"""The wall clock covers a run with all its attempts, and no more than the run."""

from __future__ import annotations

import asyncio

from leadrope.core.request import Limits
from leadrope.runtime.limits.clocks import RunClocks


async def test_what_earlier_attempts_took_is_gone() -> None:
    loop = asyncio.get_running_loop()
    expired: asyncio.Future[str] = loop.create_future()
    clocks = RunClocks(Limits(wall_s=600), expired.set_result)
    clocks.start(loop.time() - 601)
    assert await asyncio.wait_for(expired, 5) == "wall"
    clocks.stop()


async def test_a_run_without_a_limit_may_take_any_time() -> None:
    loop = asyncio.get_running_loop()
    expired: list[str] = []
    clocks = RunClocks(Limits(wall_s=0, start_s=0), expired.append)
    clocks.start(loop.time() - 10**6)
    for _ in range(5):
        await asyncio.sleep(0)
    assert expired == []
    clocks.stop()
