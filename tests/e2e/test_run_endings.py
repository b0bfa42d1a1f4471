"""The real CLI with commands that do not want to end: nothing survives, whoever ends the run and however."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from leadrope import Limits, events
from leadrope.rehearsal import ModelServer
from process_tree import descendants

# By its full path: `env -i` takes PATH away, and a substitution would be a command that nobody can read beforehand.
SETSID = shutil.which("setsid") or "setsid"
# {m} is a word that the scan of /proc looks for in argv. Each command stays in the foreground.
SLEEP = "bash -c 'exec -a {m} sleep 1000'"
COMMANDS = {
    "polite": SLEEP,
    "ignores SIGTERM": "bash -c 'trap \"\" TERM; while :; do sleep 0.1; done' {m}",
    "setsid grandchild": f"setsid {SLEEP} & tail -f /dev/null",
    "double fork": f"( ( {SLEEP} & ) & ); tail -f /dev/null",
    "cleared environment": f"( env -i {SETSID} {SLEEP} & ); tail -f /dev/null",
}
STOP_S = 2.0


def bash(command: str) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command, "description": "be stubborn"}}


async def one_stop(stage: Any, command: str, survivors: Any, until: Any) -> float:
    """One run that is stopped while its command is at work; how long the stop took."""
    script = [{"tool": bash(command)}, {"text": "stopped", "optional": True}]
    async with stage.opened(script, mode="full", limits=Limits(stop_s=STOP_S)) as (run, _):
        async for item in run:
            if isinstance(item.event, events.ToolDecided):
                break
        await until(survivors)
        began = time.monotonic()
        result = await run.stop()
        took = time.monotonic() - began
    assert result.outcome == "stopped"
    return took


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", COMMANDS)
async def test_a_stopped_run_leaves_nothing(
    stage: Any, marker: str, survivors: Any, until: Any, stalls: Any, fault_count: int, is_soak: bool, kind: str
) -> None:
    for count in range(fault_count):
        stalls()
        took = await one_stop(stage, COMMANDS[kind].format(m=marker), survivors, until)
        assert survivors() == {}
        told = f"stop {count + 1} took {took:.2f} s; the machine stood still for up to {stalls():.2f} s meanwhile"
        assert took < STOP_S + 1 or not is_soak, told


@pytest.mark.fault
@pytest.mark.timeout(900)
async def test_a_background_job_does_not_outlive_a_run_that_ended_well(
    stage: Any, marker: str, survivors: Any, fault_count: int
) -> None:
    command = f"( env -i {SETSID} {SLEEP} > /dev/null 2>&1 & ) ; echo started".format(m=marker)
    for _ in range(fault_count):
        played = await stage.play([{"tool": bash(command)}, {"text": "done"}], mode="full")
        assert survivors() == {}
        assert played.result.outcome == "succeeded"
        assert played.result.leftovers_killed >= 1


async def test_a_background_command_of_the_agent_is_reaped_after_its_result(
    stage: Any, marker: str, survivors: Any
) -> None:
    """Left alone, the CLI waits for such a command for ever."""
    background = bash(SLEEP.format(m=marker))
    background["input"]["run_in_background"] = True
    played = await stage.play([{"tool": background}, {"text": "it runs"}], mode="full", limits=Limits(exit_s=0.5))
    assert survivors() == {}
    assert played.result.outcome == "succeeded"
    assert played.result.text == "it runs"


SUPERVISOR = """
import asyncio, sys
from leadrope import RunRequest, Secret, open_run

async def main(url, cwd):
    request = RunRequest(
        prompt="go", cwd=cwd, mode="full", base_url=url, credential=Secret("sk-ant-rehearsal-0000000000"), attempts=1
    )
    async with open_run(request) as run:
        await run.result()

asyncio.run(main(*sys.argv[1:3]))
"""


@pytest.mark.fault
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["polite", "cleared environment"])
async def test_a_supervisor_killed_with_9_takes_its_agent_along(
    stage: Any, marker: str, survivors: Any, until: Any, fault_count: int, kind: str
) -> None:
    for _ in range(fault_count):
        async with ModelServer([{"tool": bash(COMMANDS[kind].format(m=marker))}]) as model:
            argv = [sys.executable, "-c", SUPERVISOR, model.url, str(stage.ws), marker]
            supervisor = await asyncio.create_subprocess_exec(
                *argv, env=stage.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            await until(lambda: any(a.startswith((marker, "bash")) for a in survivors().values()))
            claude = [pid for pid in descendants(supervisor.pid) if "_bundled/claude" in _argv(pid)]
            assert claude
            os.kill(supervisor.pid, signal.SIGKILL)
            await supervisor.wait()
            await until(lambda claude=claude: survivors() == {} and not any(_argv(pid) for pid in claude))


def _argv(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
