"""The user's own command that cannot be read: it passes only where the sandbox prevents all that is blocked."""

from __future__ import annotations

import os
from typing import Any

import pytest

from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.policy.resolve import of_rules, rules_of

OPAQUE = 'eval "$X"'
BLOCKS = {"blocked_commands": ["rm"]}


def word(rules: dict[str, Any], command: str, **facts: Any) -> str:
    policy = Policy(mode="full", workspace=("/ws",), rules=of_rules(rules_of(rules)))
    call = ToolCall(id="1", name="Bash", input={"command": command})
    return decide(policy, call, Facts(home="/h", **facts), resolve=os.path.normpath).word


@pytest.mark.parametrize(
    ("rules", "facts", "wanted"),
    [
        ({"opaque": "ask"}, {"is_own": True, "is_masked": True}, "allow"),
        ({"opaque": "ask"}, {"is_own": True, "is_masked": True, "person": False}, "allow"),
        ({"opaque": "ask"}, {"is_own": True}, "ask"),
        ({"opaque": "ask"}, {"is_own": True, "person": False}, "deny"),
        ({"opaque": "ask"}, {"is_masked": True}, "ask"),
        ({"opaque": "ask"}, {"is_masked": True, "person": False}, "deny"),
        ({"opaque": "ask"}, {"is_own": True, "sandboxed": True}, "ask"),
        ({"opaque": "deny"}, {"is_own": True, "is_masked": True}, "deny"),
        ({"opaque": "sandbox"}, {"is_own": True, "is_masked": True}, "allow"),
        ({"opaque": "sandbox"}, {"is_own": True}, "ask"),
    ],
)
def test_own_text_that_cannot_be_read(rules: dict[str, Any], facts: dict[str, Any], wanted: str) -> None:
    assert word({**BLOCKS, **rules}, OPAQUE, **facts) == wanted


@pytest.mark.parametrize(
    ("rules", "command", "wanted"),
    [
        (BLOCKS, "rm a", "deny"),
        (BLOCKS, "eval 'rm a'", "deny"),
        ({"destructive": "deny"}, "rm -rf /", "deny"),
        ({"require_approval": ["git push"]}, "git push", "ask"),
        ({"protected_paths": [".git/"]}, "echo a >.git/config", "ask"),
        ({**BLOCKS, "permission_mode": "plan"}, OPAQUE, "deny"),
        ({**BLOCKS, "permission_mode": "default"}, OPAQUE, "ask"),
        ({**BLOCKS, "on_ask": "deny"}, OPAQUE, "allow"),
    ],
)
def test_what_can_be_read_is_judged_as_ever(rules: dict[str, Any], command: str, wanted: str) -> None:
    assert word(rules, command, is_own=True, is_masked=True) == wanted
