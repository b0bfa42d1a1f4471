"""Which verdict each mode has for each class of tool, and what the lists of tools change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Allow, Ask, Deny, Policy, decide

WS = "/ws"


def same(path: str) -> str:
    return path


def verdict(mode: Mode, name: str, tools: tuple[str, ...] | None = None, **input_: Any) -> str:
    policy = Policy(mode=mode, workspace=(WS,), tools=tools)
    return type(decide(policy, ToolCall(id="t", name=name, input=input_), resolve=same)).__name__.lower()


INSIDE = {"file_path": "/ws/a.py"}
OUTSIDE = {"file_path": "/etc/hosts"}


@pytest.mark.parametrize(
    ("name", "input_", "plan", "default", "edit", "dont_ask", "full"),
    [
        ("Read", {"file_path": "/ws/a.py"}, "allow", "allow", "allow", "allow", "allow"),
        ("Grep", {}, "allow", "allow", "allow", "allow", "allow"),
        ("Edit", INSIDE, "deny", "ask", "allow", "deny", "allow"),
        ("Write", INSIDE, "deny", "ask", "allow", "deny", "allow"),
        ("Write", OUTSIDE, "deny", "ask", "ask", "deny", "allow"),
        ("NotebookEdit", {"notebook_path": "/ws/n.ipynb"}, "deny", "ask", "allow", "deny", "allow"),
        ("Edit", {}, "deny", "ask", "ask", "deny", "allow"),
        ("Bash", {"command": "ls"}, "deny", "ask", "ask", "deny", "allow"),
        ("Monitor", {"command": "ls"}, "deny", "ask", "ask", "deny", "allow"),
        ("Agent", {}, "deny", "ask", "ask", "deny", "allow"),
        ("Workflow", {}, "deny", "ask", "ask", "deny", "allow"),
        ("CronCreate", {}, "deny", "ask", "ask", "deny", "allow"),
        ("ScheduleWakeup", {}, "deny", "ask", "ask", "deny", "allow"),
        ("Skill", {}, "deny", "ask", "ask", "deny", "allow"),
        ("mcp__db__query", {}, "deny", "ask", "ask", "deny", "allow"),
        ("SomethingNew", {}, "deny", "ask", "ask", "deny", "allow"),
        # The baseline turns an ask into a yes; it never opens plan.
        ("WebFetch", {"url": "http://x"}, "deny", "allow", "allow", "allow", "allow"),
        ("WebSearch", {}, "deny", "allow", "allow", "allow", "allow"),
        *[
            (name, {}, "allow", "allow", "allow", "allow", "allow")
            for name in ("StructuredOutput", "ExitPlanMode", "AskUserQuestion", "TodoWrite", "ToolSearch", "KillShell")
        ],
    ],
)
def test_modes(name: str, input_: dict[str, Any], plan: str, default: str, edit: str, dont_ask: str, full: str) -> None:
    got = [verdict(mode, name, **input_) for mode in ("plan", "default", "edit", "dontAsk", "full")]
    assert got == [plan, default, edit, dont_ask, full]


@pytest.mark.parametrize(
    ("mode", "tools", "name", "input_", "expected"),
    [
        ("default", ("Bash",), "Bash", {}, "allow"),
        ("dontAsk", ("Bash",), "Bash", {}, "allow"),
        ("plan", ("Bash",), "Bash", {}, "deny"),
        ("full", ("Read",), "Bash", {}, "deny"),
        ("default", ("Read",), "Read", {}, "allow"),
        ("default", ("Grep",), "WebFetch", {}, "allow"),
        ("default", ("Read",), "TodoWrite", {}, "allow"),
        ("default", ("Task",), "Agent", {}, "allow"),
        ("default", ("Write",), "Write", OUTSIDE, "ask"),
        ("dontAsk", ("Write",), "Write", OUTSIDE, "deny"),
        ("default", ("Write",), "Write", INSIDE, "allow"),
        # A pattern lets the tool be used, and asks: what it matches is a policy's matter.
        ("default", ("Bash(git *)",), "Bash", {"command": "git status"}, "ask"),
        ("default", ("mcp__db",), "mcp__db__query", {}, "allow"),
        ("default", ("mcp__db__*",), "mcp__db__query", {}, "allow"),
        ("default", ("mcp__db__get*",), "mcp__db__query", {}, "deny"),
        ("default", ("mcp__db",), "mcp__dbx__query", {}, "deny"),
    ],
)
def test_a_list_of_tools_limits_and_grants(
    mode: Mode, tools: tuple[str, ...], name: str, input_: dict[str, Any], expected: str
) -> None:
    assert verdict(mode, name, tools, **input_) == expected


def test_disallowed_wins_over_everything() -> None:
    policy = Policy(mode="full", workspace=(WS,), tools=("Bash",), disallowed_tools=("Bash", "Write(/etc/*)"))
    assert isinstance(decide(policy, ToolCall(id="t", name="Bash")), Deny)
    assert isinstance(decide(policy, ToolCall(id="t", name="Write", input=INSIDE)), Ask)


def test_a_link_out_of_the_workspace_is_outside(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "out").symlink_to(tmp_path)
    policy = Policy(mode="edit", workspace=(str(ws),))

    def write(path: str) -> object:
        return decide(policy, ToolCall(id="t", name="Write", input={"file_path": path}))

    assert isinstance(write(str(ws / "new/deep/a.txt")), Allow)
    assert isinstance(write("relative.txt"), Allow)
    for path in (str(ws / "out/a.txt"), str(ws / "../a.txt"), "../a.txt", f"{ws}x/a.txt", "~/a.txt", "", "a\0b"):
        assert isinstance(write(path), Ask), path
