"""The disk of LEADROPE_HOME fills up while an agent works: the wait is told and bounded, and every signal ends it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer
from small_disk import SmallDisk
from window import Window

END_S = 30
SHORT = {"tool": {"name": "Bash", "input": {"command": "touch begun; while [ ! -e go ]; do sleep 0.05; done"}}}
LONG = {"tool": {"name": "Bash", "input": {"command": "for i in $(seq 600); do echo beat >> beats; sleep 0.1; done"}}}
WAITS = "waits up to"


def left(desk: Any) -> dict[int, str]:
    """Processes of this test, whoever started them."""
    mark = str(desk.project.parent).encode()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if int(entry.name) != os.getpid() and (mark in environ or mark in argv):
            found[int(entry.name)] = argv.replace(b"\0", b" ").decode(errors="replace")[:200]
    return found


async def exists(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)


async def reads(stream: Any, text: str) -> str:
    """What it says up to a line with this text."""
    seen = ""
    async with asyncio.timeout(60):
        while text not in seen:
            line = await stream.readline()
            assert line, seen
            seen += line.decode()
    return seen


@pytest.mark.fault
@pytest.mark.timeout(1200)
async def test_a_disk_that_fills_up_holds_nobody(
    desk: Any, disk: SmallDisk, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """Ends by each signal, and by the time that is set; while a command runs, and when the answer is there."""
    count = 20 if is_soak else 4
    record_property("count", count)
    config = desk.home / ".config/leadrope"
    config.mkdir(parents=True)
    ways = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, None)
    for number in range(count):
        way = ways[number % len(ways)]
        at_work = bool(number // len(ways) % 2) if is_soak else number % 2 == 0
        (config / "config.toml").write_text(f"[service]\nstore_wait_s = {60 if way else 1}\n")
        for name in ("begun", "go", "beats"):
            (desk.project / name).unlink(missing_ok=True)
        turns = [SHORT, LONG, {"text": "Never."}] if at_work else [SHORT, {"text": "Here I am."}]
        async with ModelServer(turns, strict=False) as model:
            words = ("run", "go", "--mode", "full", "--base-url", model.url)
            async with disk.started(*words) as process:
                await exists(desk.project / "begun")
                disk.fill()
                (desk.project / "go").touch()
                told = await reads(process.stderr, WAITS)
                if at_work:
                    await exists(desk.project / "beats")
                elif way is not None and " tokens ·" not in told:  # the end may be shown before the wait is announced
                    told += await reads(process.stderr, " tokens ·")
                began = time.monotonic()
                if way is not None:
                    process.send_signal(way)
                async with asyncio.timeout(END_S):
                    out, err = await process.communicate()
                took = time.monotonic() - began
        told += err.decode()
        where = (way, at_work, out, told)
        assert took < 15, where
        assert str(disk.home / "leadrope.db") in told, where
        assert "events of run" in told, where
        assert "are lost" in told, where
        assert "Traceback" not in told, where
        assert "\n! \n" not in told, where
        assert process.returncode == (130 if at_work and way else 1), where
        if not at_work:
            assert "Here I am." in out.decode(), where
        beaten = (desk.project / "beats").read_text() if at_work else ""
        assert not left(desk), where
        if number < 2:
            await look_around(disk)
        assert not at_work or (desk.project / "beats").read_text() == beaten, where
        disk.empty()
        code, out_, _ = await disk.leadrope("runs", "list", "-o", "json")
        assert code == 0
        assert '"state":"running"' not in out_, "there is room again, and the row is put right"
        assert out_.count('"state":"ended"') == number + 1, "no run is missing"
        newest = json.loads(out_.splitlines()[0])
        # On a slow machine the time may be over between the answer and the end of the agent; the screen says so too.
        is_stopped = at_work or (way is None and "✗ stopped" in told)
        assert newest["outcome"] == ("stopped" if is_stopped else "succeeded"), where
        assert newest.get("error_kind") == ("stopped" if is_stopped else None), where
        assert "the disk was full" in newest["note"], where
        _, shown, _ = await disk.leadrope("runs", "show", newest["id"], "-o", "json")
        assert json.loads(shown)["result"]["outcome"] == newest["outcome"], where


async def look_around(disk: SmallDisk) -> None:
    """On the full disk."""
    for words in (("runs", "list"), ("approvals", "list"), ("sessions", "list"), ("stats",), ("top", "--once")):
        code, out, err = await disk.leadrope(*words)
        assert code == 0, (words, out, err)
        assert words[0] == "sessions" or str(disk.home) in err, (words, err)
    _, out, _ = await disk.leadrope("runs", "list")
    run_id = out.splitlines()[1].split()[0]
    assert "its record was lost: the disk was full" in out
    for word in ("show", "logs"):
        code, out, err = await disk.leadrope("runs", word, run_id)
        assert code == 0, (word, out, err)
    began = time.monotonic()
    code, out, err = await disk.leadrope("run", "go", "--detach")
    assert (code, out) == (1, ""), err
    assert str(disk.home) in err
    assert time.monotonic() - began < 15
    code, out, err = await disk.leadrope("run", "go")
    assert code == 1
    assert str(disk.home) in err
    code, out, err = await disk.leadrope("doctor")
    assert code == 1
    assert "the disk is full" in " ".join(out.split())


async def test_a_read_only_store_is_read(desk: Any, disk: SmallDisk) -> None:
    async with ModelServer([{"text": "Here I am."}]) as model:
        code, _, err = await disk.leadrope("run", "say it", "--base-url", model.url)
    assert code == 0, err
    disk.make_read_only()
    for words in (("runs", "list"), ("stats",), ("top", "--once"), ("sessions", "list")):
        code, out, err = await disk.leadrope(*words)
        assert code == 0, (words, err)
        assert "say it" in out or words == ("stats",)
        assert words[0] == "sessions" or str(disk.home) in err, (words, err)
    for words in (("approvals", "list"), ("flow", "history")):
        code, out, err = await disk.leadrope(*words)
        assert code == 0, (words, err)
    for refused in (("run", "go"), ("run", "go", "--detach"), ("runs", "prune"), ("doctor",)):
        code, out, err = await disk.leadrope(*refused)
        assert code in (1, 2), (refused, out, err)
        assert str(disk.home) in " ".join((out + err).split()), (refused, out, err)
        assert "Traceback" not in err


@pytest.mark.fault
@pytest.mark.timeout(1200)
async def test_closing_the_terminal_while_the_disk_is_full_ends_the_run(
    desk: Any, disk: SmallDisk, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """The wait is on the screen, nobody has freed any space, and the window is closed."""
    count = 20 if is_soak else 2
    record_property("count", count)
    config = desk.home / ".config/leadrope"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[service]\nstore_wait_s = 600\n")
    beats = desk.project / "beats"
    for number in range(count):
        for name in ("begun", "go", "beats"):
            (desk.project / name).unlink(missing_ok=True)
        async with ModelServer([SHORT, LONG, {"text": "Never."}], strict=False) as model:
            argv = disk.argv("run", "go", "--mode", "full", "--base-url", model.url)
            window = Window(argv, cwd=desk.project, env=desk.environ | {"TERM": "xterm", "NO_COLOR": "1"})
            await exists(desk.project / "begun")
            disk.fill()
            (desk.project / "go").touch()
            await window.shows(WAITS)
            await exists(beats)
            began = time.monotonic()
            window.close()
            await window.ended()
        took = time.monotonic() - began
        assert took < 15, window.shown
        assert not left(desk), window.shown
        beaten = beats.read_text()
        disk.empty()
        code, out, err = await disk.leadrope("runs", "list", "-o", "json")
        assert code == 0, err
        assert beats.read_text() == beaten
        assert out.count('"state":"ended"') == number + 1, "no run is missing"
        assert json.loads(out.splitlines()[0])["outcome"] == "stopped", out
        assert not left(desk)
