"""`leadrope flow logs`, `flow values` and `leadrope events`: an execution looked at from another process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

TEXT = """# Follow me

## Steps

### first

- type: shell
- command: echo one

### long

- type: shell
- command: touch began; until test -e go; do sleep 0.05; done; echo two

## Outputs

### said

- source: ${long.stdout}
"""


def write(desk: Any, text: str = TEXT, name: str = "test.flow.md") -> str:
    (desk.project / name).write_text(text)
    return name


async def started(desk: Any, *words: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "leadrope.cli.main", "flow", "run", "test.flow.md", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=desk.environ,
        cwd=desk.project,
        start_new_session=True,
    )
    async with asyncio.timeout(60):
        while not (desk.project / "began").exists():  # noqa: ASYNC110  # made by another process
            await asyncio.sleep(0.02)
    return process


async def test_logs_follow_an_execution_of_another_process_to_its_end(desk: Any) -> None:
    write(desk)
    process = await started(desk, "-o", "stream-json")
    async with desk.at_terminal("flow", "logs", "-f", "test") as terminal:
        await terminal.reads("Follow me · 2 steps", "✓ first", "⋯ long (shell)")
        (desk.project / "go").touch()
        await terminal.reads("✓ long", "succeeded")
        assert await terminal.ends() == 0
    out, _ = await process.communicate()
    told = await desk.leadrope("flow", "logs", "-o", "stream-json")
    assert told.out == out.decode(), "the events that were shown are those that are stored"
    assert [json.loads(line)["seq"] for line in told.out.splitlines()] == list(range(1, told.out.count("\n") + 1))
    shown = await desk.leadrope("flow", "logs")
    assert shown.err.splitlines()[1:] == [
        line for line in shown.err.splitlines()[1:] if line.startswith(("  ✓ first", "  ✓ long", "succeeded"))
    ]
    found = json.loads(told.out.splitlines()[0])["execution_id"]
    ended = await desk.leadrope("events", found[:8], "--type", "step.ended")
    assert [json.loads(line)["event"]["step"] for line in ended.out.splitlines()] == ["first", "long"]
    values = json.loads((await desk.leadrope("flow", "values", found[:8], "first")).out)
    assert (values["inputs"], values["outputs"]["stdout"]) == ({"command": "echo one"}, "one")
    wrong = await desk.leadrope("flow", "values", found[:8], "second")
    assert (wrong.code, wrong.out) == (2, "")
    assert "second" in wrong.err


async def test_the_exit_code_of_follow_is_that_of_the_execution(desk: Any) -> None:
    write(desk, "## Steps\n\n### bad\n\n- type: shell\n- command: exit 3\n")
    assert (await desk.leadrope("flow", "run", "test.flow.md")).code == 1
    followed = await desk.leadrope("flow", "logs", "-f")
    assert followed.code == 1
    assert "✗ bad" in followed.err
    assert (await desk.leadrope("flow", "logs")).code == 0
    unknown = await desk.leadrope("flow", "logs", "nothing")
    assert unknown.code == 2
    assert "there is no execution 'nothing'" in unknown.err


async def test_a_killed_execution_that_is_resumed_has_one_log_without_gap_or_repetition(desk: Any) -> None:
    write(desk)
    process = await started(desk)
    os.kill(process.pid, signal.SIGKILL)
    await process.communicate()
    left = await desk.leadrope("flow", "logs", "-f")
    assert "interrupted" in left.err
    (desk.project / "go").touch()
    resumed = await desk.leadrope("flow", "resume", json.loads((await _lines(desk))[0])["execution_id"][:8])
    assert resumed.code == 0
    assert "✓ first done before" in resumed.err
    records = [json.loads(line) for line in await _lines(desk)]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    types = [record["event"]["type"] for record in records]
    assert types.count("execution.started") == types.count("execution.resumed") == 1
    ended = [record["event"]["step"] for record in records if record["event"]["type"] == "step.ended"]
    assert ended == ["first", "long"]
    assert {record["epoch"] for record in records} == {1, 2}


async def _lines(desk: Any) -> list[str]:
    lines: list[str] = (await desk.leadrope("flow", "logs", "-o", "stream-json")).out.splitlines()
    return lines
