"""Executions on a disk that fills up: the store is waited for, and is never what a step came to."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from small_disk import SmallDisk

TEXT = """## Steps

### first

- type: shell
- command: touch began; until test -e go; do sleep 0.05; done; echo one >> log

### second

- type: shell
- command: echo two >> log
"""
WAITS = "there is no space left for the run store"


async def exists(path: Path) -> None:
    give_up = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < give_up, f"{path} never came"
        await asyncio.sleep(0.02)


async def reads(stream: asyncio.StreamReader, text: str) -> str:
    told = ""
    async with asyncio.timeout(60):
        while text not in told:
            line = await stream.readline()
            assert line, f"it ended before it said {text!r}:\n{told}"
            told += line.decode()
    return told


def set_up(desk: Any, store_wait_s: int) -> None:
    config = desk.home / ".config/leadrope"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(f"[service]\nidle_s = 1\nstore_wait_s = {store_wait_s}\n")
    (desk.project / "test.flow.md").write_text(TEXT)


async def steps(disk: SmallDisk) -> list[tuple[str, str]]:
    """How each step ended, by the events of the newest execution."""
    _, out, _ = await disk.leadrope("flow", "logs", "-o", "stream-json")
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    ended = [record["event"] for record in records if record["event"]["type"] == "step.ended"]
    return [(event["step"], event["status"]) for event in ended]


async def test_an_execution_waits_for_room_and_continues(desk: Any, disk: SmallDisk) -> None:
    set_up(desk, 60)
    async with disk.started("flow", "run", "test.flow.md") as process:
        await exists(desk.project / "began")
        disk.fill()
        (desk.project / "go").touch()
        told = await reads(process.stderr, WAITS)
        assert "waits up to 60 s for it" in told
        assert (desk.project / "log").read_text() == "one\n", "nothing starts that rests on what is not stored"
        disk.empty()
        async with asyncio.timeout(60):
            await process.communicate()
    assert process.returncode == 0
    assert (desk.project / "log").read_text() == "one\ntwo\n"
    assert await steps(disk) == [("first", "succeeded"), ("second", "succeeded")]


async def test_when_the_time_is_over_the_execution_can_be_continued(desk: Any, disk: SmallDisk) -> None:
    set_up(desk, 1)
    async with disk.started("flow", "run", "test.flow.md") as process:
        await exists(desk.project / "began")
        disk.fill()
        (desk.project / "go").touch()
        async with asyncio.timeout(60):
            _, err = await process.communicate()
    assert process.returncode == 1
    assert WAITS in err.decode()
    assert "Traceback" not in err.decode()
    disk.empty()
    _, out, _ = await disk.leadrope("flow", "history", "-o", "json")
    found = json.loads(out)["execution"]
    assert (found["state"], found.get("outcome")) == ("interrupted", None)
    code, _, err2 = await disk.leadrope("flow", "resume", found["id"][:8])
    assert code == 0, err2
    assert await steps(disk) == [("first", "succeeded"), ("second", "succeeded")]


async def test_the_background_waits_for_as_long_as_it_takes(desk: Any, background: Any, disk: SmallDisk) -> None:
    set_up(desk, 1)
    code, out, err = await disk.leadrope("flow", "run", "test.flow.md", "--detach")
    assert code == 0, err
    execution = out.strip()
    await exists(desk.project / "began")
    disk.fill()
    (desk.project / "go").touch()
    log = disk.inside / "background/owner.log"
    size = log.stat().st_size
    await exists(desk.project / "log")
    tried = time.monotonic() + 3
    await background.until(lambda: time.monotonic() > tried)  # longer than a run of a terminal waits here
    assert background.owners(), "its owner is still there"
    assert log.stat().st_size <= size + 4096
    disk.empty()
    async with disk.started("flow", "logs", "-f", execution[:8]) as process:
        async with asyncio.timeout(60):
            await process.communicate()
        assert process.returncode == 0
    assert await steps(disk) == [("first", "succeeded"), ("second", "succeeded")]
    assert (desk.project / "log").read_text() == "one\ntwo\n"
