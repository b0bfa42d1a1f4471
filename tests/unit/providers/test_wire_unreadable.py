"""Lines that cannot be read: each is kept, none is fatal, and an agent that waits for an answer gets one."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from leadrope.core import events
from leadrope.providers.claude_code import decode, signals, unreadable


def told(line: dict[str, Any] | bytes) -> list[Any]:
    return decode.Decoder().feed([line if isinstance(line, bytes) else json.dumps(line).encode()])


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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("result", {"text": "done"}),
        ("result", 7),
        ("is_error", "no"),
        ("num_turns", 1.5),
        ("num_turns", "many"),
        ("total_cost_usd", "much"),
        ("api_error_status", "x"),
        ("permission_denials", "x"),
        ("errors", [1]),
        ("usage", "none"),
        ("subtype", ["success"]),
    ],
)
def test_a_result_that_cannot_be_read_ends_its_turn(field: str, value: Any) -> None:
    line = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 2} | {
        field: value
    }
    kept, turn = told(line)
    assert (kept.reason, json.loads(kept.raw)) == ("wrong_shape", line)
    assert (turn.is_error, turn.reason, turn.problem.kind) == (True, events.MALFORMED_RESULT, "malformed_output")
    assert turn.errors[0] == f"the agent's result line cannot be read: {field}"
    assert turn.text == ("" if field == "result" else "done")
    assert turn.steps == (0 if field == "num_turns" else 2)


@pytest.mark.parametrize(
    ("field", "value", "told_as", "expected"),
    [
        ("num_turns", 1.0, "steps", 1),
        ("num_turns", "3", "steps", 3),
        ("total_cost_usd", "1.25", "cost_usd", 1.25),
        ("api_error_status", "401", "api_status", 401),
        ("errors", "x", "errors", ("x",)),
        ("is_error", "true", "is_error", True),
    ],
)
def test_what_has_one_meaning_is_read(field: str, value: Any, told_as: str, expected: Any) -> None:
    (turn,) = told({"type": "result", "subtype": "success", "is_error": False, "result": "done", field: value})
    assert getattr(turn, told_as) == expected
    assert turn.text == "done"
    assert turn.reason == "success"


def test_a_result_that_is_nested_too_deeply_ends_its_turn() -> None:
    deep = b'{"type":"result","subtype":"success","structured_output":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    kept, turn = told(deep)
    assert isinstance(kept, events.Unrecognised)
    assert turn.problem.kind == "malformed_output"
    (half,) = told(deep[:-10])
    assert isinstance(half, events.Unrecognised), "half a line is no result"


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
    refused, kept = told(deep + b"[" * 100_000 + b"]" * 100_000 + b"}}")
    assert refused == signals.OtherControl(request_id="r-1", subtype="")
    assert kept.reason == "not_json"


def test_a_refusal_passes_through_the_sessions_own_words() -> None:
    said: list[Any] = []
    decoder = decode.Decoder(tell=lambda out, signal: out.append(type(signal).__name__))
    decoder.feed([b'{"type":"control_request","request_id":"r","request":{}}'], said)
    assert said[0] == "OtherControl"


def test_half_an_emoji_does_not_cost_the_line() -> None:
    line = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "cut \ud83d"}]}}).encode()
    (said,) = told(line)
    assert isinstance(said, events.MessageCompleted)
    assert said.text.startswith("cut \ufffd")


def test_half_an_emoji_does_not_cost_the_gate() -> None:
    call = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "echo \udc00"}}
    request = {"subtype": "hook_callback", "tool_use_id": "t1", "input": call}
    (held,) = told({"type": "control_request", "request_id": "r1", "request": request})
    assert isinstance(held, signals.HookCall)


def test_a_byte_that_is_no_utf8_does_not_cost_the_line() -> None:
    (said,) = told(b'{"type":"assistant","message":{"content":[{"type":"text","text":"a\xffb"}]}}')
    assert said == events.MessageCompleted(text="a\ufffdb")
