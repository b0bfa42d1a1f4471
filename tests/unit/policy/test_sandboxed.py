"""What changes behind a sandbox that holds: mode full runs programs, mode sandboxed commands; nothing else opens."""

from __future__ import annotations

import os
from typing import Any

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.policy.files import defaults
from leadrope.policy.resolve import Layer, resolve, rules_of

SHIPPED = Layer("default", defaults.rules(), True)
BOXED = Facts(sandboxed=True, home="/home/me")
FREE = Facts(home="/home/me")

UNKNOWN = ["gradle test", "terraform plan", "mvn -q test", "dotnet test", "python3 -c 'print(1)'", "node -e 1"]
UNKNOWN += ["python3 - <<E\nprint(1)\nE", "psql -c 'select 1'", "docker compose up -d"]
OPAQUE = ['eval "$X"', "$TOOL test", "echo cm0gLXJmCg== | base64 -d | bash", "if then", 'bash -c "$(cat x)"']
NAMED = ["git push", "rm -f a", "gradle test; rm a", "mytool git push", "echo x > .git/hooks/pre-commit"]


def word(mode: Mode, command: str, facts: Facts, rules: dict[str, Any] | None = None, name: str = "Bash") -> str:
    layers = [SHIPPED, *([Layer("global", rules_of(rules))] if rules else [])]
    if rules and "opaque" in rules:  # of the user's own policy, where it replaces the shipped value
        from leadrope.policy.resolve import with_defaults

        layers = list(with_defaults([rules_of(rules)], defaults.rules()))
    policy = Policy(mode=mode, workspace=("/ws",), rules=resolve(layers))
    call = ToolCall(id="t", name=name, input={"command": command})
    return decide(policy, call, facts, resolve=os.path.normpath).word


@pytest.mark.parametrize("command", UNKNOWN)
def test_full_runs_programs_that_are_not_known_behind_a_sandbox_only(command: str) -> None:
    assert word("full", command, BOXED) == "allow"
    assert word("full", command, Facts(sandboxed=True, person=False)) == "allow"
    assert word("full", command, FREE) == "ask"
    assert word("full", command, Facts(person=False)) == "deny"
    assert [word(mode, command, BOXED) for mode in ("plan", "default", "edit", "dontAsk")] == [
        "deny",
        "ask",
        "ask",
        "deny",
    ]
    assert word("full", command, BOXED, {"opaque": "deny"}) == "deny"


@pytest.mark.parametrize("command", OPAQUE)
def test_full_asks_for_what_cannot_be_read_unless_the_user_says_sandbox(command: str) -> None:
    assert word("full", command, BOXED) == "ask"
    assert word("full", command, BOXED, {"opaque": "sandbox"}) == "allow"
    assert word("full", command, FREE, {"opaque": "sandbox"}) == "ask"
    assert word("full", command, BOXED, {"opaque": "deny"}) == "deny"


@pytest.mark.parametrize("command", [*UNKNOWN, *OPAQUE, "npm test", "echo x > $F", "git $X"])
def test_mode_sandboxed_runs_every_command_while_the_sandbox_holds(command: str) -> None:
    assert word("sandboxed", command, BOXED) == "allow"
    assert word("sandboxed", command, FREE) == "ask"
    assert word("sandboxed", command, Facts(person=False)) in ("ask", "deny"), "an ask that nobody answers is a no"
    if command in (*UNKNOWN, *OPAQUE):
        assert word("sandboxed", command, BOXED, {"opaque": "deny"}) == "deny"


@pytest.mark.parametrize("mode", ["full", "sandboxed"])
@pytest.mark.parametrize("command", NAMED)
def test_what_a_line_names_is_asked_for_whatever_the_sandbox(mode: Mode, command: str) -> None:
    assert word(mode, command, BOXED) == "ask"


@pytest.mark.parametrize("mode", ["full", "sandboxed"])
@pytest.mark.parametrize("command", ["rm -rf /", "mkfs.ext4 /dev/sda", "gradle test && dd if=a of=/dev/sda"])
def test_what_is_blocked_stays_blocked(mode: Mode, command: str) -> None:
    assert word(mode, command, BOXED) == "deny"


@pytest.mark.parametrize(
    ("name", "input_", "boxed", "free"),
    [
        ("Read", {"file_path": "/ws/a"}, "allow", "allow"),
        ("Write", {"file_path": "/ws/a"}, "allow", "allow"),
        ("Write", {"file_path": "/etc/hosts"}, "ask", "ask"),
        ("Write", {"file_path": "/ws/.git/config"}, "ask", "ask"),
        ("Agent", {"prompt": "x"}, "allow", "ask"),
        ("PowerShell", {"command": "x"}, "allow", "ask"),
        ("mcp__db__query", {}, "ask", "ask"),
        ("WebFetch", {"url": "https://example.com"}, "allow", "allow"),
        ("WebFetch", {"url": "http://10.0.0.1"}, "deny", "deny"),
    ],
)
def test_the_other_classes_in_mode_sandboxed(name: str, input_: dict[str, Any], boxed: str, free: str) -> None:
    policy = Policy(mode="sandboxed", workspace=("/ws",), rules=resolve([SHIPPED]))
    call = ToolCall(id="t", name=name, input=input_)
    got = [decide(policy, call, facts, resolve=os.path.normpath).word for facts in (BOXED, FREE)]
    assert got == [boxed, free]


@pytest.mark.parametrize("facts", [BOXED, FREE], ids=["sandbox", "none"])
@pytest.mark.parametrize(
    ("name", "input_"),
    [
        ("Bash", {"command": "npm test"}),
        ("Bash", {"command": "gradle test"}),
        ("Bash", {"command": 'eval "$X"'}),
        ("Bash", {"command": "git push"}),
        ("Write", {"file_path": "/ws/a"}),
        ("Write", {"file_path": "/etc/a"}),
        ("Agent", {}),
        ("mcp__db__query", {}),
    ],
)
def test_as_a_layers_mode_it_lies_between_edit_and_full(name: str, input_: dict[str, Any], facts: Facts) -> None:
    """A layer that allows at most `sandboxed` never allows more than `full` would, nor less than `edit`."""
    order = {"allow": 0, "ask": 1, "deny": 2}

    def capped(cap: str) -> int:
        rules = resolve([SHIPPED, Layer("global", rules_of({"permission_mode": cap}))])
        policy = Policy(mode="full", workspace=("/ws",), rules=rules)
        call = ToolCall(id="t", name=name, input=input_)
        return order[decide(policy, call, facts, resolve=os.path.normpath).word]

    assert capped("full") <= capped("sandboxed") <= capped("edit")


def test_a_command_that_leaves_the_agents_own_sandbox_is_asked_for() -> None:
    call = ToolCall(id="t", name="Bash", input={"command": "npm test", "dangerouslyDisableSandbox": True})
    for tools in (None, ("Bash",)):
        policy = Policy(mode="full", workspace=("/ws",), tools=tools)
        assert decide(policy, call, FREE).word == "ask"
        assert decide(policy, call, BOXED).word == "allow", "ours is around it all the same"
        plain = ToolCall(id="t", name="Bash", input={"command": "npm test", "dangerouslyDisableSandbox": False})
        assert decide(policy, plain, FREE).word == "allow"
