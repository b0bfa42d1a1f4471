"""A result as one answer: what is shown, what is warned of, and what is raised."""

from __future__ import annotations

import pytest

from leadrope import Recorded, Reply, errors, events
from leadrope.core.cost.usage import Usage
from leadrope.core.result import Outcome, RunError, RunResult, Warning_
from leadrope.runtime.complete import Heard, reply_of


def heard(*told: events.Event, attempt: int = 1) -> Heard:
    state = Heard()
    for seq, event in enumerate(told, start=1):
        state.add(Recorded("r", attempt, seq, 0.0, "agent", event))
    return state


def result(outcome: Outcome, text: str = "", error: RunError | None = None, **fields: object) -> RunResult:
    return RunResult(run_id="r", outcome=outcome, text=text, error=error, model="m", **fields)  # type: ignore[arg-type]


def done(given: RunResult, *told: events.Event) -> Reply:
    return reply_of(given, heard(*told), provider="claude-code", label="Claude", took_ms=1500)


def test_all_that_is_known_of_an_answer() -> None:
    given = result(
        "succeeded",
        "hello",
        usage=Usage(input_tokens=3, output_tokens=4),
        session_id="s",
        warnings=(Warning_(kind="x", message="about x"),),
    )
    assert done(given) == Reply(
        text="hello",
        provider="claude-code",
        tokens=7,
        processing_time_ms=1500,
        model="m",
        session_id="s",
        warnings=("about x",),
    )


def test_an_agent_that_tells_no_tokens() -> None:
    assert done(result("succeeded", "hello")).tokens is None


def test_an_answer_that_is_only_a_value() -> None:
    assert done(result("succeeded", output={"a": 1})).text == '{"a":1}'


@pytest.mark.parametrize("outcome", ["failed", "denied", "timed_out", "over_budget", "stopped", "parked"])
def test_what_a_chat_cannot_repair_is_raised(outcome: Outcome) -> None:
    error = RunError(kind="not_authenticated", message="401", hint="Log in.")
    with pytest.raises(errors.RunFailed, match=f"the run ended {outcome}: 401\nLog in."):
        done(result(outcome, "some words", error=error))


def test_the_exit_of_an_agent_that_we_ended_ourselves_says_nothing() -> None:
    error = RunError(kind="not_authenticated", message="the login was refused")
    with pytest.raises(errors.RunFailed, match="the login was refused"):
        done(result("failed", error=error), events.AgentExited(exit_code=143, ended_by="supervisor"))


def test_only_the_last_attempt_counts() -> None:
    state = heard(events.Unrecognised(reason="text", raw="first"))
    state.add(Recorded("r", 2, 2, 0.0, "agent", events.Unrecognised(reason="text", raw="second")))
    assert state.plain == ["second"]
