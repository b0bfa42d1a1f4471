"""What a session says to the CLI, and when it takes the CLI's answer for a promise that the gate will hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadrope.core.attachments import Attachment
from leadrope.core.request import Limits, RunRequest
from leadrope.providers.claude_code.session import GATE_FOREVER_S, GATE_ID, ClaudeSession, ready_from

KEPT = {"hooks_applied": True, "hook_on_failure_supported": True, "claude_code_version": "2.1.325"}


def session(*attachments: Attachment, **fields: Any) -> ClaudeSession:
    return ClaudeSession(RunRequest(**({"prompt": "go"} | fields)), attachments)


def said(line: bytes) -> Any:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line)


@pytest.mark.parametrize("mode", ["plan", "default", "edit", "full", "dontAsk"])
def test_the_opening_registers_a_gate_for_every_call_that_blocks_when_it_fails(mode: str) -> None:
    """Without onFailure an answer that the CLI cannot read lets the tool run; with a matcher some tools pass by."""
    request = said(session(mode=mode).open())["request"]
    assert request["subtype"] == "initialize"
    (hook,) = request["hooks"]["PreToolUse"]
    assert hook["matcher"] is None
    assert hook["hookCallbackIds"] == [GATE_ID]
    assert hook["onFailure"] == "block"


@pytest.mark.parametrize("approval_s", [1.0, 300.0, 86_400.0])
def test_the_clis_own_time_for_an_answer_ends_after_the_persons(approval_s: float) -> None:
    """Else it blocks without the reason that ours gives."""
    opening = said(session(limits=Limits(approval_s=approval_s)).open())
    assert opening["request"]["hooks"]["PreToolUse"][0]["timeout"] > approval_s


def test_an_approval_without_a_limit_does_not_expire_in_the_cli() -> None:
    opening = said(session(limits=Limits(approval_s=0)).open())
    assert opening["request"]["hooks"]["PreToolUse"][0]["timeout"] == GATE_FOREVER_S


@pytest.mark.parametrize("text", ["/clear", "@/etc/passwd", "two\nlines", "go"])
def test_every_prompt_is_sent_as_composed_by_us(text: str) -> None:
    """Else `/name` runs a command and `@path` reads a file, both past the gate."""
    line = said(session().prompt(text))
    assert line["client_composed"] is True
    assert line["message"] == {"role": "user", "content": text}


def test_attachments_go_once_and_with_the_first_prompt_alone() -> None:
    note = Attachment(name="a.txt", kind="text", media_type="text/plain", content=b"x")
    one = session(note)
    assert said(one.prompt("something else"))["message"]["content"] == "something else"
    first = said(one.prompt("go"))
    assert [block["type"] for block in first["message"]["content"]] == ["document", "text"]
    assert first["client_composed"] is True
    assert said(one.prompt("go"))["message"]["content"] == "go"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (KEPT, ""),
        (KEPT | {"current_permission_mode": "acceptEdits"}, ""),
        (KEPT | {"current_permission_mode": "bypassPermissions"}, "bypassPermissions"),
        (KEPT | {"current_permission_mode": "auto"}, "auto"),
        (KEPT | {"hooks_applied": False}, "did not take"),
        (KEPT | {"hooks_applied": "yes"}, "did not take"),
        (KEPT | {"hook_on_failure_supported": False}, "when they fail"),
        (KEPT | {"hook_on_failure_supported": 1}, "when they fail"),
        ({}, "did not take"),
        (None, "did not take"),
        ([KEPT], "did not take"),
    ],
)
def test_only_a_plain_promise_counts(answer: Any, reason: str) -> None:
    ready = ready_from(answer, "acceptEdits")
    assert ready.gate is not bool(reason)
    assert reason in ready.reason


def test_a_version_that_is_not_told_is_not_a_tested_one() -> None:
    assert ready_from(KEPT, "default").is_tested
    for version in ("", "99.0.0", 2, None):
        assert not ready_from(KEPT | {"claude_code_version": version}, "default").is_tested
