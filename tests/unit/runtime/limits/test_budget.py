"""The meter: each message once, subagents included, corrected by the agent's own sum, and over once and for all."""

from __future__ import annotations

import math
import random
import re
import tomllib
from pathlib import Path

import pytest

from leadrope import events
from leadrope.core.cost.prices import Prices, read_prices
from leadrope.core.cost.usage import Usage
from leadrope.runtime.limits.budget import Meter

OPUS = "claude-opus-4-5"  # 5 / 25
HAIKU = "claude-haiku-4-5"  # 1 / 5


def used(message_id: str, usage: Usage, model: str = OPUS, agent_id: str | None = None) -> events.UsageUpdated:
    return events.UsageUpdated(message_id=message_id, model=model, usage=usage, agent_id=agent_id)


def ended(cost_usd: float) -> events.TurnEnded:
    return events.TurnEnded(turn=1, is_error=False, reason="success", cost_usd=cost_usd)


DOLLAR = Usage(input_tokens=200_000)
"""What costs one dollar of OPUS."""


def test_messages_add_up_by_agent_and_by_model() -> None:
    meter = Meter(None)
    meter.take(used("a", DOLLAR))
    meter.take(used("b", DOLLAR, agent_id="sub"))
    meter.take(used("c", DOLLAR, model=HAIKU, agent_id="sub"))
    assert math.isclose(meter.spent_usd, 2.2)
    assert meter.by_agent == pytest.approx({None: 1.0, "sub": 1.2})
    assert meter.by_model == pytest.approx({OPUS: 2.0, HAIKU: 0.2})
    assert not meter.is_over


def test_a_message_that_is_told_twice_counts_once() -> None:
    meter = Meter(None)
    for _ in range(3):
        meter.take(used("a", DOLLAR))
    assert math.isclose(meter.spent_usd, 1.0)


def test_a_message_grows_while_it_streams_and_never_shrinks() -> None:
    meter = Meter(None)
    meter.count("a", OPUS, Usage(input_tokens=200_000, output_tokens=1))
    meter.count("a", OPUS, Usage(output_tokens=40_000))
    assert math.isclose(meter.spent_usd, 2.0)
    meter.count("a", OPUS, Usage(output_tokens=2))
    assert math.isclose(meter.spent_usd, 2.0)


def test_a_broker_and_the_events_tell_of_the_same_message_once() -> None:
    """The broker is first and knows the agent; the decoder's word adds nothing."""
    meter = Meter(None)
    meter.count("a", OPUS, DOLLAR, "sub")
    meter.take(used("a", DOLLAR))
    assert math.isclose(meter.spent_usd, 1.0)
    assert meter.by_agent == pytest.approx({"sub": 1.0})


def test_the_cap_is_reached_once_and_the_reason_is_told() -> None:
    told: list[str] = []
    meter = Meter(2.0, on_over=told.append)
    meter.take(used("a", DOLLAR))
    assert (meter.is_over, meter.reason, told) == (False, "", [])
    meter.take(used("b", DOLLAR))
    assert told
    meter.take(used("c", DOLLAR))
    assert meter.is_over
    assert told == [meter.reason]
    assert "2 USD" in meter.reason


def test_many_small_numbers_reach_their_sum() -> None:
    meter = Meter(0.1 * 3)
    for index in range(3):
        meter.count(str(index), OPUS, Usage(input_tokens=20_000))
    assert meter.is_over


def test_the_prompt_is_owed_at_once() -> None:
    """The start of an answer is enough: nobody waits for a long one to end before saying that the money is gone."""
    meter = Meter(1.0)
    meter.count("a", OPUS, Usage(input_tokens=200_000, output_tokens=1))
    assert meter.is_over


@pytest.mark.parametrize("cap", [0.0, -1.0])
def test_a_budget_of_nothing_is_over_before_it_begins(cap: float) -> None:
    assert Meter(cap).is_over


def test_no_cap_only_counts() -> None:
    meter = Meter(None)
    meter.count("a", OPUS, Usage(input_tokens=10**9))
    assert meter.spent_usd > 1000
    assert not meter.is_over


# -- the agent's own sum ----------------------------------------------------------------------------------------------


def test_the_larger_sum_stands() -> None:
    """The agent has counted something that we did not see, a web search for instance."""
    meter = Meter(None)
    meter.take(used("a", DOLLAR))
    meter.take(ended(1.5))
    assert math.isclose(meter.spent_usd, 1.5)
    meter.take(used("b", DOLLAR))
    assert math.isclose(meter.spent_usd, 2.5)


def test_a_smaller_sum_of_the_agent_changes_nothing() -> None:
    meter = Meter(None)
    meter.take(used("a", DOLLAR))
    meter.take(ended(0.2))
    assert math.isclose(meter.spent_usd, 1.0)


def test_the_agents_sum_can_reach_the_cap() -> None:
    meter = Meter(1.2)
    meter.take(used("a", DOLLAR))
    meter.take(ended(1.5))
    assert meter.is_over


def test_a_message_in_flight_between_two_turns_is_not_counted_twice() -> None:
    """A background agent's answer is half told when the parent's turn ends; the next turn's sum holds it whole."""
    meter = Meter(None)
    meter.count("parent", OPUS, DOLLAR)
    meter.count("background", OPUS, DOLLAR, "sub")
    meter.take(ended(1.0))
    assert math.isclose(meter.spent_usd, 2.0)
    meter.count("background", OPUS, Usage(input_tokens=200_000, output_tokens=40_000), "sub")
    meter.take(ended(2.0))
    assert math.isclose(meter.spent_usd, 3.0)


def test_a_second_attempt_goes_on_spending_the_same_budget() -> None:
    meter = Meter(2.0)
    meter.take(used("first", DOLLAR))
    meter.take(used("second attempt", DOLLAR))
    meter.take(ended(1.0))
    assert meter.is_over


# -- prices that are not known ----------------------------------------------------------------------------------------


def test_an_unknown_model_is_told_once_and_corrected_by_the_agent() -> None:
    told: list[events.Notice] = []
    meter = Meter(None, notify=told.append)
    for index in range(3):
        meter.take(used(str(index), Usage(input_tokens=100_000), model="gpt-9"))
    assert math.isclose(meter.spent_usd, 4.5)
    assert [notice.code for notice in told] == ["unknown_price"]
    assert "gpt-9" in told[0].message
    meter.take(ended(0.3))
    assert math.isclose(meter.spent_usd, 0.3)
    meter.take(used("4", Usage(input_tokens=100_000), model="gpt-9"))
    assert math.isclose(meter.spent_usd, 1.8)


def test_the_correction_never_goes_below_what_is_known() -> None:
    meter = Meter(None)
    meter.take(used("a", DOLLAR))
    meter.take(used("b", DOLLAR, model="gpt-9"))
    meter.take(ended(0.5))
    assert math.isclose(meter.spent_usd, 1.0)


def test_an_agent_that_reckons_nothing_corrects_nothing() -> None:
    meter = Meter(None)
    meter.take(used("a", Usage(input_tokens=100_000), model="gpt-9"))
    meter.take(ended(0.0))
    assert math.isclose(meter.spent_usd, 1.5)


def test_over_stays_over_when_a_correction_comes_too_late() -> None:
    meter = Meter(1.0)
    meter.take(used("a", Usage(input_tokens=100_000), model="gpt-9"))
    assert meter.is_over
    meter.take(ended(0.1))
    assert meter.spent_usd < 1.0
    assert meter.is_over


def test_a_price_of_the_users_own_is_not_corrected() -> None:
    """The agent reckons a model that it does not know at its own default's price; a local one costs nothing."""
    meter = Meter(0.01, read_prices({"local": 0}))
    meter.take(used("a", DOLLAR, model="local"))
    meter.take(ended(0.8))
    assert meter.spent_usd == 0.0
    assert not meter.is_over


def test_an_unknown_price_can_end_the_run() -> None:
    told: list[str] = []
    meter = Meter(None, Prices(unknown="refuse"), on_over=told.append)
    meter.take(used("a", DOLLAR, model="gpt-9"))
    assert meter.is_over
    assert told == [meter.reason]
    assert "no price is known" in meter.reason


def test_a_message_without_tokens_needs_no_price() -> None:
    told: list[events.Notice] = []
    meter = Meter(None, notify=told.append)
    meter.take(used("a", Usage(), model="<synthetic>"))
    assert (meter.spent_usd, told) == (0.0, [])


# -- in any order -----------------------------------------------------------------------------------------------------


def test_the_sum_does_not_depend_on_the_order_or_on_repetition() -> None:
    dice = random.Random(7)
    messages = [
        (str(i % 40), dice.choice((OPUS, HAIKU)), Usage(input_tokens=dice.randrange(9999), output_tokens=i))
        for i in range(200)
    ]
    models = {message_id: model for message_id, model, _ in messages}
    sums = set()
    for _ in range(20):
        dice.shuffle(messages)
        meter = Meter(None)
        for message_id, _, usage in messages + messages[:50]:
            meter.count(message_id, models[message_id], usage)
        sums.add(round(meter.spent_usd, 9))
        assert math.isclose(sum(meter.by_agent.values()), meter.spent_usd)
        assert math.isclose(sum(meter.by_model.values()), meter.spent_usd)
    assert len(sums) == 1


def test_the_examples_of_the_documentation_run() -> None:
    docs = Path(__file__).parents[4] / "docs"
    examples = re.findall(r"```python\n(.*?)```", (docs / "internals/index.md").read_text(encoding="utf-8"), re.DOTALL)
    examples = [example for example in examples if "leadrope.runtime." in example]
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "docs/internals/index.md", "exec"), {})
    page = (docs / "budget.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    given = read_prices(tomllib.loads(table)["prices"])
    assert given.unknown == "refuse"
    assert given.price("claude-opus-4-5-20251101", Usage(output_tokens=1_000_000)).usd == 20


def test_an_estimate_is_added_to_either_sum_and_can_reach_the_cap() -> None:
    meter = Meter(2.5)
    for event in (used("a", DOLLAR), ended(1.5), events.UsageEstimated(model="m", usage=DOLLAR, cost_usd=0.75)):
        meter.take(event)
    assert meter.spent_usd == pytest.approx(2.25), "1.50 by the agent's own sum, which does not hold the estimate"
    meter.take(events.UsageEstimated(model="m", usage=DOLLAR, cost_usd=0.75))
    assert meter.is_over
