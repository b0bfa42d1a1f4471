"""Another process at the run store: `python store_process.py WHAT PATH ARGUMENTS`; says what it did, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from leadrope import errors
from leadrope.core.events import MessageDelta, Recorded
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.storage import database
from leadrope.storage.db import Db
from leadrope.runs.records import statements
from leadrope.runs import feed, leases
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import RunLimits, NewRun, Progress, RunInfo, State

NEXT = statements.migrations()[-1][0] + 1
SECOND = "alter table runs add column colour text not null default 'grey';\nupdate runs set colour = 'green';\n"


def say(*words: object) -> None:
    print(*words, flush=True)


def deltas(run: RunInfo, first: int, count: int, text: str = "a few words") -> list[Recorded]:
    return [
        Recorded(run.id, 1, seq, 1.0, "agent", MessageDelta(text=f"{seq} {text}"))
        for seq in range(first, first + count)
    ]


def progress(state: State = "running", action: str = "") -> Progress:
    return Progress(state=state, attempt=1, cost_usd=0.0, tokens=0, model="m", session_id=None, last_action=action)


async def added(store: Sqlite, run_id: str, prompt: str = "go") -> RunInfo:
    return await store.add_run(NewRun(id=run_id, request=RunRequest(prompt=prompt), state="running", owner="someone"))


async def write(path: Path, run_id: str, batches: str, size: str) -> None:
    """A run of its own; each batch is told once it is acknowledged."""
    with Sqlite(path) as store:
        run = await added(store, run_id)
        say("ready")
        for number in range(int(batches)):
            await store.append(run, deltas(run, 1 + number * int(size), int(size)), progress(), Redactor())
            say("stored", (number + 1) * int(size))


async def follow(path: Path, run_id: str, first: str) -> None:
    with Sqlite(path) as store:
        say("ready")
        seqs = [item.seq if isinstance(item, Recorded) else -1 async for item in feed.follow(store, run_id, int(first))]
        say("followed", len(seqs), seqs == list(range(int(first), int(first) + len(seqs))))


def ended(run: RunInfo) -> Callable[[Db], object]:
    return lambda db: db.execute("update runs set state = 'ended' where n = ?", (run.n,))


async def claim(path: Path, owner: str, running: str, starting: str) -> None:
    """Takes runs to their end for as long as any wait; a limit that does not hold at any moment is told."""
    limits = RunLimits(running=int(running), starting=int(starting), queued=1000)

    def look(db: Db) -> tuple[int, int]:
        return db.execute(  # type: ignore[no-any-return]  # two counts
            "select count(*), coalesce(sum(state = 'starting'), 0) from runs"
            " where state in ('starting', 'running', 'waiting', 'paused')"
        ).fetchone()

    with Sqlite(path) as store:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        while (await store.states()).get("queued"):
            run = await store.claim(owner, limits)
            found = await store.write(look)
            if found[0] > limits.running or found[1] > limits.starting:
                say("exceeded", *found)
            if run is not None:
                say("took", run.id)
                await store.set_state(run, "running")
                await store.write(ended(run))


async def zombie(path: Path, owner: str) -> None:
    """Takes a run, is taken for dead, and writes all the same."""
    limits = RunLimits(running=9, starting=9, queued=9)
    with Sqlite(path) as store:
        run = await store.claim(owner, limits)
        assert run is not None
        await store.append(run, deltas(run, 1, 1), progress(), Redactor())
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        for name, work in {
            "append": store.append(run, deltas(run, 2, 1), progress(action="of a zombie"), Redactor()),
            "no_events": store.append(run, [], progress(action="of a zombie"), Redactor()),
            "set_state": store.set_state(run, "paused", "of a zombie"),
            "set_policy": store.set_policy(run, {"of": "a zombie"}, Redactor()),
            "set_place": store.set_place(run, {"of": "a zombie"}),
            "add_artifact": store.add_artifact(run, "changes", "text/plain", b"of a zombie"),
            "suspend": store.suspend(run, attempt=1),
            "park": store.park(run, until=9e9, note="of a zombie"),
            "requeue": store.requeue(run, attempt=9, note="of a zombie"),
            "end_run": store.end_run(run, RunResult(run_id=run.id, outcome="failed"), Redactor()),
        }.items():
            try:
                await work
                said = "written"
            except errors.LeadropeError as error:
                said = type(error).__name__
            say(name, said)


async def upgrade(path: Path) -> None:
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    with contextlib.closing(database.open_(path, [*statements.migrations(), (NEXT, SECOND)])) as connection:
        say("version", connection.execute("pragma user_version").fetchone()[0])


async def die_in_upgrade(path: Path) -> None:
    """Is killed by its own hand in the middle of the second script, as a machine that loses its power is."""
    script = SECOND + "create table half (n integer);\ninsert into half select die();\n"
    real = database.connect

    def connect(*arguments: object, **options: object) -> sqlite3.Connection:
        made = real(*arguments, **options)  # type: ignore[arg-type]  # handed through
        made.create_function("die", 0, lambda: os.kill(os.getpid(), 9))
        return made

    database.connect = connect
    database.open_(path, [*statements.migrations(), (NEXT, script)])


async def fill(path: Path) -> None:
    """On a small disk: writes until there is no room, makes room, goes on. `path` lies in a tmpfs of its own."""
    ballast = path.parent / "ballast"
    with Sqlite(path) as store:
        run = await added(store, "run")
        stored = 0
        try:
            while True:
                await store.append(run, deltas(run, stored + 1, 50, os.urandom(1000).hex()), progress(), Redactor())
                stored += 50
                if stored == 200:
                    free = os.statvfs(path.parent)
                    ballast.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 300_000))
        except errors.StoreFull as error:
            say("full", type(error).__name__, stored)
        try:
            await added(store, "other", os.urandom(400_000).hex())
        except errors.StoreFull as error:
            say("full", type(error).__name__, stored)
        say("readable", len(await store.read(run, 1, 10_000)) > 0, (await store.get("run")).last_seq == stored)
        ballast.unlink()
        await store.append(run, deltas(run, stored + 1, 50, os.urandom(1000).hex()), progress(), Redactor())
        say("went on", (await store.get("run")).last_seq == stored + 50)
    with contextlib.closing(sqlite3.connect(path)) as db:
        say("integrity", db.execute("pragma integrity_check").fetchone()[0])
        seqs = [row[0] for row in db.execute("select seq from events order by seq")]
        say("whole", seqs == list(range(1, stored + 51)))


async def open_full(path: Path) -> None:
    """A disk that is full before there is a store."""
    free = os.statvfs(path.parent)
    (path.parent / "ballast").write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    try:
        with Sqlite(path):
            say("opened")
    except errors.StoreError as error:
        say("refused", type(error).__name__)


async def opened(path: Path, wait: str = "") -> None:
    if wait:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
    try:
        with Sqlite(path) as store:
            await added(store, f"run-{os.getpid()}")
            say("opened")
    except errors.LeadropeError as error:
        say("refused", type(error).__name__, str(error).replace("\n", " "))


async def hold_lease(path: Path) -> None:
    lease = leases.Lease(path, "test")
    say("lease", lease.owner.id, lease.owner.pid, lease.owner.boot)
    await asyncio.to_thread(sys.stdin.readline)


COMMANDS: dict[str, Callable[..., Awaitable[None]]] = {
    command.__name__: command
    for command in (write, follow, claim, zombie, upgrade, die_in_upgrade, fill, open_full, opened, hold_lease)
}


def main(argv: Sequence[str]) -> None:
    what, path, *arguments = argv

    async def go() -> None:
        await COMMANDS[what](Path(path), *arguments)

    asyncio.run(go())


if __name__ == "__main__":
    main(sys.argv[1:])
