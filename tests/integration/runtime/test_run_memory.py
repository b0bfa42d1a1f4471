"""Runs whose processes grow: the agent is scripted, what it starts is real and really allocates."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leadrope import Limits, Recorded, RunRequest, RunResult, Secret, events, open_run
from leadrope.process import reaper
from leadrope.rehearsal import write_executable
from leadrope.runtime import retries
from leadrope.runtime.limits import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is watched on Linux alone")

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"text": "done"}, {"result": True}, {"await_eof": True}]
CALL = {"hook": {"tool": "Read", "id": "t1", "input": {"file_path": "a"}}}
GROWS = "held = bytearray(b'x') * (300 << 20); import time; time.sleep(3600)"
SHARES = """
import os, sys, time
held = bytearray(b"x") * (100 << 20)
for _ in range(4):
    if not os.fork():
        time.sleep(3600)
print("ready", flush=True)
time.sleep(3600)
"""


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.pids, self.small, self.claude = folder / "pids", folder / "small", folder / "claude"
        self.stdin = folder / "stdin.jsonl"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "home"),
            "LEADROPE_CLAUDE_BIN": str(self.claude),
        }

    def spawn(self, kind: str = "child") -> dict[str, Any]:
        """Large the first time it is started, small the second time."""
        once = self.folder / "once"
        script = f'if [ -e {once} ]; then touch {self.small}; else touch {once}; exec {sys.executable} -c "$0"; fi'
        argv = ["/bin/sh", "-c", script, GROWS]
        return {"spawn": {"kind": kind, "argv": argv, "pid_file": str(self.pids), "clear_env": True}}

    async def play(self, steps: list[Any], **fields: Any) -> tuple[list[Recorded], RunResult]:
        script = {
            "version": "2.1.325 (Claude Code)",
            "stdin_file": str(self.stdin),
            "steps": steps,
        }
        write_executable(self.claude, script)
        given: dict[str, Any] = {"prompt": "go", "cwd": str(self.ws), "credential": Secret("sk-ant-rehearsal-00")}
        request = RunRequest(**(given | {"sandbox": "off", "attempts": 1} | fields))
        async with open_run(request, environ=self.environ) as run:
            return [item async for item in run], await run.result()

    def left(self) -> list[int]:
        found = [reaper.process(int(pid)) for pid in self.pids.read_text().split()]
        return [process.pid for process in found if process is not None and not process.is_dead]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.parametrize("kind", ["child", "double_fork"])
async def test_a_run_that_holds_too_much_is_ended(stage: Stage, kind: str) -> None:
    """Also if what grows has left its parent and its environment."""
    limits = Limits(memory_mb=200)
    found, result = await stage.play([*OPEN, stage.spawn(kind), {"hang": True}], limits=limits)
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.kind == "out_of_memory"
    assert "may hold 200; most of it is python" in result.error.message
    assert result.error.hint is not None
    assert "memory_mb" in result.error.hint
    assert len([r for r in found if isinstance(r.event, events.RunEnding)]) == 1
    assert not stage.left()


async def test_it_goes_on_in_its_session_and_is_told_why(stage: Stage) -> None:
    steps = [*OPEN, CALL, stage.spawn(), {"await_file": str(stage.small)}, *CLOSE]
    found, result = await stage.play(steps, limits=Limits(memory_mb=200), attempts=2)
    assert result.outcome == "succeeded", result
    origins = [r.event.origin for r in found if isinstance(r.event, events.SessionStarted)]
    assert (origins, result.attempts) == (["new", "rebuilt"], 2), "the stand-in keeps no record of its own"
    said = [line for line in stage.stdin.read_text().splitlines() if retries.LESS_MEMORY in line]
    assert len(said) == 1
    assert not stage.left()


async def test_below_the_limit_nothing_happens(stage: Stage) -> None:
    steps = [*OPEN, {"spawn": {"argv": ["sleep", "3600"], "pid_file": str(stage.pids)}}, *CLOSE]
    _, result = await stage.play(steps, limits=Limits(memory_mb=2000))
    assert result.outcome == "succeeded", result
    assert not stage.left()


@pytest.fixture
def forked() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SHARES], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        os.killpg(process.pid, 9)


def test_what_processes_share_counts_once(forked: subprocess.Popen[bytes]) -> None:
    each = memory.look(forked.pid, 1 << 40)
    assert each.processes == 5
    assert each.total > 400 * memory.MIB, "each has all of it"
    shared = memory.look(forked.pid, 200 * memory.MIB)
    assert 100 * memory.MIB < shared.total < 200 * memory.MIB
    assert shared.name.startswith("python")
    assert memory.holder_of(forked.pid) == forked.pid


def test_a_process_that_is_gone_holds_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert memory.look(process.pid, 1).total == 0
