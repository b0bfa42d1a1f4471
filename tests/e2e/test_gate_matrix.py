"""Every mode, every way for a call not to be approved, for the agent's own calls, a subagent's and background ones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadrope import Answer, InlineApprover, Limits, McpServer, events
from leadrope.rehearsal import ModelServer
from process_tree import descendants

SANDBOXED = pytest.param(
    "sandboxed",
    marks=pytest.mark.skipif(
        shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true",
        reason="bubblewrap is not installed",
    ),
)
MODES = ("plan", "default", "edit", SANDBOXED, "full", "dontAsk")
NEVER_ASK = ("plan", "dontAsk")
MCP_SERVER = str(Path(__file__).parents[1] / "data" / "mcp_server.py")
KINDS = ("own", "subagent", "background")
AGENT = {
    "name": "Agent",
    "input": {"description": "d", "prompt": "do it", "subagent_type": "general-purpose", "run_in_background": False},
}


def script(stage: Any, kind: str) -> dict[str, Any]:
    touch = {**stage.touch, "input": {**stage.touch["input"], "command": f"echo once >> {stage.marker}"}}
    if kind == "background":
        touch["input"]["run_in_background"] = True
    done = {"text": "done", "optional": True, "repeat": 3}
    if kind == "subagent":
        return {"turns": [{"tool": AGENT}, done], "subagents": [[{"tool": touch, "optional": True}, done]]}
    return {"turns": [{"tool": touch}, done]}


def only_agents(asked: events.ApprovalRequested) -> bool:
    return asked.call.name == "Agent"


def breaks(asked: events.ApprovalRequested) -> bool:
    if asked.call.name == "Agent":
        return True
    raise RuntimeError("the approver is broken")


class Silent(InlineApprover):
    """Lets agents start, and then never answers."""

    async def approve(self, asked: events.ApprovalRequested) -> Answer:
        return Answer(approved=True) if asked.call.name == "Agent" else await super().approve(asked)


async def play(stage: Any, kind: str, mode: str, *, approver: Any, on: Any = None, **rules: Any) -> Any:
    limits = Limits(approval_s=0.3 if isinstance(approver, Silent) and on is None else 60, exit_s=0.5)
    return await stage.play(
        script(stage, kind), strict=False, mode=mode, approver=approver, on=on, policy=rules, limits=limits
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("rules", "approver", "why"),
    [
        ({"blocked_commands": ["echo"]}, lambda _: True, "echo is blocked"),
        ({"require_approval": ["Bash(echo *)"]}, only_agents, "the callback said no"),
        ({"require_approval": ["Bash(echo *)"]}, breaks, "the approver failed"),
        ({"require_approval": ["Bash(echo *)"]}, Silent(), "APPROVAL_TIMEOUT"),
    ],
    ids=["blocked", "denied", "approver crashes", "never answered"],
)
async def test_a_call_without_a_yes_does_not_run(
    stage: Any, kind: str, mode: str, rules: dict[str, Any], approver: Any, why: str
) -> None:
    played = await play(stage, kind, mode, approver=approver, **rules)
    assert not stage.marker.exists()
    decided = [d for d in played.of(events.ToolDecided) if d.call.name == "Bash"]
    if kind == "subagent" and mode in NEVER_ASK:
        assert decided == [], "these modes let no agent start"
    else:
        # It did come to the gate, and was refused there for this reason, or by a mode that asks nobody.
        (one,) = decided
        assert one.decision == "deny"
        assert why in one.reason or mode in NEVER_ASK
        assert bool(one.call.agent_id) == (kind == "subagent")
        assert one.call.input.get("run_in_background", False) == (kind == "background")
    assert played.result.error is None or played.result.error.kind != "gate_bypassed"


@pytest.mark.parametrize("tool", ["Write", "Read", "WebFetch", "WebSearch", "mcp__files__touch"])
async def test_every_kind_of_tool_waits_at_the_gate(stage: Any, tool: str) -> None:
    """In mode full, where the agent itself would ask for none of them. Nothing has been done when it is asked for."""
    reached: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    (stage.ws / "read").write_text("the text of a file")
    input_ = {
        "Write": {"file_path": str(stage.marker), "content": "x"},
        "Read": {"file_path": str(stage.ws / "read")},
        "WebFetch": {"url": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", "prompt": "read"},
        "WebSearch": {"query": "a question"},
        "mcp__files__touch": {"path": str(stage.marker)},
    }[tool]
    asked: list[str] = []

    def no(request: events.ApprovalRequested) -> bool:
        asked.append(request.call.name)
        return False

    async with server:
        played = await stage.play(
            [{"tool": {"name": tool, "input": input_}}, {"text": "done"}],
            mode="full",
            approver=no,
            policy={
                "require_approval": True,
                "network": {"allowed_hosts": ["127.0.0.1"]} if tool == "WebFetch" else {},
            },
            connections={
                "files": McpServer(command=sys.executable, args=(MCP_SERVER, "stdio", str(stage.ws / "seen")))
            },
        )
    assert asked == [tool]
    assert played.one(events.ToolDecided).decision == "deny"
    assert not stage.marker.exists()
    assert reached == []
    assert len(played.model.requests) == 2, "none was made to search or to read a page"
    assert "the text of a file" not in str([request.body for request in played.model.requests])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_is_pending_when_stdin_closes_does_not_run(stage: Any, kind: str, mode: str) -> None:
    async def on(run: Any, event: events.Event) -> None:
        if isinstance(event, events.ApprovalRequested) and event.call.name == "Bash":
            run._attempt._peer.close_input()

    await play(stage, kind, mode, approver=Silent(), on=on, require_approval=["Bash(echo *)"])
    assert not stage.marker.exists()


SUPERVISOR = """
import asyncio, json, sys
from leadrope import Answer, InlineApprover, RunRequest, Secret, events, open_run

class Silent(InlineApprover):
    async def approve(self, asked):
        return Answer(approved=True) if asked.call.name == "Agent" else await super().approve(asked)

async def main(url, cwd, mode):
    request = RunRequest(
        prompt="go", cwd=cwd, mode=mode, base_url=url, credential=Secret("sk-ant-rehearsal-0000000000"), attempts=1,
        policy={"require_approval": ["Bash(echo *)"]},
    )
    async with open_run(request, approver=Silent()) as run:
        async for item in run:
            if isinstance(item.event, (events.ApprovalRequested, events.ToolDecided)):
                print(json.dumps([type(item.event).__name__, item.event.call.name]), flush=True)
    print("null", flush=True)

asyncio.run(main(*sys.argv[1:4]))
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_is_pending_when_the_supervisor_dies_does_not_run(
    stage: Any, until: Any, kind: str, mode: str
) -> None:
    async with ModelServer(script(stage, kind), strict=False) as model:
        supervisor = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SUPERVISOR, model.url, str(stage.ws), mode),
            env=stage.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert supervisor.stdout is not None
        # Until the command is asked for, or is denied by the mode and will never be.
        while (line := await supervisor.stdout.readline()) and json.loads(line) not in (
            ["ApprovalRequested", "Bash"],
            ["ToolDecided", "Bash"],
            None,
        ):
            pass
        tree = descendants(supervisor.pid)
        if supervisor.returncode is None:
            os.kill(supervisor.pid, signal.SIGKILL)
        await supervisor.communicate()
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in tree))
    assert not stage.marker.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["default", "edit", SANDBOXED, "full"])
async def test_an_approved_call_runs_exactly_once(stage: Any, kind: str, mode: str) -> None:
    await play(stage, kind, mode, approver=lambda _: True, require_approval=["Bash(echo *)"])
    assert stage.marker.read_text() == "once\n"
