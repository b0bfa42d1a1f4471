"""`leadrope flow stop|pause|resume`: controls that reach an execution from any process, whoever owns it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

TEXT = """# Controlled

## Steps

### first

- type: shell
- command: touch began; until test -e go; do sleep 0.05; done; echo first >> log

### second

- type: workflow
- workflow: ./inner.flow.md
"""
INNER = "# Inside\n\n## Steps\n\n### deep\n\n- type: shell\n- command: echo deep >> log\n"


def write(desk: Any, text: str = TEXT) -> None:
    (desk.project / "test.flow.md").write_text(text)
    (desk.project / "inner.flow.md").write_text(INNER)


async def begun(desk: Any, background: Any, *, is_detached: bool) -> tuple[str, asyncio.subprocess.Process | None]:
    """An execution whose first step is at work, in the background or in another terminal."""
    process = None
    if is_detached:
        ended = await desk.leadrope("flow", "run", "test.flow.md", "--detach")
        assert ended.code == 0, ended.err
    else:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadrope.cli.main", "flow", "run", "test.flow.md"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=desk.environ,
            cwd=desk.project,
            start_new_session=True,
        )
    await background.until((desk.project / "began").exists)
    return (await row(desk))["id"], process


async def row(desk: Any) -> dict[str, Any]:
    """Of the newest execution."""
    lines = (await desk.leadrope("flow", "history", "-o", "json")).out.splitlines()
    found: dict[str, Any] = json.loads(lines[0])["execution"]
    return found


async def until(desk: Any, *states: str) -> dict[str, Any]:
    for _ in range(300):
        found = await row(desk)
        if (found.get("outcome") or found["state"]) in states:
            return found
    raise AssertionError(f"it is still {found}")


async def types(desk: Any, execution: str) -> list[str]:
    records = [json.loads(line) for line in (await desk.leadrope("events", execution)).out.splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    return [record["event"]["type"] for record in records]


@pytest.mark.parametrize("is_detached", [True, False])
async def test_stop_ends_an_execution_of_another_process_and_resume_continues_it(
    desk: Any, background: Any, is_detached: bool
) -> None:
    write(desk)
    execution, process = await begun(desk, background, is_detached=is_detached)
    stopped = await desk.leadrope("flow", "stop", execution[:8], "--reason", "wrong branch")
    assert (stopped.code, stopped.out) == (0, f"{execution[:8]} stopped\n")
    if process is not None:
        _, err = await process.communicate()
        assert process.returncode == 130
        assert b"stopped" in err
    assert not (desk.project / "log").exists()
    assert "stopped by a person: wrong branch" in (await desk.leadrope("flow", "report", execution[:8])).out
    again = await desk.leadrope("flow", "stop", execution[:8])
    assert "has ended already (stopped)" in again.err
    (desk.project / "go").touch()
    assert (await desk.leadrope("flow", "resume", execution[:8])).code == 0
    assert (desk.project / "log").read_text() == "first\ndeep\n"


@pytest.mark.parametrize("is_detached", [True, False])
async def test_a_paused_execution_finishes_what_runs_and_starts_nothing_more(
    desk: Any, background: Any, is_detached: bool
) -> None:
    write(desk)
    execution, process = await begun(desk, background, is_detached=is_detached)
    paused = await desk.leadrope("flow", "pause", execution[:8])
    assert (paused.code, paused.out) == (0, f"{execution[:8]} paused\n")
    (desk.project / "go").touch()
    await background.until((desk.project / "log").exists)
    found = await row(desk)
    assert (found["state"], found["note"]) == ("paused", "paused by a person")
    listed = (await desk.leadrope("flow", "history", "--open")).out
    assert "paused" in listed
    async with desk.at_terminal("flow", "logs", "-f", execution[:8]) as terminal:
        await terminal.reads("✓ first")
        assert (desk.project / "log").read_text() == "first\n"
        resumed = await desk.leadrope("flow", "resume", execution[:8])
        assert resumed.code == 0, resumed.err
        await terminal.reads("✓ second/deep", "succeeded")
        assert await terminal.ends() == 0
    if process is not None:
        await process.communicate()
        assert process.returncode == 0
    told = await types(desk, execution)
    assert told.index("execution.paused") < told.index("execution.unpaused") < told.index("execution.ended")


async def test_a_pause_outlives_the_owner(desk: Any, background: Any) -> None:
    write(desk)
    execution, _ = await begun(desk, background, is_detached=True)
    assert (await desk.leadrope("flow", "pause", execution[:8])).code == 0
    await background.end("kill")
    await background.until(lambda: not background.all())  # the step would see `go`, too
    (desk.project / "began").unlink()
    (desk.project / "go").touch()
    found = await row(desk)
    assert (found["state"], found.get("owner")) == ("paused", None)
    assert not background.owners(), "looking starts nobody for what a person has paused"
    resumed = await desk.leadrope("flow", "resume", execution[:8])
    assert resumed.out == f"{execution[:8]} continues in the background\n"
    await until(desk, "succeeded")
    assert (desk.project / "log").read_text() == "first\ndeep\n"


async def test_what_nobody_owns_is_paused_and_stopped_at_once(desk: Any, background: Any) -> None:
    write(desk, "## Steps\n\n### ask\n\n- type: approval\n- message: Go?\n")
    waiting = await desk.leadrope("flow", "run", "test.flow.md")
    assert waiting.code == 4
    execution = (await row(desk))["id"]
    assert (await desk.leadrope("flow", "pause", execution[:8])).out == f"{execution[:8]} paused\n"
    assert (await desk.leadrope("flow", "stop", execution[:8])).out == f"{execution[:8]} stopped\n"
    assert (await types(desk, execution))[-2:] == ["execution.paused", "execution.ended"]
    assert (await desk.leadrope("approvals", "list", "-o", "json")).out == "", "nothing waits for an answer any more"
    for command in ("pause", "stop"):
        wrong = await desk.leadrope("flow", command, "nothing")
        assert (wrong.code, wrong.out) == (2, "")
        assert "there is no execution 'nothing'" in wrong.err
    assert (await desk.leadrope("flow", "pause", execution[:8])).code == 2


async def test_an_execution_inside_another_follows_it(desk: Any, background: Any) -> None:
    inner = "# Inside\n\n## Steps\n\n### deep\n\n- type: shell\n- command: touch began; sleep 3600\n"
    write(desk, "## Steps\n\n### call\n\n- type: workflow\n- workflow: ./inner.flow.md\n")
    (desk.project / "inner.flow.md").write_text(inner)
    execution, _ = await begun(desk, background, is_detached=True)
    lines = (await desk.leadrope("events", execution)).out.splitlines()
    inside = next(event["execution"] for line in lines if (event := json.loads(line)["event"]).get("parent"))
    assert (await desk.leadrope("flow", "stop", inside[:8])).out == f"{execution[:8]} stopped\n"
    assert (await row(desk))["outcome"] == "stopped"
