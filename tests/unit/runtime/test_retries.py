"""When a run goes on, how long it waits, and where it goes on: all of it a table."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope import RunRequest
from leadrope.core import config, events
from leadrope.core.result import RunError, RunResult, Warning_
from leadrope.runtime import retries
from leadrope.runtime.retries import Again, RetryState, again, backoff


def failed(kind: Any) -> RunResult:
    return RunResult(run_id="r", outcome="failed", error=RunError(kind=kind, message="x"))


PARKED = RunResult(
    run_id="r", outcome="parked", error=RunError(kind="usage_limit", message="x"), resets_at=1000.0, session_id="s"
)
USED_UP = RunResult(run_id="r", outcome="degraded", warnings=(Warning_(kind="max_turns", message="x"),))
FRESH = RetryState(attempts=3, now=900.0)
WORKED = msgspec.structs.replace(FRESH, has_worked=True)
IN_SESSION = msgspec.structs.replace(WORKED, can_resume=True)


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "api_error", "connection_failed", "agent_died"])
def test_what_can_heal_is_tried_again(kind: str) -> None:
    planned = again(failed(kind), FRESH)
    assert planned is not None
    assert (planned.reason, planned.prompt) == ("failure", None), "nothing was done: all from the beginning"
    assert planned.delay_s > 0
    assert planned.told


@pytest.mark.parametrize(
    "kind", ["not_authenticated", "bad_request", "prompt_too_long", "usage_limit", "gate_bypassed", "empty_output"]
)
def test_what_would_only_be_refused_again_is_not(kind: str) -> None:
    assert again(failed(kind), IN_SESSION) is None


@pytest.mark.parametrize("fields", [{"clock": "unreachable"}, {"code": "SERVER_FAILED"}, {"code": "MALFORMED_RESULT"}])
def test_a_connection_that_would_fail_in_the_same_way_is_not(fields: dict[str, str]) -> None:
    error = msgspec.structs.replace(RunError(kind="connection_failed", message="x"), **fields)
    assert again(RunResult(run_id="r", outcome="failed", error=error), IN_SESSION) is None


def test_too_much_memory_is_tried_once_more_and_the_agent_is_told_why() -> None:
    planned = again(failed("out_of_memory"), IN_SESSION)
    assert planned is not None
    assert planned.prompt == retries.LESS_MEMORY
    assert again(failed("out_of_memory"), WORKED) is None, "not from the beginning"
    once = msgspec.structs.replace(IN_SESSION, attempts=9, failures=1)
    assert again(failed("out_of_memory"), once) is not None, "the failure before was another one"
    assert again(failed("out_of_memory"), msgspec.structs.replace(once, same=1)) is None


@pytest.mark.parametrize("outcome", ["succeeded", "denied", "stopped", "timed_out", "over_budget"])
def test_other_endings_stand(outcome: Any) -> None:
    assert again(msgspec.structs.replace(failed("api_error"), outcome=outcome), IN_SESSION) is None


def test_after_work_was_done_only_the_session_can_go_on() -> None:
    assert again(failed("api_error"), WORKED) is None
    planned = again(failed("api_error"), IN_SESSION)
    assert planned is not None
    assert planned.prompt == retries.GO_ON


def test_attempts_are_counted() -> None:
    last = msgspec.structs.replace(FRESH, failures=2)
    assert again(failed("api_error"), last) is None
    assert again(failed("api_error"), msgspec.structs.replace(FRESH, attempts=1)) is None


def test_what_the_service_asks_for_is_honoured() -> None:
    planned = again(failed("overloaded"), msgspec.structs.replace(FRESH, retry_after_s=37.0))
    assert planned is not None
    assert planned.delay_s == 37.0


def test_a_limit_is_waited_for_only_when_that_was_asked_for() -> None:
    assert again(PARKED, IN_SESSION) is None
    waiting = msgspec.structs.replace(IN_SESSION, wait_for_limit=True)
    planned = again(PARKED, waiting)
    assert planned is not None
    assert (planned.reason, planned.prompt) == ("limit", retries.AFTER_LIMIT)
    assert planned.delay_s > 100
    later = again(PARKED, msgspec.structs.replace(waiting, now=5000.0, waits=5))
    assert later is not None
    assert later.delay_s > 10, "a reset that lies in the past, again and again, is no reason to hurry"
    assert again(PARKED, msgspec.structs.replace(waiting, attempts=1)) is not None, "it is not a failure"
    assert again(PARKED, msgspec.structs.replace(waiting, left_s=50.0)) is None
    assert again(msgspec.structs.replace(PARKED, resets_at=None), waiting) is None


def test_used_up_turns_go_on_so_often() -> None:
    assert again(USED_UP, IN_SESSION) is None
    more = msgspec.structs.replace(IN_SESSION, auto_continue=2)
    planned = again(USED_UP, more)
    assert planned is not None
    assert (planned.reason, planned.prompt) == ("turns", retries.MORE_TURNS)
    assert again(USED_UP, msgspec.structs.replace(more, continued=2)) is None
    assert again(USED_UP, msgspec.structs.replace(more, can_resume=False)) is None
    other = msgspec.structs.replace(USED_UP, warnings=(Warning_(kind="schema_not_satisfied", message="x"),))
    assert again(other, more) is None


def test_a_lost_session_is_rebuilt_once() -> None:
    state = msgspec.structs.replace(FRESH, can_rebuild=True, attempts=1)
    assert again(failed("session_lost"), state) == Again(
        reason="session", delay_s=0.0, told="the session's own record is gone; it is rebuilt from ours"
    )
    assert again(failed("session_lost"), FRESH) is None


@given(number=st.integers(0, 1000), first=st.floats(0.1, 10), chance=st.floats(0, 1), least=st.floats(0, 500))
def test_waits_grow_and_stay_bounded(number: int, first: float, chance: float, least: float) -> None:
    wait = backoff(number, first, chance, least_s=least)
    assert least <= wait <= max(least, retries.LONGEST_WAIT_S)
    assert wait >= min(retries.LONGEST_WAIT_S, first) / 2
    assert backoff(number + 1, first, chance, least_s=least) >= wait


def test_the_table_names_kinds_that_exist() -> None:
    from typing import get_args

    from leadrope.core.result import ErrorKind

    assert set(retries.HEALABLE) <= set(get_args(ErrorKind))
    assert all(cure.hint and cure.first_wait_s > 0 for cure in retries.HEALABLE.values())


@dataclasses.dataclass
class Tried:
    tool_ran: bool = False
    prompts_sent: int = 1
    last_retry: events.RetryScheduled | None = None


@pytest.mark.parametrize(("status", "waits"), [(429, True), (503, True), (529, True), (500, False), (None, False)])
def test_a_wait_that_the_service_named_is_taken_over(status: int | None, waits: bool) -> None:
    """Of other failures the agent program has only told its own guess."""
    told = events.RetryScheduled(attempt=9, max_attempts=10, delay_s=45.0, api_status=status)
    planned = retries.Tries().plan(
        failed("rate_limited"),
        RunRequest(prompt="x", attempts=2),
        Tried(last_retry=told),
        auto_continue=0,
        can_resume=False,
        now=0.0,
        left_s=None,
        chance=1.0,
    )
    assert planned is not None
    assert (planned.delay_s == 45.0) is waits


@pytest.mark.parametrize(
    ("tried", "begins_anew"), [(Tried(), True), (Tried(tool_ran=True), False), (Tried(prompts_sent=2), False)]
)
@pytest.mark.parametrize("can_resume", [True, False])
def test_what_was_done_is_not_done_twice(tried: Tried, begins_anew: bool, can_resume: bool) -> None:
    """A second prompt counts as well: its answer rests on the first one's."""
    planned = retries.Tries().plan(
        failed("overloaded"),
        RunRequest(prompt="x", attempts=2),
        tried,
        auto_continue=0,
        can_resume=can_resume,
        now=0.0,
        left_s=None,
        chance=0.5,
    )
    if begins_anew:
        assert planned is not None
        assert planned.prompt is None
    elif can_resume:
        assert planned is not None
        assert planned.prompt == retries.GO_ON
    else:
        assert planned is None


def test_tries_are_counted_by_their_reason() -> None:
    tries = retries.Tries()
    request = RunRequest(prompt="x", attempts=2, resume="s")

    def plan(result: RunResult, tried: Tried | None = None) -> Again | None:
        return tries.plan(
            result, request, tried or Tried(), auto_continue=0, can_resume=True, now=0.0, left_s=None, chance=0.5
        )

    told = events.RetryScheduled(attempt=9, max_attempts=10, delay_s=30.0, api_status=529)
    first = plan(failed("overloaded"), Tried(last_retry=told))
    assert first is not None
    assert first.delay_s == 30.0
    tries.made(first, failed("overloaded"))
    assert plan(failed("overloaded")) is None
    lost = plan(failed("session_lost"))
    assert lost is not None
    tries.made(lost, failed("session_lost"))
    assert plan(failed("session_lost")) is None


@pytest.mark.parametrize(
    ("asked", "settings", "expected"),
    [
        ({}, "", (None, 0)),
        ({"auto_continue": 3}, "", (retries.MOST_TURNS, 3)),
        ({"auto_continue": 3}, "[run]\nmax_turns = 7", (7, 3)),
        ({"auto_continue": 3, "max_turns": 9}, "[run]\nmax_turns = 7", (9, 0)),
    ],
)
def test_only_turns_that_nobody_has_counted_are_divided(
    asked: dict[str, Any], settings: str, expected: tuple[int | None, int]
) -> None:
    request, times = retries.divided(RunRequest(prompt="x", **asked), config.parse(settings))
    assert (request.max_turns, times) == expected
