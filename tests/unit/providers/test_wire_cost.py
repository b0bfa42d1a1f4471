"""What a turn has cost, in all the ways in which the CLI tells it, and where it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.providers.claude_code import decode
from leadrope.runtime.limits.budget import Meter

TOKENS = {"input_tokens": 100_000, "output_tokens": 0}
SONNET = "claude-sonnet-4-5-20250929"


def lines(*told: dict[str, Any]) -> list[bytes]:
    return [json.dumps(line).encode() for line in told]


def assistant(**more: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "model": SONNET, "content": [{"type": "text", "text": "ok"}], **more}
    return {"type": "assistant", "message": message}


def result(**more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": "ok", "num_turns": 1} | more


def turns(*told: dict[str, Any]) -> list[events.TurnEnded]:
    return [item for item in decode.Decoder().feed(lines(*told)) if isinstance(item, events.TurnEnded)]


@pytest.mark.parametrize(
    ("fields", "cost"),
    [
        ({"total_cost_usd": 0.5}, 0.5),
        ({"modelUsage": {"a": {"costUSD": 0.25}, "b": {"costUSD": 0.5}}}, 0.75),
        ({"cost_usd": 0.125}, 0.125),
        ({"total_cost_usd": 0.5, "cost_usd": 0.125, "modelUsage": {"a": {"costUSD": 0.25}}}, 0.5),
        ({"modelUsage": "none"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_agents_own_word_is_taken_wherever_it_stands(fields: dict[str, Any], cost: float) -> None:
    (turn,) = turns(result(**fields))
    assert turn.cost_usd == cost


def test_totals_of_models_go_on_over_the_process_as_the_total_does() -> None:
    first, second = turns(
        result(modelUsage={"a": {"costUSD": 0.25}}), result(modelUsage={"a": {"costUSD": 0.25}, "b": {"costUSD": 1}})
    )
    assert (first.cost_usd, second.cost_usd) == (0.25, 1.0)


def test_a_turn_without_a_cost_is_priced_by_its_tokens_and_reaches_the_budget() -> None:
    meter = Meter(0.2)
    for item in decode.Decoder().feed(lines(assistant(), result(usage=TOKENS))):
        meter.take(item)  # type: ignore[arg-type]  # events alone here
    assert meter.spent_usd == pytest.approx(0.3)
    assert meter.is_over


def test_what_messages_have_told_is_not_counted_twice() -> None:
    started = {"type": "message_start", "message": {"id": "msg_1", "model": SONNET, "usage": TOKENS}}
    stream = [{"type": "stream_event", "event": event} for event in (started, {"type": "message_stop"})]
    found = decode.Decoder().feed(lines(*stream, assistant(), result(usage=TOKENS)))
    assert [item.usage for item in found if isinstance(item, events.UsageUpdated)] == [Usage(input_tokens=100_000)]


def test_a_cost_that_is_told_as_nothing_stands() -> None:
    """A local command asks no model; a free model costs nothing."""
    found = decode.Decoder().feed(lines(assistant(), result(usage=TOKENS, total_cost_usd=0)))
    assert not [item for item in found if isinstance(item, events.UsageUpdated)]
