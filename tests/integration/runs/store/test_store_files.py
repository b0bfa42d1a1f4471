"""Disks and files that are not as they should be: said in our words, and nothing of anybody's is overwritten."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from leadrope import errors
from leadrope.core import events
from leadrope.core.events import ToolCompleted
from leadrope.core.fold import fold
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records import statements
from leadrope.runs.records.sqlite import Sqlite
from leadrope.storage import database

BWRAP = shutil.which("bwrap")
needs_bwrap = pytest.mark.skipif(BWRAP is None, reason="bubblewrap makes the small disk")


def inside(*mounts: str) -> tuple[str, ...]:
    """A command's own view of the disk."""
    return (str(BWRAP), "--dev-bind", "/", "/", *mounts, "--")


def bytes_of(folder: Path) -> dict[str, str]:
    """Of all files that hold anything; a mere look leaves an empty log and its index."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if not file.name.endswith("-shm") and file.stat().st_size
    }


async def test_the_files_are_for_their_owner_alone(store: Sqlite, path: Path, add: Any) -> None:
    stored = await add()
    await stored.append_deltas(1)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("leadrope.db", "leadrope.db-wal", "leadrope.db-shm"), 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@needs_bwrap
async def test_a_full_disk_is_an_error_of_its_own_and_work_goes_on_when_there_is_room(
    tmp_path: Path, start: Any
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    child = await start("fill", disk / "leadrope.db", before=inside("--size", "8388608", "--tmpfs", str(disk)))
    said = await child.all_lines()
    assert [line.split()[:2] for line in said[:2]] == [["full", "StoreFull"]] * 2
    assert said[2:] == ["readable True True", "went on True", "integrity ok", "whole True"]


@needs_bwrap
async def test_a_disk_that_is_full_from_the_start(tmp_path: Path, start: Any) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    child = await start("open_full", disk / "leadrope.db", before=inside("--size", "1048576", "--tmpfs", str(disk)))
    assert await child.all_lines() == ["refused StoreFull"]


@needs_bwrap
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_what_may_only_be_read_is_refused_at_once(path: Path, start: Any, what: str) -> None:
    with Sqlite(path):
        pass
    before = bytes_of(path.parent)
    place = str(path if what == "file" else path.parent)
    child = await start("opened", path, before=inside("--ro-bind", place, place))
    [told] = await child.all_lines()
    assert told.startswith("refused StoreUnreadable the run store")
    assert "may not be written" in told
    assert bytes_of(path.parent) == before


@needs_bwrap
async def test_a_folder_where_nothing_can_be_made(tmp_path: Path, start: Any) -> None:
    child = await start("opened", tmp_path / "leadrope.db", before=inside("--ro-bind", str(tmp_path), str(tmp_path)))
    [told] = await child.all_lines()
    assert told.startswith("refused StoreUnreadable")
    assert "cannot be made" in told


def foreign(path: Path) -> None:
    """Left by a program that was ended: what it wrote last lies in its log still."""
    source = path.with_name("source")
    with contextlib.closing(sqlite3.connect(source)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table cats (name text)")
        db.execute("insert into cats values ('Tom')")
        db.commit()
        for ending in ("", "-wal"):
            shutil.copy(f"{source}{ending}", f"{path}{ending}")
    source.unlink()
    assert Path(f"{path}-wal").stat().st_size > 0


def newer(path: Path) -> None:
    with contextlib.closing(database.open_(path, statements.migrations())) as db:
        db.execute("pragma user_version = 999")


def no_database(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)


def overwritten_head(path: Path) -> None:
    with Sqlite(path):
        pass
    with path.open("r+b") as file:
        file.write(os.urandom(64))


def overwritten_schema(path: Path) -> None:
    with Sqlite(path):
        pass
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 1000)


def cut_off(path: Path) -> None:
    with Sqlite(path):
        pass
    with path.open("r+b") as file:
        file.truncate(5000)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (foreign, "another program's database"),
        (newer, "written by a newer leadrope (schema 999"),
        (no_database, "is damaged"),
        (overwritten_head, "is damaged"),
        (overwritten_schema, "is damaged"),
        (cut_off, "is damaged"),
    ],
)
def test_a_file_that_is_not_ours_to_open_stays_as_it_is(path: Path, make: Any, told: str) -> None:
    path.parent.mkdir()
    make(path)
    before = bytes_of(path.parent)
    with pytest.raises(errors.StoreUnreadable) as caught, Sqlite(path):
        pass
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.hint
    assert bytes_of(path.parent) == before


async def test_a_damaged_page_is_told_by_whoever_meets_it(path: Path) -> None:
    """Not found at the start: to read the whole file then would take as long as the file is large."""
    with contextlib.closing(database.open_(path, statements.migrations())) as db:
        db.execute("insert into runs (id, created, state, title, labels) values ('run', 1, 'running', 't', '{}')")
        page = db.execute("select rootpage from sqlite_schema where name = 'events'").fetchone()[0]
        size = db.execute("pragma page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with Sqlite(path) as store:
        run = await store.get("run")
        with pytest.raises(errors.StoreUnreadable, match="is damaged"):
            await store.read(run, 1, 10)
        with pytest.raises(errors.StoreUnreadable, match="is damaged"):
            await store.write(lambda db: db.execute("delete from events"))
        assert (await store.get("run")).id == "run"


async def test_a_damaged_body_is_told(store: Sqlite, add: Any) -> None:
    stored = await add()
    await stored.append(ToolCompleted(call_id="c", text="x" * 100_000))
    await store.write(lambda db: db.execute("update events set body = substr(body, 1, 20)"))
    with pytest.raises(errors.StoreUnreadable, match="cannot be unpacked"):
        await store.read(stored.run, 1, 10)


async def test_a_store_that_was_removed_is_not_made_again_by_a_reader(path: Path) -> None:
    with Sqlite(path) as store:
        for file in list(path.parent.iterdir()):
            file.unlink()
        with pytest.raises(errors.StoreError):
            await store.get("run")
        assert not path.exists()


async def test_a_word_that_the_database_refuses_is_an_error_of_ours(store: Sqlite, add: Any) -> None:
    await add("run")
    with pytest.raises(errors.StoreError, match="UNIQUE"):
        await add("run")


# -- upgrades -----------------------------------------------------------------------------------------------------


NOW = statements.migrations()[-1][0]
BACKUP = f"leadrope.db.v{NOW}.bak"


def made_before(path: Path, migrations: database.Migrations) -> None:
    with contextlib.closing(database.open_(path, migrations)) as db:
        db.execute("insert into runs (id, created, state, title, labels) values ('old', 1, 'ended', 't', '{}')")


@pytest.mark.parametrize("version", range(1, NOW))
async def test_a_database_of_every_version_before_becomes_one_of_now(path: Path, version: int) -> None:
    made_before(path, statements.migrations()[:version])
    with Sqlite(path) as store:
        assert [row.id for row in await store.listing()] == ["old"]
    new = path.with_name("new") / "leadrope.db"
    made_before(new, statements.migrations())
    schema = "select type, name, sql from sqlite_schema where name not like 'sqlite_%' order by name"
    with contextlib.closing(sqlite3.connect(path)) as db, contextlib.closing(sqlite3.connect(new)) as other:
        assert db.execute("pragma user_version").fetchone() == (NOW,)
        assert db.execute(schema).fetchall() == other.execute(schema).fetchall()
    with contextlib.closing(sqlite3.connect(path.with_name(f"leadrope.db.v{version}.bak"))) as db:
        assert db.execute("pragma user_version").fetchone() == (version,)
        assert db.execute("select id from runs").fetchall() == [("old",)]


@pytest.mark.parametrize(
    ("result", "label"),
    [
        ('{"totals":{"cost_label":"API-equivalent estimate"}}', "API-equivalent estimate"),
        ('{"totals":{"cost_label":"estimate"}}', "estimate"),
        ('{"outcome":"failed"}', "estimate"),
        ("not JSON", "estimate"),
        (None, "estimate"),
    ],
)
async def test_runs_of_before_learn_what_their_cost_is_called(path: Path, result: str | None, label: str) -> None:
    made_before(path, statements.migrations()[:3])
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("insert into texts (run, request, policy, result) select n, '{}', '{}', ? from runs", (result,))
        db.commit()
    with Sqlite(path) as store:
        assert (await store.get("old")).cost_label == label


EARLIER_REQUESTS: list[tuple[dict[str, Any], tuple[str | None, dict[str, Any] | None]]] = [
    ({"prompt": "p"}, (None, None)),
    ({"prompt": "p", "walls": "off"}, ("off", None)),
    ({"prompt": "p", "sandbox": {"enabled": True}}, (None, {"enabled": True})),
    ({"prompt": "p", "walls": "read-only", "sandbox": {"enabled": False}}, ("read-only", {"enabled": False})),
    ({"prompt": "p", "walls": None, "sandbox": None}, (None, None)),
]


@pytest.mark.parametrize(("request_", "found"), EARLIER_REQUESTS)
async def test_requests_of_before_say_sandbox(path: Path, request_: dict[str, Any], found: tuple[Any, Any]) -> None:
    made_before(path, statements.migrations()[:6])
    with contextlib.closing(sqlite3.connect(path)) as db:
        text = json.dumps(request_)
        db.execute("insert into texts (run, request, policy) select n, ?, '{}' from runs", (text,))
        db.commit()
    with Sqlite(path) as store:
        request = (await store.texts("old")).request
    assert (request.prompt, (request.sandbox, request.agent_sandbox)) == ("p", found)


@pytest.mark.parametrize("packed", [0, 1])
async def test_events_of_before_say_sandbox(path: Path, packed: int) -> None:
    earlier: list[dict[str, Any]] = [
        {"type": "session.started", "session_id": "s-1", "provider": "scripted", "walls": "read-only"},
        {"type": "walls.held", "kind": "write", "target": "/etc/x", "message": "no"},
        {"type": "session.started", "session_id": "s-2", "provider": "scripted"},
        {"type": "notice", "level": "info", "code": "walls.held", "message": "walls"},
    ]
    made_before(path, statements.migrations()[:6])
    with contextlib.closing(sqlite3.connect(path)) as db:
        for seq, event in enumerate(earlier, 1):
            body = json.dumps(event).encode()
            row = (seq, event["type"], packed, zlib.compress(body) if packed else body)
            db.execute("insert into events select n, ?, 1, 0.5, 'agent', ?, ?, ? from runs", row)
        db.execute("update runs set last_seq = 4")
        db.commit()
    with Sqlite(path) as store:
        run = await store.get("old")
        assert [record.event for record in await store.read(run, 1, 10)] == [
            events.SessionStarted(session_id="s-1", provider="scripted", sandbox="read-only", schema_version=ANY),
            events.SandboxViolation(kind="write", target="/etc/x", message="no"),
            events.SessionStarted(session_id="s-2", provider="scripted", schema_version=ANY),
            events.Notice(level="info", code="walls.held", message="walls"),
        ]
        assert len(await store.read(run, 1, 10, type_="sandbox.violation")) == 1


async def test_an_end_without_a_word_before_it_says_what_the_cost_is_called(store: Sqlite, add: Any) -> None:
    stored = await add()
    totals = fold([]).totals
    assert totals is not None
    totals = msgspec.structs.replace(totals, cost_label="API-equivalent estimate")
    result = RunResult(run_id=stored.run.id, outcome="failed", cost_usd=0.5, totals=totals)
    assert await store.end_run(stored.run, result, Redactor())
    assert (await store.get(stored.run.id)).cost_label == "API-equivalent estimate"


def test_an_older_database_is_upgraded_and_kept_beside(path: Path) -> None:
    made_before(path, statements.migrations())
    second = (
        NOW + 1,
        "alter table runs add column colour text;\n\n-- the last word\nupdate runs set colour = 'green';\n",
    )
    third = (NOW + 2, "create table later (n integer);")
    with contextlib.closing(database.open_(path, [*statements.migrations(), second, third])) as db:
        assert db.execute("select id, colour from runs").fetchall() == [("old", "green")]
        assert db.execute("pragma user_version").fetchone() == (NOW + 2,)
    backup = path.with_name(BACKUP)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with contextlib.closing(database.open_(backup, statements.migrations())) as db:
        assert db.execute("pragma user_version").fetchone() == (NOW,)
        assert db.execute("select id from runs").fetchall() == [("old",)]
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    # This version refuses what the later one wrote.
    with pytest.raises(errors.StoreUnreadable, match="newer leadrope"):
        database.open_(path, statements.migrations())


def test_an_upgrade_that_fails_leaves_everything_as_it_was(path: Path) -> None:
    made_before(path, statements.migrations())
    wrong = (NOW + 1, "alter table runs add column colour text;\nupdate cats set name = 'x';\n")
    with pytest.raises(errors.StoreError, match="no such table: cats"):
        database.open_(path, [*statements.migrations(), wrong])
    with contextlib.closing(database.open_(path, statements.migrations())) as db:
        assert "colour" not in [row[1] for row in db.execute("pragma table_info(runs)")]
        assert db.execute("select id from runs").fetchall() == [("old",)]


async def test_a_process_that_dies_within_an_upgrade_leaves_the_old_version(path: Path, start: Any) -> None:
    made_before(path, statements.migrations())
    child = await start("die_in_upgrade", path)
    assert await child.process.wait() == -9
    with contextlib.closing(database.open_(path, statements.migrations())) as db:
        assert db.execute("pragma user_version").fetchone() == (NOW,)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert "colour" not in [row[1] for row in db.execute("pragma table_info(runs)")]
        assert not db.execute("select 1 from sqlite_schema where name = 'half'").fetchall()


async def test_processes_that_upgrade_at_once(path: Path, start: Any) -> None:
    made_before(path, statements.migrations())
    children = [await start("upgrade", path) for _ in range(4)]
    for child in children:
        assert await child.said() == ["ready"]
    for child in children:
        child.go()
    assert [await child.all_lines() for child in children] == [[f"version {NOW + 1}"]] * 4
    assert [file.name for file in path.parent.glob("*.bak")] == [BACKUP]
    assert not list(path.parent.glob("*.part"))
    with contextlib.closing(sqlite3.connect(path.with_name(BACKUP))) as db:
        assert db.execute("pragma user_version").fetchone() == (NOW,)
        assert db.execute("select id from runs").fetchall() == [("old",)]


async def test_processes_that_make_the_store_at_once(path: Path, start: Any) -> None:
    """Each of them finds no file, or an empty one, or one that is just being made."""
    children = [await start("opened", path, "wait") for _ in range(8)]
    for child in children:
        assert await child.said() == ["ready"]
    for child in children:
        child.go()
    assert [await child.all_lines() for child in children] == [["opened"]] * 8
    with Sqlite(path) as store:
        assert len(await store.listing()) == 8
