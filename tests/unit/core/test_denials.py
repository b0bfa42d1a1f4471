"""When denied calls make a run `denied`: one table, and what the result keeps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leadrope import spelling
from leadrope.core import denials, events
from leadrope.core.events import AgentExited, Problem, RunEnding, TurnEnded
from leadrope.core.fold import fold
from leadrope.core.request import flag_of
from leadrope.core.result import Denial, RunResult
from leadrope.core.tools import ToolCall

TURN = events.TurnStarted(turn=1)
EXIT_0 = AgentExited(exit_code=0)


def call(name: str, number: int = 1, **fields: Any) -> ToolCall:
    return ToolCall(id=f"{name}-{number}", name=name, **fields)


def yes(name: str, number: int = 1, *, only_reads: bool = False, **fields: Any) -> events.ToolDecided:
    made = call(name, number, **fields)
    return events.ToolDecided(call=made, decision="allow", by="rule", rule="mode", only_reads=only_reads)


def no(name: str, number: int = 1, by: Any = "rule", **fields: Any) -> events.ToolDecided:
    return events.ToolDecided(call=call(name, number, **fields), decision="deny", by=by, rule="mode", reason="not here")


def said(**fields: Any) -> TurnEnded:
    return TurnEnded(**{"turn": 1, "is_error": False, "reason": "success", "text": "done", "steps": 1, **fields})


def log(*told: events.Event) -> list[events.Recorded]:
    return [events.Recorded("run", 1, seq, 1000.0 + seq, "agent", event) for seq, event in enumerate(told, 1)]


def result(*told: events.Event) -> RunResult:
    return fold(log(TURN, *told, EXIT_0))


TABLE: list[tuple[str, tuple[events.Event, ...], str]] = [
    ("nothing was asked for", (said(),), "succeeded"),
    ("only reads", (yes("Read"), yes("Grep"), said()), "succeeded"),
    ("one denied command", (no("Bash"), said()), "denied"),
    ("an edit in plan mode, then an answer", (yes("Read"), no("Edit"), said()), "denied"),
    ("reads and a denied command", (yes("Read"), yes("Glob"), no("Bash"), said()), "denied"),
    ("a denied read beside allowed ones", (yes("Read"), no("Read", 2), said()), "denied"),
    ("an allowed edit beside a denied command", (yes("Edit"), no("Bash"), said()), "succeeded"),
    ("an allowed command beside a denied one", (no("Bash"), yes("Bash", 2), said()), "succeeded"),
    ("a search of the web beside a denied command", (yes("WebSearch"), no("Bash"), said()), "succeeded"),
    ("a command that only reads beside a denied one", (yes("Bash", only_reads=True), no("Bash", 2), said()), "denied"),
    ("an MCP tool beside a denied command", (yes("mcp__docs__find"), no("Bash"), said()), "succeeded"),
    ("a denied MCP tool", (yes("Read"), no("mcp__docs__find"), said()), "denied"),
    ("a tool that nobody knows", (yes("Teleport"), no("Bash"), said()), "succeeded"),
    ("a denied subagent", (no("Task"), said()), "denied"),
    ("a subagent whose call was denied", (yes("Task"), no("Bash", agent_id="a1"), said()), "denied"),
    (
        "a subagent whose edit was allowed",
        (yes("Task"), yes("Write", agent_id="a1"), no("Bash", agent_id="a1"), said()),
        "succeeded",
    ),
    ("a to-do list beside a denied command", (yes("TodoWrite"), no("Bash"), said()), "denied"),
    ("a denied to-do list", (no("TodoWrite"), said()), "succeeded"),
    (
        "a question that nobody answered",
        (yes("AskUserQuestion"), said(denials=(call("AskUserQuestion"),))),
        "succeeded",
    ),
    ("a plan that nobody approved", (yes("ExitPlanMode"), said(denials=(call("ExitPlanMode"),))), "succeeded"),
    (
        "a recording without decisions, in which an edit ran",
        (
            events.ToolRequested(call=call("Edit")),
            events.ToolCompleted(call_id="Edit-1"),
            said(denials=(call("Bash"),)),
        ),
        "succeeded",
    ),
    (
        "a recording without decisions, in which only a file was read",
        (
            events.ToolRequested(call=call("Read")),
            events.ToolCompleted(call_id="Read-1"),
            said(denials=(call("Bash"),)),
        ),
        "denied",
    ),
    ("denied by a person", (no("Bash", by="person"), said()), "denied"),
    ("denied by the clock", (no("Bash", by="timeout"), said()), "denied"),
    ("denied by the agent program itself", (said(denials=(call("Write"),)),), "denied"),
    ("allowed here, denied by the agent program", (yes("Write"), said(denials=(call("Write"),))), "denied"),
    (
        "a degraded answer after a denial",
        (no("Bash"), said(problem=Problem(kind="max_turns", outcome="degraded"))),
        "denied",
    ),
    (
        "a failure after a denial",
        (no("Bash"), said(is_error=True, problem=Problem(kind="api_error", outcome="failed"))),
        "failed",
    ),
    ("no word after a denial", (no("Bash"), said(text="")), "failed"),
    ("stopped after a denial", (no("Bash"), RunEnding(cause="stopped", kind="stopped", message="x")), "stopped"),
    (
        "out of time after a denial",
        (no("Bash"), RunEnding(cause="timed_out", kind="timed_out", message="x")),
        "timed_out",
    ),
]


@pytest.mark.parametrize(("told", "outcome"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_what_a_denied_call_makes_of_a_run(told: tuple[events.Event, ...], outcome: str) -> None:
    found = result(*told)
    assert found.outcome == outcome
    assert (found.error is not None and found.error.kind == "denied") == (outcome == "denied")


@pytest.mark.parametrize("told", [row[1] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_stored_log_gives_the_same_outcome(told: tuple[events.Event, ...]) -> None:
    written = msgspec.json.encode(log(TURN, *told, EXIT_0))
    assert fold(msgspec.json.decode(written, type=list[events.Recorded])) == result(*told)


def test_what_an_earlier_attempt_did_counts() -> None:
    first = log(TURN, yes("Edit"))
    later = [
        msgspec.structs.replace(record, attempt=2, seq=record.seq + 2)
        for record in log(TURN, no("Bash"), said(), EXIT_0)
    ]
    assert fold([*first, *later]).outcome == "succeeded"
    assert fold([*first[:1], *later]).outcome == "denied"


def test_a_denied_run_keeps_its_answer_and_names_the_calls() -> None:
    checked = events.OutputChecked(rung="structured", valid=True, value={"a": 1})
    found = result(no("Bash"), no("Write"), said(text="I could not.", output={"a": 1}), checked)
    assert (found.text, found.output, found.schema_error) == ("I could not.", {"a": 1}, None)
    assert found.error is not None
    assert found.error.message == "2 calls were denied: Bash (not here), Write (not here)"
    assert found.error.hint == "Allow what the task needs with allow, tools or another mode, or ask for less."
    with spelling.at_terminal(flag_of):
        told = result(no("Bash"), said(text="I could not.")).error
    assert told is not None
    assert told.hint == "Allow what the task needs with --allow, --tools or another --mode, or ask for less."
    assert [denial.call.name for denial in found.denials] == ["Bash", "Write"]


def test_a_denied_run_keeps_the_warning_of_a_degraded_one() -> None:
    found = result(no("Bash"), said(problem=Problem(kind="max_turns", outcome="degraded"), errors=("out of turns",)))
    assert [warning.kind for warning in found.warnings] == ["max_turns"]


def test_many_denials_are_told_in_one_short_sentence() -> None:
    many = [Denial(call=call("Bash", n), reason=f"reason {n}") for n in range(6)]
    assert denials.describe(many) == "6 calls were denied: Bash (reason 0), Bash (reason 1), Bash (reason 2) and 3 more"
    same = [Denial(call=call("Bash", n), reason="no") for n in range(6)]
    assert denials.describe(same) == "6 calls were denied: Bash (no)"
