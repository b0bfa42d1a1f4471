"""The agent's own sandbox: its settings are checked in a request as in a step, and what the gate makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope import RunRequest, errors
from leadrope.core.request_checks import check
from leadrope.core.request_parts.agent_sandbox import AgentSandbox
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.policy.resolve import of_rules, rules_of
from leadrope.providers.claude_code import argv


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"enabled": "yes"}, "agent_sandbox.enabled"),
        ({"enable": True}, "agent_sandbox"),
        ({"network": {"bogus": 1}}, "agent_sandbox.network"),
        ({"excludedCommands": "docker"}, "agent_sandbox.excludedCommands"),
        ({"autoAllowBashIfSandboxed": 1}, "agent_sandbox.autoAllowBashIfSandboxed"),
        ({"ignoreViolations": {"file": "x"}}, "agent_sandbox.ignoreViolations"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.BadValue) as refused:
        check(RunRequest(prompt="go", agent_sandbox=settings))
    assert refused.value.message.startswith(field)


def test_what_the_program_knows_is_taken_as_it_is() -> None:
    given = {"enabled": True, "excludedCommands": ["docker"], "network": {"allowLocalBinding": True}}
    assert check(RunRequest(prompt="go", agent_sandbox=given)).agent_sandbox == given


@pytest.mark.parametrize(("given", "sent"), [({}, False), ({"allowUnsandboxedCommands": True}, True)])
def test_a_command_may_leave_it_only_where_the_user_said_so(given: dict[str, Any], sent: bool) -> None:
    settings = argv.settings(RunRequest(prompt="go", agent_sandbox={"enabled": True, **given}))
    assert settings["sandbox"]["allowUnsandboxedCommands"] is sent
    assert settings["sandbox"]["failIfUnavailable"] is True


def word(
    command: str, settings: dict[str, Any], *, mode: Any = "default", sandboxed: bool = False, **rules: Any
) -> str:
    leaves = {"dangerouslyDisableSandbox": True} if command.startswith("LEAVE ") else {}
    call = ToolCall(id="1", name="Bash", input={"command": command.removeprefix("LEAVE "), **leaves})
    policy = Policy(
        mode=mode,
        workspace=("/ws",),
        agent_sandbox=AgentSandbox.of(settings),
        rules=of_rules(rules_of(rules)),
    )
    return decide(policy, call, Facts(sandboxed=sandboxed)).word


AUTO = {"enabled": True, "autoAllowBashIfSandboxed": True}


@pytest.mark.parametrize(
    ("command", "settings", "wanted"),
    [
        ("make x", AUTO, "allow"),
        ("make x", {"enabled": True}, "ask"),
        ("make x", {"autoAllowBashIfSandboxed": True}, "ask"),
        ("LEAVE make x", AUTO, "ask"),
        ("docker ps", {**AUTO, "excludedCommands": ["docker"]}, "ask"),
        ("make x && /usr/bin/docker ps", {**AUTO, "excludedCommands": ["docker *"]}, "ask"),
        ("make x", {**AUTO, "excludedCommands": ["docker"]}, "allow"),
        ("$X", {**AUTO, "excludedCommands": ["docker"]}, "ask"),
    ],
)
def test_commands_that_it_holds_need_no_question(command: str, settings: dict[str, Any], wanted: str) -> None:
    assert word(command, settings) == wanted


def test_it_never_passes_a_block_or_an_approval_rule_or_a_plan() -> None:
    assert word("evil", AUTO, blocked_commands=["evil"]) == "deny"
    assert word("rm x", AUTO, require_approval=["rm"]) == "ask"
    assert word("make x", AUTO, mode="plan") == "deny"
    assert word("make x", AUTO, permission_mode="default") == "ask"


@pytest.mark.parametrize(
    ("settings", "sandboxed", "wanted"),
    [({"enabled": True}, True, "ask"), ({"enabled": True}, False, "ask"), ({}, False, "ask"), ({}, True, "allow")],
)
def test_leaving_it_is_asked_for_also_in_mode_full(settings: dict[str, Any], sandboxed: bool, wanted: str) -> None:
    """Where there is none, and the command stays in leadrope's own sandbox, the word means nothing."""
    assert word("LEAVE make x", settings, mode="full", sandboxed=sandboxed) == wanted
    assert word("make x", settings, mode="full", sandboxed=sandboxed) == "allow"
