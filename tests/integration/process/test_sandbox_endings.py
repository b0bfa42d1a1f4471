"""The end of a real box: whoever ends it, nothing of it stays, and what happened is told."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.process import guardian
from leadrope.process.child import Ending, start
from leadrope.process.sandbox import availability

Survivors = Callable[[], dict[int, str]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

SLEEP = 'bash -c "exec -a $1 sleep 1000"'


async def test_sigterm_reaches_the_agent_itself(room: Any) -> None:
    """The monitor of the box would turn it into a SIGKILL, and the init of its namespace ignores it."""
    child = await room.begin("trap 'echo saved > saved; exit 143' TERM; echo ready; while :; do sleep 0.05; done")
    assert (await child.read())[0] == b"ready"
    ending = await child.end(stop_s=20)
    assert ending == Ending(exit_code=143, leftovers_killed=0, survivors=0, rung="stopped")
    assert (room.ws / "saved").exists()


async def test_sigterm_alone_lets_the_agent_choose_its_end(room: Any) -> None:
    child = await room.begin("trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert (await child.read())[0] == b"ready"
    child.terminate()
    assert await child.wait() == 5
    assert (await child.end()).rung == "stopped"


ENDINGS = {
    "exit 7": (7, "exited", 0),
    "kill -KILL $$": (137, "exited", 0),
    "kill -SEGV $$": (139, "exited", 0),
    f"setsid {SLEEP} & ( ( {SLEEP} & ) & ); env -i setsid {SLEEP} & sleep 0.2; exit 3": (3, "exited", 3),
}


async def test_a_box_that_takes_its_time_to_end_keeps_its_exit_code(room: Any, until: Until) -> None:
    child = await room.begin("echo ready; until [ -e go ]; do sleep 0.01; done; exit 7")
    assert (await child.read())[0] == b"ready"
    agent = Path(f"/proc/{child.pid}/stat")
    init = int(agent.read_text().rpartition(")")[2].split()[1])
    os.kill(init, signal.SIGSTOP)  # as on a machine that has no time for it
    (room.ws / "go").touch()

    def has_ended() -> bool:
        try:
            return ") Z " in agent.read_text()
        except OSError:
            return True

    await until(has_ended)
    struck = asyncio.Event()
    asyncio.get_running_loop().call_later(5 * guardian.KILLED_S, struck.set)
    await struck.wait()
    os.kill(init, signal.SIGCONT)
    assert await child.wait() == 7
    await child.end()


@pytest.mark.parametrize("script", ENDINGS)
async def test_exit_codes_and_leftovers_are_told(room: Any, script: str, marker: str, survivors: Survivors) -> None:
    done = await room.play(script, marker)
    ending = done.ending
    assert (ending.exit_code, ending.rung, ending.leftovers_killed) == ENDINGS[script], done
    assert ending.survivors == 0
    assert survivors() == {}


async def test_an_agent_that_ends_at_once_is_told_from_a_box_that_failed(room: Any, fault_count: int) -> None:
    for _ in range(fault_count):
        assert (await room.play("exit 9")).code == 9
    box = availability.prepare(room.spec())
    shutil.rmtree(room.config)
    with pytest.raises(errors.SpawnFailed, match=rf"could not be built.*{room.config}"):
        await start(["true"], env={"PATH": SYSTEM_PATH}, cwd=str(room.ws), spool_dir=str(room.folder), box=box.argv)
    with pytest.raises(errors.BadDirectory, match=f"{room.config} does not exist"):
        availability.prepare(room.spec())


@pytest.mark.fault
async def test_what_ignores_sigterm_is_killed_with_everything_below(
    room: Any, marker: str, survivors: Survivors, fault_count: int
) -> None:
    for _ in range(fault_count):
        child = await room.begin(f"trap '' TERM; setsid {SLEEP} & echo ready; while :; do sleep 0.05; done", marker)
        assert (await child.read())[0] == b"ready"
        ending = await child.end(stop_s=0.2)
        assert (ending.exit_code, ending.rung, ending.survivors) == (-9, "killed", 0)
        assert survivors() == {}


async def test_processes_that_fork_without_pause_end_with_the_namespace(
    room: Any, marker: str, survivors: Survivors
) -> None:
    (room.ws / "comet.py").write_text(
        "import os\nos.setsid()\nprint('ready', flush=True)\nwhile True:\n    if os.fork():\n        os._exit(0)\n"
    )
    child = await room.begin(f"python3 -I -S comet.py {marker} & sleep 1000")
    assert (await child.read())[0] == b"ready"
    began = time.monotonic()
    assert (await child.end(stop_s=0.2)).survivors == 0
    assert time.monotonic() - began < 5
    assert survivors() == {}


SUPERVISOR = """
import asyncio, sys
import msgspec
from leadrope.process import guardian; from leadrope.process.sandbox import availability as sandbox_trial
from leadrope.process.child import start
from leadrope.process.sandbox.values import Sandbox

async def main():
    spec = msgspec.json.decode(sys.argv[1], type=Sandbox)
    box = sandbox_trial.prepare(spec)
    child = await start(["/bin/bash", "-c", sys.argv[2], "child", sys.argv[3]], env={"PATH": spec.path, **box.env},
        cwd=spec.workspace, spool_dir=spec.run_dir, box=box.argv)
    await child.read()
    print("ready", flush=True)
    await child.wait()

asyncio.run(main())
"""


@pytest.mark.fault
async def test_kill_9_of_the_supervisor_leaves_nothing_in_the_box(
    room: Any, marker: str, survivors: Survivors, until: Until, fault_count: int
) -> None:
    tree = f"trap '' TERM; setsid {SLEEP} & ( ( {SLEEP} & ) & ); ( env -i setsid {SLEEP} & ); echo ready; wait"
    for _ in range(fault_count):
        command = [sys.executable, "-c", SUPERVISOR, msgspec.json.encode(room.spec()).decode(), tree, marker]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:  # noqa: ASYNC220
            assert supervisor.stdout is not None
            assert await asyncio.to_thread(supervisor.stdout.readline) == b"ready\n"
            assert len(survivors()) > 3
            supervisor.kill()
        await until(lambda: survivors() == {})


async def test_kill_9_of_the_supervisor_leaves_the_users_git_settings_as_they_were(
    room: Any, marker: str, survivors: Survivors, until: Until
) -> None:
    """Nobody puts anything right after it: there is nothing to put right."""
    await room.git(("init", "-q", str(room.ws)))
    room.give(room.ws, room.ws.stat().st_uid)
    config = room.ws / ".git" / "config"
    before = config.read_bytes()
    script = f"git config core.fsmonitor /bin/evil && git config core.fsmonitor; {SLEEP}"
    command = [sys.executable, "-c", SUPERVISOR, msgspec.json.encode(room.spec()).decode(), script, marker]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:  # noqa: ASYNC220
        assert supervisor.stdout is not None
        line = await asyncio.to_thread(supervisor.stdout.readline)
        supervisor.kill()
    assert line == b"ready\n"
    assert any(b"evil" in copy.read_bytes() for copy in room.run.glob("git-*/config"))
    await until(lambda: survivors() == {})
    assert (config.read_bytes(), config.is_symlink()) == (before, False)


async def test_kill_9_of_the_guardian_leaves_nothing_in_the_box(
    room: Any, marker: str, survivors: Survivors, until: Until
) -> None:
    child = await room.begin(f"setsid {SLEEP} & ( env -i setsid {SLEEP} & ); echo ready; wait", marker)
    assert (await child.read())[0] == b"ready"
    guardian = child._hold._process.pid
    os.kill(guardian, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    assert (await child.end()).survivors == 0
    await until(lambda: survivors() == {})


async def test_a_start_that_is_cancelled_leaves_no_box(room: Any, marker: str, survivors: Survivors) -> None:
    for wait_s in (0, 0, 0.01, 0.015, 0.02, 0.025, 0.03, 0.05):  # the cancel falls on every step of the start
        task = asyncio.ensure_future(room.begin("sleep 1000", marker))
        await asyncio.sleep(wait_s)
        task.cancel()
        try:
            child = await task
        except asyncio.CancelledError:
            pass
        else:  # it was there already
            await child.end(stop_s=0)
        assert survivors() == {}
