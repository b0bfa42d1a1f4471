"""A pool with real commands in it: what they say, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.process import child as processes
from leadrope.process.command_pool import client
from leadrope.process.command_pool.client import CommandPool, PoolListener
from leadrope.process.command_pool.command import Finished
from leadrope.process.command_pool.failures import CommandLost, NotStarted, PoolGone

Survivors = Callable[[], dict[int, str]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
MIB = 1024 * 1024


class Bench:
    """A pool without a sandbox, and scripts of bash in it."""

    def __init__(self, pool: CommandPool, folder: Path) -> None:
        self.pool = pool
        self.folder = folder

    async def sh(self, script: str, *words: str, **options: Any) -> Finished:
        body = {
            "argv": ["bash", "-c", script, "bash", *words],
            "cwd": str(self.folder),
            "env": {"PATH": os.environ["PATH"]},
        }
        async with self.pool.places:
            return await self.pool.run({**body, **options.pop("body", {})}, **options)


async def opened(folder: Path) -> CommandPool:
    inside = folder / "pool"
    inside.mkdir(exist_ok=True)
    script = client.install_scripts(inside)
    door = PoolListener(inside)
    argv = [sys.executable, "-IS", "-Xutf8", str(script), str(inside)]
    child = await processes.start(argv, env={"PATH": os.environ["PATH"]}, cwd=str(folder), spool_dir=str(folder))
    return await door.open(child)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    pool = await opened(tmp_path)
    yield Bench(pool, tmp_path)
    await pool.close()


# -- what a command gives ---------------------------------------------------------------------------------------------


async def test_output_exit_code_input_and_environment_are_the_commands_own(bench: Bench) -> None:
    done = await bench.sh('cat; echo "$X" >&2; exit 3', stdin=b"in", body={"env": {"PATH": "/bin", "X": "y"}})
    assert done == Finished(exit_code=3, stdout=b"in", stderr=b"y\n")
    seen = await bench.pool.run({"argv": ["/usr/bin/env"], "cwd": "/", "env": {"ONLY": "this"}})
    assert seen.stdout == b"ONLY=this\n"


async def test_a_command_gets_three_descriptors_and_no_other(bench: Bench) -> None:
    text = "import os, sys; print(sorted(os.listdir('/proc/self/fd')))"
    done = await bench.pool.run({"argv": [sys.executable, "-c", text], "cwd": "/", "env": {}})
    assert done.stdout == b"['0', '1', '2', '3']\n"  # the last is that of the look itself
    beside = asyncio.create_task(bench.sh("read x", stdin=b"", body={}))
    done = await bench.pool.run({"argv": [sys.executable, "-c", text], "cwd": "/", "env": {}})
    assert done.stdout == b"['0', '1', '2', '3']\n"
    await beside


async def test_a_signal_is_told_as_a_negative_code(bench: Bench) -> None:
    assert (await bench.sh("kill -9 $$")).exit_code == -9


async def test_five_megabytes_come_whole(bench: Bench) -> None:
    done = await bench.sh("head -c 5000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero >&2")
    assert (done.stdout, done.stderr, done.truncated) == (b"x" * 5000000, b"\0" * 3000000, False)


async def test_a_flood_is_read_to_its_end_and_cut(bench: Bench) -> None:
    heard: list[bytes] = []
    done = await bench.sh(
        "head -c 30000000 /dev/zero; echo end >&2", limit_bytes=1000, on_output=lambda _, data: heard.append(data)
    )
    assert (len(done.stdout), done.stderr, done.truncated, done.exit_code) == (1000, b"end\n", True, 0)
    assert sum(map(len, heard)) == 1000 + len(b"end\n")


async def test_any_bytes_pass(bench: Bench) -> None:
    data = bytes(range(256)) * 500
    assert (await bench.sh("cat", stdin=data)).stdout == data


async def test_a_large_input_is_written_as_it_is_taken(bench: Bench) -> None:
    data = os.urandom(3 * MIB)
    assert (await bench.sh("cat", stdin=data)).stdout == data


async def test_an_input_that_nobody_reads_holds_nobody(bench: Bench) -> None:
    done = await bench.sh("exit 0", stdin=b"x" * 3 * MIB)
    assert (done.exit_code, done.truncated) == (0, False)


async def test_a_script_may_be_longer_than_an_argument(bench: Bench) -> None:
    script = "# " + "x" * 300_000 + "\necho done $0"
    body = {"argv": ["bash"], "script": script, "cwd": "/", "env": {"PATH": os.environ["PATH"]}}
    assert (await bench.pool.run(body)).stdout.startswith(b"done")


async def test_a_hundred_at_once_keep_apart(bench: Bench) -> None:
    done = await asyncio.gather(*(bench.sh('read x; echo "$x-$1"', str(n), stdin=b"%d" % n) for n in range(100)))
    assert [one.stdout for one in done] == [b"%d-%d\n" % (n, n) for n in range(100)]


async def test_more_than_the_pool_takes_wait_for_their_turn(bench: Bench) -> None:
    done = await asyncio.gather(*(bench.sh("echo a") for _ in range(client.MOST_AT_ONCE + 20)))
    assert {one.stdout for one in done} == {b"a\n"}


async def test_where_descriptors_are_few_more_commands_wait(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        pool = await opened(tmp_path)
        bench = Bench(pool, tmp_path)
        done = await asyncio.gather(*(bench.sh("read x; echo $x", stdin=b"a") for _ in range(60)))
        await pool.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {one.stdout for one in done} == {b"a\n"}


async def test_a_stalled_command_holds_up_nobody(bench: Bench) -> None:
    stalled = asyncio.create_task(bench.sh("yes | sleep 1000"))
    assert (await bench.sh("echo a")).stdout == b"a\n"
    stalled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stalled


# -- what cannot be started -------------------------------------------------------------------------------------------


async def test_what_is_missing_is_named(bench: Bench, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    with pytest.raises(NotStarted, match="no such program") as caught:
        await bench.pool.run({"argv": ["leadrope-no-such"], "cwd": "/", "env": env})
    assert caught.value.what == "program"
    with pytest.raises(NotStarted, match="working directory") as caught:
        await bench.pool.run({"argv": ["true"], "cwd": str(tmp_path / "gone"), "env": env})
    assert caught.value.what == "cwd"
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    with pytest.raises(NotStarted, match="may not be executed"):
        await bench.pool.run({"argv": [str(plain)], "cwd": "/", "env": env})
    with pytest.raises(NotStarted, match="too long"):
        await bench.pool.run({"argv": ["echo", "x" * 200_000], "cwd": "/", "env": env})
    assert (await bench.sh("echo still here")).exit_code == 0


async def test_a_pool_that_does_not_come_up_is_an_error(tmp_path: Path) -> None:
    inside = tmp_path / "pool"
    inside.mkdir()
    door = PoolListener(inside)
    child = await processes.start(
        ["bash", "-c", "echo no such thing >&2; exit 1"],
        env={"PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
        spool_dir=str(tmp_path),
    )
    with pytest.raises(errors.SpawnFailed, match="did not come up"):
        await door.open(child)
    await child.end()
    assert not (inside / "pool.sock").exists()


# -- endings ----------------------------------------------------------------------------------------------------------

SLEEP = 'bash -c "exec -a $1 sleep 1000"'
LEAVERS = {
    "a background job": f"{SLEEP} &",
    "one with its own session": f"setsid {SLEEP} &",
    "a double fork": f"( ( {SLEEP} & ) & )",
    "a cleared environment": f'( env -i "$(command -v setsid)" {SLEEP} & )',
    "one that ignores SIGTERM": f"( trap '' TERM; {SLEEP} & )",
}


@pytest.mark.parametrize("leaver", LEAVERS)
async def test_what_a_command_leaves_is_ended_and_counted(
    bench: Bench, survivors: Survivors, marker: str, leaver: str
) -> None:
    wait = 'until pgrep -f "^$1 1000" >/dev/null; do :; done'
    done = await bench.sh(f"{LEAVERS[leaver]}\n{wait}; echo said; exit 4", marker)
    assert (done.exit_code, done.stdout, done.leftovers, done.survivors) == (4, b"said\n", 1, 0)
    assert survivors() == {}


async def test_a_time_out_ends_the_whole_tree_even_if_it_ignores_sigterm(
    bench: Bench, survivors: Survivors, marker: str
) -> None:
    done = await bench.sh(f"trap '' TERM; echo before; setsid {SLEEP} & wait; sleep 1000", marker, timeout_s=0.5)
    assert (done.timed_out, done.stdout) == (True, b"before\n")
    assert done.exit_code != 0
    assert survivors() == {}


async def test_a_time_out_lets_a_polite_command_say_goodbye(bench: Bench) -> None:
    done = await bench.sh('trap "echo bye; exit 5" TERM; echo hi; while :; do sleep 0.05; done', timeout_s=0.5)
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 5, b"hi\nbye\n")


async def test_a_cancelled_command_is_gone_when_the_cancellation_comes_through(
    bench: Bench, survivors: Survivors, marker: str, until: Until
) -> None:
    task = asyncio.create_task(bench.sh(f"setsid {SLEEP} & wait", marker))
    await until(lambda: any(argv.startswith(marker) for argv in survivors().values()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert survivors() == {}
    assert (await bench.sh("echo on")).stdout == b"on\n"


@pytest.mark.fault
async def test_a_command_that_is_cancelled_at_once_is_stopped_and_the_next_is_not(
    bench: Bench, survivors: Survivors, marker: str, fault_count: int
) -> None:
    """The order to stop may reach a worker before its command does, or after it has ended."""
    async with asyncio.timeout(120):
        for number in range(4 * fault_count):
            is_long = bool(number % 2)
            task = asyncio.create_task(bench.sh(f"exec {SLEEP if is_long else 'true'}", marker))
            for _ in range(number % 7):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() or not is_long
            assert survivors() == {}
            assert (await bench.sh("sleep 0.002; echo whole")).stdout == b"whole\n"


async def test_two_cancellations_only_end_the_waiting(
    bench: Bench, survivors: Survivors, marker: str, until: Until
) -> None:
    task = asyncio.create_task(bench.sh(f"trap '' TERM; {SLEEP} & wait; sleep 1000", marker))
    await until(lambda: any(argv.startswith(marker) for argv in survivors().values()))
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: survivors() == {})


async def test_a_worker_that_was_stopped_is_woken_to_be_ended(bench: Bench) -> None:
    done = await bench.sh("kill -STOP $PPID; sleep 1000", timeout_s=0.5)
    assert done.timed_out


async def test_a_pool_that_was_stopped_is_ended_with_all_that_is_in_it(
    tmp_path: Path, survivors: Survivors, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "UNHEARD_S", 1.0)
    pool = await opened(tmp_path)
    stop = f"{SLEEP} & read _ _ _ pool _ </proc/$PPID/stat; kill -STOP $pool; wait"
    with pytest.raises(CommandLost):
        await Bench(pool, tmp_path).sh(stop, marker, timeout_s=0.2)
    await pool.close()
    assert survivors() == {}


async def test_after_input_that_nobody_read_other_input_arrives(bench: Bench) -> None:
    for _ in range(3):
        assert (await bench.sh("exit 0", stdin=b"x" * 3 * MIB)).exit_code == 0
    assert len((await bench.sh("cat", stdin=b"x" * 3 * MIB)).stdout) == 3 * MIB


async def test_a_pipe_that_somebody_outside_holds_is_let_go(bench: Bench, tmp_path: Path) -> None:
    fifo = tmp_path / "pass"
    os.mkfifo(fifo)
    # Somebody outside of the tree opens the command's stdout through /proc and keeps it.
    holder = await asyncio.create_subprocess_exec(
        "bash", "-c", f"read pid <{fifo}; exec 9>/proc/$pid/fd/1; echo ok >{fifo}; sleep 1000"
    )
    done = await bench.sh(f"echo hi; echo $$ >{fifo}; read x <{fifo}")
    assert (done.exit_code, done.stdout) == (0, b"hi\n")
    holder.kill()
    await holder.wait()


async def test_a_command_that_kills_its_worker_is_told_and_leaves_nothing(
    bench: Bench, survivors: Survivors, marker: str, until: Until
) -> None:
    beside = asyncio.create_task(bench.sh("read x; echo $x; sleep 0.2; echo end", stdin=b"beside"))
    with pytest.raises(CommandLost, match="held this command"):
        await bench.sh(
            f"setsid {SLEEP} & until pgrep -f '^'$1' 1000' >/dev/null; do :; done; kill -9 $PPID; sleep 1000", marker
        )
    assert survivors() == {}
    assert (await beside).stdout == b"beside\nend\n"
    assert not bench.pool.is_lost


@pytest.mark.fault
async def test_nothing_is_left_of_a_chain_whose_links_die_one_by_one(
    bench: Bench, survivors: Survivors, marker: str, fault_count: int
) -> None:
    # Each link is the child of one that dies in the same sweep.
    last = bench.folder / "link0"
    last.write_text("exec -a $1 sleep 1000")
    for number in range(1, 6):
        link = bench.folder / f"link{number}"
        link.write_text(f"setsid bash {last} $1 & wait")
        last = link
    begin = f"bash {last} $1 & until pgrep -f '^'$1' 1000' >/dev/null; do :; done"
    for _ in range(fault_count):
        done = await bench.sh(begin, marker)
        assert done.survivors == 0
        assert survivors() == {}
        with pytest.raises(CommandLost, match="held this command"):
            await bench.sh(f"{begin}; kill -9 $PPID; sleep 1000", marker)
        assert survivors() == {}


async def test_a_pool_that_is_killed_fails_all_that_runs_in_it(
    tmp_path: Path, survivors: Survivors, marker: str, until: Until
) -> None:
    pool = await opened(tmp_path)
    bench = Bench(pool, tmp_path)
    running = [asyncio.create_task(bench.sh(f"setsid {SLEEP} & wait", marker)) for _ in range(3)]
    await until(lambda: sum(argv.startswith(marker) for argv in survivors().values()) == 3)
    with pytest.raises(CommandLost, match="ended while this one ran"):
        await bench.sh("read _ _ _ pool _ </proc/$PPID/stat; kill -9 $pool; sleep 1000")
    for task in running:
        with pytest.raises(CommandLost):
            await task
    with pytest.raises(PoolGone):
        await bench.sh("true")
    await pool.close()
    assert survivors() == {}


async def test_a_pool_that_is_dead_and_has_not_told_so_takes_no_command(tmp_path: Path) -> None:
    pool = await opened(tmp_path)
    script = "read x; read _ _ _ pool _ </proc/$PPID/stat; echo $pool $PPID"
    told = await asyncio.gather(*(Bench(pool, tmp_path).sh(script, stdin=b"a") for _ in range(2)))
    pids = {int(pid) for one in told for pid in one.stdout.split()}
    os.kill(int(told[0].stdout.split()[0]), signal.SIGKILL)
    while any(Path(f"/proc/{pid}").exists() for pid in pids):  # the loop hears nothing meanwhile
        pass
    with pytest.raises(PoolGone):
        await Bench(pool, tmp_path).sh("true")
    assert pool.is_lost
    await pool.close()


def is_gone(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


async def test_an_idle_worker_that_was_killed_costs_no_command(bench: Bench) -> None:
    worker = int((await bench.sh("echo $PPID")).stdout)
    os.kill(worker, signal.SIGKILL)
    while not is_gone(worker):
        pass
    assert (await bench.sh("echo on; echo $PPID")).stdout.splitlines()[0] == b"on"


async def test_output_is_heard_while_the_command_runs(bench: Bench, until: Until) -> None:
    heard: list[tuple[str, bytes]] = []
    script = "echo out; echo err >&2; read x <go; echo $x"
    os.mkfifo(bench.folder / "go")
    task = asyncio.create_task(bench.sh(script, on_output=lambda stream, data: heard.append((stream, data))))
    await until(lambda: len(heard) == 2)
    assert sorted(heard) == [("stderr", b"err\n"), ("stdout", b"out\n")]
    await asyncio.to_thread((bench.folder / "go").write_text, "on\n")
    assert (await task).stdout == b"out\non\n"


async def test_no_descriptor_is_left(tmp_path: Path) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    pool = await opened(tmp_path)
    bench = Bench(pool, tmp_path)
    env = {"PATH": os.environ["PATH"]}
    for body in ({"argv": ["bash"]}, {"argv": ["bash"], "letter": b""}):
        pool.spare({**body, "cwd": "/", "env": env}).drop()
    spare = pool.spare({"argv": ["bash"], "cwd": "/", "env": env})
    done = await spare.run("echo a", timeout_s=None, limit_bytes=100, on_output=None)
    assert done is not None and done.stdout == b"a\n"  # noqa: PT018
    with pytest.raises(NotStarted):
        await pool.run({"argv": ["leadrope-no-such"], "cwd": "/", "env": env})
    await asyncio.gather(*(bench.sh("echo a", stdin=b"x" * 200_000) for _ in range(10)))
    pool.spare({"argv": ["bash"], "cwd": "/", "env": env}).drop()
    await pool.close()
    assert sorted(Path("/proc/self/fd").iterdir()) == before


async def test_a_closed_pool_leaves_nothing(tmp_path: Path, survivors: Survivors, marker: str, until: Until) -> None:
    pool = await opened(tmp_path)
    task = asyncio.create_task(Bench(pool, tmp_path).sh(f"trap '' TERM; setsid {SLEEP} & wait", marker))
    await until(lambda: any(argv.startswith(marker) for argv in survivors().values()))
    await pool.close()
    with pytest.raises(CommandLost):
        await task
    assert survivors() == {}


SUPERVISOR = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_command_pool

async def main():
    pool = await test_command_pool.opened(Path({folder!r}))
    bench = test_command_pool.Bench(pool, Path({folder!r}))
    trees = test_command_pool.LEAVERS.values()
    await asyncio.gather(*(bench.sh(tree + "\\n sleep 1000", {marker!r}) for tree in trees))

asyncio.run(main())
"""


@pytest.mark.fault
async def test_nothing_survives_a_supervisor_that_is_killed(
    tmp_path: Path, survivors: Survivors, marker: str, until: Until, fault_count: int
) -> None:
    for number in range(fault_count):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = SUPERVISOR.format(tests=str(Path(__file__).parent), folder=str(folder), marker=marker)
        supervisor = subprocess.Popen([sys.executable, "-c", text], start_new_session=True)  # noqa: ASYNC220
        try:
            await until(lambda: sum(argv.startswith(f"{marker} 1000") for argv in survivors().values()) == len(LEAVERS))
        finally:
            supervisor.send_signal(signal.SIGKILL)
            supervisor.wait()
        await until(lambda: survivors() == {})
