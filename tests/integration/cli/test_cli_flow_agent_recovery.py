"""Agents of workflows whose owner dies or is stopped: they continue in their session, and nothing is paid for twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer
from leadrope.workflows.engine.step_runs import run_id_of

WAITS = "touch began; until test -e go; do sleep 0.05; done; echo worked >> log"
WORK = {"tool": {"name": "Bash", "input": {"command": WAITS, "description": "work until it is told to end"}}}
TEXT = """# Agents

## Steps

### fix

- type: agent
- prompt: fix it
- mode: full

### after

- type: shell
- command: echo ${fix.result} > said
"""


async def lines(desk: Any, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await desk.leadrope(*words)).out.splitlines()]


async def ended(desk: Any, background: Any) -> dict[str, Any]:
    """The newest execution, once it has come to its end; looking has it continued."""
    for _ in range(300):
        found: dict[str, Any] = (await lines(desk, "flow", "history", "-o", "json"))[0]["execution"]
        if found["state"] == "ended":
            return found
    raise AssertionError(f"it is still {found}")


async def begun(desk: Any, background: Any, model: ModelServer) -> str:
    """A detached execution whose agent is at work."""
    (desk.project / "test.flow.md").write_text(TEXT)
    started = await desk.leadrope("flow", "run", "test.flow.md", "--detach", "--base-url", model.url)
    assert started.code == 0, started.err
    await background.until((desk.project / "began").exists)
    return str(started.out.strip())


@pytest.mark.parametrize("how", ["kill", "term"])
async def test_the_agent_of_a_step_continues_in_its_session_after_its_owner(
    desk: Any, background: Any, how: str
) -> None:
    async with ModelServer([WORK, {"text": "All is fixed."}]) as model:
        execution = await begun(desk, background, model)
        await background.end(how)
        await background.until(lambda: not background.all())  # the agent does not outlive its owner
        assert (await ended(desk, background))["outcome"] == "succeeded"
        assert not model.unused, "no turn was asked for twice"
    (run,) = await lines(desk, "runs", "list", "-o", "json", "-n", "0")
    assert run["id"] == run_id_of(execution, "fix#0:1:1")
    assert (run["outcome"], run["attempt"]) == ("succeeded", 2)
    assert (desk.project / "said").read_text() == "All is fixed.\n"
    events = [one["event"] for one in await lines(desk, "events", execution)]
    step = next(one for one in events if one["type"] == "step.ended" and one["step"] == "fix")
    assert step["run_id"] == run["id"]
    assert step["cost_usd"] == pytest.approx(run["cost_usd"], rel=1e-6), "both attempts, each once"
    assert step["cost_usd"] > 0


async def test_a_stopped_agent_continues_in_its_session_when_the_execution_is_resumed(
    desk: Any, background: Any
) -> None:
    async with ModelServer([WORK, {"text": "All is fixed."}]) as model:
        execution = await begun(desk, background, model)
        assert (await desk.leadrope("flow", "stop", execution[:8])).code == 0
        resumed = await desk.leadrope("flow", "resume", execution[:8])
        assert resumed.code == 0, resumed.err
        assert not model.unused
    later, first = await lines(desk, "runs", "list", "-o", "json", "-n", "0")
    assert first["id"] == run_id_of(execution, "fix#0:1:1")
    assert later["id"] == run_id_of(execution, "fix#0:1:1", 1)
    assert (first["outcome"], later["outcome"]) == ("stopped", "succeeded")
    assert later["session_id"] == first["session_id"]
    found = (await lines(desk, "flow", "history", "-o", "json"))[0]["execution"]
    assert found["cost_usd"] == pytest.approx(first["cost_usd"] + later["cost_usd"], rel=1e-6)


async def test_a_pause_holds_the_agent_before_its_next_call(desk: Any, background: Any) -> None:
    after = {"tool": {"name": "Bash", "input": {"command": "touch later", "description": "more work"}}}
    async with ModelServer([WORK, after, {"text": "All is fixed."}]) as model:
        execution = await begun(desk, background, model)
        assert (await desk.leadrope("flow", "pause", execution[:8])).code == 0
        (run,) = await lines(desk, "runs", "list", "-o", "json", "-n", "0")
        for _ in range(100):
            if (await lines(desk, "runs", "show", run["id"], "-o", "json"))[0]["run"]["state"] == "paused":
                break
        (desk.project / "go").touch()
        await background.until((desk.project / "log").exists)
        assert not (desk.project / "later").exists()
        assert (await desk.leadrope("flow", "resume", execution[:8])).code == 0
        assert (await ended(desk, background))["outcome"] == "succeeded"
    assert (desk.project / "later").exists()


async def test_a_run_whose_execution_is_gone_is_ended(desk: Any, background: Any) -> None:
    """The step's run waits for its execution; when a person stops that, nothing is left in the queue."""
    async with ModelServer([WORK, {"text": "never"}], strict=False) as model:
        execution = await begun(desk, background, model)
        config = Path(desk.home / ".config/leadrope/config.toml")
        assert "idle_s" in config.read_text()
        assert (await desk.leadrope("flow", "pause", execution[:8])).code == 0
        await background.end("kill")
        await background.until(lambda: not background.all())
        (run,) = await lines(desk, "runs", "list", "-o", "json", "-n", "0")
        assert (run["state"], run["note"]) == ("queued", f"it continues with its execution {execution[:8]}")
        assert (await desk.leadrope("flow", "stop", execution[:8])).code == 0
        (run,) = await lines(desk, "runs", "list", "-o", "json", "-n", "0")
        assert (run["state"], run["outcome"]) == ("ended", "stopped")
