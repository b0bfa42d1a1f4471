"""Schemas of answers: which are refused before anything starts, and what an agent is given of the others."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its types are a package of their own
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope import errors
from leadrope.core.output import schema_copy
from leadrope.core.output.schema import DEPTH_LIMIT, NODES_LIMIT, read
from leadrope.core.output.schema_copy import copy_of, is_portable

INT, STR = {"type": "integer"}, {"type": "string"}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "is empty"),
        ({"title": "x", "description": "y"}, "says nothing"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, "says nothing"),
        ({"f": {"type": "str"}}, "has no keyword of JSON Schema, only 'f': every answer would fit"),
        ({"risk": {"type": "string"}, "n": "int"}, "only 'risk', 'n'"),
        ({"propertis": {"a": {"type": "string"}}, "title": "x"}, "only 'propertis'"),
        (True, "a schema is a JSON object, and this is true"),
        (False, "a schema is a JSON object, and this is false"),
        (None, "a schema is a JSON object, and this is null"),
        ([], "a schema is a JSON object"),
        ("object", "a schema is a JSON object"),
        ({"type": "objekt"}, '/type: "objekt"'),
        ({"type": "object", "required": "a"}, "/required"),
        ({"type": "object", "properties": []}, "/properties"),
        ({"properties": {"a": {"minimum": "3"}}}, "/properties/a/minimum"),
        ({"oneOf": []}, "/oneOf"),
        ({"type": "string", "pattern": "("}, "/pattern"),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, "/exclusiveMinimum"),
        ({"$ref": "https://example.com/a.json"}, "refers to https://example.com/a.json"),
        ({"properties": {"a": {"$ref": "http://169.254.169.254/x"}}}, "refers to http://169.254.169.254/x"),
        ({"$ref": "file:///etc/passwd"}, "refers to file:///etc/passwd"),
        ({"items": {"$ref": "other.json"}}, "other.json, which is not part of it"),
        ({"$ref": "#/$defs/missing"}, "/$defs/missing"),
        ({"type": "object", "$schema": "https://example.com/mine"}, "its $schema"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-03/schema#"}, "its $schema"),
        (deep(DEPTH_LIMIT + 2), "nested more than"),
        ({"type": "string", "title": "\ud800"}, "cannot be written as JSON"),
    ],
    ids=str,
)
def test_a_bad_schema_is_refused_by_name(document: Any, told: str) -> None:
    with pytest.raises(errors.BadValue) as caught:
        read(document)
    assert caught.value.field == "output_schema"
    assert told in caught.value.message


@pytest.mark.parametrize(
    "draft",
    ["draft-04/schema#", "draft-06/schema#", "draft-07/schema#", "draft/2019-09/schema", "draft/2020-12/schema"],
)
def test_every_draft_is_understood(draft: str) -> None:
    host = "https://json-schema.org" if "/20" in draft else "http://json-schema.org"
    schema = read({"$schema": f"{host}/{draft}", "type": "array", "items": INT, "minItems": 1})
    assert schema.is_valid([1])
    assert not schema.is_valid(["1"])
    assert copy_of(schema).document["properties"]["value"] == {"type": "array", "items": INT, "minItems": 1}


def wrapped(inner: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
        **more,
    }


OBJ = {"type": "object", "properties": {"a": INT}, "required": ["a"]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (OBJ, OBJ),
        ({**OBJ, "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/x"}, OBJ),
        ({**OBJ, "x-note": 1, "$comment": "c", "deprecated": True}, OBJ),
        ({"type": "array", "items": STR}, wrapped({"type": "array", "items": STR})),
        (INT, wrapped(INT)),
        ({"type": ["object", "null"]}, wrapped({"type": ["object", "null"]})),
        ({"enum": ["a", 1, None]}, wrapped({"enum": ["a", 1, None]})),
        ({"const": 3}, wrapped({"const": 3})),
        ({"properties": {"a": INT}}, wrapped({"properties": {"a": INT}})),
        ({"anyOf": [INT, STR]}, wrapped({"anyOf": [INT, STR]})),
        ({**OBJ, "oneOf": [{"required": ["a"]}]}, wrapped({**OBJ, "oneOf": [{"required": ["a"]}]})),
        ({**OBJ, "allOf": [{"required": ["b"]}]}, wrapped({**OBJ, "allOf": [{"required": ["b"]}]})),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": OBJ, "unused": STR}},
            wrapped({"$ref": "#/$defs/a"}, **{"$defs": {"a": OBJ}}),
        ),
        (
            {"type": "array", "items": {"$ref": "#/definitions/a"}, "definitions": {"a": OBJ}},
            wrapped({"type": "array", "items": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": OBJ}}),
        ),
        (  # a tree: the root refers to itself, and is no longer the root
            {"type": "array", "items": {"$ref": "#"}},
            wrapped(
                {"type": "array", "items": {"$ref": "#/$defs/root"}},
                **{"$defs": {"root": {"type": "array", "items": {"$ref": "#/$defs/root"}}}},
            ),
        ),
        (
            {"type": "object", "properties": {"a": INT, "b": {"$ref": "#/properties/a"}}},
            {"type": "object", "properties": {"a": INT, "b": {"$ref": "#/$defs/a"}}, "$defs": {"a": INT}},
        ),
        (  # ids and anchors of its own
            {
                "$id": "https://example.com/root.json",
                "type": "array",
                "items": {"anyOf": [{"$ref": "part.json"}, {"$ref": "part.json#inner"}]},
                "$defs": {"p": {"$id": "part.json", "type": "integer", "$defs": {"i": {"$anchor": "inner", **STR}}}},
            },
            None,
        ),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
             "properties": {"a": {"type": "integer", "maximum": 9, "exclusiveMaximum": True}}},
            {"type": "object", "properties": {"a": {"type": "integer", "exclusiveMaximum": 9}}},
        ),
        (  # up to draft 7 nothing beside a reference counts
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
             "properties": {"a": {"$ref": "#/definitions/n", "maximum": 1}}, "definitions": {"n": INT}},
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": INT}},
        ),
    ],
    ids=lambda one: str(one)[:60],
)  # fmt: skip
def test_what_an_agent_is_given(document: dict[str, Any], expected: dict[str, Any] | None) -> None:
    copy = copy_of(read(document))
    jsonschema.Draft7Validator.check_schema(copy.document)
    jsonschema.Draft202012Validator.check_schema(copy.document)
    assert copy.document["type"] == "object"
    if expected is not None:
        assert copy.document == expected
        assert copy.is_wrapped == (expected.get("required") == ["value"])


def test_what_readers_of_draft_7_do_not_know_is_left_out_and_told_in_words() -> None:
    document = {
        "type": "object",
        "description": "A pair.",
        "properties": {"p": {"type": "array", "prefixItems": [INT, STR], "items": False}},
        "dependentRequired": {"p": ["q"]},
        "unevaluatedProperties": False,
        "not": {"required": ["z"], "dependentRequired": {"z": ["y"]}},
    }
    copy = copy_of(read(document)).document
    assert copy["properties"]["p"] == {"type": "array", "maxItems": 2, "items": {"anyOf": [INT, STR]}}
    assert "not" not in copy["properties"]
    assert not {"dependentRequired", "unevaluatedProperties"} & set(copy)
    assert copy["description"].startswith("A pair.\nThe answer")
    assert '"prefixItems"' in copy["description"]


def test_an_answer_in_a_property_is_taken_out_and_any_other_is_left() -> None:
    copy = copy_of(read({"type": "array"}))
    assert copy.unwrap({"value": [1]}) == [1]
    assert copy.unwrap([1]) == [1]
    assert copy.unwrap({"value": 1, "more": 2}) == {"value": 1, "more": 2}
    assert copy_of(read(OBJ)).unwrap({"value": 1}) == {"value": 1}


@pytest.mark.parametrize(
    ("pattern", "portable"),
    [
        ("^[a-z]+$", True),
        (r"^\d{4}-\d{2}$", True),
        ("(?:a|b)(?=c)", True),
        (r"[\-x]", True),
        (r"\p{L}+", False),
        ("(?P<x>a)", False),
        ("(?i)a", False),
        ("(?<=a)b", False),
        (r"\Aa\z", False),
        (r"a\-b", False),
        ("a{b", False),
        ("a]", False),
        ("[[:alpha:]]", False),
        ("a++", False),
        ("a{2}+", False),
        ("[]a]", False),
    ],
)
def test_patterns_that_every_engine_reads_alike(pattern: str, portable: bool) -> None:
    assert is_portable(pattern) is portable


KINDS: list[dict[str, Any]] = [
    {"type": "array", "prefixItems": [INT, STR], "items": {"type": "boolean"}},
    {"type": "array", "prefixItems": [INT], "items": False, "minItems": 1},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INT], "additionalItems": STR},
    {"oneOf": [INT, {"type": "string", "pattern": r"\p{L}"}, {"type": "array", "contains": INT, "minContains": 2}]},
    {"not": {"type": "array", "prefixItems": [INT]}},
    {"type": "object", "patternProperties": {r"^\p{L}$": INT}, "additionalProperties": False},
    {"type": "object", "properties": {"a": INT}, "unevaluatedProperties": False},
    {"if": {"type": "array", "prefixItems": [INT]}, "then": {"minItems": 2}, "else": {"not": {"const": None}}},
    {"type": "array", "contains": INT, "minContains": 0},
    {"anyOf": [INT], "oneOf": [INT, {"type": "number", "dependentRequired": {}}]},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": ["integer", "array"], "items": {"$ref": "#/$defs/n"}}}},
    {"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "type": ["array", "null"], "items": True}}},
    {"type": "integer", "exclusiveMinimum": 0, "maximum": 5},
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from(["a", "1", "é", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "é"]), inner, max_size=2),
    max_leaves=6,
)
COPIES = [copy_of(read(kind)) for kind in KINDS]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(range(len(KINDS))), VALUES)
def test_the_copy_never_refuses_what_the_schema_takes(number: int, value: Any) -> None:
    if read(KINDS[number]).is_valid(value):
        copy = COPIES[number]
        handed = {schema_copy.WRAPPED_IN: value} if copy.is_wrapped else value
        assert jsonschema.Draft7Validator(copy.document).is_valid(handed)
        assert jsonschema.Draft202012Validator(copy.document).is_valid(handed)


def test_mistakes_are_told_with_their_place() -> None:
    schema = read({"type": "array", "items": {"anyOf": [INT, {"type": "object", "properties": {"x": STR}}]}})
    (told,) = schema.errors([1, {"x": 5}])
    assert told.startswith("/1: fits none of the allowed forms")
    assert '/x: 5 is not of type "string"' in told
    assert len(read({"type": "array", "items": INT}).errors(["x"] * 1000)) == 20
    assert len(read({"type": "array", "items": INT}).errors(["x"] * (NODES_LIMIT + 1))) == 1


def test_big_integers_are_compared_exactly() -> None:
    schema = read({"type": "object", "properties": {"n": {"const": 9007199254740993}}})
    assert schema.is_valid({"n": 9007199254740993})
    assert not schema.is_valid({"n": 9007199254740992})
    assert not schema.is_valid({"n": 9007199254740993.0})


def test_a_change_to_the_callers_own_copy_changes_nothing() -> None:
    document: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    schema = read(document)
    document["properties"]["a"]["type"] = "string"
    assert schema.is_valid({"a": 1})
    assert msgspec.json.encode(schema.document) != msgspec.json.encode(document)


def test_the_form_of_other_programs_is_told_as_a_schema() -> None:
    """`{field: {type: str}}` is valid JSON Schema that constrains nothing."""
    with pytest.raises(errors.BadValue) as caught:
        read({"risk": {"type": "str", "description": "how much"}, "n": "int", "x": 1})
    hint = str(caught.value.hint)
    meant = msgspec.json.decode(hint.partition(": ")[2])
    assert meant == {
        "type": "object",
        "properties": {"risk": {"type": "string"}, "n": {"type": "integer"}, "x": {}},
        "required": ["risk", "n", "x"],
    }
    assert not read(meant).is_valid({"risk": 1, "n": 2, "x": 0})
