"""Following a run: every event once and in order, however late, slow or far away the reader is."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.events import MessageDelta, Recorded, ToolCompleted, Unrecognised
from leadrope.runs import feed
from leadrope.runs.records import reading
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import Truncated

BURST = 20_000


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status tells no VmRSS")


async def seqs(following: AsyncIterator[Recorded | Truncated]) -> list[int]:
    return [item.seq if isinstance(item, Recorded) else -1 async for item in following]


async def test_a_burst_reaches_every_follower_once_and_in_order(
    store: Sqlite, path: Path, add: Any, start: Any
) -> None:
    """Five join at different times, two of them in another process; a sixth takes one event and then stalls."""
    stored = await add()
    others = [await start("follow", path, "run", 1), await start("follow", path, "run", 7)]
    assert [await other.said() for other in others] == [["ready"], ["ready"]]
    stalled = feed.follow(store, "run")
    followers = [asyncio.create_task(seqs(feed.follow(store, "run")))]
    await stored.append_deltas(1)
    assert isinstance(await anext(stalled), Recorded)
    while stored.seq < BURST:
        await stored.append_deltas(min(997, BURST - stored.seq))
        if len(followers) < 3 and stored.seq > BURST * len(followers) // 3:
            followers.append(asyncio.create_task(seqs(feed.follow(store, "run"))))
    await stored.end()
    whole = list(range(1, BURST + 1))
    assert [await follower == whole for follower in followers] == [True] * 3
    assert await others[0].rest() == [["followed", str(BURST), "True"]]
    assert await others[1].rest() == [["followed", str(BURST - 6), "True"]]
    # The one that stalled goes on where it stood.
    assert await seqs(stalled) == whole[1:]


async def test_a_stalled_follower_costs_one_page_and_no_more(store: Sqlite, add: Any) -> None:
    """Measured where it hurts: 120 MB of tool results, of which the stalled ones may hold a few megabytes each."""
    stored = await add()
    large = ToolCompleted(call_id="c", text="0123456789abcdef" * 64 * 1024)
    await stored.append(large)
    stalled = [feed.follow(store, "run") for _ in range(3)]
    for one in stalled:
        await anext(one)
    gc.collect()
    before = resident()
    for _ in range(30):
        await stored.append(large, large, large, large)
    for one in stalled:
        await anext(one)
    gc.collect()
    grown = resident() - before
    assert grown < 3 * 3 * reading.PAGE_BYTES + 24 * 1024 * 1024
    for one in stalled:
        await one.aclose()
    page = await store.events(stored.run, 1, 500)
    assert sum(len(item.event.text) for item in page if isinstance(item.event, ToolCompleted)) <= (
        reading.PAGE_BYTES + len(large.text)
    )


async def test_one_event_larger_than_a_page_is_a_page(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append(ToolCompleted(call_id="c", text="x" * (2 * reading.PAGE_BYTES)), MessageDelta(text="after"))
    await stored.end()
    assert await seqs(feed.follow(store, "run")) == [1, 2]


async def test_what_was_pruned_is_said_and_not_passed_over(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(20)

    def cut(*gone: int) -> Any:
        return lambda db: db.executemany("delete from events where seq = ?", [(seq,) for seq in gone])

    await store.write(cut(1, 2, 3, 10, 19, 20))
    await stored.end()
    found = [item async for item in feed.follow(store, "run")]
    gaps = [(item.first_seq, item.last_seq) for item in found if isinstance(item, Truncated)]
    assert gaps == [(1, 3), (10, 10), (19, 20)]
    assert [item.seq for item in found if isinstance(item, Recorded)] == [*range(4, 10), *range(11, 19)]
    assert isinstance(found[-1], Truncated)


async def test_a_run_whose_events_are_all_gone_says_so(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(5)
    await store.write(lambda db: db.execute("delete from events"))
    await stored.end()
    assert [item async for item in feed.follow(store, "run", 2)] == [Truncated(run_id="run", first_seq=2, last_seq=5)]


async def test_a_follower_from_the_future_waits(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(3)
    following = asyncio.create_task(seqs(feed.follow(store, "run", 5)))
    await stored.append_deltas(3)
    await stored.end()
    assert await following == [5, 6]
    assert await seqs(feed.follow(store, "run", 0, live=False)) == [1, 2, 3, 4, 5, 6]


async def test_the_log_of_a_live_run_without_waiting(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(1200)
    assert await seqs(feed.follow(store, "run", live=False)) == list(range(1, 1201))


async def test_a_follower_learns_of_a_deletion(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(1)
    following = feed.follow(store, "run")
    await anext(following)
    await stored.end()
    assert await store.delete_run("run")
    with pytest.raises(errors.UnknownRun):
        await anext(following)


async def test_an_event_of_a_later_version_is_shown_as_it_is(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(2)
    body = b'{"type":"weather.changed","to":"rain"}'
    await store.write(lambda db: db.execute("update events set body = ? where seq = 1", (body,)))
    first, second = [item.event async for item in feed.follow(store, "run", live=False) if isinstance(item, Recorded)]
    assert isinstance(first, Unrecognised)
    assert first.raw == body.decode()
    assert isinstance(second, MessageDelta)
