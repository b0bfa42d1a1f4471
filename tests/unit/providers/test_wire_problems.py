"""What the CLI says went wrong, in a result or in a plain line, and the kind of problem that it is for us."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadrope.providers.claude_code import decode, failures


def told(line: dict[str, Any] | bytes) -> list[Any]:
    return decode.Decoder().feed([line if isinstance(line, bytes) else json.dumps(line).encode()])


def result(**more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "done", **more}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Not logged in · Please run /login", "not_authenticated"),
        ("API Error: 401 Unauthorized", "not_authenticated"),
        ("request failed with 401", "not_authenticated"),
        ("401 Unauthorized", "not_authenticated"),
        ("Failed to authenticate. API Error: 403 forbidden", "not_authenticated"),
        ("--dangerously-skip-permissions cannot be used with root/sudo privileges", "spawn_failed"),
        ("error: unknown option '--x'", "spawn_failed"),
        ("Error: Session ID 1 is already in use.", "bad_request"),
        ("No conversation found with session ID: 1", "session_lost"),
        ("Error: Invalid MCP configuration:", "bad_request"),
        ("API Error: Request rejected (429) · usage limit", "rate_limited"),
        ("API Error: 529 Overloaded", "overloaded"),
        ("API Error: 500 internal", "api_error"),
        ("API Error: 404 no such model", "bad_request"),
        ("Claude AI usage limit reached|1700000000", "rate_limited"),
        ("Credit balance is too low", "usage_limit"),
        ("connect ECONNREFUSED 127.0.0.1:1", "connection_failed"),
        ("API Error: Can't reach the API server — check your internet or DNS (EAI_AGAIN)", "connection_failed"),
        ("API Error: No internet route — check your connection or VPN (ENETUNREACH)", "connection_failed"),
        ("error at line 4012", None),
        ("file.js:401:7", None),
        ("all is well", None),
    ],
)
def test_a_plain_line_has_the_kind_that_the_event_would_have(text: str, kind: str | None) -> None:
    problem = failures.explain_text(text)
    assert (problem.kind if problem else None) == kind
    (item,) = told(text.encode())
    assert item.problem == problem


NOT_A_SESSION = (
    "Error: --resume requires a valid session ID or session title when used with --print. Usage: claude -p --resume "
    '<session-id|title>. Provided value "not-a-uuid" is not a UUID and does not match any session title.'
)


def test_half_a_line_of_json_explains_nothing() -> None:
    """It holds the model's words, which may speak of anything."""
    (item,) = told(b'{"type":"assistant","message":{"content":"the page says: Not logged in')
    assert item.problem is None


@pytest.mark.parametrize(
    ("more", "outcome", "kind"),
    [
        ({"subtype": "error_max_turns", "is_error": True}, "degraded", "max_turns"),
        ({"subtype": "error_max_turns", "is_error": False}, "degraded", "max_turns"),
        ({"subtype": "error_max_budget_usd", "is_error": True}, "over_budget", "over_budget"),
        ({"is_error": True, "api_error_status": 402}, "failed", "usage_limit"),
        ({"is_error": True, "api_error_status": 404}, "failed", "bad_request"),
        ({"is_error": True, "api_error_status": 413}, "failed", "bad_request"),
        ({"is_error": True, "api_error_status": 503}, "failed", "api_error"),
        ({"is_error": True, "api_error_status": 408}, "failed", "api_error"),
        ({"is_error": True, "terminal_reason": "aborted_streaming"}, "stopped", "stopped"),
        ({"is_error": True, "api_error": "billing_error", "api_error_status": 400}, "failed", "usage_limit"),
        ({"is_error": True, "terminal_reason": "prompt_too_long"}, "failed", "prompt_too_long"),
        ({"is_error": True, "startup_failure_reason": "bypass_root"}, "failed", "spawn_failed"),
        ({"is_error": True, "startup_failure_reason": "proxy_invalid"}, "failed", "spawn_failed"),
        ({"subtype": "error_during_execution", "is_error": False}, "failed", "api_error"),
        ({"is_error": True}, "failed", "api_error"),
        ({"subtype": "error_during_execution", "is_error": True, "errors": [NOT_A_SESSION]}, "failed", "bad_request"),
    ],
)
def test_a_result_is_explained(more: dict[str, Any], outcome: str, kind: str) -> None:
    (turn,) = told(result(**more))
    assert (turn.problem.outcome, turn.problem.kind) == (outcome, kind)


def test_a_good_result_needs_no_explanation_whatever_its_text_says() -> None:
    (turn,) = told(result(result="The page says: Not logged in, API Error: 401"))
    assert turn.problem is None


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)", True),
        ("API Error: Can't reach the API server — check your internet or DNS (EAI_AGAIN)", True),
        ("API Error: Connection to the API was lost (ECONNRESET). This is usually temporary — try again.", False),
        ("API Error: Connection lost mid-response. The response above may be incomplete.", False),
        ("The test failed with ECONNREFUSED", False),
    ],
)
def test_a_connection_that_was_lost_is_told_from_one_that_was_never_made(text: str, never: bool) -> None:
    assert failures.never_connected(text) == never
