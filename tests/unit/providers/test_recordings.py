"""107 runs of the real CLI, as it printed them: every line is understood, and every ending is told for what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from leadrope.core import events
from leadrope.core.fold import fold
from leadrope.core.result import RunResult
from leadrope.providers.claude_code import decode, failures, signals

RECORDINGS = Path(__file__).parents[2] / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())

# Everything that did not end as a plain success, and the successes that came after a failure on the way.
ENDINGS: dict[str, tuple[str, str | None, str]] = {
    "cred-none": ("failed", "not_authenticated", ""),
    "ctl-hold-deny-allow": ("succeeded", None, "turn9 done"),
    "fail-badsse": ("failed", "malformed_output", ""),
    "fail-cut": ("succeeded", None, "(script over)"),
    "fail-e400": ("failed", "bad_request", ""),
    "fail-e401": ("failed", "not_authenticated", ""),
    "fail-e403": ("failed", "not_authenticated", ""),
    "fail-e429": ("failed", "rate_limited", ""),
    "fail-e500-maxretries2": ("failed", "api_error", ""),
    "fail-e529": ("failed", "overloaded", ""),
    "fail-empty": ("failed", "empty_output", ""),
    "fail-maxtok": ("succeeded", None, "(script over)"),
    # The CLI printed no rate_limit_event here, so there is no time to park until.
    "fail-ratelimit_rejected": ("failed", "rate_limited", ""),
    "fail-refusal": ("succeeded", None, "(script over)"),
    "fail-refused": ("failed", "connection_failed", ""),
    "fail-sse_error": ("succeeded", None, "(script over)"),
    "fail-toolong": ("failed", "prompt_too_long", ""),
    "flag-allowedTools-swallow": ("failed", "empty_prompt", ""),
    "flag-bypass-root-nosandbox": ("failed", "spawn_failed", ""),
    "flag-max-budget": ("over_budget", "over_budget", ""),
    "flag-max-turns1": ("degraded", None, ""),
    "flag-session-id-again": ("failed", "bad_request", ""),
    "flag-unknown": ("failed", "spawn_failed", ""),
    "hook-continue-false": ("stopped", "stopped", ""),
    "interrupt-api-hang": ("succeeded", None, "still alive"),
    "interrupt-bash": ("stopped", "stopped", ""),
    "interrupt-pending-permission": ("stopped", "stopped", ""),
    "mcp-malformed": ("failed", "bad_request", ""),
    "pending-never-answered": ("failed", "agent_died", ""),
    "prompt-empty": ("failed", "empty_prompt", ""),
    "prompt-slash-clear": ("failed", "empty_output", ""),
    "res-5-unknown": ("failed", "session_lost", ""),
    "res-8-otherhome": ("failed", "session_lost", ""),
    "sbx-on-nobwrap-failIfUnavailable": ("failed", "sandbox_unavailable", ""),
    "sig-int-parent-hang": ("failed", "agent_died", ""),
    "sig-kill-group-bash": ("failed", "agent_died", ""),
    "sig-term-parent-bash": ("failed", "agent_died", ""),
    "so-always-bad-retries2": ("degraded", None, ""),
    "stdin-badjson": ("failed", "bad_request", ""),
}

DENIED = {
    "ctl-no-init",
    "ctl-stray-replies",
    "evilrepo-default",
    "evilrepo-sources-empty",
    "hook-deny-acceptEdits",
    "hook-deny-bypassPermissions",
    "hook-deny-default",
    "hook-deny-dontAsk",
    "hook-deny-plan",
    "hook-sees-all",
    "hookfail-error-block",
    "hookfail-malformed-block",
    "parallel-perms",
    "pending-stdin-close",
}
"""Answered after every call that acts was denied."""


def lines_of(name: str, file: str = "stdout.jsonl") -> list[bytes]:
    """A recording without the file printed nothing there."""
    path = RECORDINGS / name / file
    return [line for line in path.read_bytes().split(b"\n") if line] if path.exists() else []


def log_of(name: str) -> list[events.Recorded]:
    """The log that a run would have kept, had it seen these lines and this exit."""
    told: list[events.Event] = []
    for item in decode.Decoder().feed(lines_of(name)):
        if isinstance(item, signals.Init):
            told.append(events.SessionStarted(session_id=item.session_id, provider="claude-code", model=item.model))
        elif isinstance(item, get_args(events.Event)):
            told.append(item)
    exit_ = json.loads((RECORDINGS / name / "exit.json").read_bytes())
    stderr = tuple(line.decode() for line in lines_of(name, "stderr.txt"))
    told.append(
        events.AgentExited(
            exit_code=exit_["exit"],
            stderr_head=stderr[:20],
            stderr_tail=stderr[-50:],
            ended_by="supervisor" if exit_["killed_by_harness"] else "agent",
            problem=failures.explain_lines(stderr),
        )
    )
    return [events.Recorded("run", 1, seq, 100.0 + seq, "agent", event) for seq, event in enumerate(told, 1)]


def test_all_107_recordings_are_here() -> None:
    assert len(NAMES) == 107
    assert set(ENDINGS) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_understood_and_none_is_lost(name: str) -> None:
    decoder = decode.Decoder()
    lines = lines_of(name)
    for line in lines:
        silent = decoder.silent
        told = decoder.feed([line])
        assert told or decoder.silent == silent + 1, line[:300]
        assert not [item for item in told if isinstance(item, events.Unrecognised)], line[:300]
        assert not [item for item in told if isinstance(item, signals.OtherControl)], line[:300]
    assert decoder.lines == len(lines)


@pytest.mark.parametrize("name", NAMES)
def test_the_ending_is_told_for_what_it_was(name: str) -> None:
    result = fold(log_of(name))
    if name in ENDINGS:
        found = (result.outcome, result.error.kind if result.error else None, result.text)
        assert found == ENDINGS[name]
    else:
        said = [text for line in results_of(name) if (text := line.get("result"))]
        found = (result.outcome, result.error.kind if result.error else None, result.text)
        assert found == (*(("denied", "denied") if name in DENIED else ("succeeded", None)), said[-1])
    if result.error:
        assert result.error.message
        assert result.error.hint
        assert result.error.exit_code == json.loads((RECORDINGS / name / "exit.json").read_bytes())["exit"]


def results_of(name: str) -> list[dict[str, Any]]:
    return [line for raw in lines_of(name) if (line := json.loads(raw))["type"] == "result"]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("res-")])
def test_the_costs_of_the_turns_add_up_to_the_total_of_the_process(name: str) -> None:
    totals = [line["total_cost_usd"] for line in results_of(name)]
    assert fold(log_of(name)).cost_usd == pytest.approx(max(totals, default=0))


def test_a_resumed_session_is_charged_for_its_own_work_only() -> None:
    assert results_of("res-2-resume")[0]["total_cost_usd"] == pytest.approx(0.0012)
    assert fold(log_of("res-2-resume")).cost_usd == pytest.approx(0.0006)


def test_statuses_are_kept_for_scripts() -> None:
    statuses = {
        name: error.api_status
        for name in ENDINGS
        if (error := fold(log_of(name)).error) is not None and error.api_status is not None
    }
    assert statuses == {
        "fail-e400": 400,
        "fail-e401": 401,
        "fail-e403": 403,
        "fail-e429": 429,
        "fail-e500-maxretries2": 500,
        "fail-e529": 529,
        "fail-ratelimit_rejected": 429,
        "fail-toolong": 400,
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("flag-max-turns1", "max_turns"),
        ("so-always-bad-retries2", "claude_code.schema_not_satisfied_after_retries"),
        ("ratelimit-headers", "usage_limit"),
        ("hookfail-error-open", "informational"),
    ],
)
def test_a_run_that_went_on_says_what_was_wrong_as_a_warning(name: str, kind: str) -> None:
    assert [warning.kind for warning in fold(log_of(name)).warnings] == [kind]


@pytest.mark.parametrize(
    ("name", "count"),
    [("hook-deny-plan", 1), ("parallel-perms", 3), ("hook-sees-all", 4), ("ask-dontAsk", 1), ("trivial", 0)],
)
def test_denials_of_the_cli_are_listed_with_their_reason(name: str, count: int) -> None:
    denials = fold(log_of(name)).denials
    assert len(denials) == count
    assert all(denial.reason and denial.call.name for denial in denials)


def test_a_structured_answer_arrives_as_data() -> None:
    assert fold(log_of("so-ok")).output == {"name": "Ada", "age": 36}
    assert fold(log_of("so-never")).output is None


def test_calls_that_the_cli_did_not_run_are_told_apart() -> None:
    def executed(name: str) -> list[bool]:
        return [log.event.executed for log in log_of(name) if isinstance(log.event, events.ToolCompleted)]

    assert executed("hook-deny-default") == [False]
    assert executed("ask-oneshot") == [False], "no such tool: rejected before any hook"
    assert executed("smoke-bash") == [True]
    assert executed("sig-term-parent-bash") == [True], "it failed, but it ran"
    assert not any(executed("parallel-perms"))


def test_a_subagents_lines_carry_its_id() -> None:
    log = [record.event for record in log_of("oneshot-bg-agent")]
    started = [event for event in log if isinstance(event, events.SubagentStarted)]
    assert [(event.agent_id, event.background) for event in started] == [("a21354037c2d8b5a9", True)]
    calls = {event.call.name: event.call.agent_id for event in log if isinstance(event, events.ToolRequested)}
    assert calls == {"Agent": None, "Bash": "a21354037c2d8b5a9"}
    texts = [(event.text, event.agent_id) for event in log if isinstance(event, events.MessageCompleted)]
    assert ("sub done", "a21354037c2d8b5a9") in texts
    ended = [event for event in log if isinstance(event, events.SubagentEnded)]
    assert [(event.status, event.summary, event.tokens) for event in ended] == [("completed", "sub done", 110)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oneshot-bg-agent", [(1, 0), (1, 0), (0, 0), (0, 0)]),
        ("bg-bash-oneshot", [(0, 1), (0, 1)]),
        ("hook-subagent-fg", []),
    ],
)
def test_open_background_work_is_counted(name: str, expected: list[tuple[int, int]]) -> None:
    told = decode.Decoder().feed(lines_of(name))
    assert [(item.agents, item.commands) for item in told if isinstance(item, signals.BackgroundTasks)] == expected


def test_partial_text_and_tokens_come_once_for_each_message() -> None:
    log = [record.event for record in log_of("partial")]
    pieces = [event for event in log if isinstance(event, events.MessageDelta | events.ThinkingDelta)]
    assert [(type(event), event.text) for event in pieces] == [
        (events.ThinkingDelta, "hm"),
        (events.MessageDelta, "hello world"),
    ]
    counted = [event for event in log if isinstance(event, events.UsageUpdated)]
    assert [(event.message_id, event.usage.input_tokens, event.usage.output_tokens) for event in counted] == [
        ("msg_04035f05c132498bb26b", 100, 10)
    ]
    assert fold(log_of("partial")).usage.total_tokens == 110, "the turn's own count is not added to the message's"


def test_every_request_of_the_cli_reaches_the_session() -> None:
    """A request that is lost would hold the agent for ever."""
    for name in NAMES:
        asked = {
            line["request_id"]: line["request"]["subtype"]
            for raw in lines_of(name)
            if (line := json.loads(raw))["type"] == "control_request"
        }
        kinds = {
            "hook_callback": signals.HookCall,
            "can_use_tool": signals.CliPermissionAsked,
            "mcp_message": signals.McpMessage,
        }
        told = {
            item.request_id: type(item)
            for item in decode.Decoder().feed(lines_of(name))
            if isinstance(item, signals.HookCall | signals.CliPermissionAsked | signals.McpMessage)
        }
        assert told == {request_id: kinds[subtype] for request_id, subtype in asked.items()}, name


def test_a_replayed_log_gives_the_result_of_the_live_one() -> None:
    for name in NAMES:
        live = log_of(name)
        result = fold(live)
        end = events.RunEnded(result=RunResult(run_id="run", outcome="failed", text="never asked"))
        live.append(events.Recorded("run", 1, len(live) + 1, 9999.0, "supervisor", end))
        replayed = msgspec.json.decode(msgspec.json.encode(live), type=list[events.Recorded])
        assert fold(replayed) == result, name
        assert msgspec.json.decode(msgspec.json.encode(result), type=RunResult) == result, name
