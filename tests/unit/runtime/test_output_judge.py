"""The ladder by itself: turns in, rulings out; and recordings of the real CLI through it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from leadrope import RunRequest
from leadrope.core import events
from leadrope.core.tools import ToolCall
from leadrope.providers.claude_code import decode
from leadrope.runtime.output import Judge, Ruling, WayOut

RECORDINGS = Path(__file__).parents[2] / "recordings"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
ADA = {"name": "Ada", "age": 36}
NUMBERS = {"type": "array", "items": {"type": "integer"}}


def judge(schema: Any = None, retries: int = 1) -> Judge:
    return Judge(RunRequest(prompt="x", output_schema=schema or PERSON, schema_retries=retries))


def turn(text: str = "", **more: Any) -> events.TurnEnded:
    return events.TurnEnded(turn=1, text=text, steps=1, **{"is_error": False, "reason": "success", **more})


def call(value: Any, agent: str | None = None) -> ToolCall:
    return ToolCall(id="t", name="StructuredOutput", input=value, agent_id=agent)


def ruled(made: Judge, ended: events.TurnEnded, agents: int = 0, way_out: WayOut = "open") -> Ruling:
    ruling = made.ended(ended, agents=agents, way_out=way_out)
    assert ruling is not None
    return ruling


@pytest.mark.parametrize(
    ("schema", "ended", "rung", "value"),
    [
        (PERSON, turn("x", output=ADA), "structured", ADA),
        (PERSON, turn(json.dumps(ADA)), "text", ADA),
        (PERSON, turn("x", output={"name": "Ada", "age": "36"}), "coerced", ADA),
        (PERSON, turn(json.dumps(ADA), output={"name": "Ada", "age": "36"}), "text", ADA),
        (NUMBERS, turn("x", output={"value": [1]}), "structured", [1]),
        (NUMBERS, turn("[1, 2]"), "text", [1, 2]),
        (NUMBERS, turn('{"value": [1, 2]}'), "text", [1, 2]),
        (NUMBERS, turn('{"value": ["1", 2]}'), "coerced", [1, 2]),
        ({"type": "integer"}, turn("9007199254740993"), "text", 9007199254740993),
        ({"type": "integer"}, turn('"9007199254740993"'), "coerced", 9007199254740993),
        ({"enum": ["high", "low"]}, turn('"high"'), "text", "high"),
        ({"enum": ["high", "low"]}, turn("high"), "none", None),
        # An object of the caller's own that looks like a wrapped one stays as it is.
        ({"anyOf": [{"type": "object", "required": ["value"]}]}, turn('{"value": 1}'), "text", {"value": 1}),
        (PERSON, turn("Ada is 36"), "none", None),
    ],
)
def test_where_a_value_is_found(schema: Any, ended: events.TurnEnded, rung: str, value: Any) -> None:
    checked = ruled(judge(schema), ended).checked
    assert (checked.rung, checked.value, checked.valid) == (rung, value, rung != "none")


def test_a_refused_call_and_earlier_texts_of_the_turn_count() -> None:
    made = judge()
    made.requested(call({"name": "Sub", "age": 1}, agent="a1"))
    made.requested(call({"name": "Ada", "age": "36"}))
    assert ruled(made, turn("done")).checked.value == ADA
    assert ruled(made, turn("done")).checked.valid is False, "the next turn begins with nothing"
    made.prompted()
    made.heard(events.MessageCompleted(text=json.dumps(ADA)))
    made.heard(events.MessageCompleted(text='{"name": "Sub", "age": 1}', agent_id="a1"))
    made.heard(events.MessageCompleted(text="That was it."))
    assert ruled(made, turn("That was it.")).checked.value == ADA


def test_zero_tries_neither_convert_nor_correct() -> None:
    ruling = ruled(judge(retries=0), turn('{"name": "Ada", "age": "36"}'))
    assert not ruling.checked.valid
    assert ruling.correction is None
    assert not ruling.told


def test_the_agent_is_told_what_was_wrong_as_often_as_was_asked_for() -> None:
    made = judge(NUMBERS, retries=2)
    first = ruled(made, turn('["x"]'))
    assert first.correction is not None
    assert '- /0: "x" is not of type "integer"' in first.correction
    assert '"items": {' in first.correction
    assert "property `value`" in first.correction
    assert first.checked.retrying
    assert ruled(made, turn('["x"]')).checked.correction == 1
    last = ruled(made, turn('["x"]'))
    assert (last.checked.correction, last.correction, last.checked.retrying) == (2, None, False)
    made.prompted()
    assert ruled(made, turn('["x"]')).correction is not None


@pytest.mark.parametrize(("way_out", "noticed"), [("closed", True), ("ending", False)])
def test_no_corrective_turn_without_a_way_to_ask(way_out: WayOut, noticed: bool) -> None:
    ruling = ruled(judge(), turn("no"), way_out=way_out)
    assert ruling.correction is None
    assert not ruling.checked.retrying
    assert bool(ruling.told) is noticed


@pytest.mark.parametrize(
    "ended",
    [
        turn("API Error: 401", is_error=True, problem=events.Problem(kind="not_authenticated")),
        turn("", problem=events.Problem(kind="stopped", outcome="stopped")),
        turn("", is_error=True, problem=events.Problem(kind="over_budget", outcome="over_budget"), output=ADA),
        turn("", is_error=True),
        events.TurnEnded(turn=1, is_error=False, reason="success"),
        turn("a report", background=True),
    ],
    ids=["refused", "interrupted", "over budget", "unexplained", "no answer", "background"],
)
def test_what_is_no_answer_is_not_judged(ended: events.TurnEnded) -> None:
    assert judge().ended(ended, agents=0, way_out="open") is None


def test_max_turns_is_judged_and_not_corrected() -> None:
    problem = events.Problem(kind="max_turns", outcome="degraded")
    ruling = ruled(judge(), turn("", is_error=True, problem=problem))
    assert (ruling.checked.valid, ruling.correction) == (False, None)
    assert ruled(judge(), turn("", is_error=True, problem=problem, output=ADA)).checked.valid


def test_an_answer_waits_for_the_agents_in_the_background() -> None:
    made = judge()
    assert made.ended(turn("they are at work"), agents=1, way_out="open") is None
    assert made.ended(turn("one is done", background=True), agents=1, way_out="open") is None
    assert ruled(made, turn("all are done", background=True)).correction is not None
    made.prompted()
    assert ruled(made, turn("x", output=ADA), agents=1).checked.valid, "a good answer does not wait"


def test_what_is_left_when_the_process_is_gone() -> None:
    made = judge()
    assert made.left_over() == []
    assert made.ended(turn("they are at work"), agents=1, way_out="open") is None
    assert [type(event) for event in made.left_over()] == [events.OutputChecked, events.Notice]
    made.prompted()
    ruled(made, turn("no"))
    assert [type(event) for event in made.left_over()] == [events.Notice]


@pytest.mark.parametrize(
    ("name", "rung", "value"),
    [
        ("so-ok", "structured", ADA),
        ("so-bad-then-ok", "structured", ADA),
        ("so-twice", "structured", {"name": "B", "age": 2}),
        ("so-never", "text", ADA),
        ("so-always-bad-retries2", "none", None),
    ],
)
def test_recordings_of_the_real_cli(name: str, rung: str, value: Any) -> None:
    made = judge()
    found: list[Ruling] = []
    lines = [line for line in (RECORDINGS / name / "stdout.jsonl").read_bytes().split(b"\n") if line]
    for item in decode.Decoder().feed(lines):
        if isinstance(item, events.MessageCompleted):
            made.heard(item)
        elif isinstance(item, events.ToolRequested):
            made.requested(item.call)
        elif isinstance(item, events.TurnEnded):
            found.append(ruled(made, item))
    (ruling,) = found
    assert (ruling.checked.rung, ruling.checked.value) == (rung, value)
    assert isinstance(ruling.checked, get_args(events.Event))
    assert msgspec.json.decode(msgspec.json.encode(ruling.checked), type=events.OutputChecked) == ruling.checked
