"""Lines of the CLI and what they mean, one beside the other."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from leadrope.core import events
from leadrope.core.tools import ToolCall
from leadrope.core.usage import Usage
from leadrope.providers.claude_code import decode, failures, signals, unreadable


def told(*lines: dict[str, Any] | bytes) -> list[Any]:
    return decode.Decoder().feed([line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines])


def assistant(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m1", "content": list(blocks)}, **more}


def user(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": list(blocks)}, **more}


def stream(event: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None, **more}


def result(**more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "done", **more}


def control(**request: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": "r1", "request": request}


TABLE: list[tuple[str, dict[str, Any], list[Any]]] = [
    (
        "text of the model",
        assistant({"type": "text", "text": "hi"}),
        [events.MessageCompleted(text="hi", message_id="m1")],
    ),
    (
        "text of the CLI about a failed request",
        assistant({"type": "text", "text": "API Error"}, is_api_error_message=True),
        [events.MessageCompleted(text="API Error", message_id="m1", is_error=True)],
    ),
    (
        "an error's name alone marks it too",
        assistant({"type": "text", "text": "API Error"}, error="rate_limit"),
        [events.MessageCompleted(text="API Error", message_id="m1", is_error=True)],
    ),
    (
        "content that is one text",
        {"type": "assistant", "message": {"id": "m1", "content": "hi"}},
        [events.MessageCompleted(text="hi", message_id="m1")],
    ),
    ("an empty text says nothing", assistant({"type": "text", "text": ""}), []),
    (
        "thinking, and a tool call of a subagent whose start was not seen",
        assistant(
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
            parent_tool_use_id="t0",
        ),
        [
            events.ThinkingCompleted(text="hm", message_id="m1", agent_id="t0"),
            events.ToolRequested(
                call=ToolCall(id="t1", name="Bash", input={"command": "ls"}, agent_id="t0"), message_id="m1"
            ),
        ],
    ),
    (
        "a tool input that is no object is kept under a name",
        assistant({"type": "tool_use", "id": "t1", "name": "StructuredOutput", "input": ["a"]}),
        [
            events.ToolRequested(
                call=ToolCall(id="t1", name="StructuredOutput", input={decode.WRONG_INPUT: ["a"]}), message_id="m1"
            )
        ],
    ),
    ("hidden thoughts say nothing", assistant({"type": "redacted_thinking", "data": "x"}), []),
    (
        "older CLIs: a tool result inside the assistant's message",
        assistant({"type": "tool_result", "tool_use_id": "t1", "content": "out"}),
        [events.ToolCompleted(call_id="t1", text="out")],
    ),
    (
        "older CLIs: a tool call as a line of its own",
        {"type": "tool_use", "tool_use": {"name": "Read", "input": {"file_path": "a"}}},
        [events.ToolRequested(call=ToolCall(id="", name="Read", input={"file_path": "a"}))],
    ),
    (
        "older CLIs: a tool result as a line of its own",
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}], "is_error": True},
        [events.ToolCompleted(call_id="t1", text="x", is_error=True)],
    ),
    (
        "older CLIs: the same, nested",
        {"type": "tool_result", "tool_result": {"tool_use_id": "t1", "content": "x"}},
        [events.ToolCompleted(call_id="t1", text="x")],
    ),
    (
        "a tool result with a picture",
        user(
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}],
            }
        ),
        [events.ToolCompleted(call_id="t1", text="a\n[image]")],
    ),
    (
        "a call that was denied",
        user(
            {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
            tool_result_meta=[{"id": "t1", "non_execution_kind": "permission-rule"}],
        ),
        [events.ToolCompleted(call_id="t1", text="no", is_error=True, executed=False)],
    ),
    (
        "a call that the CLI rejected before any hook",
        user({"type": "tool_result", "tool_use_id": "t1", "content": "<tool_use_error>x", "is_error": True}),
        [events.ToolCompleted(call_id="t1", text="<tool_use_error>x", is_error=True, executed=False)],
    ),
    (
        "a command that prints the words of a rejection did run",
        user({"type": "tool_result", "tool_use_id": "t1", "content": "<tool_use_error>x"}),
        [events.ToolCompleted(call_id="t1", text="<tool_use_error>x")],
    ),
    (
        "also when it failed: its call has an entry that says nothing of a rejection",
        user(
            {"type": "tool_result", "tool_use_id": "t1", "content": "<tool_use_error>x", "is_error": True},
            tool_result_meta=[{"id": "t1", "permission_decision": {"decision": "accept"}}],
        ),
        [events.ToolCompleted(call_id="t1", text="<tool_use_error>x", is_error=True)],
    ),
    ("a prompt that is replayed says nothing", {**user({"type": "text", "text": "hi"}), "isReplay": True}, []),
    (
        "a replay that carries a tool result is heard",
        {**user({"type": "tool_result", "tool_use_id": "t1", "content": "x"}), "isReplay": True},
        [events.ToolCompleted(call_id="t1", text="x")],
    ),
    (
        "a heartbeat of a pending hook belongs to its call",
        {
            "type": "tool_progress",
            "tool_use_id": "hook-PreToolUse-t1",
            "parent_tool_use_id": "t1",
            "tool_name": "PreToolUse",
            "elapsed_time_seconds": 30,
        },
        [events.ToolProgress(call_id="t1", tool="PreToolUse", elapsed_s=30, heartbeat=True)],
    ),
    (
        "a retry",
        {
            "type": "system",
            "subtype": "api_retry",
            "attempt": 1,
            "max_retries": 10,
            "retry_delay_ms": 603,
            "error_status": None,
            "error": "unknown",
        },
        [events.RetryScheduled(attempt=1, max_attempts=10, delay_s=0.603, error="unknown")],
    ),
    ("a limit that is not reached", {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}, []),
    (
        "a limit that is reached, its reset in milliseconds",
        {
            "type": "rate_limit_event",
            "rate_limit_info": {"status": "rejected", "resetsAt": 1999999999000, "rateLimitType": "five_hour"},
        },
        [events.LimitReached(status="rejected", kind="five_hour", resets_at=1999999999.0)],
    ),
    (
        "a limit that is near, its reset as a date",
        {
            "type": "rate_limit_event",
            "rate_limit_info": {"status": "allowed_warning", "resetsAt": "2033-05-18T03:33:19Z", "utilization": 0.93},
        },
        [events.LimitReached(status="allowed_warning", resets_at=1999999999.0, message="93% used")],
    ),
    (
        "a change of the model",
        {"type": "system", "subtype": "model_fallback", "content": "switched to Sonnet"},
        [events.Notice(level="warning", code="model_fallback", message="switched to Sonnet")],
    ),
    (
        "news without a message",
        {"type": "system", "subtype": "thinking_tokens", "estimated_tokens": 3},
        [events.Notice(level="debug", code="thinking_tokens", message="")],
    ),
    (
        "the CLI's own refusal",
        {"type": "system", "subtype": "permission_denied", "tool_name": "Bash", "message": "not in this mode"},
        [events.Notice(level="info", code="permission_denied", message="Bash: not in this mode")],
    ),
    (
        "the state of the session",
        {"type": "system", "subtype": "session_state_changed", "state": "idle"},
        [signals.SessionState(state="idle")],
    ),
    (
        "a call that waits for the gate",
        control(
            subtype="hook_callback",
            callback_id="h",
            tool_use_id="t1",
            input={
                "hook_event_name": "PreToolUse",
                "tool_name": "Bash",
                "tool_input": {"command": "ls"},
                "permission_mode": "plan",
                "cwd": "/w",
                "agent_id": "a1",
            },
        ),
        [
            signals.HookCall(
                request_id="r1",
                call=ToolCall(id="t1", name="Bash", input={"command": "ls"}, agent_id="a1"),
                permission_mode="plan",
                cwd="/w",
            )
        ],
    ),
    (
        "a hook that nobody asked for",
        control(subtype="hook_callback", callback_id="h", input={"hook_event_name": "Stop", "tool_name": ""}),
        [signals.OtherControl(request_id="r1", subtype="hook_callback/Stop")],
    ),
    (
        "a permission",
        control(
            subtype="can_use_tool",
            tool_name="Bash",
            tool_use_id="t1",
            input={"command": "rm -rf /x"},
            blocked_path="/x",
            decision_reason="dangerous",
            description="clean up",
        ),
        [
            signals.PermissionAsked(
                request_id="r1",
                call=ToolCall(id="t1", name="Bash", input={"command": "rm -rf /x"}),
                reason="dangerous",
                description="clean up",
                blocked_path="/x",
            )
        ],
    ),
    (
        "a message for a server of ours",
        control(subtype="mcp_message", server_name="s", message={"method": "tools/list"}),
        [signals.McpMessage(request_id="r1", server="s", message={"method": "tools/list"})],
    ),
    (
        "a request that is withdrawn",
        {"type": "control_cancel_request", "request_id": "r1"},
        [signals.ControlCancelled(request_id="r1")],
    ),
    (
        "an answer",
        {"type": "control_response", "response": {"subtype": "success", "request_id": "i", "response": {"pid": 1}}},
        [signals.ControlReply(request_id="i", ok=True, payload={"pid": 1})],
    ),
    (
        "a refusal",
        {"type": "control_response", "response": {"subtype": "error", "request_id": "i", "error": "no"}},
        [signals.ControlReply(request_id="i", ok=False, error="no")],
    ),
]


@pytest.mark.parametrize(("line", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_line_means_this(line: dict[str, Any], expected: list[Any]) -> None:
    assert told(line) == expected


@pytest.mark.parametrize("line", [row[1] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_order_of_keys_does_not_matter(line: dict[str, Any]) -> None:
    def backwards(value: Any) -> Any:
        return {key: backwards(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    assert told(backwards(line)) == told(line)


def test_unknown_fields_are_ignored() -> None:
    line = assistant({"type": "text", "text": "hi", "new": 1}, newer={"deep": [1]})
    assert told(line) == [events.MessageCompleted(text="hi", message_id="m1")]


def test_each_init_starts_a_turn_and_describes_the_session() -> None:
    line = {
        "type": "system",
        "subtype": "init",
        "session_id": "s",
        "model": "m",
        "permissionMode": "plan",
        "cwd": "/w",
        "tools": ["Bash"],
        "mcp_servers": [{"name": "a", "status": "failed"}],
        "apiKeySource": "none",
        "claude_code_version": "2.1.325",
    }
    init = signals.Init(
        session_id="s",
        model="m",
        mode="plan",
        cwd="/w",
        tools=("Bash",),
        connections=(events.Connection(name="a", status="failed"),),
        api_key_source="none",
        version="2.1.325",
    )
    assert told(line, line) == [init, events.TurnStarted(turn=1), init, events.TurnStarted(turn=2)]


def test_a_session_may_translate_signals_in_their_place() -> None:
    decoder = decode.Decoder(tell=lambda out, signal: out.append(type(signal).__name__))
    lines = [
        {"type": "control_cancel_request", "request_id": "r1"},
        assistant({"type": "text", "text": "hi"}),
        {"type": "system", "subtype": "session_state_changed", "state": "idle"},
    ]
    said = decoder.feed([json.dumps(line).encode() for line in lines])
    assert said == ["ControlCancelled", events.MessageCompleted(text="hi", message_id="m1"), "SessionState"]


# -- tokens and costs


def start(message_id: str, tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": tokens, "output_tokens": 1}
    return stream({"type": "message_start", "message": {"id": message_id, "model": "m", "usage": usage}})


def used(tokens: int, message_id: str, out_tokens: int) -> events.UsageUpdated:
    usage = Usage(input_tokens=tokens, output_tokens=out_tokens)
    return events.UsageUpdated(message_id=message_id, model="m", usage=usage)


def test_a_message_is_counted_once_with_its_last_numbers() -> None:
    said = told(
        start("m1", 100),
        stream({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}),
        stream({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}}),
        stream({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 10}}),
        stream({"type": "message_stop"}),
    )
    assert said == [events.MessageDelta(text="a", message_id="m1"), used(100, "m1", 10)]


def test_a_message_that_breaks_off_is_counted_all_the_same() -> None:
    """The input is owed from the first byte on."""
    assert told(start("m1", 100), start("m2", 200), result())[:2] == [used(100, "m1", 1), used(200, "m2", 1)]


def test_messages_of_subagents_are_streamed_side_by_side() -> None:
    said = told(
        start("m1", 100),
        {**start("m2", 200), "parent_tool_use_id": "t1"},
        stream({"type": "content_block_delta", "delta": {"text": "sub"}}, parent_tool_use_id="t1"),
        stream({"type": "content_block_delta", "delta": {"thinking": "main"}}),
    )
    assert said == [
        events.MessageDelta(text="sub", message_id="m2", agent_id="t1"),
        events.MessageDelta(text="main", message_id="m1", thinking=True),
    ]


def test_a_result_costs_what_was_used_since_the_last_one() -> None:
    models = {
        "a": {"inputTokens": 10, "outputTokens": 2, "cacheReadInputTokens": 3, "costUSD": 0.5},
        "b": {"inputTokens": 1, "outputTokens": 1, "cacheCreationInputTokens": 4, "costUSD": 0.25},
    }
    (turn,) = told(result(total_cost_usd=9.0, model_usage_since_last_result=models))
    assert turn.cost_usd == 0.75
    assert turn.usage == Usage(
        input_tokens=11, output_tokens=3, cache_read_input_tokens=3, cache_creation_input_tokens=4
    )


def test_without_that_a_result_costs_the_difference_of_the_totals() -> None:
    turns = told(result(total_cost_usd=1.0), result(total_cost_usd=1.5), result(total_cost_usd=1.5))
    assert [turn.cost_usd for turn in turns] == [1.0, 0.5, 0.0]
    assert [turn.turn for turn in turns] == [1, 2, 3]


def test_a_result_is_told_whole() -> None:
    (turn,) = told(
        result(
            num_turns=3,
            stop_reason="end_turn",
            terminal_reason="completed",
            structured_output={"a": 1},
            usage={"input_tokens": 5, "output_tokens": 6},
            permission_denials=[{"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "ls"}}],
            origin={"kind": "task-notification"},
        )
    )
    assert turn == events.TurnEnded(
        turn=1,
        is_error=False,
        reason="success",
        text="done",
        stop_reason="end_turn",
        terminal_reason="completed",
        output={"a": 1},
        steps=3,
        usage=Usage(input_tokens=5, output_tokens=6),
        denials=(ToolCall(id="t1", name="Bash", input={"command": "ls"}),),
        background=True,
    )


# -- what cannot be read


class Spooled(NamedTuple):
    path: str
    size: int


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"Killed", "not_json"),
        (b'{"type":"assistant","message":', "not_json"),
        (b'{"type":"assistant"} x', "not_json"),
        (b'{"type":"new_kind", broken', "not_json"),
        (b"[1,2]", "not_object"),
        (b"3", "not_object"),
        (b'{"type":"new_kind"}', "unknown_type"),
        (b'{"type":7}', "unknown_type"),
        (b'{"type":[null]}', "unknown_type"),
        (b"{}", "unknown_type"),
        (b'{"type":"result","is_error":"no"}', "wrong_shape"),
        (b'{"type":"assistant","message":{"content":7}}', "wrong_shape"),
        (b'{"type":"system","subtype":"init"}', "wrong_shape"),
        (b'{"type":"system","subtype":"new_kind"}', "unknown_subtype"),
        (b'{"type":"assistant","message":{"content":[{"type":"new_kind"}]}}', "unknown_block"),
        (b"[" * 100_000, "not_json"),
        (b'{"type":"user","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_json"),
        (b"\xff\xfe\x00", "not_json"),
    ],
)
def test_what_cannot_be_read_is_kept(line: bytes, reason: str) -> None:
    (item,) = told(line)
    assert isinstance(item, events.Unrecognised)
    assert (item.reason, item.size) == (reason, len(line))
    assert item.raw == line[: unreadable.RAW_LIMIT].decode("utf-8", "replace")


def test_a_long_line_is_cut_but_its_size_is_told() -> None:
    (item,) = told(b"x" * 1_000_000)
    assert (len(item.raw), item.size) == (unreadable.RAW_LIMIT, 1_000_000)


def test_a_spooled_line_says_where_it_lies() -> None:
    said = decode.Decoder().feed(
        [Spooled(path="/spool/1", size=10**9), b'{"type":"control_cancel_request","request_id":"r"}']
    )
    assert said == [
        events.Unrecognised(reason="line_too_long", path="/spool/1", size=10**9),
        signals.ControlCancelled(request_id="r"),
    ]


def test_empty_lines_say_nothing() -> None:
    decoder = decode.Decoder()
    assert decoder.feed([b"", b"  ", bytearray(b"\r")]) == []
    assert (decoder.lines, decoder.silent) == (3, 3)


@pytest.mark.parametrize(
    "request_",
    [
        {"subtype": "elicitation"},
        {"subtype": "hook_callback", "input": 7},
        {"subtype": "can_use_tool"},
        {},
        None,
    ],
)
def test_a_request_that_is_not_understood_is_refused_not_lost(request_: Any) -> None:
    """An agent waits for each answer; silence would hold it for ever."""
    refused, kept = told({"type": "control_request", "request_id": "r1", "request": request_})
    assert refused == signals.OtherControl(request_id="r1", subtype=(request_ or {}).get("subtype", ""))
    assert kept.reason == "wrong_shape"


def test_a_request_too_deep_to_read_is_refused_too() -> None:
    deep = b'{"type":"control_request","request_id":"r-1","request":{"subtype":"hook_callback","input":'
    refused, kept = told(deep + b"[" * 5000 + b"]" * 5000 + b"}}")
    assert refused == signals.OtherControl(request_id="r-1", subtype="")
    assert kept.reason == "not_json"


def test_a_refusal_passes_through_the_sessions_own_words() -> None:
    said: list[Any] = []
    decoder = decode.Decoder(tell=lambda out, signal: out.append(type(signal).__name__))
    decoder.feed([b'{"type":"control_request","request_id":"r","request":{}}'], said)
    assert said[0] == "OtherControl"


def test_half_an_emoji_does_not_cost_the_line() -> None:
    line = json.dumps(assistant({"type": "text", "text": "cut \ud83d"})).encode()
    (said,) = told(line)
    assert isinstance(said, events.MessageCompleted)
    assert said.text.startswith("cut \ufffd")


def test_half_an_emoji_does_not_cost_the_gate() -> None:
    call = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "echo \udc00"}}
    (held,) = told(control(subtype="hook_callback", tool_use_id="t1", input=call))
    assert isinstance(held, signals.HookCall)


def test_a_byte_that_is_no_utf8_does_not_cost_the_line() -> None:
    (said,) = told(b'{"type":"assistant","message":{"content":[{"type":"text","text":"a\xffb"}]}}')
    assert said == events.MessageCompleted(text="a\ufffdb")


# -- what went wrong, in our words


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
        ({"is_error": True, "terminal_reason": "prompt_too_long"}, "failed", "prompt_too_long"),
        ({"is_error": True, "startup_failure_reason": "bypass_root"}, "failed", "spawn_failed"),
        ({"is_error": True, "startup_failure_reason": "proxy_invalid"}, "failed", "spawn_failed"),
        ({"subtype": "error_during_execution", "is_error": False}, "failed", "api_error"),
        ({"is_error": True}, "failed", "api_error"),
    ],
)
def test_a_result_is_explained(more: dict[str, Any], outcome: str, kind: str) -> None:
    (turn,) = told(result(**more))
    assert (turn.problem.outcome, turn.problem.kind) == (outcome, kind)


def test_a_good_result_needs_no_explanation_whatever_its_text_says() -> None:
    (turn,) = told(result(result="The page says: Not logged in, API Error: 401"))
    assert turn.problem is None
