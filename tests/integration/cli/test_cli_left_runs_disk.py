"""A left detached run on a disk that takes no more: looking shows it and starts nothing."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from background_processes import Background
from leadrope.rehearsal import ModelServer
from small_disk import SmallDisk

BEATS = "for i in $(seq 600); do echo beat >> beats; sleep 0.1; done"
WORK = {"tool": {"name": "Bash", "input": {"command": BEATS, "description": "work for a minute"}}}


@pytest.fixture
def store(background: Background, disk: SmallDisk) -> SmallDisk:
    """The disk, with the login that the desk has in leadrope's own .env."""
    (disk.inside / ".env").write_text((disk.home / ".env").read_text())
    return disk


async def left_behind(desk: Any, background: Background, disk: SmallDisk, model: ModelServer, how: str) -> str:
    """A detached run without its background process: killed, or ended in order and put back into the queue."""
    given = ("--detach", "--mode", "full", "--base-url", model.url)
    code, out, err = await disk.leadrope("run", "work, then leave a marker", *given)
    assert code == 0, err
    await background.until((desk.project / "beats").exists)
    await background.end(how)
    await background.until(lambda: not background.all())
    return out.strip()


async def look_at(background: Background, disk: SmallDisk, run_id: str, told: str = "") -> None:
    """Twice each: the second look must not start anything either."""
    for words in (("runs", "list"), ("runs", "show", run_id), ("approvals", "list"), ("runs", "logs", run_id)) * 2:
        code, out, err = await disk.leadrope(*words)
        assert code == 0, (words, err)
        assert "Traceback" not in err, words
        if words[0] == "runs" and words[1] != "logs":
            assert run_id[:8] in out, (words, out)
        assert str(disk.home) in err, (words, err)
        assert told in err, (words, err)
        assert not background.owners(), words


@pytest.mark.parametrize("how", ["kill", "terminate"])
async def test_looking_at_a_full_store_starts_nothing(
    desk: Any, background: Background, store: SmallDisk, how: str
) -> None:
    async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
        run_id = await left_behind(desk, background, store, model, how)
        store.fill()
        await look_at(background, store, run_id)
        assert not (store.inside / "background/starts.json").exists()
        store.empty()
        code, out, err = await store.leadrope("runs", "list")
        assert (code, run_id[:8] in out) == (0, True), err
        await background.until(desk.marker.exists)
        code, _, err = await store.leadrope("runs", "logs", "-f", run_id)
        assert code == 0, err
        await background.until(lambda: not background.owners())


async def test_looking_at_a_nearly_full_store_starts_nothing_and_says_so(
    desk: Any, background: Background, store: SmallDisk
) -> None:
    """There is room to put the row right, and too little for an owner."""
    async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
        run_id = await left_behind(desk, background, store, model, "kill")
        store.fill()
        os.truncate(store.inside / "filler", (store.inside / "filler").stat().st_size - 2 * 1024 * 1024)
        await look_at(background, store, run_id, f"run {run_id[:8]} waits")
        store.empty()
        await store.leadrope("runs", "list")
        await background.until(desk.marker.exists)
        code, _, err = await store.leadrope("runs", "logs", "-f", run_id)
        assert code == 0, err
        await background.until(lambda: not background.owners())


@pytest.mark.parametrize("how", ["kill", "terminate"])
async def test_looking_at_a_read_only_store_starts_nothing(
    desk: Any, background: Background, store: SmallDisk, how: str
) -> None:
    async with ModelServer([WORK]) as model:
        run_id = await left_behind(desk, background, store, model, how)
        store.make_read_only()
        files = sorted(path.name for path in Path(store.inside).iterdir())
        await look_at(background, store, run_id)
        assert sorted(path.name for path in Path(store.inside).iterdir()) == files


@pytest.mark.fault
async def test_a_detached_run_outlives_a_disk_that_was_full_when_its_owner_was_told_to_end(
    desk: Any, background: Background, store: SmallDisk, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """The run could not be put back into the queue; whoever can write the store next does that."""
    count = 20 if is_soak else 2
    record_property("count", count)
    for _ in range(count):
        (desk.project / "beats").unlink(missing_ok=True)
        desk.marker.unlink(missing_ok=True)
        async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
            given = ("--detach", "--mode", "full", "--base-url", model.url)
            run_id = (await store.leadrope("run", "work, then leave a marker", *given))[1].strip()
            await background.until((desk.project / "beats").exists)
            store.fill()
            await background.end("terminate")
            await background.until(lambda: not background.all())
            store.empty()
            code, out, err = await store.leadrope("runs", "list")
            assert (code, run_id[:8] in out) == (0, True), err
            await background.until(desk.marker.exists)
            code, _, err = await store.leadrope("runs", "logs", "-f", run_id)
            assert code == 0, err
            await background.until(lambda: not background.owners())


def is_noted(disk: SmallDisk, run_id: str) -> bool:
    """The run has ended, and how is written down in the room that was reserved for it."""
    return any(run_id in path.read_text() for path in (disk.inside / "owners").glob("*.lost"))


@pytest.mark.fault
@pytest.mark.parametrize("how", ["room", "terminate", "kill"])
async def test_a_detached_run_that_ended_on_a_full_disk_is_stored_as_what_it_was(
    desk: Any,
    background: Background,
    store: SmallDisk,
    how: str,
    is_soak: bool,
    record_property: Callable[[str, object], None],
) -> None:
    """There is room again in time, or its owner is ended first."""
    count = 20 if is_soak else 2
    record_property("count", count)
    waits = {"tool": {"name": "Bash", "input": {"command": "touch begun; while [ ! -e go ]; do sleep 0.05; done"}}}
    for _ in range(count):
        for name in ("begun", "go"):
            (desk.project / name).unlink(missing_ok=True)
        async with ModelServer([waits, {"text": "Here I am."}]) as model:
            given = ("--detach", "--mode", "full", "--base-url", model.url)
            run_id = (await store.leadrope("run", "say it", *given))[1].strip()
            await background.until((desk.project / "begun").exists)
            store.fill()
            (desk.project / "go").touch()
            await background.until(functools.partial(is_noted, store, run_id))
            if how != "room":
                await background.end(how)
            _, out, _ = await store.leadrope("runs", "list", COLUMNS="200")
            assert how == "room" or "it ended succeeded; its record was lost: the disk was full" in out, out
            store.empty()
            code, out, err = await store.leadrope("runs", "logs", "-f", run_id)
            assert code == 0, (out, err)
            _, out, _ = await store.leadrope("runs", "show", run_id)
            assert "ended, succeeded" in out
            assert ("its record was lost: the disk was full" in out) == (how != "room"), out
            assert ("Here I am." in out) == (how == "room"), out
            await background.until(lambda: not background.owners())
