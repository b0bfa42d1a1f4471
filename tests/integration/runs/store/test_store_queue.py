"""The queue: limits that hold for all processes together, and whose turn it is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.events import MessageDelta, Recorded
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import NewRun, Progress, RunInfo, RunLimits

MANY = RunLimits(running=100, starting=100, queued=100)


async def queue(store: Sqlite, *ids: str, limits: RunLimits | None = None, **fields: Any) -> None:
    for run_id in ids:
        await store.add_run(NewRun(id=run_id, request=RunRequest(prompt="go"), **fields), limits)


async def claims(store: Sqlite, limits: RunLimits = MANY, **options: Any) -> list[str]:
    """What may start now, in its order."""
    found = []
    while (run := await store.claim("me", limits, **options)) is not None:
        assert (run.state, run.owner, run.note) == ("starting", "me", "")
        found.append(run.id)
    return found


async def test_limits_hold_over_processes(path: Path, store: Sqlite, start: Any) -> None:
    """Six owners take forty runs to their end, three at once and two of them starting; each run goes to one owner."""
    await queue(store, *(f"run-{number}" for number in range(40)))
    owners = [await start("claim", path, f"owner-{number}", 3, 2) for number in range(6)]
    for owner in owners:
        assert await owner.said() == ["ready"]
    for owner in owners:
        owner.go()
    said = [words for owner in owners for words in await owner.rest()]
    assert [words for words in said if words[0] == "exceeded"] == []
    assert sorted(words[1] for words in said if words[0] == "took") == sorted(f"run-{number}" for number in range(40))
    assert await store.states() == {}


async def test_no_more_than_may_run_and_start(store: Sqlite) -> None:
    await queue(store, "a", "b", "c", "d", "e")
    limits = RunLimits(running=3, starting=2, queued=100)
    assert await claims(store, limits) == ["a", "b"]
    await store.set_state(await store.get("a"), "running")
    assert await claims(store, limits) == ["c"]
    await store.set_state(await store.get("b"), "waiting")
    await store.set_state(await store.get("c"), "paused")
    assert await claims(store, limits) == []
    await store.write(lambda db: db.execute("update runs set state = 'ended' where id = 'c'"))
    assert await claims(store, limits) == ["d"]


async def test_priority_then_lanes_then_age(store: Sqlite) -> None:
    await queue(store, "a1", "a2", "a3", lane="a")
    await queue(store, "b1", "b2", lane="b")
    await queue(store, "soon", lane="a", priority=1)
    await queue(store, "late", lane="c", priority=-1)
    # The urgent one counts for its lane.
    assert await claims(store) == ["soon", "b1", "a1", "b2", "a2", "a3", "late"]


async def test_a_time_to_wait_for(store: Sqlite) -> None:
    now = time.time()
    await queue(store, "later", not_before=now + 3600)
    await queue(store, "due", not_before=now - 1)
    assert await claims(store) == ["due"]
    assert await store.next_due(now) == pytest.approx(now + 3600)
    # Once taken, the time is over: a later wait of the same run is not mistaken for it.
    assert (await store.get("due")).not_before == 0


async def test_a_parked_run_comes_back_when_nobody_has_it(store: Sqlite) -> None:
    await queue(store, "alone", "kept")
    assert await claims(store) == ["alone", "kept"]
    past = time.time() - 1
    await store.park(await store.get("alone"), until=past, note="a limit")
    await store.write(
        lambda db: db.execute("update runs set state = 'parked', not_before = ? where id = 'kept'", (past,))
    )
    assert await claims(store) == ["alone"]
    assert ((await store.get("kept")).state, (await store.get("kept")).owner) == ("parked", "me")


async def test_a_limit_of_an_account_holds_its_runs_and_no_others(store: Sqlite) -> None:
    now = time.time()
    await queue(store, "a", account="one")
    await queue(store, "b", account="other")
    await store.hold_account("one", now + 3600, "until then")
    await store.hold_account("one", now + 60, "an older word does not shorten it")
    assert await claims(store) == ["b"]
    assert (await store.holds(now))["one"][0] == pytest.approx(now + 3600)
    assert await store.next_due(now) == pytest.approx(now + 3600)
    await store.write(lambda db: db.execute("update holds set until = ?", (now - 1,)))
    assert await claims(store) == ["a"]


async def test_a_full_queue_refuses_and_takes_again(store: Sqlite) -> None:
    limits = RunLimits(running=1, starting=1, queued=3)
    await queue(store, "a", "b", "c", limits=limits)
    with pytest.raises(errors.QueueFull, match="3 runs wait already, and no more than 3 may"):
        await queue(store, "d", limits=limits)
    with pytest.raises(errors.UnknownRun):
        await store.get("d")
    assert await claims(store, limits) == ["a"]
    await queue(store, "d", limits=limits)
    # Also when many come in one transaction.
    answers = await asyncio.gather(*(queue(store, f"e{n}", limits=limits) for n in range(5)), return_exceptions=True)
    assert all(isinstance(answer, errors.QueueFull) for answer in answers)


async def test_only_those_that_the_asker_has_in_hand(store: Sqlite) -> None:
    limits = RunLimits(running=2, starting=2, queued=100)
    await queue(store, "a", "b", "c")
    assert await claims(store, limits, only=[]) == []
    assert await claims(store, limits, only=["c"]) == []  # two others come first, and there is room for two
    assert await claims(store, limits, only=["b"]) == ["b"]
    assert await claims(store, limits, only=["c"]) == []
    assert await claims(store, limits, only=["a", "c"]) == ["a"]


async def test_a_run_that_is_queued_for_its_owner_is_taken_by_no_other(store: Sqlite) -> None:
    await queue(store, "theirs", owner="terminal")
    await queue(store, "anyones")
    assert await claims(store) == ["anyones"]
    assert (await store.claim("terminal", MANY)) is not None


async def test_a_claim_that_finds_nothing_wakes_nobody(store: Sqlite) -> None:
    """Its asker waits for the bell before it asks again."""
    await queue(store, "a", not_before=time.time() + 3600)
    await queue(store, "b", owner="terminal")
    with store.notifier.listen() as heard:
        assert await claims(store) == []
        assert await claims(store, only=["a"]) == []
        assert not await heard.wait(0)


async def test_labels_are_found_by_whatever_name(store: Sqlite) -> None:
    from leadrope.runs.records.values import Filter

    names = ["plain", 'with "quotes"', "with.dots", "with \\ and 'more", "ünï"]
    for number, name in enumerate(names):
        request = RunRequest(prompt="go", labels={name: "value", "n": str(number)})
        await store.add_run(NewRun(id=f"run-{number}", request=request))
    for number, name in enumerate(names):
        assert [run.id for run in await store.listing(Filter(label=(name, "value")))] == [f"run-{number}"]
    assert await store.cost_since(0.0, label=(names[1], "value")) == 0.0
    assert await store.listing(Filter(label=("n", "9"))) == []


# -- the bell -----------------------------------------------------------------------------------------------------


async def test_what_comes_between_the_look_and_the_wait_is_heard(store: Sqlite) -> None:
    with store.notifier.listen() as heard:
        for number in range(50):
            await store.hold_account("a", float(number + 1), "")  # after a look
            assert await heard.wait(60)
        assert not await heard.wait(0)


async def test_another_process_is_heard(store: Sqlite, path: Path, start: Any) -> None:
    with store.notifier.listen() as heard:
        child = await start("write", path, "other", 3, 1)
        seen = 0
        while seen < 3:
            assert await heard.wait(60)
            seen = (await store.get("other")).last_seq if await store.listing() else 0
        await child.rest()


async def test_everybody_who_listens_hears(store: Sqlite) -> None:
    async def listen() -> bool:
        with store.notifier.listen() as heard:
            ready.release()
            return await heard.wait(60)

    ready = asyncio.Semaphore(0)
    listeners = [asyncio.create_task(listen()) for _ in range(5)]
    for _ in listeners:
        await ready.acquire()
    await store.hold_account("a", 1.0, "")
    assert await asyncio.gather(*listeners) == [True] * 5


async def spend(store: Sqlite, run: RunInfo, cost_usd: float) -> None:
    said = Recorded(run.id, 1, run.last_seq + 1, 1.0, "agent", MessageDelta(text="words"))
    now = Progress(state="running", attempt=1, cost_usd=cost_usd, tokens=1, model="m", session_id=None, last_action="")
    await store.append(run, [said], now, Redactor())


async def test_a_run_that_was_held_overnight_spends_the_next_days_budget(store: Sqlite) -> None:
    await queue(store, "early", "held")
    assert await claims(store) == ["early", "held"]
    await spend(store, await store.get("early"), 4.0)
    await store.requeue(await store.get("held"), attempt=1, note="held until tomorrow", owner="me")
    await store.requeue(await store.get("early"), attempt=2, note="goes on", owner="me")
    midnight = time.time()
    assert await claims(store) == ["early", "held"]
    await spend(store, await store.get("held"), 2.0)
    assert await store.cost_since(midnight) == 2.0, "one that went on still belongs to the day on which it began"
    assert await store.cost_since(0) == 6.0
