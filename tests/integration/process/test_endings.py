"""Whatever a child does, its end leaves nothing: counted by a scan of /proc that shares no code with the package."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from leadrope.process import process_tree, reaper
from leadrope.process.child import Child, Ending, start

Starter = Callable[..., Awaitable[Child]]
Survivors = Callable[[], dict[int, str]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

# $1 is the marker; `exec -a` puts it into the argv of a sleep. Each script says "ready" when its tree stands.
SLEEP = 'bash -c "exec -a $1 sleep 1000"'
TREES = {
    "polite": 'trap "exit 0" TERM; echo ready; while :; do sleep 0.05; done',
    "ignores SIGTERM": 'trap "" TERM; echo ready; while :; do sleep 0.05; done',
    "setsid grandchild": f"setsid {SLEEP} & echo ready; wait",
    "double fork": f"( ( {SLEEP} & ) & ) ; echo ready; sleep 1000",
    "cleared environment": f'( env -i "$(command -v setsid)" {SLEEP} & ) ; echo ready; sleep 1000',
    "stopped": f"{SLEEP} & echo ready; kill -STOP $!; kill -STOP $$",
    "holds its stdout full": 'trap "exit 0" TERM; echo ready; yes "$1"',
}
RUNGS = {"polite": "stopped", "ignores SIGTERM": "killed"}

STOP_S = 0.3
ANSWER_S = STOP_S + 1.0
"""An upper bound, not a measurement: on an idle machine the answer comes within 20 ms of the grace."""


async def ready(child: Child) -> None:
    assert (await child.read())[0] == b"ready"


@pytest.mark.fault
@pytest.mark.parametrize("tree", TREES)
async def test_an_ordered_end_leaves_nothing(
    begin: Starter, survivors: Survivors, marker: str, fault_count: int, until: Until, tree: str
) -> None:
    for _ in range(fault_count):
        child = await begin(TREES[tree], marker)
        await ready(child)
        if SLEEP in TREES[tree] and tree != "stopped":  # that one is stopped before it can show its name
            await until(lambda: any(argv.startswith(marker) for argv in survivors().values()))
        assert survivors()
        began = time.monotonic()
        ending = await child.end(stop_s=STOP_S)
        assert time.monotonic() - began < ANSWER_S
        assert survivors() == {}
        assert ending.survivors == 0
        assert ending.rung == RUNGS.get(tree, ending.rung)


@pytest.mark.fault
async def test_a_background_job_does_not_outlive_a_normal_exit(
    begin: Starter, survivors: Survivors, marker: str, fault_count: int
) -> None:
    """Nobody calls end() before the output ends: the job holds stdout, and is killed for its agent's exit alone."""
    for _ in range(fault_count):
        child = await begin(f"( setsid {SLEEP} & ) ; {SLEEP} & echo ready; exit 3", marker)
        await ready(child)
        assert await child.read() == []
        ending = await child.end()
        assert survivors() == {}
        assert (ending.exit_code, ending.rung, ending.leftovers_killed) == (3, "exited", 2)


PTRACE_SEIZE, PTRACE_DETACH, PTRACE_O_TRACEEXIT = 0x4206, 17, 0x40


class Traced:
    """A process whose death we hold back, as a debugger may: the nearest that a test comes to one that cannot die."""

    def __init__(self, pid: int, *, before_exit: bool) -> None:
        self.pid = pid
        self._ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self._ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        assert self._ptrace(PTRACE_SEIZE, pid, None, PTRACE_O_TRACEEXIT if before_exit else 0) == 0, ctypes.get_errno()

    def let_die(self) -> None:
        _, status = os.waitpid(self.pid, 0x40000000)  # __WALL: of a tracee that is not our child
        if os.WIFSTOPPED(status):
            self._ptrace(PTRACE_DETACH, self.pid, None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="ptrace is Linux")
async def test_a_dead_process_that_its_tracer_keeps_holds_nobody_up(
    begin: Starter, survivors: Survivors, marker: str, until: Until
) -> None:
    """`strace -p` on a command of the agent: killed, it stays a zombie that the guardian may not take."""
    child = await begin(f"{SLEEP} & echo ready; wait", marker)
    await ready(child)
    await until(lambda: any(argv.startswith(marker) for argv in survivors().values()))
    pid = next(pid for pid, argv in survivors().items() if argv.startswith(marker))
    traced = Traced(pid, before_exit=False)
    began = time.monotonic()
    ending = await child.end(stop_s=STOP_S)
    assert time.monotonic() - began < ANSWER_S
    assert ending.survivors == 0
    assert survivors() == {}
    traced.let_die()


@pytest.mark.skipif(sys.platform != "linux", reason="ptrace is Linux")
async def test_what_cannot_be_killed_is_told_in_time_and_still_killed_later(
    begin: Starter, survivors: Survivors, marker: str, until: Until
) -> None:
    child = await begin(f"{SLEEP} & echo ready; wait", marker)
    await ready(child)
    await until(lambda: any(argv.startswith(marker) for argv in survivors().values()))
    pid = next(pid for pid, argv in survivors().items() if argv.startswith(marker))
    traced = Traced(pid, before_exit=True)
    guardians = [process.pid for process in process_tree._LATE]
    began = time.monotonic()
    ending = await child.end(stop_s=STOP_S)
    assert time.monotonic() - began < ANSWER_S
    assert (ending.survivors, ending.survivor_names) == (1, ("sleep",))
    late = [process for process in process_tree._LATE if process.pid not in guardians]
    assert len(late) == 1, "its guardian goes on"
    traced.let_die()
    await until(lambda: late[0].poll() is not None)
    assert survivors() == {}


SUPERVISOR = """
import asyncio, os, sys
from leadrope.process.child import start

async def main():
    child = await start(
        ["bash", "-c", sys.argv[1], "child", sys.argv[2]],
        env={"PATH": os.environ["PATH"]}, cwd=sys.argv[3], spool_dir=sys.argv[3],
    )
    await child.read()
    if os.fork() == 0:  # holds a copy of every file descriptor, as a forked worker of a server would
        os.read(0, 1)
        os._exit(0)
    print("ready", flush=True)
    await child.wait()

asyncio.run(main())
"""


@pytest.mark.fault
async def test_kill_9_of_the_supervisor_ends_the_tree(
    survivors: Survivors, marker: str, fault_count: int, until: Until, tmp_path: Path
) -> None:
    """The supervisor has also forked a process that keeps its sockets open; the guardian must not wait for it."""
    tree = f"setsid {SLEEP} & ( ( {SLEEP} & ) & ) ; ( env -i $(command -v setsid) {SLEEP} & ) ; echo ready; wait"
    for _ in range(fault_count):
        supervisor = subprocess.Popen(  # noqa: ASYNC220  # it must not belong to this loop
            [sys.executable, "-c", SUPERVISOR, tree, marker, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with supervisor:
            assert supervisor.stdout is not None
            assert await asyncio.to_thread(supervisor.stdout.readline) == b"ready\n"
            mine = supervisor.pid
            assert len([pid for pid in survivors() if pid != mine]) >= 4
            supervisor.kill()
            # The forked copy of the supervisor is not part of the tree; it ends with its stdin.
            await until(lambda: all(SUPERVISOR[:40] in argv for argv in survivors().values()))
        await until(lambda: survivors() == {})


async def test_end_works_any_number_of_times_and_can_only_be_hurried(
    begin: Starter, survivors: Survivors, marker: str
) -> None:
    child = await begin(TREES["ignores SIGTERM"], marker)
    await ready(child)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        patient = group.create_task(child.end(polite_s=1000, stop_s=1000))
        hasty = group.create_task(child.end(stop_s=0.05))
    assert patient.result() == hasty.result() == await child.end()
    assert patient.result().rung == "killed"
    assert survivors() == {}


async def test_a_child_that_ends_with_its_stdin_is_not_signalled(begin: Starter) -> None:
    child = await begin("trap 'exit 9' TERM; cat; exit 4")
    ending = await child.end(polite_s=10)
    assert ending == Ending(exit_code=4, leftovers_killed=0, survivors=0, rung="closed")


async def test_a_child_blocked_on_a_full_pipe_can_still_end_politely(begin: Starter, until: Until) -> None:
    """Held back by the high water it would never come to read the end of its input."""
    child = await begin(
        "head -c 9000000 /dev/zero | tr '\\0' '\\n' | sed s/^/x/; exit 6", high_water=1000, low_water=10
    )
    await until(lambda: child.pauses > 0)
    ending = await child.end(polite_s=20)
    assert (ending.exit_code, ending.rung) == (6, "closed")
    assert child.discarded_bytes > 0


async def test_cancelling_the_end_twice_leaves_nothing(
    begin: Starter, survivors: Survivors, marker: str, until: Until
) -> None:
    child = await begin(TREES["ignores SIGTERM"], marker)
    await ready(child)
    task = asyncio.create_task(child.end(stop_s=0.1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: survivors() == {})
    assert (await child.end()).rung == "killed"


async def test_a_start_that_is_cancelled_leaves_nothing(begin: Starter, survivors: Survivors, marker: str) -> None:
    for turns in range(6):  # the cancel falls on every await of the start
        task = asyncio.ensure_future(begin(TREES["polite"], marker))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert survivors() == {}


async def test_a_loop_that_is_closed_without_an_end_leaves_nothing(
    survivors: Survivors, marker: str, until: Until, tmp_path: Path
) -> None:
    """An abandoned child: its socket is dropped with it, which its guardian takes for the supervisor's end."""
    supervisor = SUPERVISOR.replace("await child.wait()", "return").replace("os.fork() == 0", "False")
    tree = f"setsid {SLEEP} & echo ready; wait"
    command = [sys.executable, "-c", supervisor, tree, marker, str(tmp_path)]
    done = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True)
    assert done.stdout == b"ready\n"
    await until(lambda: survivors() == {})


async def test_processes_that_fork_and_exit_without_pause_are_caught(
    begin: Starter, survivors: Survivors, marker: str, tmp_path: Path
) -> None:
    """Each lives under a millisecond: a list of pids is old before it is used."""
    script = tmp_path / "comet.py"
    script.write_text(
        "import os\nos.setsid()\nprint('ready', flush=True)\nwhile True:\n    if os.fork():\n        os._exit(0)\n"
    )
    child = await begin(f"{sys.executable} -I -S {script} {marker} & sleep 1000")
    await ready(child)
    ending = await child.end(stop_s=STOP_S)
    assert ending.survivors == 0
    assert survivors() == {}


async def test_an_agent_that_stops_its_guardian_ends_all_the_same(
    begin: Starter, survivors: Survivors, marker: str
) -> None:
    child = await begin(f"{SLEEP} & read; kill -STOP $PPID; echo ready; wait", marker)
    child.write(b"\n")
    await ready(child)
    assert (await child.end(stop_s=STOP_S)).survivors == 0
    assert survivors() == {}


async def test_an_agent_that_kills_its_guardian_dies_with_its_tagged_children(
    begin: Starter, survivors: Survivors, marker: str
) -> None:
    child = await begin(f"setsid {SLEEP} & echo ready; read; kill -KILL $PPID; wait", marker)
    await ready(child)
    child.write(b"\n")
    assert await child.wait() == -signal.SIGKILL
    ending = await child.end()
    assert ending.rung == "killed"
    assert ending.survivors == 0
    assert survivors() == {}


async def test_signals_to_the_agents_own_group_do_not_reach_the_guardian(
    begin: Starter, survivors: Survivors, marker: str, until: Until
) -> None:
    child = await begin(f"setsid {SLEEP} & echo ready; read; kill -KILL 0", marker)
    await ready(child)
    await until(lambda: any(argv.startswith(marker) for argv in survivors().values()))
    child.write(b"\n")
    assert await child.wait() == -signal.SIGKILL
    ending = await child.end()
    assert (ending.rung, ending.leftovers_killed) == ("exited", 1)
    assert survivors() == {}


@pytest.mark.parametrize("tree", [tree for tree in TREES if tree not in {"double fork", "cleared environment"}])
async def test_without_a_guardian_session_and_tag_find_the_tree(
    begin: Starter, survivors: Survivors, marker: str, tree: str
) -> None:
    child = await begin(TREES[tree], marker, guardian=False)
    await ready(child)
    ending = await child.end(stop_s=STOP_S)
    assert ending.survivors == 0
    assert survivors() == {}


async def test_the_tag_finds_and_kills_a_run_and_nothing_else(
    survivors: Survivors, marker: str, tmp_path: Path, until: Until
) -> None:
    env = {"PATH": os.environ["PATH"]}
    runs = [
        await start(
            ["bash", "-c", f"setsid {SLEEP} & echo ready; wait", "child", marker],
            env={**env, reaper.TAG: tag},
            cwd=str(tmp_path),
            spool_dir=str(tmp_path),
        )
        for tag in (marker, marker + "2")
    ]
    for run in runs:
        await ready(run)
    # The guardian carries the tag too, as does everything below it.
    assert len(reaper.tagged(marker)) >= 3
    assert reaper.kill_tagged(marker) >= 2  # the agent may die with its guardian before its own turn comes
    assert reaper.tagged(marker) == []
    assert len(reaper.tagged(marker + "2")) >= 3
    for run in runs:
        await run.end()
    assert survivors() == {}


def test_the_reaper_never_signals_itself_or_its_ancestors() -> None:
    """A supervisor started inside a run carries that run's tag."""
    assert not reaper.kill(os.getpid(), still=lambda _: True)
    assert not reaper.kill(os.getppid(), still=lambda _: True)
    assert not reaper.kill(1, still=lambda _: True)
    with pytest.raises(ValueError, match="empty tag"):
        reaper.kill_tagged("")


def test_a_pid_that_is_no_longer_the_same_process_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert not reaper.kill(process.pid, still=lambda _: False)
        assert process.poll() is None
        assert reaper.kill(process.pid, still=lambda pid: pid == process.pid)
    assert process.returncode == -signal.SIGKILL
