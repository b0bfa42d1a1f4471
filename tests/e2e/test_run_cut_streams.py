"""Answers that are cut on their way: what the model has read is paid for, with and without the broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cutting_model import Place, cutting_model
from leadrope import Limits, RunResult, events, open_run
from leadrope.core.fold import fold

PROMPT = {"input_tokens": 20_000, "output_tokens": 0}
"""0.06 USD, for the model that these runs use."""
SONNET = "claude-sonnet-4-5"
UNREPORTED: tuple[Place, ...] = ("before headers", "reset", "after headers")
# The agent gets the beginning and the end of an answer together, and which of them it looks at first is chance.
EITHER: tuple[Place, ...] = ("at once",)
REPORTED: tuple[Place, ...] = ("after its start", "in its text")


@pytest.mark.parametrize("broker", [True, False])
async def test_cut_streams_count_against_the_budget(stage: Any, broker: bool) -> None:
    cut = {"text": "half of it " * 20, "drip": {"every_ms": 40}, "cut": True, "usage": PROMPT, "repeat": 8}
    played = await stage.play([cut], strict=False, limits=Limits(budget_usd=0.2), broker=broker, api_retries=6)
    assert played.result.outcome == "over_budget", played.result
    assert len(played.model.requests) <= 5, "the fourth request reaches 0.20 USD"
    assert 0.2 <= played.result.cost_usd <= 0.31


async def play(stage: Any, url: str, **fields: Any) -> tuple[RunResult, list[events.Event]]:
    request = stage.request(base_url=url, model=SONNET, broker=False, **fields)
    async with open_run(request, environ=stage.environ) as run:
        recorded = [item async for item in run]
        result = await run.result()
    assert fold(recorded[:-1]) == result, "the log alone gives the same result"
    return result, [item.event for item in recorded]


@pytest.mark.parametrize("place", [*UNREPORTED, *EITHER, *REPORTED])
async def test_the_budget_ends_a_run_whose_answers_are_cut_anywhere(stage: Any, place: Place) -> None:
    """Seven requests of 0.06 USD under 0.20 USD: the fourth reaches it, whether or not the agent reports them."""
    async with cutting_model(place) as model:
        result, happened = await play(stage, model.url, limits=Limits(budget_usd=0.2), api_retries=6)
    assert result.outcome == "over_budget", result
    assert model.requests <= 5
    assert 0.2 <= result.cost_usd <= 0.31
    assert result.totals is not None
    estimates = [event for event in happened if isinstance(event, events.UsageEstimated)]
    assert result.totals.estimated_requests == len(estimates)
    assert result.totals.estimated_usd == pytest.approx(sum(event.cost_usd for event in estimates))
    if place in UNREPORTED:
        assert estimates
        assert result.totals.cost_source == "computed"
        assert [warning.kind for warning in result.warnings].count("usage_estimated") == 1
    if place in ("before headers", "reset", "after headers"):
        assert result.usage.total_tokens == 0, "tokens are those that were reported"
        assert result.totals.estimated_usd == pytest.approx(result.cost_usd)


@pytest.mark.parametrize("place", ["after headers", "after its start"])
async def test_a_turn_that_fails_counts_its_last_request(stage: Any, place: Place) -> None:
    """With its retries used up the agent asks once more, without a stream, and reports nothing of it."""
    async with cutting_model(place) as model:
        result, happened = await play(stage, model.url, limits=Limits(budget_usd=5), api_retries=1)
    assert result.outcome == "failed"
    assert model.requests == 3
    assert result.totals is not None
    reported = {event.message_id for event in happened if isinstance(event, events.UsageUpdated)}
    assert len(reported) + result.totals.estimated_requests == (2 if place == "after headers" else 3)
    assert 0.06 * 2 <= result.cost_usd <= 0.07 * 3


async def test_an_estimate_is_as_large_as_the_last_prompt(stage: Any) -> None:
    (stage.ws / "a.txt").write_text("x")
    call = {"name": "Read", "input": {"file_path": str(stage.ws / "a.txt")}}
    async with cutting_model("before headers", input_tokens=100_000, first_call=call) as model:
        result, happened = await play(stage, model.url, limits=Limits(budget_usd=20), api_retries=1)
    assert result.outcome == "failed"
    assert result.usage.prompt_tokens == 100_000
    found = [event for event in happened if isinstance(event, events.UsageEstimated)]
    assert [event.usage.prompt_tokens for event in found] == [101_000] * (model.requests - 1)


async def test_without_a_budget_nothing_is_estimated(stage: Any) -> None:
    async with cutting_model("after headers") as model:
        result, happened = await play(stage, model.url, limits=Limits(budget_usd="none"), api_retries=1)
    assert result.outcome == "failed"
    assert result.cost_usd == 0
    assert not [event for event in happened if isinstance(event, events.UsageEstimated)]


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # without listen: it is ours, and refuses
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


async def test_a_connection_that_was_never_made_costs_nothing(stage: Any) -> None:
    with closed_port() as url:
        result, happened = await play(stage, url, limits=Limits(budget_usd=0.05), api_retries=2)
    assert result.outcome == "failed", result
    assert result.error is not None
    assert result.error.kind == "connection_failed"
    assert result.cost_usd == 0
    assert [event for event in happened if isinstance(event, events.RetryScheduled)]
    assert not [event for event in happened if isinstance(event, events.UsageEstimated)]


async def test_a_name_that_does_not_resolve_costs_nothing(stage: Any) -> None:
    result, _ = await play(stage, "http://model.invalid", limits=Limits(budget_usd=0.05), api_retries=1)
    assert result.error is not None
    assert result.error.kind == "connection_failed"
    assert result.cost_usd == 0
