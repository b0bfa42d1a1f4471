"""Shells that are started before their script is known: a script cannot tell them from others."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope.process.command_pool import client
from leadrope.process.command_pool.failures import CommandLost, PoolGone
from leadrope.process.sandbox import availability
from leadrope.runtime.commands import Commands

Until = Callable[[Callable[[], bool]], Awaitable[None]]
SCRIPTS = [
    "echo hello; echo oops >&2",
    "exit 3",
    "nosuchprogram a b",
    "set -e; false; echo never",
    "echo 1\nnosuchprogram\necho $LINENO",
    "cat <<END\n$((1 + 1)) `echo x` $(echo y)\nEND",
    "echo $0 $# $- ${x-unset} ${REPLY-unset}",
    "cat; echo end of input",
    "trap 'echo bye' EXIT; echo hi",
    "kill -TERM $$",
    "f() { return 4; }; f",
    "ls /proc/self/fd",
    "# nothing at all",
    "exec ls nowhere",
    "printf '%s|' \"a  b\" 'c\\n' é",
    "(sleep 1000 &) ; echo left one behind",
    "env | grep -v ^_= | sort",
    "umask; ulimit -c; pwd",
    "echo first\nif true; then echo second; fi\nshopt -s extglob\ncase ab in +(a|b)) echo third ;; esac",
    "set -u; echo ${__script-unset}; echo $nothing",
]


def _environ(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LEADROPE_HOME": str(folder / "leadrope")}


def _take_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine on which boxes do not work."""
    monkeypatch.setattr(availability, "_known", availability.SandboxAvailability(ok=False, reason="not here"))


@pytest.fixture(params=["in a sandbox", "without a sandbox"])
async def commands(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Commands]:
    if request.param == "without a sandbox":
        _take_sandbox(monkeypatch)
    ws = tmp_path / "ws"
    ws.mkdir()
    async with Commands(ws, environ=_environ(tmp_path)) as opened:
        if request.param == "without a sandbox":
            assert not opened.is_sandboxed
        yield opened


async def test_a_script_does_the_same_in_a_shell_that_has_waited_for_it(commands: Commands) -> None:
    for script in SCRIPTS:
        # The variable that is given is one that no waiting shell has, so this one is started for its script alone.
        alone = await commands.shell(script, env={"ALONE": ""})
        waited = await commands.shell(script)
        told = alone.stdout.replace(b"ALONE=\n", b"")
        assert (waited.exit_code, waited.stdout, waited.stderr) == (alone.exit_code, told, alone.stderr), script
        assert waited.leftovers == alone.leftovers, script


@pytest.mark.parametrize("script", ["if", 'echo "a', ")"])
async def test_a_script_that_is_none_ends_the_same(commands: Commands, script: str) -> None:
    await commands.shell("true")
    await commands.shell("true")
    alone = await commands.shell(script, env={"ALONE": ""})
    waited = await commands.shell(script)
    assert waited.exit_code == alone.exit_code == 2
    assert b"syntax error" in waited.stderr or b"unexpected EOF" in waited.stderr


KILLER = """
for p in /proc/[0-9]*; do
  p=${p#/proc/}
  [ $p != $$ ] && grep -qs 'read -r __script' /proc/$p/cmdline && kill -9 $p
done
"""


@pytest.mark.fault
async def test_a_waiting_shell_that_was_killed_is_replaced(commands: Commands, fault_count: int) -> None:
    """The commands of a workspace are of one user, and one can kill what waits for the next.

    The next is given at once, when the end of what waited for it may not be known yet; it runs once.
    """
    await commands.shell("true")
    await commands.shell("true")
    for number in range(fault_count):
        done = await commands.shell(KILLER + "echo killed")
        assert done.stdout == b"killed\n"
        next_one = await commands.shell(f"echo {number} | tee -a ran")
        assert (next_one.exit_code, next_one.stdout) == (0, b"%d\n" % number)
    assert (commands.cwd / "ran").read_text().split() == [str(number) for number in range(fault_count)]


async def test_a_script_that_is_killed_after_it_began_is_not_run_again(commands: Commands) -> None:
    await commands.shell("true")
    await commands.shell("true")
    done = await commands.shell("echo once >> ran; kill -9 $$")
    assert done.exit_code == -9
    assert (commands.cwd / "ran").read_text() == "once\n"


async def test_time_and_size_count_for_a_script_that_was_waited_for(commands: Commands) -> None:
    await commands.shell("true")
    await commands.shell("true")
    late = await commands.shell("echo begun; sleep 1000", timeout_s=0.5)
    assert (late.timed_out, late.stdout) == (True, b"begun\n")
    seen: list[Any] = []
    large = await commands.shell(
        "head -c 100000 /dev/zero", limit_bytes=1000, on_output=lambda stream, data: seen.append((stream, len(data)))
    )
    assert (large.truncated, len(large.stdout), sum(size for _, size in seen)) == (True, 1000, 1000)
    long = "# " + "x" * 40_000 + "\necho long"
    assert (await commands.shell(long)).stdout == b"long\n"


async def test_what_waits_for_its_turn_has_no_shell_yet(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_AT_ONCE", 3)
    script = "touch run-$$; sleep 0.02; ls run-* | wc -l; rm run-$$"
    done = await asyncio.gather(*(commands.shell(script) for _ in range(20)))
    assert {int(one.stdout) for one in done} <= {1, 2, 3}


async def test_a_worker_that_was_busy_when_code_first_came_is_given_none(commands: Commands, until: Until) -> None:
    os.mkfifo(commands.cwd / "go")
    busy = asyncio.create_task(commands.run(["bash", "-c", "touch begun; read x <go"]))
    await until((commands.cwd / "begun").exists)
    assert (await commands.code("result = 1", {})).value == 1
    await asyncio.to_thread((commands.cwd / "go").write_text, "on\n")
    await busy
    assert (await commands.code("result = 2", {})).value == 2


async def test_an_answer_that_code_blows_up_is_cut(commands: Commands) -> None:
    done = await commands.code("import os; os.ftruncate(3, 5000); os._exit(0)", {}, limit_bytes=1000)
    assert done.error is not None
    assert (done.error.kind, len(done.answer)) == ("code_failed", 1000)


def descriptors() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


async def test_no_descriptor_is_left_of_a_shell_that_nobody_took(tmp_path: Path) -> None:
    before = descriptors()
    async with Commands(tmp_path, environ=_environ(tmp_path)) as commands:
        for _ in range(3):
            await commands.shell("true")
    assert descriptors() == before


async def test_a_shell_of_a_pool_that_died_unheard_is_dropped(tmp_path: Path) -> None:
    before = descriptors()
    async with Commands(tmp_path, environ=_environ(tmp_path)) as commands:
        for _ in range(3):
            await commands.shell("true")
        assert commands._place is not None
        assert commands._place.pool is not None
        pool = commands._place.pool
        os.kill(pool._child.pid, signal.SIGKILL)
        while not _has_ended(pool._sock):  # the loop hears nothing meanwhile
            pass
        assert (await commands.shell("echo on")).stdout == b"on\n"
    assert descriptors() == before


def _has_ended(channel: socket.socket) -> bool:
    try:
        return channel.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_nothing_is_started_behind_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until) -> None:
    monkeypatch.setattr(client, "MOST_AT_ONCE", 1)
    ran = tmp_path / "ran"
    async with Commands(tmp_path, environ=_environ(tmp_path)) as commands:
        running = [asyncio.create_task(commands.shell("echo >>ran; sleep 1000")) for _ in range(3)]
        await until(ran.exists)
    found = await asyncio.gather(*running, return_exceptions=True)
    assert [type(one) for one in found] == [CommandLost, PoolGone, PoolGone]
    assert ran.read_text() == "\n"


async def test_a_shell_waits_in_the_folder_that_the_workspace_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sandbox, which holds the folder in its place, a command can put another there."""
    _take_sandbox(monkeypatch)
    ws = tmp_path / "ws"
    ws.mkdir()
    async with Commands(ws, environ=_environ(tmp_path)) as commands:
        assert not commands.is_sandboxed
        for _ in range(2):
            await commands.shell("true")
        await commands.shell("cd ..; mv ws old; mkdir ws")
        await commands.shell("touch here")
    assert (ws / "here").exists()
