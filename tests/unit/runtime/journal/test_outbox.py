"""The way of events to the consumer: order, the bound that holds the agent, and what frees it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from leadrope.core import events
from leadrope.runtime.journal.outbox import Outbox


def batch(*numbers: int) -> list[events.Recorded]:
    told = events.Notice(level="info", code="x", message="x")
    return [events.Recorded("run", 1, number, 0.0, "agent", told) for number in numbers]


async def take(reading: AsyncIterator[events.Recorded], count: int) -> list[int]:
    return [(await anext(reading)).seq for _ in range(count)]


def full(outbox: Outbox) -> bool:
    return outbox.is_full


async def turns() -> None:
    """Everybody who can go on has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def waiting(outbox: Outbox) -> asyncio.Task[None]:
    producer = asyncio.create_task(outbox.room())
    await turns()
    assert not producer.done(), "a full outbox holds its producer"
    return producer


async def test_a_full_outbox_holds_its_producer_until_enough_was_read() -> None:
    outbox = Outbox(limit=10)
    outbox.put(batch(1), 10)
    assert not full(outbox), "the limit itself still fits"
    await asyncio.wait_for(outbox.room(), 5)
    outbox.put(batch(2, 3), 8)
    outbox.put(batch(4), 9)
    assert full(outbox)
    producer = await waiting(outbox)
    reading = outbox.events()
    assert await take(reading, 1) == [1]
    await turns()
    assert not producer.done(), "17 of 10 are still there"
    assert await take(reading, 1) == [2]
    await asyncio.wait_for(producer, 5)
    assert not full(outbox)
    assert await take(reading, 2) == [3, 4]


@pytest.mark.parametrize(("free", "left"), [(Outbox.let_go, [1, 2]), (Outbox.discard, [])])
async def test_a_producer_that_is_held_is_let_go(free: Callable[[Outbox], None], left: list[int]) -> None:
    outbox = Outbox(limit=1)
    outbox.put(batch(1), 2)
    producer = await waiting(outbox)
    free(outbox)
    await asyncio.wait_for(producer, 5)
    outbox.put(batch(2), 1000)
    assert not full(outbox)
    outbox.close()
    assert [item.seq async for item in outbox.events()] == left


async def test_an_iteration_that_was_left_goes_on_where_it_stopped() -> None:
    outbox = Outbox()
    outbox.put(batch(1, 2, 3), 1)
    outbox.put(batch(4), 1)
    outbox.close()
    assert await take(outbox.events(), 2) == [1, 2]
    assert not outbox.is_drained
    rest = [[item.seq for item in one] async for one in outbox.batches()]
    assert rest == [[3], [4]]
    assert outbox.is_drained


@pytest.mark.parametrize("end", [Outbox.close, Outbox.discard])
async def test_a_reader_that_waits_sees_the_end(end: Callable[[Outbox], None]) -> None:
    outbox = Outbox()

    async def read() -> list[int]:
        return [item.seq async for item in outbox.events()]

    reader = asyncio.create_task(read())
    await turns()
    assert outbox.is_read
    end(outbox)
    assert await asyncio.wait_for(reader, 5) == []
    assert not outbox.is_read


async def test_an_empty_batch_wakes_nobody() -> None:
    outbox = Outbox()
    reader = asyncio.ensure_future(anext(outbox.events()))
    await turns()
    outbox.put([], 5)
    await turns()
    assert not reader.done()
    outbox.put(batch(1), 1)
    assert (await asyncio.wait_for(reader, 5)).seq == 1
