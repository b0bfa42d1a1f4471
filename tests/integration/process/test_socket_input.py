"""A child whose stdin is a socket: out of reach through /proc, and otherwise no different from a pipe."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.process import child as children
from leadrope.process.child import Child
from leadrope.process.lines import Line

Run = Callable[..., Awaitable[Child]]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without a guardian there is no such input")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Starts a Python text as a child. Not a shell: bash takes a socket for a remote login."""

    async def run(text: str, *, socket_input: bool = True) -> Child:
        return await children.start(
            [sys.executable, "-I", "-S", "-c", text],
            env={"PATH": os.environ["PATH"]},
            cwd=str(tmp_path),
            spool_dir=str(tmp_path),
            socket_input=socket_input,
        )

    return run


async def all_lines(child: Child) -> list[Line]:
    lines: list[Line] = []
    while batch := await child.read():
        lines += batch
    return lines


@pytest.mark.parametrize(("socket_input", "expected"), [(True, errno.ENXIO), (False, 0)])
async def test_it_cannot_be_opened_through_proc(run: Run, socket_input: bool, expected: int) -> None:
    child = await run("print('here', flush=True); input()", socket_input=socket_input)
    assert await child.read() == [b"here"]
    found = 0
    try:
        os.close(os.open(f"/proc/{child.pid}/fd/0", os.O_WRONLY))
    except OSError as error:
        found = error.errno or -1
    await child.end()
    assert found == expected


async def test_all_that_is_written_arrives_and_then_the_end(run: Run) -> None:
    child = await run("import sys; print(len(sys.stdin.buffer.read()))")
    for _ in range(40):
        child.write(b"x" * 100_000)
        await child.drain()
    child.close_input()
    assert await all_lines(child) == [b"4000000"]
    assert (await child.end()).exit_code == 0


async def test_what_was_written_before_the_close_is_still_delivered(run: Run) -> None:
    child = await run("import sys; sys.stdin.buffer.readline(); print(len(sys.stdin.buffer.read()))")
    child.write(b"first\n" + b"x" * 3_000_000)
    child.close_input()
    assert await all_lines(child) == [b"3000000"]
    await child.wait()
    assert (await child.end()).rung == "exited"


async def test_a_child_that_reads_nothing_holds_the_writer(run: Run) -> None:
    child = await run("import sys\nprint('up', flush=True)\nsys.stdin.read(1)\nsys.stdin.read()\nprint('end')")
    assert await child.read() == [b"up"]
    os.kill(child.pid, signal.SIGSTOP)
    child.write(b"x" * 8_000_000)
    draining = asyncio.ensure_future(child.drain())
    done, _ = await asyncio.wait((draining,), timeout=0.2)
    assert not done
    os.kill(child.pid, signal.SIGCONT)
    await draining
    child.close_input()
    assert await all_lines(child) == [b"end"]
    await child.end()


async def test_a_writer_learns_that_the_child_has_closed_it(run: Run, until: Callable[..., Awaitable[None]]) -> None:
    child = await run("import os, time; os.close(0); print('closed', flush=True); time.sleep(60)")
    assert await child.read() == [b"closed"]

    def is_refused() -> bool:
        try:
            child.write(b"x")
        except errors.RunClosed:
            return True
        return False

    await until(is_refused)
    await child.end(stop_s=0)


async def test_a_child_that_writes_to_its_input_or_shuts_it_still_reads(run: Run) -> None:
    """Nothing that comes back on that socket is output."""
    child = await run(
        "import os, socket\n"
        "own = socket.socket(fileno=os.dup(0)); own.send(b'{}\\n' * 1000); own.shutdown(socket.SHUT_WR)\n"
        "print('said', flush=True); print(input())"
    )
    assert await child.read() == [b"said"]
    for _ in range(20):
        await asyncio.sleep(0)  # the end of its own side has been seen
    child.write(b"heard\n")
    assert await all_lines(child) == [b"heard"]
    assert (await child.end()).exit_code == 0
