"""Requests of which the agent reports nothing: which of them count, and as how much."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.providers import base
from leadrope.runtime.limits.budget import Meter
from leadrope.runtime.limits.unreported import Unreported

OPUS = "claude-opus-4-5"


def launch(url: str = "", **env: str) -> base.Launch:
    return base.Launch(
        argv=("x",), env=env, cwd="/", session_id=None, model=OPUS, model_url=url, overhead_tokens=20_000
    )


def retried(status: int | None = None, by: events.Source = "agent") -> events.RetryScheduled:
    return events.RetryScheduled(attempt=1, max_attempts=10, delay_s=1.0, api_status=status, by=by)


def used(message_id: str, tokens: int = 1000, written: int = 0) -> events.UsageUpdated:
    return events.UsageUpdated(
        message_id=message_id, model=OPUS, usage=Usage(cache_read_input_tokens=tokens, output_tokens=written)
    )


def ended(**fields: Any) -> events.TurnEnded:
    given: dict[str, Any] = {
        "turn": 1,
        "is_error": True,
        "reason": "success",
        "problem": events.Problem(kind="api_error"),
    }
    return events.TurnEnded(**(given | fields))


def test_a_request_is_lost_unless_something_is_known_of_it() -> None:
    lost = Unreported(Meter(9.0), launch(), "")
    assert lost.is_lost(retried())
    assert not lost.is_lost(retried(529)), "the server has answered"
    assert not lost.is_lost(retried(by="supervisor"))
    lost.used(used("a"))
    assert not lost.is_lost(retried()), "its beginning was counted"
    assert lost.is_lost(retried()), "that was the one before"


@pytest.mark.parametrize("tokens_come_first", [True, False])
def test_after_a_call_the_next_request_is_another_one(tokens_come_first: bool) -> None:
    """Of a short answer the tokens are reported after its calls."""
    lost = Unreported(Meter(9.0), launch(), "")
    if tokens_come_first:
        lost.used(used("a"))
    lost.tool_requested("a")
    lost.used(used("a", written=50))
    assert lost.is_lost(retried())


@pytest.mark.parametrize(("cap", "sees_requests"), [(None, False), (1.0, True)])
def test_nothing_is_estimated_where_it_does_not_matter(cap: float | None, sees_requests: bool) -> None:
    meter = Meter(cap)
    meter.sees_requests = sees_requests
    lost = Unreported(meter, launch(), "")
    assert not lost.is_lost(retried())
    assert lost.turn_ended(ended()) == []


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"problem": events.Problem(kind="connection_failed")}, True),
        ({"never_connected": True}, False),
        ({"api_status": 500}, False),
        ({"problem": events.Problem(kind="not_authenticated")}, False),
        ({"is_error": False, "problem": None}, False),
    ],
)
def test_a_turn_that_loses_its_connection_counts_one_request(fields: dict[str, Any], counts: bool) -> None:
    lost = Unreported(Meter(9.0), launch(), "")
    assert bool(lost.turn_ended(ended(**fields))) == counts


def test_an_estimate_is_the_last_prompt_with_its_answer_and_is_explained_once() -> None:
    meter = Meter(9.0)
    lost = Unreported(meter, launch(), "x" * 4000)
    first, notice = lost.turn_ended(ended())
    assert isinstance(first, events.UsageEstimated)
    assert first.usage == Usage(input_tokens=21_000)
    assert first.cost_usd == pytest.approx(0.105)
    assert isinstance(notice, events.Notice)
    assert notice.code == "usage_estimated"
    meter.take(used("a", 50_000, 300))
    meter.take(events.UsageUpdated(message_id="b", model=OPUS, usage=Usage(input_tokens=7), agent_id="sub"))
    (second,) = lost.turn_ended(ended())
    assert isinstance(second, events.UsageEstimated)
    assert second.usage == Usage(input_tokens=300, cache_read_input_tokens=50_000)


def test_while_the_network_is_away_only_the_request_that_it_broke_counts() -> None:
    lost = Unreported(Meter(9.0), launch(), "")
    assert lost.lost(is_reached=False) == [], "never reached"
    lost.used(used("a"))
    assert len(lost.lost(is_reached=False)) == 2, "reached before: the estimate and its explanation"
    assert lost.lost(is_reached=False) == [], "still away"
    assert len(lost.lost(is_reached=True)) == 1
    assert len(lost.lost(is_reached=False)) == 1, "gone again"
