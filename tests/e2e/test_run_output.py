"""Answers that must fit a schema, on the real CLI: where the value is found, and what happens when there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import leadrope
from leadrope import Limits, events
from leadrope.rehearsal import ModelServer

INT = {"type": "integer"}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": INT},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ADA = {"name": "Ada", "age": 36}
DEAR = {"input_tokens": 100_000, "output_tokens": 0}


def hand(value: Any, **more: Any) -> dict[str, Any]:
    """The model hands over an answer with the agent's own tool."""
    return {"tool": {"name": "StructuredOutput", "input": value}, **more}


def kinds(played: Any) -> list[str]:
    return [warning.kind for warning in played.result.warnings]


def has_one_process(played: Any) -> None:
    """One start, one session, one exit; every request came from that session."""
    played.one(events.SessionStarted)
    played.one(events.AgentExited)
    assert {record.attempt for record in played.recorded} == {1}
    assert len({request.headers["x-claude-code-session-id"] for request in played.model.requests}) == 1


# -- the rungs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plan", "default", "edit", "full", "dontAsk"])
async def test_a_value_that_is_handed_over_is_taken_in_every_mode(stage: Any, mode: str) -> None:
    played = await stage.play([hand(ADA)], output_schema=PERSON, mode=mode)
    assert played.result.outcome == "succeeded"
    assert (played.result.output, played.result.output_rung, played.result.corrections) == (ADA, "structured", 0)
    assert not played.result.denials
    checked = played.one(events.OutputChecked)
    assert (checked.valid, checked.rung, checked.value) == (True, "structured", ADA)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": PERSON}, [ADA]),
        ({"enum": ["low", "high"]}, "low"),
        ({"const": 42}, 42),
        ({"type": ["integer", "null"]}, None),
        ({"anyOf": [INT, {"type": "string"}]}, "x"),
        ({"$ref": "#/$defs/p", "$defs": {"p": PERSON}}, ADA),
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "$id": "https://example.com/pair.json",
                "type": "array",
                "prefixItems": [INT, {"$ref": "#/$defs/word"}],
                "items": False,
                "minItems": 2,
                "x-note": "a keyword of nobody's",
                "$defs": {"word": {"type": "string", "pattern": r"^\p{L}+$"}},
            },
            [1, "été"],
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "type": "integer",
                "minimum": 0,
                "exclusiveMinimum": True,
            },
            3,
        ),
    ],
    ids=["array", "enum", "const", "null", "union", "reference", "2020-12", "draft 4"],
)
async def test_a_root_that_is_no_object_is_wrapped_for_the_agent_only(stage: Any, schema: Any, value: Any) -> None:
    played = await stage.play([hand({"value": value}, expect={"tools": ["StructuredOutput"]})], output_schema=schema)
    assert played.result.outcome == "succeeded", played.result
    assert played.result.output == value
    assert played.result.output_rung == "structured"


ODD: dict[str, Any] = {
    "any": True,
    "none": False,
    "untyped": {"properties": {"x": {"minLength": 2}}, "minProperties": 0},
    "lonely_if": {"if": {"type": "integer"}},
    "lonely_then": {"then": {"type": "integer"}},
    "whole_if": {"if": {"type": "integer"}, "then": {"minimum": 1}, "else": {"type": ["string", "null"]}},
    "rest_only": {"type": "array", "additionalItems": {"type": "string"}},
    "tuple": {"type": "array", "prefixItems": [INT], "items": {"type": "string"}},
    "some": {"type": "array", "contains": INT, "minContains": 0, "maxContains": 3},
    "names": {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "patternProperties": {"^x": INT}},
    "needs": {"type": "object", "dependentRequired": {"a": ["b"]}, "dependencies": {"a": ["b"]}},
    "closed": {"allOf": [{"properties": {"a": INT}}], "unevaluatedProperties": False},
    "notes": {
        "title": "t",
        "default": 3,
        "examples": [1],
        "readOnly": True,
        "$comment": "c",
        "x-own": {},
        "nullable": True,
    },
    "text": {"type": "string", "format": "made-up", "contentEncoding": "base64", "contentMediaType": "text/plain"},
    "pattern": {"type": "string", "pattern": r"^(?<year>\d{4})\p{L}*$"},
    "both": {"oneOf": [INT, {"type": "string"}], "anyOf": [INT, {"type": "string"}], "not": {"const": 3}},
    "same": {"$ref": "#/properties/tuple", "description": "beside a reference"},
    "anchored": {"$ref": "#here"},
    "tree": {"$ref": "#/$defs/tree"},
    "__proto__": {"type": "string"},
    "number": {"type": "number", "multipleOf": 0.1, "exclusiveMinimum": 0, "maximum": 1e300},
    "required_elsewhere": {"type": "object", "required": ["not_declared"]},
}


async def test_no_keyword_keeps_the_agent_from_starting(stage: Any) -> None:
    """Its own reader refuses to start with a keyword that it does not know."""
    tree = {"$anchor": "here", "type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": ODD,
        "$defs": {"tree": tree},
    }
    played = await stage.play([hand({"tree": {"a": {}}, "tuple": [1, "x"]})], output_schema=schema)
    assert played.result.outcome == "succeeded", played.result
    assert played.result.output_rung == "structured"


async def test_a_model_that_never_calls_the_tool_is_read(stage: Any) -> None:
    said = 'Here it is:\n```json\n{"name": "Ada", "age": 36}\n```\nIs that all?'
    played = await stage.play([{"text": said}, {"text": "I have said it."}], output_schema=PERSON)
    assert played.result.outcome == "succeeded"
    assert (played.result.output, played.result.output_rung) == (ADA, "text")
    assert played.result.text == "I have said it.", "the text stays what it was"


async def test_calls_that_the_agent_refuses_are_repaired_at_any_depth(stage: Any) -> None:
    """The CLI's own reader wants every type as declared; numbers beyond 2**53 come through exactly, as texts."""
    schema = {
        "type": "object",
        "properties": {
            "rows": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"id": INT, "open": {"type": "boolean"}, "note": {"type": "string"}},
                },
            }
        },
        "required": ["rows"],
    }
    wrong = {"rows": [{"id": "9007199254740993", "open": "True", "note": 7}]}
    played = await stage.play(
        [hand(wrong), hand(wrong, expect={"tool_result": {"is_error": True}})],
        output_schema=schema,
        max_structured_retries=2,
    )
    assert played.result.outcome == "succeeded"
    assert played.result.output == {"rows": [{"id": 9007199254740993, "open": True, "note": "7"}]}
    assert (played.result.output_rung, played.result.corrections) == ("coerced", 0)
    assert not played.result.warnings


async def test_a_call_that_the_agent_itself_gets_mended_needs_no_corrective_turn(stage: Any) -> None:
    played = await stage.play(
        [hand({"name": "Ada"}), hand(ADA, expect={"tool_result": {"is_error": True}})], output_schema=PERSON
    )
    assert (played.result.output, played.result.corrections) == (ADA, 0)
    assert played.result.llm_usage.retries == ()


# -- the corrective turn ---------------------------------------------------------------------------------------------


async def test_a_corrective_turn_happens_in_the_same_session_and_process(stage: Any) -> None:
    script = [
        {"text": "Ada is 36.", "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5}},
        {"text": "As I said.", "usage": {"input_tokens": 20, "cache_creation_input_tokens": 7, "output_tokens": 6}},
        hand(
            ADA,
            expect={
                "contains": ["does not fit the JSON Schema", "holds no JSON value", '"additionalProperties": false']
            },
            usage={"input_tokens": 30, "output_tokens": 8},
        ),
    ]
    played = await stage.play(script, output_schema=PERSON)
    result = played.result
    assert result.outcome == "succeeded"
    assert (result.output, result.output_rung, result.corrections) == (ADA, "structured", 1)
    has_one_process(played)
    assert [(c.valid, c.correction, c.retrying) for c in played.of(events.OutputChecked)] == [
        (False, 0, True),
        (True, 1, False),
    ]
    final, (replaced,), whole = result.llm_usage, result.llm_usage.retries, result.totals
    assert (final.input_tokens, final.output_tokens, final.total_tokens) == (30, 8, 38)
    assert (replaced.input_tokens, replaced.uncached_input_tokens, replaced.output_tokens) == (127, 30, 11)
    assert (replaced.cache_read_input_tokens, replaced.cache_creation_input_tokens) == (90, 7)
    for name in ("input_tokens", "uncached_input_tokens", "output_tokens", "num_turns", "duration_ms"):
        assert getattr(whole, name) == getattr(final, name) + getattr(replaced, name), name
    assert whole.cost_usd == pytest.approx(final.cost_usd + replaced.cost_usd)
    assert whole.cost_usd == pytest.approx(result.cost_usd)
    assert whole.total_tokens == result.usage.total_tokens
    assert final.session_id == replaced.session_id == result.session_id
    assert (final.cost_source, final.cost_label, whole.attempts) == ("cli", "estimate", 2)
    assert {name: share.usage.output_tokens for name, share in whole.models.items()} == {result.model: 19}


async def test_an_agent_that_gave_up_on_the_schema_is_asked_once_more(stage: Any) -> None:
    """error_max_structured_output_retries does not end the process."""
    played = await stage.play(
        [hand({"name": 1}), hand({"name": 2}), hand(ADA)], output_schema=PERSON, max_structured_retries=2
    )
    assert played.of(events.TurnEnded)[0].reason == "error_max_structured_output_retries"
    assert (played.result.outcome, played.result.output, played.result.corrections) == ("succeeded", ADA, 1)
    assert not played.result.warnings
    has_one_process(played)


async def test_our_judgement_is_stricter_than_the_agents(stage: Any) -> None:
    """The CLI looks at no format."""
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}, "required": ["day"]}
    script = [hand({"day": "soon"}), hand({"day": "2026-11-16"}, expect={"contains": '/day: "soon" is not a "date"'})]
    played = await stage.play(script, output_schema=schema)
    assert (played.result.output, played.result.corrections) == ({"day": "2026-11-16"}, 1)


async def test_each_prompt_of_a_conversation_has_tries_of_its_own(stage: Any) -> None:
    async def talk(run: Any, event: events.Event) -> None:
        if isinstance(event, events.OutputChecked) and event.value == ADA:
            await run.send("and Bob?")
            run.finish()

    script = [
        *({"text": "36"}, {"text": "36, I say"}, hand(ADA)),
        *({"text": "40"}, {"text": "40, I say"}, hand({"name": "Bob", "age": 40})),
    ]
    played = await stage.play(script, output_schema=PERSON, keep_open=True, on=talk)
    assert [c.correction for c in played.of(events.OutputChecked)] == [0, 1, 0, 1]
    assert (played.result.output, played.result.corrections) == ({"name": "Bob", "age": 40}, 1)
    has_one_process(played)


async def test_an_answer_that_waits_for_a_background_agent_is_judged_after_its_report(stage: Any) -> None:
    agent = {"description": "d", "prompt": "count", "subagent_type": "general-purpose", "run_in_background": True}
    script = {
        "turns": [
            {"tool": {"name": "Agent", "input": agent}},
            {"text": "It is at work."},
            {"text": "It still is."},
            hand(ADA),
        ],
        "subagents": [[{"text": "36", "wait": "counting"}]],
    }

    async def release(run: Any, event: events.Event) -> None:
        if isinstance(event, events.TurnEnded) and not event.background:
            model.release("counting")

    async with stage.opened(script, output_schema=PERSON, mode="full") as (run, model):
        found = []
        async for item in run:
            found.append(item.event)
            await release(run, item.event)
        result = await run.result()
    checked = [event for event in found if isinstance(event, events.OutputChecked)]
    assert [(one.valid, one.correction) for one in checked] == [(True, 0)]
    assert (result.outcome, result.output) == ("succeeded", ADA)


# -- when there is none ------------------------------------------------------------------------------------------------


async def test_nothing_that_fits_degrades_the_run_and_keeps_the_text(stage: Any) -> None:
    played = await stage.play([{"text": "I would rather not.", "repeat": 4}], output_schema=PERSON)
    result = played.result
    assert (result.outcome, result.text, result.output) == ("degraded", "I would rather not.", None)
    assert (result.output_rung, result.corrections) == ("none", 1)
    assert result.schema_error == "the answer holds no JSON value"
    assert kinds(played) == ["claude_code.schema_not_satisfied_after_retries"]
    assert result.error is None


async def test_zero_tries_switch_off_conversion_and_correction(stage: Any) -> None:
    wrong = '{"name": "Ada", "age": "36"}'
    played = await stage.play([{"text": wrong}, {"text": wrong}], output_schema=PERSON, schema_retries=0)
    assert (played.result.outcome, played.result.output, played.result.text) == ("degraded", None, wrong)
    assert played.result.schema_error == '/age: "36" is not of type "integer"'
    assert kinds(played) == ["claude_code.schema_not_satisfied"]


async def test_five_tries_are_five(stage: Any) -> None:
    wrong = '{"name": "Ada"}'
    played = await stage.play([{"text": wrong, "repeat": 12}], output_schema=PERSON, schema_retries=5)
    assert played.result.outcome == "degraded"
    assert played.result.corrections == 5
    assert len(played.result.llm_usage.retries) == 5
    assert played.result.totals.output_tokens == 120


async def test_a_refused_login_is_a_failure_and_is_asked_once(stage: Any) -> None:
    played = await stage.play([{"error": {"status": 401}}], output_schema=PERSON)
    assert (played.result.outcome, played.result.error.kind) == ("failed", "not_authenticated")
    assert len(played.model.requests) == 1
    assert not played.of(events.OutputChecked)
    assert played.result.schema_error is None


async def test_a_corrective_turn_that_fails_throws_nothing_away(stage: Any) -> None:
    script = [{"text": "Ada is 36."}, {"text": "As I said."}, {"error": {"status": 500, "message": "no"}}]
    played = await stage.play(script, output_schema=PERSON)
    assert (played.result.outcome, played.result.text) == ("degraded", "As I said.")
    assert kinds(played) == ["claude_code.sdk_error_no_structured_output"]
    assert "500" in played.result.schema_error


async def test_turns_that_are_used_up_are_told_beside_the_missing_answer(stage: Any) -> None:
    (stage.ws / "a.txt").write_text("x")
    read = {"tool": {"name": "Read", "input": {"file_path": str(stage.ws / "a.txt")}}, "text": "looking"}
    played = await stage.play([read, read], output_schema=PERSON, max_turns=2)
    assert (played.result.outcome, played.result.output) == ("degraded", None)
    assert kinds(played) == ["claude_code.sdk_error_no_structured_output", "max_turns"]


async def test_no_corrective_turn_beyond_the_budget(stage: Any) -> None:
    script = [{"text": "Ada is 36.", "usage": DEAR}, {"text": "As I said.", "usage": DEAR, "optional": True}]
    played = await stage.play(script, output_schema=PERSON, limits=Limits(budget_usd=0.3))
    assert played.result.outcome == "over_budget"
    assert not [checked for checked in played.of(events.OutputChecked) if checked.retrying]


async def test_an_interrupted_turn_is_not_corrected(stage: Any) -> None:
    async def interrupt(run: Any, event: events.Event) -> None:
        if isinstance(event, events.MessageDelta):
            await run.interrupt()

    played = await stage.play([{"text": "Ada", "hang": "mid_stream"}], output_schema=PERSON, on=interrupt)
    assert played.result.outcome == "stopped"
    assert not played.of(events.OutputChecked)


# -- types -------------------------------------------------------------------------------------------------------------


class Struct(msgspec.Struct, frozen=True):
    name: str
    age: int


@dataclass(frozen=True)
class Data:
    name: str
    age: int


class Dict(TypedDict):
    name: str
    age: int


class Model(pydantic.BaseModel):
    name: str
    age: int


@pytest.mark.parametrize(
    ("kind", "handed", "expected"),
    [
        (Struct, ADA, Struct("Ada", 36)),
        (Data, ADA, Data("Ada", 36)),
        (Dict, ADA, ADA),
        (Model, ADA, Model(name="Ada", age=36)),
        (list[Struct], {"value": [ADA]}, [Struct("Ada", 36)]),
    ],
)
async def test_a_type_gives_the_schema_and_gets_the_value(
    stage: Any, monkeypatch: pytest.MonkeyPatch, kind: Any, handed: Any, expected: Any
) -> None:
    for name, value in stage.environ.items():
        monkeypatch.setenv(name, value)
    async with ModelServer([hand(handed)]) as model:
        result = await leadrope.run(stage.request(model), output_type=kind)
    assert result.outcome == "succeeded"
    assert result.output == result.value == expected
    assert type(result.output) is type(expected)
