"""Answers that are cut on their way: what the model has read is paid for, with and without the broker."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope import Limits

PROMPT = {"input_tokens": 20_000, "output_tokens": 0}
"""0.06 USD, for the model that these runs use."""


@pytest.mark.parametrize("broker", [True, False])
async def test_cut_streams_count_against_the_budget(stage: Any, broker: bool) -> None:
    """Without the broker those count of which the agent program has reported the beginning."""
    cut = {"text": "half of it " * 20, "drip": {"every_ms": 40}, "cut": True, "usage": PROMPT, "repeat": 8}
    played = await stage.play([cut], strict=False, limits=Limits(budget_usd=0.2), broker=broker, api_retries=6)
    assert played.result.outcome == "over_budget", played.result
    assert len(played.model.requests) <= 5, "the fourth request reaches 0.20 USD"
    assert 0.2 <= played.result.cost_usd <= 0.31
