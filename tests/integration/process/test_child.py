"""A child's lines, its input, its stderr and its exit, with real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.process import child as children
from leadrope.process.child import Child
from leadrope.process.lines import Line, Spooled

Starter = Callable[..., Awaitable[Child]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

both_holds = pytest.mark.parametrize("guardian", [True, False], ids=["guarded", "bare"])


async def all_lines(child: Child) -> list[Line]:
    lines: list[Line] = []
    while batch := await child.read():
        lines += batch
    return lines


@both_holds
async def test_lines_stderr_and_exit_code(begin: Starter, guardian: bool) -> None:
    heard: list[str] = []
    child = await begin(
        'echo one; printf "two\\r\\nthree"; echo problem >&2; exit 7', guardian=guardian, on_stderr_line=heard.append
    )
    assert await all_lines(child) == [b"one", b"two", b"three"]
    assert await child.wait() == 7
    ending = await child.end()
    assert (ending.exit_code, ending.rung, ending.leftovers_killed, ending.survivors) == (7, "exited", 0, 0)
    assert child.stderr_head == child.stderr_tail == ("problem",) == tuple(heard)
    assert await child.read() == []


@both_holds
async def test_pid_is_the_agents_own_and_it_leads_its_own_session(begin: Starter, guardian: bool) -> None:
    child = await begin('echo $$; read; cut -d" " -f6 /proc/$$/stat', guardian=guardian)
    assert await child.read() == [str(child.pid).encode()]
    child.write(b"\n")
    assert await all_lines(child) == [str(child.pid).encode()]
    await child.end()


@both_holds
async def test_the_environment_is_exactly_what_was_given(tmp_path: Path, guardian: bool) -> None:
    """The guardian is a Python, which adds LC_CTYPE to its own environment under the C locale."""
    env = {"PATH": os.environ["PATH"], "LEADROPE_RUN": "r1", "ODD": "a=b\nc \udcff"}
    child = await children.start(["env", "-0"], env=env, cwd=str(tmp_path), spool_dir=str(tmp_path), guardian=guardian)
    output = b"\n".join(bytes(line) for line in await all_lines(child) if not isinstance(line, Spooled))
    assert dict(entry.split(b"=", 1) for entry in output.split(b"\0") if entry) == {
        os.fsencode(name): os.fsencode(value) for name, value in env.items()
    }
    await child.end()


@both_holds
async def test_signals_have_their_defaults(begin: Starter, guardian: bool) -> None:
    """Python ignores SIGPIPE; an agent that inherited this would not end with its reader."""
    child = await begin("grep -E 'Sig(Ign|Blk)' /proc/self/status", guardian=guardian)
    ignored = [bytes(line).split()[1] for line in await all_lines(child) if not isinstance(line, Spooled)]
    # What this process itself was handed ignored (by nohup, say) is handed on; what Python ignores is not.
    by_python = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    handed_on = int(re.findall(r"SigIgn:\s*(\w+)", Path("/proc/self/status").read_text())[0], 16) & ~by_python
    assert [int(mask, 16) & ~handed_on for mask in ignored] == [0, 0]
    await child.end()


async def test_a_signal_is_a_negative_exit_code(begin: Starter) -> None:
    child = await begin("kill -SEGV $$")
    assert await child.wait() == -11
    assert (await child.end()).exit_code == -11


async def test_what_is_not_utf8_passes_unchanged(begin: Starter) -> None:
    child = await begin("printf '\\xff\\xfe\\n\\xc3\\n'; printf '\\xff bad\\n' >&2")
    assert await all_lines(child) == [b"\xff\xfe", b"\xc3"]
    await child.end()
    assert child.stderr_tail == ("\ufffd bad",)


@both_holds
async def test_a_slow_consumer_holds_the_child_and_loses_nothing(
    begin: Starter, until: Until, tmp_path: Path, guardian: bool
) -> None:
    script = tmp_path / "flood.py"
    script.write_text("import sys\nfor n in range(50_000): sys.stdout.write(f'{n:0300}\\n')\n")
    child = await begin(
        f"exec {sys.executable} -I -S {script}", guardian=guardian, high_water=1 << 20, low_water=1 << 18
    )
    await until(lambda: child.pauses == 1)  # 15 MB want to come; nobody takes them
    lines: list[Line] = []
    while len(lines) < 10_000:
        lines += await child.read()
    await until(lambda: child.pauses == 2)  # it went on, and is held again
    assert child.exit_code is None
    lines += await all_lines(child)
    assert [int(bytes(line)) for line in lines if not isinstance(line, Spooled)] == list(range(50_000))
    assert (await child.end()).exit_code == 0


async def test_a_line_over_the_limit_comes_as_a_file_and_the_run_goes_on(begin: Starter) -> None:
    child = await begin("echo first; head -c 70000000 /dev/zero; echo; head -c 40000000 /dev/zero; echo; echo last")
    first, long, large, last = await all_lines(child)
    assert (first, last) == (b"first", b"last")
    assert isinstance(large, bytearray)
    assert len(large) == 40_000_000
    assert isinstance(long, Spooled)
    assert long.size == Path(long.path).stat().st_size == 70_000_000
    assert stat.S_IMODE(Path(long.path).stat().st_mode) == 0o600
    Path(long.path).unlink()
    await child.end()


async def test_stderr_is_kept_in_bounds(begin: Starter) -> None:
    child = await begin("for i in $(seq 200); do echo line $i >&2; done; head -c 1000000 /dev/zero | tr '\\0' x >&2")
    await child.wait()
    await child.end()
    assert child.stderr_head == tuple(f"line {n}" for n in range(1, 21))
    assert len(child.stderr_tail) == 50
    assert child.stderr_tail[0] == "line 152"
    assert child.stderr_tail[-1] == "x" * 4096


async def test_input_is_written_and_drained(begin: Starter) -> None:
    child = await begin("wc -c")
    for _ in range(40):
        child.write(b"x" * 100_000)
        await child.drain()
    child.close_input()
    assert await all_lines(child) == [b"4000000"]
    await child.end()


@both_holds
async def test_writing_to_a_child_that_has_exited_is_a_named_error(begin: Starter, guardian: bool) -> None:
    child = await begin("exit 0", guardian=guardian)
    await child.wait()
    await child.end()
    with pytest.raises(errors.RunClosed, match="no longer reads its input"):
        child.write(b"late")


async def test_a_writer_that_waits_learns_that_the_input_was_closed(begin: Starter) -> None:
    child = await begin("exec 0<&-; echo closed; trap 'exit 0' TERM; while :; do sleep 0.05; done")
    assert await child.read() == [b"closed"]

    async def write_on() -> None:
        while True:
            child.write(b"x" * 1_000_000)
            await child.drain()
            await asyncio.sleep(0)

    with pytest.raises(errors.RunClosed):
        await write_on()
    await child.end()


async def test_closing_stdout_ends_the_output_but_not_the_child(begin: Starter) -> None:
    child = await begin("echo bye; exec 1>&-; read; exit 5")
    assert await all_lines(child) == [b"bye"]
    assert child.exit_code is None
    child.write(b"\n")
    assert await child.wait() == 5
    await child.end()


@both_holds
async def test_a_program_that_does_not_exist_is_not_found(tmp_path: Path, guardian: bool) -> None:
    for program in (str(tmp_path / "missing"), "./missing", "no-such-program-anywhere"):
        with pytest.raises(errors.CliNotFound, match=r"does not exist|not on the PATH"):
            await children.start(
                [program], env={"PATH": "/bin"}, cwd=str(tmp_path), spool_dir=str(tmp_path), guardian=guardian
            )


@both_holds
@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        ("#!/bin/sh\n", 0o600, "may not be executed"),
        ("not a program", 0o700, "not a program that this system can run"),
        ("#!/no/such/interpreter\n", 0o700, "interpreter or loader"),
    ],
    ids=["mode", "format", "interpreter"],
)
async def test_a_file_that_cannot_be_executed_says_why(
    tmp_path: Path, guardian: bool, content: str, mode: int, message: str
) -> None:
    program = tmp_path / "program"
    program.write_text(content)
    program.chmod(mode)
    with pytest.raises(errors.SpawnFailed, match=message):
        await children.start(
            ["./program"], env={"PATH": "/bin"}, cwd=str(tmp_path), spool_dir=str(tmp_path), guardian=guardian
        )


@both_holds
async def test_a_working_directory_that_has_vanished_is_named(tmp_path: Path, guardian: bool) -> None:
    with pytest.raises(errors.BadDirectory, match="vanished"):
        await children.start(
            ["/bin/true"], env={}, cwd=str(tmp_path / "vanished"), spool_dir=str(tmp_path), guardian=guardian
        )


async def test_arguments_that_are_too_long_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(errors.SpawnFailed, match="too long"):
        await children.start(["/bin/true", "x" * 200_000], env={}, cwd=str(tmp_path), spool_dir=str(tmp_path))


def test_a_child_started_from_a_thread_that_ends_lives_on(begin: Starter) -> None:
    """PDEATHSIG fires when the spawning thread ends, not the process; the guardian must not depend on it."""
    loop = asyncio.new_event_loop()
    started: list[Child] = []

    def spawn() -> None:
        started.append(loop.run_until_complete(begin("read; echo alive")))

    thread = threading.Thread(target=spawn)
    thread.start()
    thread.join()

    async def finish() -> list[Line]:
        started[0].write(b"\n")
        lines = await all_lines(started[0])
        await started[0].end()
        return lines

    try:
        assert loop.run_until_complete(finish()) == [b"alive"]
    finally:
        loop.close()


async def test_a_second_reader_is_refused_and_the_first_reads_on(begin: Starter) -> None:
    """Each would get a part of the lines."""
    child = await begin("read; echo one")
    first = asyncio.create_task(child.read())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one reader"):
        await child.read()
    child.write(b"\n")
    assert await first == [b"one"]
    await child.end()
