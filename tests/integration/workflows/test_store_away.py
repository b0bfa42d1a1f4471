"""A store that another process holds while a workflow runs: it is waited for, by executions and by the service."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import database_file
from leadrope import errors
from leadrope.core import execution_events
from leadrope.storage import database


def held(shop: Any) -> contextlib.AbstractContextManager[None]:
    return database_file.held(database.path_in(shop.home))


TEXT = """## Steps
### first
- type: wait
- seconds: 0.3
### keep
- type: save-dataset
- name: rows
- rows: [{a: 1}]
### last
- type: note
- text: x
"""


async def test_an_execution_waits_for_a_store_that_another_process_holds(
    shop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with shop.begun(TEXT) as execution:
        service = execution.host.service
        service.store.hurry()  # a second in place of a minute for each try
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(execution_events.StepStarted))
        with held(shop):
            while not any("waits up to 60 s" in record.getMessage() for record in caplog.records):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert not running.done()
        result = await running
        assert result.outcome == "succeeded", result
        assert [one.step for one in await service.executions.outcomes(execution.id)] == ["first", "keep", "last"]
        seqs = [
            record.seq for record in await service.executions.all_events(await service.executions.get(execution.id))
        ]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_stop_does_not_wait_and_no_step_has_an_outcome_for_it(shop: Any) -> None:
    async with shop.begun(TEXT) as execution:
        service = execution.host.service
        service.store.hurry()
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(execution_events.StepStarted))
        with held(shop):
            service.stop_waiting()
            with pytest.raises(errors.StoreBusy):
                await running
    result = await shop.resume(execution.id)
    assert result.outcome == "succeeded"
    assert {one.status for one in await shop.outcomes(execution.id)} == {"succeeded"}


async def test_the_service_goes_on_after_any_trouble_of_the_store(shop: Any) -> None:
    """Whatever reading or writing it raises for a while: the loop is there when the store is back."""
    async with shop.service() as service:
        service.store.hurry()
        with held(shop):
            with pytest.raises(errors.StoreBusy):
                await service.store.hold_account("a", 1.0, "n")
            service.poke()
        assert await shop_runs(shop)
        assert service.is_attending


async def shop_runs(shop: Any) -> bool:
    result = await shop.run("## Steps\n### a\n- type: note\n- text: x\n")
    return bool(result.outcome == "succeeded")
