"""The last line of an agent, however odd: the run ends with it, and never by a clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from leadrope import Limits, events

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
GOOD = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 1, "session_id": "s"}
LONG = Limits(idle_s=600, exit_s=60)


def ending(**fields: Any) -> list[dict[str, Any]]:
    return [*OPEN, {"text": "I did it"}, {"line": GOOD | fields}, {"await_eof": True}]


@pytest.mark.parametrize(
    "fields",
    [{"permission_denials": "x"}, {"result": {"text": "done"}}, {"num_turns": "many"}, {"total_cost_usd": "much"}],
)
async def test_a_mistyped_result_ends_the_run_at_once(stage: Stage, fields: dict[str, Any]) -> None:
    began = time.monotonic()
    found, result = await stage.play(ending(**fields), limits=LONG, attempts=2)
    assert (result.outcome, result.error and result.error.kind) == ("failed", "malformed_output")
    assert result.error is not None
    assert result.error.code == "MALFORMED_RESULT"
    assert next(iter(fields)) in result.error.message
    assert result.text == ("I did it" if "result" in fields else "done")
    assert result.attempts == 1, "the work is done: another start would do and pay it again"
    assert [event.reason for event in found if isinstance(event, events.Unrecognised)] == ["wrong_shape"]
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    "fields", [{"total_cost_usd": "1.25"}, {"num_turns": 1.0}, {"errors": "x"}, {"api_error_status": "401"}]
)
async def test_a_result_whose_meaning_is_plain_is_taken(stage: Stage, fields: dict[str, Any]) -> None:
    _, result = await stage.play(ending(**fields), limits=LONG)
    assert (result.outcome, result.text) == ("succeeded", "done")
    assert result.cost_usd == (1.25 if "total_cost_usd" in fields else 0)


async def test_words_before_an_empty_last_message_are_the_text(stage: Stage) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "true"}, "result": ""}
    steps = [*OPEN, {"text": "I did it"}, {"call": call}, {"line": GOOD | {"result": ""}}, {"await_eof": True}]
    _, result = await stage.play(steps, mode="full", approver=lambda _: True)
    assert (result.outcome, result.text) == ("succeeded", "I did it")


async def test_text_that_was_streaming_when_a_clock_ran_out_is_the_text(stage: Stage) -> None:
    def delta(text: str) -> dict[str, Any]:
        event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        return {"line": {"type": "stream_event", "event": event, "session_id": "s", "parent_tool_use_id": None}}

    _, result = await stage.play([*OPEN, delta("so "), delta("far"), {"hang": True}], limits=Limits(idle_s=0.5))
    assert (result.outcome, result.text) == ("timed_out", "so far")


async def test_a_turn_without_a_cost_counts_against_the_budget(stage: Stage) -> None:
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    _, result = await stage.play(ending(usage=usage), limits=Limits(budget_usd=0.5))
    assert (result.outcome, result.error and result.error.kind) == ("over_budget", "over_budget")
    assert result.cost_usd > 0.5
    assert result.totals is not None
    assert result.totals.cost_source == "computed"
    _, result = await stage.play(ending(usage=usage), limits=Limits(budget_usd=50))
    assert result.outcome == "succeeded"
    assert result.cost_usd > 0.5
