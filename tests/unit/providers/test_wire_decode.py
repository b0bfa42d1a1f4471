"""Lines of the CLI and what they mean, one beside the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.core.tools import ToolCall
from leadrope.providers.claude_code import decode, parts, signals


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
                call=ToolCall(id="t1", name="StructuredOutput", input={parts.WRONG_INPUT: ["a"]}), message_id="m1"
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
    (
        "a prompt that is replayed says whose it is",
        {**user({"type": "text", "text": "hi"}), "isReplay": True, "uuid": "u1"},
        [signals.Replay(uuid="u1")],
    ),
    (
        "the report of a task is replayed with its origin",
        {
            **user({"type": "text", "text": "hi"}),
            "isReplay": True,
            "uuid": "u1",
            "origin": {"kind": "task-notification"},
        },
        [signals.Replay(uuid="u1", origin="task-notification")],
    ),
    (
        "a replay that carries a tool result is heard",
        {**user({"type": "tool_result", "tool_use_id": "t1", "content": "x"}), "isReplay": True},
        [signals.Replay(uuid=""), events.ToolCompleted(call_id="t1", text="x")],
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
        [signals.CliSessionState(state="idle")],
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
            signals.CliPermissionAsked(
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
    assert said == ["ControlCancelled", events.MessageCompleted(text="hi", message_id="m1"), "CliSessionState"]


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
        events.ThinkingDelta(text="main", message_id="m1"),
    ]


def test_a_message_of_a_subagent_is_counted_once_however_many_lines_it_has() -> None:
    started = {"type": "system", "subtype": "task_started", "task_id": "a1", "tool_use_id": "t1"}
    message = {"id": "m9", "model": "m", "usage": {"input_tokens": 7, "output_tokens": 2}}
    parts_ = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    lines = [
        {"type": "assistant", "parent_tool_use_id": "t1", "message": message | {"content": [part]}} for part in parts_
    ]
    said = told(started, *lines)
    assert [item.text for item in said if isinstance(item, events.MessageCompleted)] == ["one", "two"]
    (counted,) = [item for item in said if isinstance(item, events.UsageUpdated)]
    assert (counted.message_id, counted.agent_id, counted.usage.input_tokens) == ("m9", "a1", 7)


@pytest.mark.parametrize(
    ("kind", "agents", "commands"),
    [("local_bash", 0, 1), ("shell", 0, 1), ("monitor", 0, 1), ("local_agent", 1, 0), ("new_kind", 1, 0), (None, 1, 0)],
)
def test_a_background_task_of_an_unknown_kind_is_waited_for(kind: str | None, agents: int, commands: int) -> None:
    """Waiting too long is mended by a clock; an answer that is cut off is lost."""
    task = {"type": "system", "subtype": "task_started", "task_id": "b1", "task_type": kind, "is_backgrounded": True}
    (now,) = [item for item in told(task) if isinstance(item, signals.BackgroundTasks)]
    assert (now.agents, now.commands) == (agents, commands)


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
    used, turn = told(
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
    assert used == events.UsageUpdated(message_id="turn-1", model="", usage=Usage(input_tokens=5, output_tokens=6))
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
