"""Events into a result: who has the last word, what is added up, and that a replay gives the same."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.core import events
from leadrope.core import fold as folding
from leadrope.core.cost.usage import Usage
from leadrope.core.events import AgentExited, Problem, RunEnding, TurnEnded
from leadrope.core.fold import Fold, fold
from leadrope.core.result import ErrorKind, RunResult
from leadrope.core.tools import ToolCall


def log(*told: events.Event, attempt: int = 1, start: int = 1) -> list[events.Recorded]:
    return [events.Recorded("run", attempt, seq, 1000.0 + seq, "agent", event) for seq, event in enumerate(told, start)]


def result(*told: events.Event) -> RunResult:
    return fold(log(*told))


def good(text: str = "done", **more: Any) -> TurnEnded:
    return TurnEnded(turn=1, is_error=False, reason="success", text=text, **{"steps": 1, **more})


def bad(kind: str = "api_error", outcome: str = "failed", **more: Any) -> TurnEnded:
    problem = Problem(kind=kind, outcome=outcome)  # type: ignore[arg-type]  # a table of words
    return TurnEnded(**{"turn": 1, "is_error": True, "reason": "error", "problem": problem, **more})


def said(text: str, **more: Any) -> events.MessageCompleted:
    return events.MessageCompleted(text=text, **more)


def piece(text: str, **more: Any) -> events.MessageDelta:
    return events.MessageDelta(text=text, **{"message_id": "m", **more})


TURN = events.TurnStarted(turn=1)
EXIT_0 = AgentExited(exit_code=0)
REJECTED = events.LimitReached(status="rejected", kind="five_hour", resets_at=1999999999.0)
CALL = ToolCall(id="t1", name="Bash", input={"command": "ls"})

VERDICTS: list[tuple[str, tuple[events.Event, ...], tuple[str, str | None, str]]] = [
    ("a good turn", (TURN, good(), EXIT_0), ("succeeded", None, "done")),
    ("words before an empty end", (TURN, said("I did it"), good(""), EXIT_0), ("succeeded", None, "I did it")),
    ("no words in this turn", (TURN, good("one"), TURN, good(""), EXIT_0), ("failed", "empty_output", "")),
    (
        "words that were still streaming",
        (TURN, said("first"), piece("so "), piece("far"), RunEnding(cause="timed_out", kind="timed_out", message="m")),
        ("timed_out", "timed_out", "so far"),
    ),
    (
        "a stream that began anew",
        (TURN, piece("half", message_id="m1"), piece("so far", message_id="m2"), AgentExited(exit_code=1)),
        ("failed", "agent_died", "so far"),
    ),
    (
        "thoughts and subagents that were streaming",
        (TURN, said("first"), piece("hm", thinking=True), piece("sub", agent_id="a"), AgentExited(exit_code=1)),
        ("failed", "agent_died", "first"),
    ),
    ("nothing at all", (), ("failed", "agent_died", "")),
    ("a log that breaks off after the answer", (TURN, good()), ("succeeded", None, "done")),
    ("a log that breaks off before it", (TURN, said("so far")), ("failed", "agent_died", "so far")),
    ("an exit without a word", (EXIT_0,), ("failed", "agent_died", "")),
    ("an exit in the middle of a turn", (TURN, said("so far"), EXIT_0), ("failed", "agent_died", "so far")),
    (
        "an exit in the middle of the second turn",
        (TURN, good(), TURN, said("so far"), EXIT_0),
        ("failed", "agent_died", "so far"),
    ),
    ("a signal", (TURN, AgentExited(exit_code=-9)), ("failed", "agent_died", "")),
    ("a bad exit after a good turn", (TURN, good(), AgentExited(exit_code=1)), ("failed", "agent_died", "done")),
    (
        "an end of ours after a good turn is not a failure",
        (TURN, good(), AgentExited(exit_code=-15, ended_by="supervisor")),
        ("succeeded", None, "done"),
    ),
    (
        "the agent's error wins over a good exit",
        (TURN, bad("overloaded"), EXIT_0),
        ("failed", "overloaded", ""),
    ),
    (
        "the supervisor's reason wins over the agent's",
        (TURN, RunEnding(cause="timed_out", kind="timed_out", message="idle"), bad("stopped", "stopped"), EXIT_0),
        ("timed_out", "timed_out", ""),
    ),
    (
        "and over a good turn",
        (TURN, RunEnding(cause="failed", kind="gate_bypassed", message="x"), good(), EXIT_0),
        ("failed", "gate_bypassed", "done"),
    ),
    (
        "the first of two reasons counts",
        (
            RunEnding(cause="denied", kind="denied", message="first"),
            RunEnding(cause="stopped", kind="stopped", message="second"),
        ),
        ("denied", "denied", ""),
    ),
    ("a turn after a failed one", (TURN, bad(), TURN, good("again"), EXIT_0), ("succeeded", None, "again")),
    (
        "an error without an explanation has its status",
        (TURN, TurnEnded(turn=1, is_error=True, reason="x", api_status=529), AgentExited(exit_code=1)),
        ("failed", "overloaded", ""),
    ),
    (
        "an interrupted last turn",
        (TURN, said("half"), bad("stopped", "stopped"), AgentExited(exit_code=1)),
        ("stopped", "stopped", "half"),
    ),
    (
        "the limit of turns keeps what was said",
        (TURN, said("half"), bad("max_turns", "degraded"), AgentExited(exit_code=1)),
        ("degraded", None, "half"),
    ),
    (
        "the limit of turns in the second turn does not answer with the first",
        (TURN, good("first"), TURN, said("half"), bad("max_turns", "degraded")),
        ("degraded", None, "half"),
    ),
    ("an empty answer", (TURN, good("", steps=2), EXIT_0), ("failed", "empty_output", "")),
    ("an answer of data alone", (TURN, good("", output={"a": 1}), EXIT_0), ("succeeded", None, "")),
    (
        "a command of the agent program itself does not replace the answer",
        (TURN, good("answer"), TURN, good("", steps=0), EXIT_0),
        ("succeeded", None, "answer"),
    ),
    (
        "a later background answer replaces the text",
        (TURN, good("started"), TURN, good("finished", background=True), EXIT_0),
        ("succeeded", None, "finished"),
    ),
    (
        "an empty one does not",
        (TURN, good("started"), TURN, good("", background=True), EXIT_0),
        ("succeeded", None, "started"),
    ),
    (
        "a subagent's words and the agent program's own are not the answer",
        (TURN, said("half"), said("sub", agent_id="a"), said("API Error", is_error=True), bad()),
        ("failed", "api_error", "half"),
    ),
    (
        "a usage limit with a time to go on",
        (TURN, REJECTED, bad("rate_limited", api_status=429), AgentExited(exit_code=1)),
        ("parked", "usage_limit", ""),
    ),
    (
        "a usage limit without one",
        (TURN, events.LimitReached(status="rejected"), bad("rate_limited"), AgentExited(exit_code=1)),
        ("failed", "rate_limited", ""),
    ),
    (
        "a usage limit that was got over",
        (TURN, REJECTED, good(), TURN, bad("rate_limited")),
        ("failed", "rate_limited", "done"),
    ),
    (
        "plain text that explains",
        (
            events.Unrecognised(reason="not_json", raw="noise"),
            events.Unrecognised(reason="not_json", raw="Not logged in", problem=Problem(kind="not_authenticated")),
            AgentExited(exit_code=1),
        ),
        ("failed", "not_authenticated", ""),
    ),
    (
        "plain text that explains nothing",
        (events.Unrecognised(reason="not_json", raw="<html>"), EXIT_0),
        ("failed", "malformed_output", ""),
    ),
    (
        "stderr that explains",
        (AgentExited(exit_code=1, stderr_head=("no such option",), problem=Problem(kind="spawn_failed")),),
        ("failed", "spawn_failed", ""),
    ),
    (
        "stderr does not change a good run",
        (TURN, good(), AgentExited(exit_code=0, problem=Problem(kind="spawn_failed"))),
        ("succeeded", None, "done"),
    ),
    (
        "a limit of the account that left no result",
        (TURN, said("so far"), REJECTED, AgentExited(exit_code=1)),
        ("parked", "usage_limit", "so far"),
    ),
    (
        "a limit whose end is not told",
        (TURN, events.LimitReached(status="rejected", kind="five_hour"), AgentExited(exit_code=1)),
        ("failed", "agent_died", ""),
    ),
    (
        "a word that is not understood before a signal",
        (events.Unrecognised(reason="not_json", raw="loading", size=7), AgentExited(exit_code=-9)),
        ("failed", "agent_died", ""),
    ),
    (
        "a word that is not understood before an exit",
        (events.Unrecognised(reason="not_json", raw="loading", size=7), AgentExited(exit_code=1)),
        ("failed", "malformed_output", ""),
    ),
    ("a kind that nobody knows", (TURN, bad("something_new")), ("failed", "agent_died", "")),
]


@pytest.mark.parametrize(("told", "expected"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS])
def test_the_verdict(told: tuple[events.Event, ...], expected: tuple[str, str | None, str]) -> None:
    found = result(*told)
    assert (found.outcome, found.error.kind if found.error else None, found.text) == expected
    assert (found.error is None) == found.ok
    if found.error:
        assert found.error.message
        assert found.error.hint


def test_every_error_kind_has_a_hint() -> None:
    assert set(folding._HINTS) == set(get_args(ErrorKind))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "not_authenticated"),
        (403, "not_authenticated"),
        (404, "bad_request"),
        (408, "api_error"),
        (413, "bad_request"),
        (429, "rate_limited"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded"),
    ],
)
def test_the_meaning_of_a_status(status: int, kind: str) -> None:
    assert folding.kind_of_status(status) == kind


def test_an_error_keeps_what_a_script_and_a_person_need() -> None:
    ending = RunEnding(cause="timed_out", kind="timed_out", message="silent", clock="idle", hint="Raise it.")
    error = result(TURN, ending, AgentExited(exit_code=143, stderr_tail=("last words",))).error
    assert error is not None
    assert (error.code, error.clock, error.hint) == ("TIMEOUT_ERROR", "idle", "Raise it.")
    assert (error.exit_code, error.stderr_tail) == (143, ("last words",))


def test_a_turn_that_the_tool_clock_interrupted_has_run_out_of_time() -> None:
    """The agent itself says no more than that it was interrupted."""
    late = events.Notice(level="warning", code=folding.TOOL_TIMED_OUT, message="tool call t1 ran for more than 1 s")
    interrupted = bad("stopped", "stopped", terminal_reason="aborted_tools")
    found = result(TURN, late, interrupted, EXIT_0)
    assert found.outcome == "timed_out"
    assert found.error is not None
    assert (found.error.kind, found.error.clock, found.error.code) == ("timed_out", "tool", "TIMEOUT_ERROR")
    assert found.error.message == late.message
    by_a_person = result(TURN, late, interrupted, TURN, interrupted, EXIT_0)
    assert by_a_person.outcome == "stopped", "a later turn that a person interrupts is not the clock's"


def test_an_approval_that_nobody_gave_has_its_own_code() -> None:
    error = result(RunEnding(cause="timed_out", kind="timed_out", message="x", clock="approval")).error
    assert error is not None
    assert error.code == "APPROVAL_TIMEOUT"


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [(-9, "killed by signal 9"), (137, "killed by signal 9"), (143, "killed by signal 15"), (2, "exited with code 2")],
)
def test_the_message_says_how_the_process_ended(exit_code: int, words: str) -> None:
    error = result(TURN, AgentExited(exit_code=exit_code)).error
    assert error is not None
    assert words in error.message


def test_an_empty_answer_is_explained_by_what_is_known() -> None:
    error = result(TURN, good("", steps=2, stop_reason="end_turn", usage=Usage(output_tokens=20)), EXIT_0).error
    assert error is not None
    for part in ("steps: 2", "stop reason: end_turn", "output tokens: 20"):
        assert part in error.message


def test_a_parked_run_says_when_it_may_go_on() -> None:
    assert result(TURN, REJECTED, bad("rate_limited")).resets_at == 1999999999.0
    parked = RunEnding(cause="parked", kind="usage_limit", message="limit")
    assert result(TURN, REJECTED, parked).resets_at == 1999999999.0


def test_denials_are_listed_once_with_the_gates_own_reason() -> None:
    other = ToolCall(id="t2", name="Write")
    found = result(
        TURN,
        events.ToolDecided(call=CALL, decision="deny", by="rule", rule="mode:plan", reason="plan only reads"),
        events.ToolDecided(call=ToolCall(id="t3", name="Read"), decision="allow", by="rule", rule="mode:plan"),
        events.ToolCompleted(call_id="t2", is_error=True, text="not in this mode", executed=False),
        good(denials=(CALL, other)),
        EXIT_0,
    )
    assert [(denial.call, denial.reason) for denial in found.denials] == [
        (CALL, "plan only reads"),
        (other, "not in this mode"),
    ]
    assert found.outcome == "denied"


def test_tokens_of_an_ended_turn_are_the_turns_own() -> None:
    message = events.UsageUpdated(message_id="m1", model="m", usage=Usage(input_tokens=100))
    assert result(TURN, message, good(usage=Usage(input_tokens=150))).usage.total_tokens == 150


def test_tokens_of_a_turn_that_did_not_end_are_its_messages() -> None:
    first = events.UsageUpdated(message_id="m1", model="m", usage=Usage(input_tokens=100))
    second = events.UsageUpdated(message_id="m2", model="m", usage=Usage(input_tokens=20))
    assert result(TURN, good(usage=Usage(input_tokens=5)), TURN, first, first, second).usage.total_tokens == 125


def test_warnings_are_told_once() -> None:
    notice = events.Notice(level="warning", code="model_fallback", message="now Sonnet")
    debug = events.Notice(level="debug", code="status", message="x")
    near = events.LimitReached(status="allowed_warning", kind="five_hour")
    found = result(TURN, notice, notice, debug, near, bad("max_turns", "degraded", errors=("Reached 3",)))
    assert [warning.kind for warning in found.warnings] == ["max_turns", "model_fallback", "usage_limit"]
    assert found.warnings[0].message.startswith("Reached 3")


def test_a_run_that_warns_without_an_end_keeps_a_small_result() -> None:
    told = [events.Notice(level="warning", code="x", message=str(number)) for number in range(200)]
    found = result(TURN, *told, good(), EXIT_0)
    assert [warning.message for warning in found.warnings] == [str(number) for number in range(50)]


def test_a_later_attempt_supersedes_the_first_but_not_its_bill() -> None:
    first = log(
        events.SessionStarted(session_id="s1", provider="p", model="m1"),
        TURN,
        events.UsageUpdated(message_id="m1", model="m", usage=Usage(input_tokens=7)),
        bad("overloaded", cost_usd=0.5, steps=3),
        AgentExited(exit_code=1, leftovers_killed=2),
    )
    second = log(
        events.SessionStarted(session_id="s2", provider="p", model="m2"),
        TURN,
        good("healed", cost_usd=0.25, usage=Usage(input_tokens=10)),
        AgentExited(exit_code=0, leftovers_killed=1),
        attempt=2,
        start=6,
    )
    found = fold(first + second)
    assert (found.outcome, found.text, found.error) == ("succeeded", "healed", None)
    assert (found.attempts, found.cost_usd, found.usage.total_tokens) == (2, 0.75, 17)
    assert (found.session_id, found.model, found.turns, found.leftovers_killed) == ("s2", "m2", 1, 3)
    assert found.duration_s == 8.0


def test_the_runs_own_end_is_not_asked() -> None:
    told = log(TURN, good(), EXIT_0)
    end = events.RunEnded(result=RunResult(run_id="other", outcome="failed"))
    assert fold([*told, events.Recorded("run", 9, 4, 5000.0, "supervisor", end)]) == fold(told)


def test_bare_events_fold_like_recorded_ones() -> None:
    state = Fold("run")
    for event in (TURN, good(), EXIT_0):
        state.add(event)
    assert msgspec.structs.replace(state.result(), duration_s=2.0) == result(TURN, good(), EXIT_0)


# -- the property: a log that was stored and read again gives the same result

text = st.text(max_size=12)
maybe_text = st.none() | text
small = st.integers(min_value=0, max_value=10**6)
ids = st.sampled_from(["", "t1", "t2", "t3"])
money = st.floats(min_value=0, max_value=100, allow_nan=False)
usages = st.builds(Usage, input_tokens=small, output_tokens=small, cache_read_input_tokens=small)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
calls = st.builds(
    ToolCall, id=ids, name=text, input=st.dictionaries(text, json_values, max_size=2), agent_id=maybe_text
)
problems = st.none() | st.builds(
    Problem,
    kind=st.sampled_from([*get_args(ErrorKind), "max_turns"]),
    outcome=st.sampled_from(["failed", "degraded", "stopped", "over_budget"]),
    hint=maybe_text,
)
anything = st.one_of(
    st.builds(events.SessionStarted, session_id=text, provider=text, model=text),
    st.builds(events.TurnStarted, turn=small),
    st.builds(
        TurnEnded,
        turn=small,
        is_error=st.booleans(),
        reason=text,
        text=text,
        terminal_reason=maybe_text,
        api_status=st.none() | st.sampled_from([400, 401, 429, 500, 529]),
        errors=st.lists(text, max_size=2).map(tuple),
        output=st.just(msgspec.UNSET) | json_values,
        steps=small,
        usage=usages,
        cost_usd=money,
        denials=st.lists(calls, max_size=2).map(tuple),
        background=st.booleans(),
        problem=problems,
    ),
    st.builds(events.MessageDelta, text=text, message_id=text),
    st.builds(events.MessageCompleted, text=text, agent_id=maybe_text, is_error=st.booleans()),
    st.builds(
        events.ToolDecided,
        call=calls,
        decision=st.sampled_from(["allow", "deny"]),
        by=st.just("rule"),
        rule=text,
        reason=text,
        only_reads=st.booleans(),
    ),
    st.builds(events.ToolCompleted, call_id=ids, text=text, executed=st.booleans()),
    st.builds(events.UsageUpdated, message_id=text, model=text, usage=usages),
    st.builds(
        events.LimitReached,
        status=st.sampled_from(["rejected", "allowed_warning"]),
        resets_at=st.none() | money,
        message=text,
    ),
    st.builds(events.Notice, level=st.sampled_from(["debug", "warning", "error"]), code=text, message=text),
    st.builds(events.Unrecognised, reason=text, raw=text, size=small, problem=problems),
    st.builds(
        RunEnding,
        cause=st.sampled_from(["stopped", "timed_out", "over_budget", "denied", "parked", "failed"]),
        kind=st.sampled_from(get_args(ErrorKind)),
        message=text,
        clock=maybe_text,
        api_status=st.none() | small,
        hint=maybe_text,
    ),
    st.builds(
        AgentExited,
        exit_code=st.none() | st.sampled_from([0, 1, -9, -15, 137, 143]),
        stderr_tail=st.lists(text, max_size=2).map(tuple),
        leftovers_killed=small,
        ended_by=st.sampled_from(["agent", "supervisor"]),
        problem=problems,
    ),
)
logs = st.lists(
    st.builds(
        events.Recorded,
        st.just("run"),
        st.integers(1, 3),
        small,
        st.floats(min_value=0, max_value=2e9, allow_nan=False),
        st.sampled_from(["agent", "supervisor"]),
        anything,
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(logs)
def test_a_replayed_log_gives_the_live_result(live: list[events.Recorded]) -> None:
    found = fold(live)
    replayed = msgspec.json.decode(msgspec.json.encode(live), type=list[events.Recorded])
    assert fold(replayed) == found
    assert msgspec.json.decode(msgspec.json.encode(found), type=RunResult) == found
    assert (found.error is None) == found.ok


@settings(max_examples=100, deadline=None, derandomize=True)
@given(logs)
def test_asking_for_the_result_on_the_way_changes_nothing(live: list[events.Recorded]) -> None:
    state = Fold()
    for record in live:
        state.add(record)
        state.result()
    assert state.result() == fold(live)
