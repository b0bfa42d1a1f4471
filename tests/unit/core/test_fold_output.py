"""The verdict on a run with a schema, from its log alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leadrope.core import events
from leadrope.core.fold import Fold, fold
from leadrope.core.result import RunResult

STARTED = events.SessionStarted(session_id="s1", provider="claude-code", model="sonnet")
EXITED = events.AgentExited(exit_code=0)
FAILED_EXIT = events.AgentExited(exit_code=1)
MISSED = events.Problem(kind="claude_code.schema_not_satisfied_after_retries", outcome="degraded", hint="h")
MAX_TURNS = events.Problem(kind="max_turns", outcome="degraded", hint="h")
API = events.Problem(kind="api_error")


def turn(number: int = 1, text: str = "said", **more: Any) -> events.TurnEnded:
    return events.TurnEnded(turn=number, text=text, steps=1, **{"is_error": False, "reason": "success", **more})


def missed(number: int = 1, **more: Any) -> events.TurnEnded:
    reason = "error_max_structured_output_retries"
    return turn(number, "", is_error=True, reason=reason, problem=MISSED, errors=("gave up",), **more)


def good(value: Any, rung: Any = "structured", **more: Any) -> events.OutputChecked:
    return events.OutputChecked(rung=rung, valid=True, value=value, **more)


def bad(*errors: str, **more: Any) -> events.OutputChecked:
    return events.OutputChecked(rung="none", valid=False, errors=errors or ("wrong",), **more)


def result(*log: events.Event) -> RunResult:
    recorded = [events.Recorded("r", 1, seq, float(seq), "agent", event) for seq, event in enumerate(log, 1)]
    found = fold(recorded)
    stored = msgspec.json.decode(msgspec.json.encode(recorded), type=list[events.Recorded])
    assert fold(stored) == found
    return found


def kinds(found: RunResult) -> list[str]:
    return [warning.kind.removeprefix("claude_code.") for warning in found.warnings]


CORRECTED = (turn(1), bad(retrying=True))


@pytest.mark.parametrize(
    ("log", "outcome", "output", "rung", "warned"),
    [
        ((turn(output={"value": [1]}), good([1])), "succeeded", [1], "structured", []),
        ((turn(), good({"a": 1}, "text")), "succeeded", {"a": 1}, "text", []),
        ((turn(text=""), good(None)), "succeeded", None, "structured", []),
        ((turn(), bad()), "degraded", None, "none", ["schema_not_satisfied"]),
        ((turn(text=""), bad()), "degraded", None, "none", ["schema_not_satisfied"]),
        ((missed(), bad(), FAILED_EXIT), "degraded", None, "none", ["schema_not_satisfied_after_retries"]),
        ((missed(), good({"a": 1}, "coerced"), FAILED_EXIT), "succeeded", {"a": 1}, "coerced", []),
        ((*CORRECTED, turn(2), good(1, correction=1)), "succeeded", 1, "structured", []),
        (
            (*CORRECTED, turn(2), bad(correction=1)),
            "degraded", None, "none", ["schema_not_satisfied_after_retries"],
        ),
        (
            (*CORRECTED, turn(2, "API Error", is_error=True, problem=API), FAILED_EXIT),
            "degraded", None, "none", ["sdk_error_no_structured_output"],
        ),
        ((*CORRECTED, EXITED), "degraded", None, "none", ["schema_not_satisfied"]),
        (
            (*CORRECTED, events.TurnStarted(turn=2), FAILED_EXIT),
            "degraded", None, "none", ["sdk_error_no_structured_output"],
        ),
        (
            (turn(is_error=True, problem=MAX_TURNS, errors=("too many",)), bad(), FAILED_EXIT),
            "degraded", None, "none", ["sdk_error_no_structured_output", "max_turns"],
        ),
        (
            (turn(is_error=True, problem=MAX_TURNS, errors=("too many",)), good(1), FAILED_EXIT),
            "degraded", 1, "structured", ["sdk_error_with_structured_output", "max_turns"],
        ),
        (
            (turn(is_error=True, problem=API, output=1), good(1), FAILED_EXIT),
            "degraded", 1, "structured", ["sdk_error_with_structured_output"],
        ),
        ((turn(is_error=True, problem=API), FAILED_EXIT), "failed", None, None, []),
        (
            (turn(), bad(), turn(2, is_error=True, problem=API), FAILED_EXIT),
            "failed", None, None, [],
        ),
        ((turn(), good(1), turn(2, is_error=True, problem=API), FAILED_EXIT), "failed", None, None, []),
        ((turn(), good(1), turn(2, background=True)), "succeeded", 1, "structured", []),
        (
            (*CORRECTED, events.RunEnding(cause="over_budget", kind="over_budget", message="m"), EXITED),
            "over_budget", None, "none", [],
        ),
        (
            (*CORRECTED, events.RunEnding(cause="stopped", kind="stopped", message="m"), EXITED),
            "stopped", None, "none", [],
        ),
    ],
)  # fmt: skip
def test_a_verdict(log: Any, outcome: str, output: Any, rung: str | None, warned: list[str]) -> None:
    found = result(STARTED, *log, *(() if isinstance(log[-1], events.AgentExited) else (EXITED,)))
    assert (found.outcome, found.output, found.output_rung) == (outcome, output, rung)
    assert kinds(found) == warned
    assert (found.error is None) == (outcome in ("succeeded", "degraded"))
    if outcome == "degraded":
        assert found.schema_error
    if outcome in ("succeeded", "failed"):
        assert found.schema_error is None


def test_a_limit_of_the_account_in_a_corrective_turn_parks_the_run() -> None:
    limit = events.LimitReached(status="rejected", kind="five_hour", resets_at=9.0)
    problem = events.Problem(kind="rate_limited")
    found = result(STARTED, *CORRECTED, limit, turn(2, is_error=True, problem=problem, api_status=429), FAILED_EXIT)
    assert (found.outcome, found.resets_at) == ("parked", 9.0)


def test_the_text_of_the_last_answer_is_kept() -> None:
    assert result(STARTED, turn(1, "first"), bad(retrying=True), turn(2, "second"), bad(correction=1)).text == "second"
    assert result(STARTED, turn(1, "first"), bad(retrying=True), missed(2), bad(correction=1)).text == "first"


def test_corrections_are_those_of_the_last_answer() -> None:
    assert result(STARTED, turn(), good(1)).corrections == 0
    assert result(STARTED, turn(), bad(retrying=True), turn(2), good(1, correction=1)).corrections == 1
    log = (turn(), bad(retrying=True), turn(2), good(1, correction=1), turn(3), good(2))
    assert result(STARTED, *log).corrections == 0
    assert result(STARTED, *CORRECTED, EXITED).corrections == 1, "it was asked for"


def test_a_log_without_a_judgement_is_read_as_before() -> None:
    state = Fold("r")
    for event in (STARTED, turn(output={"a": 1}), EXITED):
        state.add(event)
    found = state.result()
    assert (found.outcome, found.output, found.output_rung) == ("succeeded", {"a": 1}, None)
