"""What a run has used, by attempt, model and agent: the final attempt alone, the others beside it, and the whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leadrope.core import events
from leadrope.core.cost.usage import LlmUsage, ModelShare, Totals, Usage
from leadrope.core.fold import fold
from leadrope.core.result import RunResult

FIELDS = (
    *("model", "input_tokens", "uncached_input_tokens", "output_tokens", "total_tokens"),
    *("cache_creation_input_tokens", "cache_read_input_tokens", "input_token_accounting", "cost_usd", "duration_ms"),
    *("num_turns", "session_id", "retries"),
)


def session(billing: Any = "api_key") -> events.SessionStarted:
    credential = events.CredentialUsed(kind="api_key", source="x", billing=billing)
    return events.SessionStarted(session_id="s1", provider="claude-code", model="sonnet", credential=credential)


def turn(number: int, usage: Usage, cost: float = 0.0, **more: Any) -> events.TurnEnded:
    given = {"is_error": False, "reason": "success", "text": "x", "steps": 1, "duration_ms": 100, **more}
    return events.TurnEnded(turn=number, usage=usage, cost_usd=cost, **given)


def used(message: str, usage: Usage, agent: str | None = None, model: str = "sonnet") -> events.UsageUpdated:
    return events.UsageUpdated(message_id=message, model=model, usage=usage, agent_id=agent)


def checked(**more: Any) -> events.OutputChecked:
    return events.OutputChecked(**{"rung": "none", "valid": False, **more})


def told(*log: events.Event | tuple[int, events.Event]) -> tuple[RunResult, LlmUsage, Totals]:
    """The result of a log whose events are a second apart; a pair names the attempt."""
    placed = [item if isinstance(item, tuple) else (1, item) for item in log]
    result = fold(
        events.Recorded("run", attempt, seq, 100.0 + seq, "agent", event)
        for seq, (attempt, event) in enumerate(placed, 1)
    )
    assert result.llm_usage is not None
    assert result.totals is not None
    return result, result.llm_usage, result.totals


EXITED = events.AgentExited(exit_code=0)


def test_the_structure_is_the_known_one() -> None:
    _, usage, _ = told(session(), turn(1, Usage(input_tokens=1_500, cache_read_input_tokens=20_000), 0.02), EXITED)
    plain = msgspec.to_builtins(usage)
    assert [name for name in plain if name in FIELDS] == list(FIELDS)
    assert (usage.input_tokens, usage.uncached_input_tokens, usage.cache_read_input_tokens) == (21_500, 1_500, 20_000)
    assert usage.total_tokens == 21_500
    assert plain["input_token_accounting"] == "split_cache_fields"
    assert msgspec.convert(plain, LlmUsage) == usage


def test_the_parts_of_the_input_add_up() -> None:
    whole = Usage(input_tokens=3, cache_read_input_tokens=5, cache_creation_input_tokens=7, output_tokens=11)
    _, usage, _ = told(session(), turn(1, whole), EXITED)
    assert usage.input_tokens == 15
    parts = usage.uncached_input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert parts == usage.input_tokens


def test_a_corrected_turn_is_superseded_and_earlier_prompts_are_not() -> None:
    result, usage, totals = told(
        session(),
        turn(1, Usage(output_tokens=1), 0.1),
        checked(valid=True, rung="structured", value=1),
        turn(2, Usage(output_tokens=10), 0.2),
        checked(retrying=True),
        turn(3, Usage(output_tokens=100), 0.3),
        checked(valid=True, rung="structured", value=2, correction=1),
        EXITED,
    )
    assert usage.output_tokens == 101
    assert [(one.output_tokens, one.cost_usd, one.duration_ms) for one in usage.retries] == [(10, 0.2, 100)]
    assert [one.reason for one in usage.retries] == ["correction"]
    assert totals.output_tokens == result.usage.output_tokens == 111
    assert totals.cost_usd == pytest.approx(result.cost_usd) == pytest.approx(0.6)
    assert (totals.num_turns, totals.attempts) == (3, 2)


def test_a_report_of_a_background_agent_belongs_to_the_turn_before_it() -> None:
    _, usage, _ = told(
        session(),
        turn(1, Usage(output_tokens=1)),
        turn(2, Usage(output_tokens=10), background=True),
        checked(retrying=True),
        turn(3, Usage(output_tokens=100)),
        EXITED,
    )
    assert usage.output_tokens == 100
    assert [one.output_tokens for one in usage.retries] == [11]


def test_an_attempt_that_was_cut_off_is_reckoned_by_the_supervisor() -> None:
    _, usage, totals = told(
        session(),
        used("m1", Usage(input_tokens=1000)),
        events.AgentExited(exit_code=-9, spent_usd=0.5),
        (2, session()),
        (2, turn(1, Usage(input_tokens=10), 0.25)),
        (2, events.AgentExited(exit_code=0, spent_usd=0.75)),
    )
    (failed,) = usage.retries
    assert (failed.input_tokens, failed.cost_usd, failed.cost_source) == (1000, 0.5, "computed")
    assert failed.duration_ms == 2000, "from the first event to the exit"
    assert failed.reason == "restart"
    assert (usage.input_tokens, usage.cost_usd, usage.cost_source) == (10, 0.25, "cli")
    assert (totals.input_tokens, totals.cost_source) == (1010, "computed")
    assert totals.cost_usd == pytest.approx(0.75)


def test_an_attempt_that_used_nothing_is_not_listed() -> None:
    _, usage, _ = told(session(), EXITED, (2, session()), (2, turn(1, Usage(output_tokens=1))), (2, EXITED))
    assert usage.retries == ()


def test_models_and_subagents_have_their_shares() -> None:
    main, part = Usage(input_tokens=100, output_tokens=10), Usage(input_tokens=50, output_tokens=1)
    models = {
        "sonnet": ModelShare(usage=main, cost_usd=0.5),
        "haiku": ModelShare(usage=Usage(input_tokens=50, output_tokens=20), cost_usd=0.1),
    }
    whole = Usage(input_tokens=150, output_tokens=30)
    _, _, totals = told(
        session(), used("m1", main), used("m2", part, "a1", "haiku"), turn(1, whole, 0.6, models=models), EXITED
    )
    assert totals.models == models
    assert totals.agents == {"main": main, "a1": Usage(input_tokens=50, output_tokens=20)}


def test_what_several_subagents_wrote_is_nobodys_when_it_is_not_told() -> None:
    one = Usage(input_tokens=5)
    whole = Usage(input_tokens=20, output_tokens=9)
    log: list[events.Event] = [
        session(),
        used("m1", Usage(input_tokens=10)),
        used("m2", one, "a1"),
        used("m3", one, "a2"),
    ]
    _, _, totals = told(*log, turn(1, whole), EXITED)
    assert totals.agents == {
        "main": Usage(input_tokens=10), "a1": one, "a2": one, "other": Usage(output_tokens=9)
    }  # fmt: skip
    assert sum(share.total_tokens for share in totals.agents.values()) == totals.total_tokens


def test_a_turn_that_names_no_model_is_the_sessions() -> None:
    _, _, totals = told(session(), turn(1, Usage(output_tokens=4), 0.5), EXITED)
    assert totals.models == {"sonnet": ModelShare(usage=Usage(output_tokens=4), cost_usd=0.5)}


@pytest.mark.parametrize(
    ("billing", "label"), [("api_key", "estimate"), ("subscription", "API-equivalent estimate"), ("none", "estimate")]
)
def test_a_cost_says_what_it_is(billing: str, label: str) -> None:
    _, usage, totals = told(session(billing), turn(1, Usage(output_tokens=4), 0.5), EXITED)
    assert (usage.cost_label, totals.cost_label) == (label, label)


@pytest.mark.parametrize(
    ("first", "whole"),
    [(turn(1, Usage(output_tokens=4), 0.5), "partly API-equivalent estimate"), (turn(1, Usage()), "estimate")],
    ids=["it has paid", "it was refused"],
)
def test_a_run_that_another_credential_goes_on_with(first: events.TurnEnded, whole: str) -> None:
    """The answer's own cost is called what it is itself, the sum by all who have paid a part of it."""
    again = turn(1, Usage(output_tokens=4), 0.5)
    result, usage, totals = told(
        *(session("subscription"), first, EXITED), *((2, event) for event in (session("api_key"), again, EXITED))
    )
    assert (usage.cost_label, totals.cost_label, result.cost_label) == ("estimate", whole, whole)


def test_a_cost_that_is_our_own_reckoning_says_so() -> None:
    ours, _, _ = told(session("subscription"), events.AgentExited(exit_code=1, spent_usd=0.5))
    assert (ours.cost_usd, ours.cost_source, ours.cost_note) == (0.5, "computed", "API-equivalent estimate, computed")
    theirs, _, _ = told(session(), turn(1, Usage(output_tokens=4), 0.5), EXITED)
    assert (theirs.cost_source, theirs.cost_note) == ("cli", "estimate")
    nothing = RunResult(run_id="r", outcome="failed")
    assert (nothing.cost_label, nothing.cost_note) == ("estimate", "estimate")
