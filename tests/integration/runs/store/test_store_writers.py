"""Many writers, writers that are killed, and what one transaction promises to each of those who share it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.events import MessageDelta, RunEnded
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records import statements
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import RunLimits, ended_event
from leadrope.storage import database, writer
from leadrope.storage.change_notifier import ChangeNotifier
from leadrope.storage.writer import Writer


def whole(path: Path, run_id: str) -> list[int]:
    """The numbers of a run's events, from a database that is found to be sound."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        rows = db.execute("select seq from events join runs on n = run where id = ? order by seq", (run_id,))
        return [row[0] for row in rows]


async def test_sixteen_processes_write_at_once(path: Path, start: Any) -> None:
    batches, size = 40, 25
    children = [await start("write", path, f"run-{number}", batches, size) for number in range(16)]
    for child in children:
        said = await child.rest()
        assert said[-1] == ["stored", str(batches * size)]
    for number in range(16):
        assert whole(path, f"run-{number}") == list(range(1, batches * size + 1))


@pytest.mark.fault
async def test_what_was_acknowledged_survives_the_writer(path: Path, start: Any, fault_count: int) -> None:
    """Killed after a random acknowledgement, wherever it is with the next batch by then; another one writes on."""
    chance = random.Random(7)
    other = await start("write", path, "other", 100_000, 10)
    assert await other.said() == ["ready"]
    for number in range(fault_count):
        child = await start("write", path, f"run-{number}", 100_000, chance.randint(1, 120))
        assert await child.said() == ["ready"]
        told = 0
        for _ in range(chance.randint(1, 40)):
            told = int((await child.said())[1])
        child.process.kill()
        told = max([told, *(int(line.split()[1]) for line in await _last_words(child))])
        found = whole(path, f"run-{number}")
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= told
    other.process.kill()
    told = max(int(line.split()[1]) for line in await _last_words(other))
    found = whole(path, "other")
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= told


async def _last_words(child: Any) -> list[str]:
    """Lines that came before the end; the last one may be cut off."""
    out, _ = await child.process.communicate()
    return [line for line in out.decode().split("\n")[:-1] if line]


# -- the log ------------------------------------------------------------------------------------------------------


async def test_events_that_are_there_are_passed_over_and_a_gap_is_refused(store: Sqlite, add: Any) -> None:
    stored = await add()
    first = stored.take(*(MessageDelta(text=str(number)) for number in range(5)))
    later = stored.take(*(MessageDelta(text=str(number)) for number in range(5)))
    for batch in (first[:3], first, first[2:], first[:1]):
        await stored.append_records(batch)
    with pytest.raises(errors.StoreError, match="event 7 came after 5; one is missing"):
        await stored.append_records(later[1:])
    await stored.append_records(later)
    assert [item.seq for item in await store.read(stored.run, 1, 100)] == list(range(1, 11))
    assert (await store.get("run")).last_seq == 10


async def test_a_run_that_was_given_back_takes_nothing_of_its_former_owner(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(3)
    await store.requeue(stored.run, attempt=2, note="its owner died")
    with pytest.raises(errors.WrongState):
        await stored.append_deltas(1)
    assert (await store.get("run")).last_seq == 3
    assert (await store.get("run")).state == "queued"


@pytest.mark.parametrize("next_owner", ["second", "first"])
async def test_a_process_that_lost_a_run_can_write_nothing_more_to_it(
    store: Sqlite, path: Path, add: Any, start: Any, next_owner: str
) -> None:
    """Also where the next claim is by an owner of the same name: what counts is the claim."""
    await add(state="queued", owner=None)
    zombie = await start("zombie", path, "first")
    assert await zombie.said() == ["ready"]
    await store.requeue(await store.get("run"), attempt=2, note="its owner died")
    taken = await store.claim(next_owner, RunLimits(running=9, starting=9, queued=9))
    assert taken is not None
    assert (taken.owner, taken.epoch) == (next_owner, 2)
    before = await store.texts("run")
    zombie.go()
    said = await zombie.rest()
    assert len(said) == 10
    assert {word for _, word in said} == {"NotOwner"}, said
    assert await store.get("run") == taken
    assert await store.texts("run") == before
    assert await store.artifacts(taken) == []
    assert [item.seq for item in await store.read(taken, 1, 100)] == [1]


async def test_the_last_event_is_there_once_whoever_ends_the_run(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(3)
    result = RunResult(run_id="run", outcome="failed")
    # What its owner still wrote came between the look and the end.
    last = ended_event("run", 1, 3, result)
    assert await store.end_run(stored.run, result, Redactor(), last=last)
    assert not await store.end_run(stored.run, result, Redactor(), last=last)
    found = await store.read(stored.run, 1, 100)
    assert [item.seq for item in found] == [1, 2, 3, 4]
    assert isinstance(found[-1].event, RunEnded)
    with pytest.raises(errors.WrongState, match="has ended"):
        await stored.append(*[MessageDelta(text="late")] * 2)
    assert (await store.get("run")).last_seq == 4


async def test_large_bodies_are_packed(store: Sqlite, path: Path, add: Any) -> None:
    stored = await add()
    await stored.append(MessageDelta(text="small"), MessageDelta(text="large " * 100_000))
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("select packed, length(body) from events order by seq").fetchall()
    assert rows[0][0] == 0
    assert rows[1][0] == 1
    assert rows[1][1] < 60_000
    texts = [item.event.text for item in await store.read(stored.run, 1, 9) if isinstance(item.event, MessageDelta)]
    assert texts == ["small", "large " * 100_000]


# -- the thread ---------------------------------------------------------------------------------------------------


class Bench:
    """A writer on a table of its own. The first work holds the thread, so that a test says what comes together."""

    def __init__(self, path: Path) -> None:
        self.changes = 0
        self.writer = Writer(path, lambda: self._connect(path), on_change=self._changed)
        self.writer.start()
        self._gate = threading.Event()

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        connection = database.open_(path, statements.migrations())
        connection.execute("create table marks (word text unique)")
        return connection

    def _changed(self) -> None:
        self.changes += 1

    def hold(self) -> None:
        self._gate.clear()
        begun = threading.Event()

        def work(db: sqlite3.Connection) -> None:
            begun.set()
            self._gate.wait()

        self.writer.submit(work)
        begun.wait()

    def let_go(self) -> None:
        self._gate.set()

    def mark(self, word: str, **options: Any) -> Future[int]:
        """What `pragma synchronous` says while it is written: 1 is normal, 2 is full."""

        def work(db: sqlite3.Connection) -> int:
            db.execute("insert into marks values (?)", (word,))
            return int(db.execute("pragma synchronous").fetchone()[0])

        return self.writer.submit(work, **options)


@pytest.fixture
def bench(path: Path) -> Any:
    bench = Bench(path)
    yield bench
    bench.let_go()
    bench.writer.close()


def words(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("select word from marks order by rowid")]


def _divide(db: sqlite3.Connection) -> int:
    return 1 // int(db.execute("select 0").fetchone()[0])


def test_one_that_fails_takes_no_other_with_it(bench: Bench, path: Path) -> None:
    bench.hold()
    first, again = bench.mark("a"), bench.mark("a")
    second = bench.mark("b")
    wrong: Future[Any] = bench.writer.submit(_divide)
    third = bench.mark("c")
    bench.let_go()
    assert [first.result(), second.result(), third.result()] == [2, 2, 2]
    with pytest.raises(errors.StoreError, match="UNIQUE"):
        again.result()
    with pytest.raises(ZeroDivisionError):
        wrong.result()
    assert words(path) == ["a", "b", "c"]


def test_works_that_wait_share_a_commit(bench: Bench, path: Path) -> None:
    bench.hold()
    before = bench.writer.commits
    waiting = [bench.mark(str(number)) for number in range(100)]
    bench.let_go()
    for mark in waiting:
        mark.result()
    assert bench.writer.commits == before + 2  # the one that held, and all the others
    assert bench.changes == 1


def test_events_wait_for_company_and_are_then_written_together(bench: Bench) -> None:
    before = bench.writer.commits
    company = [bench.mark(str(number), weight=5, durable=False) for number in range(10)]
    assert [mark.result() for mark in company] == [1] * 10
    # Fifty events, in one commit or, where this thread was held up for longer than the batch waits, in a few.
    assert bench.writer.commits - before < 5
    before = bench.writer.commits
    alone = bench.mark("alone", weight=1, durable=False)
    assert alone.result() == 1
    assert bench.writer.commits == before + 1


def test_enough_events_wait_for_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_S", 3600.0)
    assert bench.mark("many", weight=writer.BATCH_EVENTS, durable=False).result() == 1
    waiting = bench.mark("few", weight=1, durable=False)
    assert not waiting.done()
    # What must last goes at once, and takes along what waits.
    assert bench.mark("lasting", weight=1).result() == 2
    assert waiting.result() == 2
    assert bench.mark("many again", weight=writer.BATCH_EVENTS, durable=False).result() == 1


def test_nothing_rings_for_a_look(bench: Bench) -> None:
    """A claim that finds nothing is a transaction too. Rung for it, its asker would ask again for ever."""
    before = bench.changes
    bench.writer.submit(lambda db: db.execute("select * from marks").fetchall()).result()
    bench.writer.submit(lambda db: db.execute("delete from marks where word = 'nobody'").rowcount).result()
    assert bench.changes == before
    bench.mark("a").result()
    bench.writer.submit(lambda db: db.in_transaction).result()
    assert bench.changes == before + 1


def test_close_writes_what_was_handed_in(bench: Bench, path: Path) -> None:
    bench.hold()
    marks = [bench.mark(str(number), weight=1, durable=number % 3 == 0) for number in range(500)]
    closing = threading.Thread(target=bench.writer.close)
    closing.start()
    bench.let_go()
    closing.join()
    assert all(mark.done() for mark in marks)
    assert len(words(path)) == 500
    with pytest.raises(errors.StoreError, match="closed"):
        bench.mark("late")
    bench.writer.close()


def test_a_work_is_answered_or_refused_also_while_it_closes(path: Path) -> None:
    """Ten threads hand in until they are told that it is closed: none is left without an answer."""
    bench = Bench(path)
    answered: list[Future[int]] = []

    def hand_in(name: int) -> None:
        number = 0
        with contextlib.suppress(errors.StoreError):
            while True:
                answered.append(bench.mark(f"{name} {number}", durable=False, weight=10))
                number += 1

    threads = [threading.Thread(target=hand_in, args=(name,)) for name in range(10)]
    for thread in threads:
        thread.start()
    while len(answered) < 200:
        answered[-1].result() if answered else None
    bench.writer.close()
    for thread in threads:
        thread.join()
    assert all(mark.done() for mark in answered)
    assert len(words(path)) == len(answered)


async def test_a_write_whose_asker_is_cancelled_is_written_and_the_next_one_too(bench: Bench, path: Path) -> None:
    bench.hold()

    def work(db: sqlite3.Connection) -> None:
        db.execute("insert into marks values ('left alone')")

    asking = asyncio.create_task(bench.writer.do(work))
    await asyncio.sleep(0)  # it has handed its work in, and waits
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    bench.let_go()
    assert await asyncio.wrap_future(bench.mark("next")) == 2
    assert words(path) == ["left alone", "next"]


async def test_a_store_outlives_the_loop_that_listened(path: Path) -> None:
    """Listeners of a loop that is closed in the middle of a commit do not end the thread."""
    with Sqlite(path) as store:
        rung: Callable[[], None] = store.notifier.ring

        def other_loop() -> None:
            loop = asyncio.new_event_loop()

            async def listen() -> Any:
                return store.notifier.listen().__enter__()

            loop.run_until_complete(listen())
            loop.close()

        thread = threading.Thread(target=other_loop)
        thread.start()
        thread.join()
        rung()
        await store.hold_account("a", 1.0, "")
        await store.hold_account("a", 2.0, "")


def test_what_nobody_waits_for_goes_with_the_next_work(bench: Bench, path: Path) -> None:
    before = bench.writer.commits
    for word in ("a", "b"):
        bench.writer.later(lambda db, word=word: db.execute("insert into marks values (?)", (word,)))  # type: ignore[misc]
    assert words(path) == []
    bench.mark("c").result()
    assert words(path) == ["a", "b", "c"]
    assert bench.writer.commits == before + 1


def test_what_nobody_waits_for_is_written_when_it_is_said(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_S", 0.0)
    written = threading.Event()

    def work(db: sqlite3.Connection) -> None:
        db.execute("insert into marks values ('a')")
        written.set()

    bench.writer.later(work)
    bench.writer.hand_in_later()
    assert written.wait(30)
    bench.writer.submit(lambda db: db.in_transaction).result()
    assert words(path) == ["a"]


def test_close_writes_what_nobody_waits_for(bench: Bench, path: Path) -> None:
    bench.writer.later(lambda db: db.execute("insert into marks values ('a')"))
    bench.writer.close()
    assert words(path) == ["a"]
    with pytest.raises(errors.StoreError, match="closed"):
        bench.writer.later(lambda db: db.in_transaction)


async def test_a_work_is_done_though_whoever_waits_is_cancelled(bench: Bench, path: Path) -> None:
    bench.hold()
    task = asyncio.create_task(bench.writer.do(lambda db: db.execute("insert into marks values ('a')").rowcount))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    bench.let_go()
    assert await bench.writer.do(lambda db: db.execute("select word from marks").fetchall()) == [("a",)]
    with pytest.raises(errors.StoreError, match="UNIQUE"):
        await bench.writer.do(lambda db: db.execute("insert into marks values ('a')").rowcount)


def test_what_must_last_waits_for_no_company_behind_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_S", 3600.0)
    bench.hold()
    lasting = bench.mark("lasting", weight=1)
    behind = bench.mark("behind", weight=1, durable=False)
    bench.let_go()
    assert (lasting.result(60), behind.result(60)) == (2, 2)


async def test_what_nobody_waits_for_is_written_in_a_moment_and_again(path: Path, until: Any) -> None:
    with Sqlite(path) as store, contextlib.closing(sqlite3.connect(path)) as other:
        await store.write(lambda db: db.execute("create table marks (word)").rowcount)
        for count in (1, 2):
            store.write_later(lambda db: db.execute("insert into marks values ('a')"))
            await until(lambda count=count: other.execute("select count(*) from marks").fetchone() == (count,))


async def test_the_answer_to_a_cancelled_write_is_dropped(path: Path) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    go = threading.Event()
    with Sqlite(path) as store:
        task = asyncio.create_task(store.write(lambda _: go.wait(30)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        go.set()
        await store.write(lambda db: db.execute("select 1").fetchone())
    assert told == []


async def test_a_store_outlives_the_loop_that_wrote(path: Path) -> None:
    go = threading.Event()

    async def leave(store: Sqlite) -> None:
        task = asyncio.ensure_future(store.write(lambda _: go.wait(30)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    with Sqlite(path) as store:
        await asyncio.to_thread(asyncio.run, leave(store))
        go.set()
        assert await store.write(lambda _: 7) == 7


async def test_a_listener_that_has_yet_to_look_keeps_the_bell_from_nobody() -> None:
    notifier = ChangeNotifier(lambda: 0)
    with contextlib.ExitStack() as stack:
        heard = [stack.enter_context(notifier.listen()) for _ in range(8)]
        notifier.ring()
        await asyncio.sleep(0)
        for first in heard:  # it has yet to look, the others wait again
            for one in heard:
                assert one is first or await one.wait(30)
            notifier.ring()
            assert [await one.wait(30) for one in heard] == [True] * 8
            notifier.ring()
            await asyncio.sleep(0)
