"""The price list: which entry a model's name leads to, what a message costs, and what a user may say himself."""

from __future__ import annotations

import math
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.cost import prices
from leadrope.core.cost.prices import DEAREST, LIST_DATE, TABLE, Prices, read_prices
from leadrope.core.cost.usage import Usage
from leadrope.core.models import TIERS

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ("claude-opus-4-5", "claude-opus-4-5"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-opus-4-0", "claude-opus-4"),
        ("claude-opus-4-1-20250805", "claude-opus-4-1"),
        ("Claude-Sonnet-4-5", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-20250929[1m]", "claude-sonnet-4-5"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", "claude-opus-4-1"),
        ("anthropic/claude-haiku-4.5", "claude-haiku-4-5"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("opus", TIERS["opus"]),
        ("sonnet", TIERS["sonnet"]),
        ("haiku", TIERS["haiku"]),
    ],
)
def test_a_name_leads_to_its_own_entry(model: str, entry: str) -> None:
    price, source = Prices().of(model)
    assert source == "table"
    assert price is TABLE[entry]


@pytest.mark.parametrize(
    "model", ["claude-opus-4-10", "claude-opus-4-9-20270101", "claude-opus-4-5x", "gpt-9", "", "x"]
)
def test_a_version_that_is_not_listed_is_unknown_and_takes_the_dearest_price(model: str) -> None:
    """A price of an older version would be a guess; a guess that is too low lets a run overspend."""
    cost = Prices().price(model, Usage(input_tokens=MILLION))
    assert (cost.usd, cost.source, cost.known) == (DEAREST.input, "dearest", False)


def test_a_price_of_the_users_own_can_be_the_dearest() -> None:
    prices = read_prices({"grand": {"input": 200, "output": 30}})
    assert prices.price("gpt-9", Usage(input_tokens=1_000_000)).usd == 200
    assert prices.price("gpt-9", Usage(output_tokens=1_000_000)).usd == DEAREST.output


def test_no_listed_price_is_above_the_dearest() -> None:
    for price in TABLE.values():
        for name in ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h"):
            assert 0 < getattr(price, name) <= getattr(DEAREST, name)


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(input_tokens=MILLION), 5.0),
        (Usage(output_tokens=MILLION), 25.0),
        (Usage(cache_read_input_tokens=MILLION), 0.5),
        (Usage(cache_creation_input_tokens=MILLION), 6.25),
        (Usage(cache_creation_input_tokens=MILLION, cache_creation_1h_input_tokens=MILLION), 10.0),
        (Usage(cache_creation_input_tokens=MILLION, cache_creation_1h_input_tokens=MILLION // 2), 8.125),
        # A count of a part that is larger than the whole is a wire's mistake; it never costs less than nothing.
        (Usage(cache_creation_input_tokens=100, cache_creation_1h_input_tokens=MILLION), 0.001),
        (Usage(), 0.0),
    ],
)
def test_each_kind_of_token_has_its_own_price(usage: Usage, usd: float) -> None:
    assert math.isclose(Prices().price("claude-opus-4-5", usage).usd, usd)


def test_a_long_prompt_is_dearer_where_the_vendor_says_so() -> None:
    short = Prices().price("claude-sonnet-4-5", Usage(input_tokens=200_000)).usd
    long = Prices().price("claude-sonnet-4-5", Usage(input_tokens=1, cache_read_input_tokens=200_000)).usd
    assert math.isclose(short, 0.6)
    assert math.isclose(long, 0.6 / 1_000_000 * 10 + 200_000 * 0.6 / 1_000_000)
    assert math.isclose(Prices().price("claude-sonnet-4-6", Usage(input_tokens=MILLION)).usd, 3.0)


def test_the_list_says_how_old_it_is() -> None:
    assert len(LIST_DATE.split("-")) == 3
    assert "estimate" in (prices.__doc__ or "")


# -- what the user says ---------------------------------------------------------------------------------------------


def test_a_local_model_may_cost_nothing() -> None:
    cost = read_prices({"qwen3-coder": 0}).price("qwen3-coder", Usage(input_tokens=MILLION, output_tokens=MILLION))
    assert (cost.usd, cost.source, cost.known) == (0.0, "override", True)


def test_what_is_left_out_of_the_cache_follows_from_the_input() -> None:
    price, _ = read_prices({"m": {"input": 4, "output": 8}}).of("m")
    assert (price.cache_read, price.cache_write_5m, price.cache_write_1h) == (0.4, 5.0, 8.0)
    price, _ = read_prices({"m": {"input": 4, "output": 8, "cache_read": 1, "cache_write_1h": 2}}).of("m")
    assert (price.cache_read, price.cache_write_5m, price.cache_write_1h) == (1.0, 5.0, 2.0)


@pytest.mark.parametrize("written", ["claude-opus-4-5", "claude-opus-4.5", "opus", "claude-opus-4-5-20251101"])
def test_an_override_wins_over_the_list_however_it_is_written(written: str) -> None:
    model = "claude-opus-4-5-20251101" if written != "opus" else "opus"
    assert read_prices({TIERS.get(written, written): 7}).price(model, Usage(input_tokens=MILLION)).usd == 7.0


def test_the_users_own_names_for_models_are_understood() -> None:
    known = read_prices({}, tiers={"fast": "claude-haiku-4-5"})
    assert known.price("fast", Usage(input_tokens=MILLION)).usd == 1.0


def test_an_unknown_model_can_be_refused_before_a_start() -> None:
    strict = read_prices({"unknown_price": "refuse"})
    strict.require("claude-opus-4-5")
    with pytest.raises(errors.BadValue, match="no price is known for 'gpt-9'") as caught:
        strict.require("gpt-9")
    assert "[prices]" in str(caught.value)
    Prices().require("gpt-9")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"m": "cheap"}, "prices.m"),
        ({"m": {"input": 1}}, "output"),
        ({"m": {"input": -1, "output": 1}}, "-1"),
        ({"m": {"input": float("nan"), "output": 1}}, "nan"),
        ({"m": {"input": float("inf"), "output": 1}}, "inf"),
        ({"m": True}, "prices.m"),
        ({"m": {"input": "1", "output": 1}}, "prices.m"),
        ({"m": {"input": 1, "output": 1, "cache_reed": 1}}, "Did you mean cache_read?"),
        ({"unknown_price": "cheapest"}, "unknown_price: 'cheapest' is not known"),
    ],
)
def test_a_price_that_is_none_is_refused_with_its_place(table: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.BadConfig) as caught:
        read_prices(table, source="conf.toml")
    assert "conf.toml" in str(caught.value)
    assert told in str(caught.value)


def test_counts_of_one_message_only_grow() -> None:
    start = Usage(input_tokens=100, output_tokens=1, cache_creation_input_tokens=5, cache_creation_1h_input_tokens=5)
    delta = Usage(output_tokens=40)
    assert start.at_least(delta) == delta.at_least(start)
    assert start.at_least(delta) == Usage(
        input_tokens=100, output_tokens=40, cache_creation_input_tokens=5, cache_creation_1h_input_tokens=5
    )
    assert (start + start).cache_creation_1h_input_tokens == 10
    assert start.total_tokens == 106
    assert start.prompt_tokens == 105
