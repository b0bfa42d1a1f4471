"""The run store: events in and out beside the bare append, first pages of a large store, and what an idle one holds.

`python store.py FOLDER PART ARGUMENTS` measures one part in its own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from leadrope import RunRequest
from leadrope.core.events import Event, MessageDelta, Recorded, ToolCompleted, ToolRequested
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.runs import feed
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import Filter, NewRun, Progress, RunInfo
from leadrope.storage import database
from leadrope.storage.db import Db
from stage import MeasurementFailed, Stage, tell
from tables import Row, Table

EVENTS = 50_000
BATCH = 500
RUNS = 10_000
ROUNDS = 5
PAGE_MOST_MS = 100.0
MIB = 1024 * 1024
_TABLE = "create table log (run integer, seq integer, body blob, primary key (run, seq)) without rowid"


def measure(stage: Stage) -> Table:
    rates = [stage.measure("store", "rates", str(EVENTS), str(number % 2)) for number in range(ROUNDS)]
    bare, appended, followed, apart = (
        median(rate[name] for rate in rates) for name in ("bare", "appended", "followed", "apart")
    )
    stage.measure("store", "fill", str(RUNS), str(EVENTS))
    pages = [stage.measure("store", "pages") for _ in range(ROUNDS)]
    idle = stage.measure("store", "idle")

    def page(name: str, what: str, note: str = "") -> Row:
        return Row(what=what, measured=median(found[name] for found in pages), unit="ms", bar=PAGE_MOST_MS, note=note)

    return Table(
        title="(i) the run store",
        rows=(
            Row(
                what="bare append of the same bodies",
                measured=bare,
                unit="events/s",
                note=f"SQLite, one table, {BATCH} to a transaction, written ahead; median of {ROUNDS}",
            ),
            Row(what="appended", measured=appended, unit="events/s", note="encoded, cleaned, with the run's own row"),
            Row(what="appended, by the bare append", measured=appended / bare, unit="x"),
            Row(what="appended and followed to the end", measured=followed, unit="events/s", note="in one process"),
            Row(what="appended and followed to the end", measured=apart, unit="events/s", note="by another process"),
            page("open", "store opened", f"of {RUNS:,} runs and {EVENTS:,} events, in a process that is new to it"),
            page("list", f"list of {RUNS:,} runs, first page", "50 runs"),
            page("label", "the same by a label that few have", "reads every run"),
            page("events", f"run of {EVENTS:,} events, first page", f"{feed.PAGE} events"),
            page("last", "the same, last page"),
            Row(
                what="an idle store, with a listener", measured=idle["store"] / MIB, unit="MiB", note="resident, grown"
            ),
        ),
    )


# -- in the measuring process -------------------------------------------------------------------------------------


def said(count: int) -> list[Event]:
    """As a turn goes: mostly pieces of text, now and then a call and its result."""
    found: list[Event] = []
    for number in range(count):
        match number % 25:
            case 23:
                found.append(ToolRequested(call=ToolCall(id=f"c{number}", name="Bash", input={"command": "make test"})))
            case 24:
                found.append(ToolCompleted(call_id=f"c{number}", text="a line of output\n" * 40))
            case _:
                found.append(MessageDelta(text=f"piece {number} of what the agent says", message_id="msg_0001"))
    return found


def recorded(run_id: str, events: list[Event]) -> list[Recorded]:
    return [Recorded(run_id, 1, seq, 1.0, "agent", event) for seq, event in enumerate(events, 1)]


PROGRESS = Progress(
    state="running", attempt=1, cost_usd=0.5, tokens=1000, model="sonnet", session_id="s", last_action="Bash: make test"
)


async def added(store: Sqlite, run_id: str) -> RunInfo:
    return await store.add_run(NewRun(id=run_id, request=RunRequest(prompt="go"), state="running", owner="bench"))


async def append_all(store: Sqlite, run: RunInfo, records: list[Recorded]) -> None:
    redactor = Redactor(["a-credential-that-is-nowhere"])
    for first in range(0, len(records), BATCH):
        await store.append(run, records[first : first + BATCH], PROGRESS, redactor)
    await store.write(lambda db: db.execute("update runs set state = 'ended' where n = ?", (run.n,)))


def bare_append(path: Path, events: list[Event]) -> float:
    encode = msgspec.json.Encoder().encode
    bodies = [encode(event) for event in events]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
        db.execute(_TABLE)
        start = time.perf_counter()
        for first in range(0, len(bodies), BATCH):
            db.execute("begin immediate")
            db.executemany("insert into log values (1, ?, ?)", enumerate(bodies[first : first + BATCH], first + 1))
            db.execute("commit")
        return time.perf_counter() - start


async def rates(folder: Path, count: str, is_odd: str) -> dict[str, float]:
    scratch = folder / f"rates-{os.getpid()}"
    scratch.mkdir()
    events = said(int(count))
    took: dict[str, float] = {}

    async def appended() -> None:
        with Sqlite(scratch / "appended.db") as store:
            run = await added(store, "run")
            start = time.perf_counter()
            await append_all(store, run, recorded("run", events))
            took["appended"] = time.perf_counter() - start

    async def bare() -> None:
        took["bare"] = bare_append(scratch / "bare.db", events)

    for part in (bare, appended) if int(is_odd) else (appended, bare):
        await part()
    with Sqlite(scratch / "followed.db") as store:
        run = await added(store, "run")
        start = time.perf_counter()
        following = asyncio.create_task(count_events(store))
        await append_all(store, run, recorded("run", events))
        if await following != len(events):
            raise MeasurementFailed("the follower did not get every event once")
        took["followed"] = time.perf_counter() - start
    path = scratch / "apart.db"
    with Sqlite(path) as store:
        run = await added(store, "run")
        command = [sys.executable, str(Path(__file__)), str(folder), "follower", str(path)]
        other = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        assert other.stdout is not None
        await other.stdout.readline()  # it has opened the store
        start = time.perf_counter()
        await append_all(store, run, recorded("run", events))
        got = await other.stdout.readline()
        took["apart"] = time.perf_counter() - start
        await other.wait()
        if int(got) != len(events):
            raise MeasurementFailed(f"the follower of another process got {got!r} events")
    return {name: len(events) / seconds for name, seconds in took.items()}


async def count_events(store: Sqlite) -> int:
    seq = 0
    async for item in feed.follow(store, "run"):
        if not isinstance(item, Recorded) or item.seq != seq + 1:
            raise MeasurementFailed(f"after event {seq} came {item}")
        seq = item.seq
    return seq


async def follower(folder: Path, path: str) -> int:
    with Sqlite(Path(path)) as store:
        print("ready", flush=True)
        return await count_events(store)


def large(folder: Path) -> Path:
    return database.path_in(folder / "large")


async def fill(folder: Path, runs: str, events: str) -> bool:
    """Written by statements of its own: ten thousand runs, one by one, would take minutes of syncing."""
    records = recorded("run", said(int(events)))
    with Sqlite(large(folder)) as store:

        def many(db: Db) -> None:
            for number in range(1, int(runs)):
                labels = f'{{"team":"t{number % 1000}"}}'
                row = (f"{number:032x}", float(number), f"Mend the {number}th thing of the list", labels)
                db.execute(
                    "insert into runs (id, created, state, outcome, title, labels) "
                    "values (?, ?, 'ended', 'succeeded', ?, ?)",
                    row,
                )
                db.execute(
                    "insert into run_documents (run, request, policy) values (last_insert_rowid(), ?, '{}')",
                    (f'{{"prompt":"{"words " * 300}"}}',),
                )

        await store.write(many)
        run = await added(store, "run")
        await append_all(store, run, records)
    return True


async def _opened(store: Sqlite) -> Sqlite:
    return store.__enter__()


async def pages(folder: Path) -> dict[str, float]:
    took: dict[str, float] = {}

    async def timed(name: str, look: Awaitable[Any]) -> None:
        start = time.perf_counter()
        if not await look:
            raise MeasurementFailed(f"{name}: nothing was found")
        took[name] = 1000 * (time.perf_counter() - start)

    store = Sqlite(large(folder))
    await timed("open", _opened(store))
    try:
        await timed("list", store.listing())
        await timed("label", store.listing(Filter(label=("team", "t7"), limit=50)))
        run = await store.get("run")
        start = time.perf_counter()
        first = await anext(feed.follow(store, "run"))
        took["events"] = 1000 * (time.perf_counter() - start)
        if not isinstance(first, Recorded) or first.seq != 1:
            raise MeasurementFailed("the first page does not begin with the first event")
        await timed("last", store.read(run, run.last_seq - 499, 500))
    finally:
        store.close()
    return took


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def idle(folder: Path) -> dict[str, int]:
    before = resident()
    with Sqlite(large(folder)) as store, store.notifier.listen() as heard:
        await store.listing()
        await heard.wait(1.0)
        return {"store": resident() - before}


PARTS = {"rates": rates, "follower": follower, "fill": fill, "pages": pages, "idle": idle}


async def main(folder: str, part: str, *arguments: str) -> None:
    tell(await PARTS[part](Path(folder), *arguments))  # type: ignore[operator]  # each has its own arguments


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
