"""Commands that only read get the verdict of reading in every mode, where their names mean what they seem to."""

from __future__ import annotations

import os
from typing import Any, get_args

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.policy.files import defaults
from leadrope.policy.resolve import Layer, resolve, rules_of

MODES: tuple[Mode, ...] = get_args(Mode)
PLAIN = Facts(home="/home/me", git_is_plain=True)

READING = ["ls -la", "pwd", "cat README.md", "head -5 a", "wc -l a", "grep -rn x src", "rg x", "find . -name '*.py'"]
READING += ["ls --all --color=auto", "grep -rn x --include=*.py .", "cat -- --odd-name", "cat src/proc/environ.py"]
READING += ["which python3", "jq . a.json", "git status", "git diff --stat", "git log --oneline -5", "git show HEAD"]
READING += ["cat a | sort | uniq -c | head", "cd src && ls", "python3 --version", "git status 2>/dev/null"]
MORE = ["ls > a", "cat $(ls)", "find . -delete", "find . -exec rm {} +", "git commit -m x", "touch a", "npm test"]
MORE += ["ls --new-option", "cat --output=x a", "wc --files0-from=list", "grep --include --run=x y z"]
MORE += ["cd /proc/self && cat environ", "cat ../../../proc/self/environ", "cat ./../../proc/1/mem", "head /dev/sda"]
MORE += ["cd / && cat dev/sda", "cat /proc/self/environ"]
MORE += ["git -c core.fsmonitor=./x status", "GIT_DIR=x git status", "./ls", "sort -o a b", "jq . a | tee b"]


def word(mode: Mode, command: str, facts: Facts = PLAIN, rules: dict[str, Any] | None = None, **input_: Any) -> str:
    layers = [Layer("default", defaults.rules(), True)]
    if rules:
        layers.append(Layer("test", rules_of(rules)))
    policy = Policy(mode=mode, workspace=("/ws",), rules=resolve(layers))
    call = ToolCall(id="t", name="Bash", input={"command": command, **input_})
    return decide(policy, call, facts, resolve=os.path.normpath).word


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", READING)
def test_a_reading_command_is_a_read_in_every_mode(mode: Mode, command: str) -> None:
    assert word(mode, command) == "allow"


@pytest.mark.parametrize("command", MORE)
def test_what_does_more_than_read_is_not(command: str) -> None:
    assert word("plan", command) == "deny"
    assert word("edit", command) != "allow"


def test_a_layers_mode_allows_it_too() -> None:
    assert word("full", "git status", rules={"permission_mode": "plan"}) == "allow"
    assert word("full", "touch a", rules={"permission_mode": "plan"}) == "deny"


@pytest.mark.parametrize("mode", ["plan", "default", "edit", "dontAsk"])
def test_a_rule_comes_before_it(mode: Mode) -> None:
    nobody_asks = mode == "dontAsk"
    assert word(mode, "cat config/prod/key", rules={"blocked_paths": ["config/prod/"]}) == "deny"
    assert word(mode, "grep -r x .", rules={"blocked_paths": ["config/prod/"]}) == ("deny" if nobody_asks else "ask")
    assert word(mode, "ls", rules={"require_approval": ["ls"]}) == ("deny" if nobody_asks else "ask")
    assert word(mode, "ls", rules={"require_approval": True}) == ("deny" if nobody_asks else "ask")
    assert word(mode, "ls", rules={"blocked_commands": ["ls"]}) == "deny"
    assert word(mode, "ls", rules={"disallowed_tools": ["Bash"]}) == "deny"


def test_a_list_of_tools_without_bash_keeps_it_out() -> None:
    policy = Policy(mode="full", workspace=("/ws",), tools=("Read", "Grep"))
    assert decide(policy, ToolCall(id="t", name="Bash", input={"command": "ls"})).word == "deny"


@pytest.mark.parametrize(
    ("found", "expected"),
    [("/usr/bin/ls", "allow"), ("/ws/bin/ls", "deny"), ("/ws/node_modules/.bin/ls", "deny"), ("bin/ls", "deny")],
)
def test_the_program_must_lie_outside_of_the_workspace(found: str, expected: str) -> None:
    facts = Facts(home="/home/me", which=lambda _name: found)
    assert word("plan", "ls", facts) == expected
    assert word("plan", "ls", Facts(home="/home/me", which=lambda _name: None)) == "deny"


def test_git_must_be_plain_and_no_variable_may_change_what_a_program_does() -> None:
    assert word("plan", "git status", Facts(home="/home/me")) == "deny"
    assert word("plan", "ls", Facts(home="/home/me")) == "allow"
    assert word("plan", "rg x", Facts(home="/home/me", variables=frozenset({"RIPGREP_CONFIG_PATH"}))) == "deny"


def test_a_read_that_leaves_the_agents_own_sandbox_is_none() -> None:
    assert word("plan", "ls", dangerouslyDisableSandbox=True) == "deny"
    assert word("full", "ls", dangerouslyDisableSandbox=True) == "ask"


@pytest.mark.parametrize("cwd", ["/proc/self", "/proc", "/dev"])
def test_nothing_is_read_from_inside_the_kernels_own_folders(cwd: str) -> None:
    policy = Policy(mode="plan", workspace=("/ws",))
    call = ToolCall(id="t", name="Bash", input={"command": "cat environ"}, cwd=cwd)
    assert decide(policy, call, PLAIN, resolve=os.path.normpath).word == "deny"
