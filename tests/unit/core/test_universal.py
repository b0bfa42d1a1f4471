"""The universal schema: thirteen types, an order that holds for every item, and nothing lost on the way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.core.fold import fold
from leadrope.core.result import Denial, RunResult
from leadrope.core.tools import ToolCall
from leadrope.core.universal import schemas
from leadrope.core.universal import types as u
from leadrope.core.universal.conversion import PROMPT, Universal, universal

TYPES = {
    "session.started",
    "session.ended",
    "turn.started",
    "turn.ended",
    "item.started",
    "item.delta",
    "item.completed",
    "permission.requested",
    "permission.resolved",
    "question.requested",
    "question.resolved",
    "error",
    "agent.unparsed",
}
VALID = jsonschema_rs.Draft202012Validator(schemas.text_of(schemas.universal_schema()))
CALL = ToolCall(id="c1", name="Bash", input={"command": "ls"})
SUB = ToolCall(id="c2", name="Read", input={"file_path": "/a.png"}, agent_id="agent-1")
USAGE = Usage(input_tokens=3, output_tokens=4)

# One of each, in an order that a run might have; the test below holds that none is missing.
STORY: list[events.Event] = [
    events.Notice(level="debug", code="title", message="x"),
    events.SessionStarted(session_id="native", provider="claude-code", model="m", tools=("Bash",), sandbox="workspace"),
    events.TurnStarted(turn=1),
    events.ThinkingDelta(text="hm", message_id="m1"),
    events.ThinkingCompleted(text="hm", message_id="m1"),
    events.MessageDelta(text="I ", message_id="m1"),
    events.MessageDelta(text="look", message_id="m1"),
    events.MessageCompleted(text="I look", message_id="m1"),
    events.ToolRequested(call=CALL, message_id="m1"),
    events.ApprovalRequested(approval_id="a1", call=CALL, reason="it is a command", expires_s=300.0, risk="low"),
    events.ApprovalResolved(approval_id="a1", approved=True, by="ada"),
    events.ToolDecided(call=CALL, decision="allow", by="person", rule="approval"),
    events.ToolProgress(call_id="c1", tool="Bash", elapsed_s=30.0),
    events.SandboxViolation(kind="write", target="/etc", call_id="c1"),
    events.ToolCompleted(call_id="c1", text="a.txt"),
    events.SubagentStarted(agent_id="agent-1", call_id="c1", description="sub"),
    events.ToolRequested(call=SUB),
    events.ToolCompleted(call_id="c2", text="[image]", agent_id="agent-1"),
    events.SubagentEnded(agent_id="agent-1", call_id="c1", status="completed", tokens=7),
    events.GrantRevoked(pattern="Bash(npm test *)", by="ada"),
    events.QuestionRequested(question_id="q1", kind="question", questions=(events.Question(question="Which?"),)),
    events.QuestionResolved(question_id="q1", answered=True, answers={"Which?": "Red"}, by="ada"),
    events.UsageUpdated(message_id="m1", model="m", usage=USAGE),
    events.UsageEstimated(model="m", usage=USAGE, cost_usd=0.06),
    events.LimitReached(status="allowed_warning", kind="five_hour", resets_at=9.0),
    events.RetryScheduled(attempt=1, max_attempts=3, delay_s=0.5, api_status=529, error="overloaded"),
    events.Unrecognised(reason="not_json", raw="what?", size=5),
    events.OutputChecked(rung="structured", valid=True, value={"a": [1]}),
    events.TurnEnded(
        turn=1, is_error=False, reason="success", text="I look", usage=USAGE, cost_usd=0.5, denials=(SUB,), output=[1]
    ),
    events.RunEnding(cause="timed_out", kind="timed_out", message="too slow", clock="wall"),
    events.AgentExited(exit_code=143, stderr_head=("first",), stderr_tail=("last",)),
    events.RunEnded(
        result=RunResult(
            run_id="run",
            outcome="timed_out",
            usage=USAGE,
            cost_usd=0.5,
            denials=(Denial(call=SUB, reason="no"),),
        )
    ),
]


def log_of(told: Iterable[events.Event]) -> list[events.Recorded]:
    return [events.Recorded("run", 1, seq, 1000.0 + seq, "agent", event) for seq, event in enumerate(told, 1)]


def export(told: Iterable[events.Event]) -> list[Any]:
    found = list(universal(log_of(told), "run"))
    check(found)
    return found


def check(found: list[Any]) -> None:
    """What holds for every export, of whatever it was made."""
    for sequence, event in enumerate(found, 1):
        assert event.sequence == sequence
        line = msgspec.json.encode(event)
        VALID.validate(msgspec.json.decode(line))
        assert msgspec.json.encode(msgspec.json.decode(line, type=u.UniversalEvent)) == line
    assert len({event.event_id for event in found}) == len(found)
    assert isinstance(found[0], u.SessionStarted)
    assert sum(isinstance(event, u.SessionEnded) for event in found) >= 1
    state: dict[str, str] = {}
    told: Counter[str] = Counter()
    for event in found:
        match event:
            case u.ItemStarted():
                assert event.data.item.id not in state
                assert event.data.item.status == "in_progress"
                state[event.data.item.id] = "open"
            case u.ItemDelta():
                assert state[event.data.item_id] == "open"
                told[event.data.item_id] += 1
            case u.ItemCompleted():
                item = event.data.item
                assert state[item.id] == "open"
                assert item.status != "in_progress"
                assert item.kind in ("status", "system") or told[item.id]
                state[item.id] = "done"
            case _:
                pass
    assert set(state.values()) <= {"done"}


def of(found: list[Any], kind: Any) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


def items(found: list[Any], kind: str) -> list[u.Item]:
    return [event.data.item for event in of(found, u.ItemCompleted) if event.data.item.kind == kind]


def test_the_types_are_the_thirteen_that_were_promised() -> None:
    assert {kind.__struct_config__.tag for kind in get_args(u.UniversalEvent)} == TYPES
    assert len(TYPES) == 13
    parts = {kind.__struct_config__.tag for kind in get_args(u.Part)}
    assert parts == {"text", "json", "tool_call", "tool_result", "file_ref", "reasoning", "image", "status"}
    assert get_args(u.Kind) == ("message", "tool_call", "tool_result", "system", "status", "unknown")


def test_every_event_of_ours_has_a_meaning_and_none_is_lost() -> None:
    assert {type(event) for event in STORY} == set(get_args(events.Event))
    converter = Universal("run")
    for recorded in log_of(STORY):
        told = converter.feed(recorded, raw=f"line {recorded.seq}")
        own = [event for event in told if event.raw is not msgspec.UNSET]
        assert [event.raw for event in own] == [f"line {recorded.seq}"]
        assert not own[0].synthetic
    assert converter.finish() == []
    seen = {event.__struct_config__.tag for event in export(STORY)}
    assert seen == TYPES


@pytest.mark.parametrize(
    ("ours", "data"),
    [
        (events.TurnEnded, u.TurnEndedData),
        (events.QuestionRequested, u.QuestionRequestedData),
        (events.SessionStarted, u.SessionStartedData),
        (events.ApprovalRequested, u.PermissionRequestedData),
        (events.RunEnding, u.ErrorData),
        (events.Unrecognised, u.AgentUnparsedData),
    ],
)
def test_a_field_that_an_event_gains_is_not_forgotten_here(ours: Any, data: Any) -> None:
    renamed = {"session_id", "provider", "approval_id", "raw"}
    assert set(ours.__struct_fields__) - renamed <= set(data.__struct_fields__)


def test_the_session_begins_and_ends_with_what_is_known() -> None:
    found = export(STORY)
    first, second, *_, last = found
    assert (type(first), first.synthetic, first.data.agent) == (u.SessionStarted, True, None)
    started = of(found, u.SessionStarted)[1].data
    assert (started.agent, started.model, started.tools, started.sandbox) == (
        "claude-code",
        "m",
        ("Bash",),
        "workspace",
    )
    assert (started.schema_version, started.event_schema_version) == (1, events.SCHEMA_VERSION)
    assert second.native_session_id is None
    assert (last.native_session_id, last.session_id) == ("native", "run")
    assert (last.data.reason, last.data.result.outcome, last.data.exit_code) == ("terminated", "timed_out", 143)
    assert (last.data.stderr.head, last.data.stderr.tail) == (("first",), ("last",))
    assert (last.data.result.usage, last.data.result.cost_usd) == (USAGE, 0.5)
    assert last.data.result.denials[0].reason == "no"


def test_what_others_drop_is_kept() -> None:
    turn = of(export(STORY), u.TurnEnded)[0].data
    assert (turn.is_error, turn.usage, turn.cost_usd, turn.denials, turn.output) == (False, USAGE, 0.5, (SUB,), [1])
    failed = items(export([events.ToolCompleted(call_id="x", is_error=True, text="no", executed=False)]), "tool_result")
    assert (failed[0].is_error, failed[0].status) == (True, "failed")
    assert failed[0].content[0] == u.ToolResultPart(call_id="x", output="no", is_error=True, executed=False)


def test_a_streamed_message_is_told_once_and_one_without_deltas_gets_a_synthetic_one() -> None:
    found = export(STORY)
    deltas = [(event.data.delta, event.data.part, event.synthetic) for event in of(found, u.ItemDelta)]
    assert deltas[:3] == [("hm", "reasoning", False), ("I ", "text", False), ("look", "text", False)]
    thought, said = items(found, "message")
    assert (thought.content, said.content) == ((u.ReasoningPart(text="hm"),), (u.TextPart(text="I look"),))
    assert (said.role, said.native_id, said.status) == ("assistant", "m1", "completed")
    alone = export([events.MessageCompleted(text="whole", message_id="m9")])
    assert [(event.data.delta, event.synthetic) for event in of(alone, u.ItemDelta)] == [("whole", True)]


def test_thoughts_in_a_log_of_an_earlier_version_are_told_as_those_of_now() -> None:
    answer = events.MessageDelta(text="yes", message_id="m")
    now: list[events.Event] = [events.ThinkingDelta(text="hm", message_id="m"), answer]
    before: list[events.Event] = [events.MessageDelta(text="hm", message_id="m", thinking=True), answer]
    deltas = [[one.data for one in of(export(told), u.ItemDelta)] for told in (now, before)]
    assert deltas[0] == deltas[1]
    assert [one.part for one in deltas[0]] == ["reasoning", "text"]
    assert fold(log_of(now)).text == fold(log_of(before)).text


def test_a_result_belongs_to_its_call_and_a_subagents_call_to_the_call_that_started_it() -> None:
    found = export(STORY)
    first, second = items(found, "tool_call")
    result, seen = items(found, "tool_result")
    assert result.parent_id == first.id
    assert seen.parent_id == second.id
    assert (second.parent_id, second.agent_id) == (first.id, "agent-1")
    assert second.content[1] == u.FileRefPart(path="/a.png", action="read")
    assert seen.content[1] == u.ImagePart(path="/a.png")
    asked = of(found, u.PermissionRequested)[0].data
    assert (asked.item_id, asked.risk, asked.call) == (first.id, "low", CALL)


@pytest.mark.parametrize(
    ("name", "action"), [("Read", "read"), ("Write", "write"), ("Edit", "patch"), ("Bash", None), ("mcp__x", None)]
)
def test_files_are_named_where_the_tool_says_so(name: str, action: str | None) -> None:
    call = ToolCall(id="c", name=name, input={"file_path": "/f", "command": "x"})
    refs = items(export([events.ToolRequested(call=call)]), "tool_call")[0].content[1:]
    assert [part.action for part in refs if isinstance(part, u.FileRefPart)] == ([action] if action else [])


def test_what_was_never_ended_is_ended_and_says_that_it_was_not_told() -> None:
    found = export(
        [
            events.SessionStarted(session_id="s", provider="p"),
            events.TurnStarted(turn=1),
            events.MessageDelta(text="half a", message_id="m"),
            events.ToolRequested(call=CALL),
            events.ApprovalRequested(approval_id="a", call=CALL, reason="", expires_s=0.0),
            events.QuestionRequested(question_id="q", kind="plan", plan="1."),
        ]
    )
    closed = [event.data.item for event in of(found, u.ItemCompleted) if event.synthetic]
    assert [(item.kind, item.status) for item in closed] == [("message", "failed"), ("tool_call", "failed")]
    assert closed[0].content == (u.TextPart(text="half a"),)
    assert of(found, u.PermissionResolved)[0].data.status == "abandoned"
    assert of(found, u.QuestionResolved)[0].data.status == "abandoned"
    assert of(found, u.TurnEnded)[0].synthetic
    assert (found[-1].data.reason, found[-1].data.result.outcome, found[-1].synthetic) == ("error", "failed", True)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([events.TurnEnded(turn=1, is_error=False, reason="success", text="hi", steps=1)], "completed"),
        ([events.TurnEnded(turn=1, is_error=True, reason="error", api_status=500)], "error"),
        ([events.RunEnding(cause="stopped", kind="stopped", message="by hand")], "terminated"),
        ([events.RunEnding(cause="over_budget", kind="over_budget", message="spent")], "terminated"),
        ([], "error"),
    ],
)
def test_the_reason_of_the_end_is_one_of_three(told: list[events.Event], reason: str) -> None:
    assert export(told)[-1].data.reason == reason


def test_an_error_is_told_as_one() -> None:
    problem = events.Problem(kind="overloaded", hint="Wait.")
    found = export(
        [events.TurnEnded(turn=1, is_error=True, reason="error", text="529", api_status=529, problem=problem)]
    )
    error = of(found, u.Error)[0].data
    assert (error.kind, error.message, error.api_status, error.hint) == ("overloaded", "529", 529, "Wait.")
    assert [type(event) for event in found[1:4]] == [u.TurnStarted, u.TurnEnded, u.Error]
    assert found[1].synthetic


def test_a_prompt_is_the_users_message() -> None:
    found = export([events.Notice(level="info", code=PROMPT, message="do it")])
    assert [(item.role, item.content) for item in items(found, "message")] == [("user", (u.TextPart(text="do it"),))]


def test_events_without_a_type_of_their_own_are_told_whole() -> None:
    checked = events.OutputChecked(rung="none", valid=False, errors=("no value",))
    item = items(export([checked]), "status")[0]
    assert item.content == (
        u.StatusPart(label="output.checked", detail="no value"),
        u.JsonPart(json=msgspec.to_builtins(checked)),
    )
    assert (item.status, item.is_error, item.role) == ("failed", True, "system")


@pytest.mark.parametrize("time", [math.nan, math.inf, -1e30, 1e30, -5.0, 0.0])
def test_any_number_is_a_time(time: float) -> None:
    found = list(universal([events.Recorded("run", 1, 1, time, "supervisor", STORY[0])]))
    check(found)
    assert found[1].source == "daemon"


def test_an_empty_log_is_a_session_that_came_to_nothing() -> None:
    found = list(universal([], "nothing"))
    check(found)
    assert [type(event) for event in found] == [u.SessionStarted, u.SessionEnded]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STORY), max_size=40))
def test_any_order_of_any_events_keeps_the_order_of_items(told: list[events.Event]) -> None:
    export(told)


@settings(max_examples=50, deadline=None)
@given(st.permutations(STORY))
def test_a_shuffled_story_loses_nothing(told: list[events.Event]) -> None:
    converter = Universal("run")
    for recorded in log_of(told):
        found = converter.feed(recorded, raw=str(recorded.seq))
        assert [event.raw for event in found if event.raw is not msgspec.UNSET] == [str(recorded.seq)]
