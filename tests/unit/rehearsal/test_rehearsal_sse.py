"""A turn as stream events and as one message: both say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadrope.rehearsal import sse
from leadrope.rehearsal.script import HttpError, load


def decoded(events: list[bytes]) -> list[dict[str, Any]]:
    found = []
    for event in events:
        first, second = event.decode().rstrip("\n").split("\n")
        data = json.loads(second.removeprefix("data: "))
        assert first == f"event: {data['type']}"
        found.append(data)
    return found


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client of the API makes of a stream."""
    message: dict[str, Any] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                message["content"].append({**event["content_block"], "_json": ""})
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                    delta["type"], "_json"
                )
                block[field] += delta["partial_json" if field == "_json" else field]
            case "message_delta":
                message |= event["delta"]
                message["usage"] = event["usage"]
    for block in message["content"]:
        text = block.pop("_json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return message


TURNS: list[dict[str, Any]] = [
    {"text": "hello"},
    {"text": ""},
    {"text": "ünï " * 3000},
    {"thinking": "hm, " * 30, "text": "so", "tool": {"name": "Bash", "input": {"command": 'echo "a\nb"'}}},
    {"tools": [{"name": "Read", "input": {"n": [1, {"x": None}]}}, {"name": "Read", "id": "toolu_mine"}]},
    {"blocks": [{"tool": {"name": "A"}}, {"text": "after"}], "stop_reason": "max_tokens", "model": "other"},
    {"empty": True},
    {"size": 70_000, "usage": {"input_tokens": 7, "output_tokens": 8, "cache_read_input_tokens": 9}},
]


@pytest.mark.parametrize("turn", TURNS)
def test_the_stream_says_the_same_as_the_message(turn: dict[str, Any]) -> None:
    (answer,) = load([turn]).turns
    whole = sse.message(answer, message_id="msg_1", model="m")
    events = decoded(list(sse.events(answer, message_id="msg_1", model="m")))
    assert assembled(events) == whole
    assert events[-1] == {"type": "message_stop"}


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ({"text": "x"}, "end_turn"),
        ({"tool": {"name": "A"}}, "tool_use"),
        ({"text": "x", "stop_reason": "refusal"}, "refusal"),
        ({"empty": True}, "end_turn"),
    ],
)
def test_the_stop_reason_follows_from_what_is_said(turn: dict[str, Any], reason: str) -> None:
    assert sse.stop_reason(load([turn]).turns[0]) == reason


def test_ids_are_the_same_in_every_run_and_differ_within_one() -> None:
    (answer,) = load([{"tools": [{"name": "A"}, {"name": "A"}]}]).turns
    ids = [block["id"] for block in sse.message(answer, message_id="msg_7", model="m")["content"]]
    assert ids == ["toolu_7_0", "toolu_7_1"]


def test_a_huge_text_comes_in_few_events() -> None:
    (answer,) = load([{"size": 5_000_000}]).turns
    assert len(list(sse.events(answer, message_id="m", model="m"))) < 400


def test_a_broken_stream_starts_well() -> None:
    (broken,) = load([{"bad_sse": True}]).turns
    first, second = sse.events(broken, message_id="m", model="m")
    decoded([first])
    with pytest.raises(json.JSONDecodeError):
        decoded([second])


def test_an_error_in_the_stream_ends_it() -> None:
    (answer,) = load([{"text": "so far", "sse_error": {"type": "api_error", "message": "gone"}}]).turns
    *_, last = decoded(list(sse.events(answer, message_id="m", model="m")))
    assert last == {"type": "error", "error": {"type": "api_error", "message": "gone"}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
        (418, "invalid_request_error"),
    ],
)
def test_an_http_error_has_the_usual_type_for_its_status(status: int, kind: str) -> None:
    body = json.loads(sse.error_body(HttpError(status=status, message="why")))
    assert body == {"type": "error", "error": {"type": kind, "message": "why"}}
