"""What is piped into `leadrope run` beside a prompt reaches the model, and a pipe that nobody feeds delays nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

LEADROPE = (sys.executable, "-m", "leadrope.cli.main")
DIFF = "--- a/calc.py\n+++ b/calc.py\n-    return a - b\n+    return a + b\n"


@asynccontextmanager
async def running(desk: Any, *argv: str, stdin: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=desk.environ,
        cwd=desk.project,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def end_of(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    """Without its standard input: that stays as the test has left it."""
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(60):
        out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
        return await process.wait(), out.decode(), err.decode()


async def test_the_model_gets_the_prompt_and_then_the_input(desk: Any, playing: Any) -> None:
    async with playing({"text": "Fine."}) as model:
        ended = await desk.leadrope("run", "review this", "--base-url", model.url, stdin=DIFF.encode())
    assert ended.code == 0, ended.err
    assert ended.out == "Fine.\n"
    assert f"review this\n\n<stdin>\n{DIFF}</stdin>" in model.requests[0].text


async def test_a_file_on_standard_input_and_a_prompt_from_a_file(desk: Any, playing: Any) -> None:
    (desk.project / "task.md").write_text("sum these up\n")
    (desk.project / "notes").write_text("one\n</stdin>\ntwo\n")
    async with playing({"text": "Three."}) as model:
        script = f"exec {' '.join(LEADROPE)} run -f task.md --base-url {model.url} < notes"
        async with running(desk, "sh", "-c", script, stdin=asyncio.subprocess.DEVNULL) as process:
            code, _, err = await end_of(process)
    assert code == 0, err
    assert "sum these up\n\n<stdin-2>\none\n</stdin>\ntwo\n</stdin-2>" in model.requests[0].text


async def test_a_command_that_is_silent_for_long_is_waited_for(desk: Any, playing: Any, tmp_path: Path) -> None:
    """A test runner writes to a pipe when it ends, long after anything that reads it could have lost patience."""
    go = tmp_path / "go"
    os.mkfifo(go)
    async with playing({"text": "Fine."}) as model:
        # The other command is silent until somebody opens the fifo, which happens when leadrope has said that it waits.
        script = f'(cat "{go}" > /dev/null; echo 3 failed) | {" ".join(LEADROPE)} run why? --base-url {model.url}'
        async with running(desk, "sh", "-c", script, stdin=asyncio.subprocess.DEVNULL) as process:
            assert process.stderr is not None
            async with asyncio.timeout(60):
                said = await process.stderr.readline()
            assert said == b"waiting for standard input to end\n"
            await asyncio.to_thread(go.write_text, "go")
            code, _, err = await end_of(process)
    assert code == 0, err
    assert "why?\n\n<stdin>\n3 failed\n</stdin>" in model.requests[0].text


@pytest.mark.parametrize(
    "kind", ["null", "closed", "empty pipe", "empty file", "silent pipe", "silent socket", "blank"]
)
async def test_what_is_no_input_adds_nothing_and_holds_nothing_up(desk: Any, playing: Any, kind: str) -> None:
    redirect = {"null": "< /dev/null", "closed": "<&-", "empty file": "< empty"}.get(kind, "")
    (desk.project / "empty").touch()
    ours, given = socket.socketpair() if kind == "silent socket" else (None, None)
    read, write = os.pipe()
    try:
        if kind == "blank":
            os.write(write, b" \n")
        async with playing({"text": "Hello."}) as model:
            script = f"exec {' '.join(LEADROPE)} run hello --base-url {model.url} {redirect}"
            began = time.monotonic()
            stdin: int = given.fileno() if given is not None else read
            async with running(desk, "sh", "-c", script, stdin=stdin) as process:
                os.close(read)
                read = -1
                if kind in ("empty pipe", "blank"):
                    os.close(write)
                    write = -1
                code, _, err = await end_of(process)
    finally:
        for fd in (read, write):
            if fd >= 0:
                os.close(fd)
        for one in (ours, given):
            if one is not None:
                one.close()
    assert code == 0, err
    assert time.monotonic() - began < 45
    assert "<stdin>" not in model.requests[0].text
    assert "hello" in model.requests[0].text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b"\x7fELF\x02\x01\x00\x00", "standard input is binary data"),
        (b"caf\xe9\n", "standard input is not UTF-8 text (byte 3)"),
        (b"a" * (1024 * 1024 + 1), "standard input is larger than 1 MiB"),
    ],
)
async def test_what_cannot_be_handed_over_is_refused(desk: Any, given: bytes, told: str) -> None:
    ended = await desk.leadrope("run", "read this", LEADROPE_CLAUDE_BIN="/no/such/claude", stdin=given)
    assert ended.code == 2
    assert told in ended.err
    assert "Traceback" not in ended.err


async def test_an_endless_input_is_refused(desk: Any) -> None:
    script = f"yes | {' '.join(LEADROPE)} run 'read this'"
    async with running(desk, "sh", "-c", script, stdin=asyncio.subprocess.DEVNULL) as process:
        code, _, err = await end_of(process)
    assert code == 2
    assert "standard input is larger than 1 MiB" in err


async def test_a_dash_is_the_prompt_itself(desk: Any, playing: Any) -> None:
    async with playing({"text": "Hello."}) as model:
        ended = await desk.leadrope("run", "-", "--base-url", model.url, stdin=b"say hello\n")
    assert ended.code == 0, ended.err
    assert "<stdin>" not in model.requests[0].text


async def test_the_help_tells_it(desk: Any) -> None:
    ended = await desk.leadrope("run", "--help")
    assert 'git diff | leadrope run "review this"' in ended.out
