"""Which verdict each mode has for each class of tool, what the lists of tools change, and what the rules add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import MODES, Allow, Ask, Deny, Facts, Policy, Verdict, decide
from leadrope.policy.resolve import Layer, resolve, rules_of

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
        ("Bash", {"command": "make"}, "deny", "ask", "ask", "deny", "allow"),
        ("Monitor", {"command": "make"}, "deny", "ask", "ask", "deny", "allow"),
        ("Agent", {}, "deny", "ask", "ask", "deny", "allow"),
        ("Workflow", {}, "deny", "ask", "ask", "deny", "allow"),
        ("CronCreate", {}, "deny", "ask", "ask", "deny", "allow"),
        ("ScheduleWakeup", {}, "deny", "ask", "ask", "deny", "allow"),
        ("Skill", {}, "deny", "ask", "ask", "deny", "allow"),
        ("mcp__db__query", {}, "deny", "ask", "ask", "deny", "allow"),
        ("SomethingNew", {}, "deny", "ask", "ask", "deny", "allow"),
        # The web tools have a rule of their own, and no mode stands in their way.
        ("WebFetch", {"url": "https://example.com/a"}, "allow", "allow", "allow", "allow", "allow"),
        ("WebFetch", {"url": "http://localhost:8080/"}, "deny", "deny", "deny", "deny", "deny"),
        ("WebSearch", {"query": "x"}, "allow", "allow", "allow", "allow", "allow"),
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
        ("default", ("Grep",), "WebFetch", {"url": "https://example.com"}, "allow"),
        ("default", ("Grep",), "WebFetch", {"url": "https://10.0.0.1/"}, "deny"),
        # A caller who names one of the baseline tools himself says how far it goes.
        ("default", ("WebFetch(domain:example.com)",), "WebFetch", {"url": "https://example.com"}, "allow"),
        ("default", ("WebFetch(domain:example.com)",), "WebFetch", {"url": "https://example.org"}, "deny"),
        ("default", ("Read(src/**)",), "Read", {"file_path": f"{WS}/src/a"}, "allow"),
        ("default", ("Read(src/**)",), "Read", {"file_path": f"{WS}/b"}, "deny"),
        ("default", ("Read",), "TodoWrite", {}, "allow"),
        ("default", ("Task",), "Agent", {}, "allow"),
        ("default", ("Write",), "Write", OUTSIDE, "ask"),
        ("dontAsk", ("Write",), "Write", OUTSIDE, "deny"),
        ("default", ("Write",), "Write", INSIDE, "allow"),
        # A pattern that the caller wrote grants what it covers whole.
        ("default", ("Bash(git *)",), "Bash", {"command": "git status"}, "allow"),
        ("default", ("Bash(git *)",), "Bash", {"command": "git push"}, "allow"),
        ("dontAsk", ("Bash(git *)",), "Bash", {"command": "git status"}, "allow"),
        ("plan", ("Bash(git *)",), "Bash", {"command": "git status"}, "deny"),
        ("default", ("Write(src/**)",), "Write", {"file_path": f"{WS}/src/a.py"}, "allow"),
        ("default", ("Write(src/**)",), "Write", {"file_path": f"{WS}/b.py"}, "deny"),
        ("default", ("Bash(git *)",), "Bash", {"command": "git status && ls"}, "deny"),
        ("full", ("Bash(git *)", "Bash(ls)"), "Bash", {"command": "git status && ls"}, "allow"),
        ("full", ("Bash(git *)",), "Bash", {"command": 'eval "$X"'}, "deny"),
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
    policy = Policy(mode="full", workspace=(WS,), disallowed_tools=("Bash", "Write(/etc/*)", "Edit(a:b:*)"))

    def judged(name: str, **input_: Any) -> object:
        return decide(policy, ToolCall(id="t", name=name, input=input_), resolve=same)

    assert isinstance(judged("Bash"), Deny)
    assert isinstance(judged("Monitor", command="ls"), Deny)
    assert isinstance(judged("Write", **OUTSIDE), Deny)
    assert isinstance(judged("Write", **INSIDE), Allow)


FOREIGN = "Bash(git push; git tag:*)"
"""In no grammar that is known here; it still goes to the agent, which may know what it covers."""


@pytest.mark.parametrize("mode", ["default", "edit", "full"])
def test_an_entry_in_a_foreign_grammar_limits_a_tool_and_asks(mode: Mode) -> None:
    call = ToolCall(id="t", name="Bash", input={"command": "ls"})
    assert isinstance(decide(Policy(mode=mode, workspace=(WS,), disallowed_tools=(FOREIGN,)), call), Ask)
    assert isinstance(decide(Policy(mode=mode, workspace=(WS,), tools=(FOREIGN,)), call), Ask)
    assert isinstance(decide(Policy(mode=mode, workspace=(WS,), tools=(FOREIGN, "Bash(ls)")), call), Allow)
    other = ToolCall(id="t", name="Write", input=INSIDE)
    assert isinstance(decide(Policy(mode=mode, workspace=(WS,), tools=(FOREIGN,)), other), Deny)


@pytest.mark.parametrize(
    ("command", "is_allowed", "is_denied"),
    [
        ("git push origin main", True, True),
        ("git push", True, True),
        ("git pull", False, False),
        ("touch x", False, False),
        ("git push && touch x", False, True),
        ("git pushx", False, False),
    ],
)
def test_the_agents_own_form_of_first_words_is_read(command: str, is_allowed: bool, is_denied: bool) -> None:
    call = ToolCall(id="t", name="Bash", input={"command": command})
    given = decide(Policy(mode="full", workspace=(WS,), tools=("Bash(git push:*)",)), call)
    assert isinstance(given, Allow if is_allowed else Deny)
    granted = decide(Policy(mode="default", workspace=(WS,), tools=("Bash(git push:*)",)), call)
    assert isinstance(granted, Allow if is_allowed else Deny)
    taken = decide(Policy(mode="full", workspace=(WS,), disallowed_tools=("Bash(git push:*)",)), call)
    assert isinstance(taken, Deny if is_denied else Allow)


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


# -- rules, modes and facts together -------------------------------------------------------------------------------


def judged(
    rules: dict[str, Any], name: str, input_: dict[str, Any], *, mode: Mode = "full", facts: Facts | None = None
) -> Verdict:
    policy = Policy(mode=mode, workspace=(WS,), rules=resolve([Layer("test", rules_of(rules))]))
    return decide(policy, ToolCall(id="t", name=name, input=input_), facts, resolve=same)


def bash(rules: dict[str, Any], command: str, *, mode: Mode = "full", facts: Facts | None = None) -> str:
    return judged(rules, "Bash", {"command": command}, mode=mode, facts=facts).word


BLOCKS = {"blocked_commands": ["dd"]}
ASKS = {"require_approval": ["git push"]}
NOBODY = Facts(person=False)


@pytest.mark.parametrize(
    ("rules", "mode", "command", "expected"),
    [
        # Blocked first, then approval, then the mode; the strictest word counts.
        ({**BLOCKS, **ASKS}, "full", "git push && dd if=a of=b", "deny"),
        (ASKS, "full", "git push", "ask"),
        (ASKS, "full", "git status", "allow"),
        (ASKS, "default", "git commit", "ask"),
        (ASKS, "plan", "git push", "deny"),
        (ASKS, "dontAsk", "git push", "deny"),
        ({**ASKS, "on_ask": "deny"}, "full", "git push", "deny"),
        ({"on_ask": "deny"}, "default", "make", "deny"),
        ({"on_ask": "deny"}, "full", "ls", "allow"),
        # A layer's mode is the most that a run's own mode may be.
        ({"permission_mode": "default"}, "full", "make", "ask"),
        ({"permission_mode": "plan"}, "full", "make", "deny"),
        ({"permission_mode": "full"}, "default", "make", "ask"),
        ({"permission_mode": "dontAsk"}, "full", "make", "deny"),
        ({"permission_mode": "dontAsk", **ASKS}, "full", "git push", "deny"),
    ],
)
def test_the_order_of_rules_and_modes(rules: dict[str, Any], mode: Mode, command: str, expected: str) -> None:
    assert bash(rules, command, mode=mode) == expected


@pytest.mark.parametrize("name", ["Read", "Edit", "Bash", "WebFetch", "Agent", "TodoWrite", "SomethingNew"])
@pytest.mark.parametrize("one", MODES)
@pytest.mark.parametrize("other", MODES)
def test_of_two_modes_the_stricter_counts_for_each_class(name: str, one: Mode, other: Mode) -> None:
    order = {"allow": 0, "ask": 1, "deny": 2}
    alone = [verdict(mode, name, None, **INSIDE) for mode in (one, other)]
    wanted = max(alone, key=order.__getitem__)
    if "dontAsk" in (one, other) and wanted == "ask":
        wanted = "deny"
    assert judged({"permission_mode": one}, name, INSIDE, mode=other).word == wanted


def test_a_grant_of_the_caller_does_not_open_a_layers_mode() -> None:
    rules = resolve([Layer("global", rules_of({"permission_mode": "default"}))])
    policy = Policy(mode="full", workspace=(WS,), tools=("Bash",), rules=rules)
    found = decide(policy, ToolCall(id="t", name="Bash", input={"command": "make"}))
    assert isinstance(found, Ask)
    assert (found.rule, found.layer) == ("mode:default", "global")


OPAQUE = 'eval "$X"'


@pytest.mark.parametrize(
    ("rules", "facts", "expected"),
    [
        ({}, Facts(), "allow"),
        ({}, NOBODY, "allow"),
        ({"opaque": "deny"}, Facts(), "allow"),  # nothing looks at commands
        ({"protected_paths": [".git/"]}, NOBODY, "allow"),
        ({**BLOCKS, "opaque": "ask"}, Facts(), "ask"),
        ({**BLOCKS, "opaque": "ask"}, NOBODY, "deny"),
        ({**ASKS, "opaque": "ask"}, Facts(), "ask"),
        ({"require_approval": ["Bash(git push *)"], "opaque": "ask"}, Facts(), "ask"),
        ({"require_approval": ["Write"], "opaque": "ask"}, Facts(), "allow"),
        ({"disallowed_tools": ["Bash(git push *)"], "opaque": "ask"}, NOBODY, "deny"),
        ({"destructive": "deny", "opaque": "ask"}, NOBODY, "deny"),
        ({**BLOCKS, "opaque": "deny"}, Facts(), "deny"),
        ({**BLOCKS, "opaque": "deny"}, Facts(sandboxed=True), "deny"),
        ({**BLOCKS, "opaque": "ask"}, Facts(sandboxed=True), "ask"),
        ({**BLOCKS, "opaque": "sandbox"}, Facts(sandboxed=True), "allow"),
        ({**BLOCKS, "opaque": "sandbox"}, Facts(person=False, sandboxed=True), "allow"),
        ({**BLOCKS, "opaque": "sandbox"}, Facts(), "ask"),
        ({**BLOCKS, "opaque": "sandbox"}, NOBODY, "deny"),
        (BLOCKS, NOBODY, "deny"),
    ],
)
def test_a_command_that_cannot_be_read(rules: dict[str, Any], facts: Facts, expected: str) -> None:
    assert bash(rules, OPAQUE, facts=facts) == expected


@pytest.mark.parametrize("name", ["Bash", "PowerShell", "REPL"])
def test_a_call_without_a_readable_command_is_opaque(name: str) -> None:
    assert judged({**BLOCKS, "opaque": "ask"}, name, {}, facts=NOBODY).word == "deny"
    assert judged({}, name, {}, facts=NOBODY).word == "allow"


def test_a_verdict_tells_rule_layer_reason_and_how_the_command_was_read() -> None:
    found = judged(ASKS, "Bash", {"command": "cd sub && sudo git push > log.txt"})
    assert isinstance(found, Ask)
    assert (found.rule, found.layer) == ("require_approval", "test")
    assert "git push" in found.reason
    assert "runs git push (through sudo) (in sub)" in found.reading
    assert "writes sub/log.txt" in found.reading


def test_control_tools_pass_every_limit_but_a_block_of_their_own() -> None:
    rules: dict[str, Any] = {"require_approval": True, "allowed_tools": ["Read"], "max_tool_calls": 0}
    assert judged(rules, "StructuredOutput", {}).word == "allow"
    assert judged({"disallowed_tools": ["TodoWrite"]}, "TodoWrite", {}).word == "deny"


def test_a_colon_may_be_part_of_a_word() -> None:
    policy = Policy(mode="full", workspace=(WS,), tools=("Bash(npm run test:unit:*)",))
    run = ToolCall(id="t", name="Bash", input={"command": "npm run test:unit -- -x"})
    assert isinstance(decide(policy, run), Allow)
    other = ToolCall(id="t", name="Bash", input={"command": "npm run test"})
    assert isinstance(decide(policy, other), Deny)
