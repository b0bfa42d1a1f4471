"""Scalars of the wrong type: what is converted, what is not, and that nothing is ever lost by it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.core.output.coercion import coerce, scalar
from leadrope.core.output.schema import NODES_LIMIT, read

NO = msgspec.UNSET


def t(kind: str | list[str], **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


INT, NUM, STR, BOOL = t("integer"), t("number"), t("string"), t("boolean")
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"n": INT, "below": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["n"],
        }
    },
}

CASES: list[tuple[dict[str, Any], Any, Any]] = [
    # booleans
    (BOOL, "true", True),
    (BOOL, "False", False),
    (BOOL, "TRUE", True),
    (BOOL, " false ", False),
    (BOOL, "yes", NO),
    (BOOL, "1", NO),
    (BOOL, 1, NO),
    (BOOL, 0, NO),
    (BOOL, "", NO),
    (BOOL, None, NO),
    # integers
    (INT, "3", 3),
    (INT, "-7", -7),
    (INT, "0", 0),
    (INT, " 12 ", 12),
    (INT, "9007199254740993", 9007199254740993),
    (INT, "-9007199254740993", -9007199254740993),
    (INT, "123456789012345678901234567890", 123456789012345678901234567890),
    (INT, "3.0", 3),
    (INT, "1e3", 1000),
    (INT, "9007199254740993.0", 9007199254740993),
    (INT, "3.5", NO),
    (INT, "007", NO),
    (INT, "+5", NO),
    (INT, "1,000", NO),
    (INT, "1_000", NO),
    (INT, "0x10", NO),
    (INT, "\u0663", NO),
    (INT, "three", NO),
    (INT, "", NO),
    (INT, "nan", NO),
    (INT, "inf", NO),
    (INT, "-Infinity", NO),
    (INT, "1e400", NO),
    (INT, "9" * 400, NO),
    (INT, True, NO),
    (INT, 3.0, 3.0),
    (INT, 3.5, NO),
    # numbers
    (NUM, "3.14", 3.14),
    (NUM, "0.1", 0.1),
    (NUM, "-2", -2),
    (NUM, "1e5", 100000.0),
    (NUM, "9007199254740993", 9007199254740993),
    (NUM, "3.141592653589793238462643", NO),
    (NUM, "9007199254740993.5", NO),
    (NUM, "nan", NO),
    (NUM, "inf", NO),
    (NUM, "-Infinity", NO),
    (NUM, "1e400", NO),
    (NUM, "1e-400", NO),
    (NUM, ".5", NO),
    (NUM, "5.", NO),
    (NUM, False, NO),
    # strings
    (STR, 5, "5"),
    (STR, 9007199254740993, "9007199254740993"),
    (STR, 0.5, "0.5"),
    (STR, True, "true"),
    (STR, False, "false"),
    (STR, None, NO),
    (STR, [1], NO),
    (STR, {"a": 1}, NO),
    # bounds, enum, const, format
    (t("integer", minimum=1, maximum=10), "10", 10),
    (t("integer", minimum=1, maximum=10), "11", NO),
    (t("integer", multipleOf=5), "15", 15),
    (t("integer", enum=[1, 2]), "2", 2),
    (t("integer", enum=[1, 2]), "3", NO),
    (t("string", enum=["1", "2"]), 2, "2"),
    (t("boolean", const=True), "TRUE", True),
    (t("boolean", const=True), "false", NO),
    (t("string", pattern="^[0-9]{3}$"), 123, "123"),
    (t("string", pattern="^[0-9]{3}$"), 12, NO),
    (t("string", maxLength=2), 123, NO),
    (t("string", format="date"), 20200101, NO),
    # no declared type, no conversion
    ({"enum": [1, 2]}, "2", NO),
    ({"const": True}, "true", NO),
    ({"minimum": 3}, "2", "2"),
    # several types
    (t(["integer", "null"]), "4", 4),
    (t(["integer", "null"]), "null", NO),
    (t(["integer", "string"]), "4", "4"),
    (t(["integer", "string"], enum=[4, "x"]), "4", 4),
    (t(["boolean", "integer"]), "1", 1),
    (t(["boolean", "integer"]), "true", True),
    # unions
    ({"anyOf": [INT, t("null")]}, "4", 4),
    ({"anyOf": [INT, BOOL]}, "true", True),
    ({"anyOf": [INT, t("string", pattern="^x")]}, "5", 5),
    ({"anyOf": [INT, t("string", pattern="^x")]}, "x5", "x5"),
    ({"oneOf": [INT, t("string", minLength=3)]}, "42", 42),
    ({"oneOf": [INT, NUM]}, "42", NO),
    ({"oneOf": [INT, NUM]}, "4.5", 4.5),
    ({"anyOf": [INT, BOOL]}, "maybe", NO),
    # nested, at any depth
    (obj(a=INT, b=BOOL, c=STR), {"a": "1", "b": "False", "c": 2}, {"a": 1, "b": False, "c": "2"}),
    (obj(a=INT), {"a": "1", "other": "2"}, {"a": 1, "other": "2"}),
    (obj(a=obj(b=obj(c=INT))), {"a": {"b": {"c": "9007199254740993"}}}, {"a": {"b": {"c": 9007199254740993}}}),
    (obj(a=INT, b=INT), {"a": "1", "b": "x"}, NO),
    ({**obj(a=INT), "required": ["a", "b"]}, {"a": "1"}, NO),
    (t("array", items=INT), ["1", 2, "3"], [1, 2, 3]),
    (t("array", items=t("array", items=BOOL)), [["true"], [False]], [[True], [False]]),
    (t("array", items=INT, uniqueItems=True), ["1", 1], NO),
    (t("array", prefixItems=[INT, STR], items=BOOL), ["1", 2, "true"], [1, "2", True]),
    (t("object", additionalProperties=NUM), {"x": "1.5", "y": 2}, {"x": 1.5, "y": 2}),
    (t("object", patternProperties={"^n": INT}, additionalProperties=STR), {"n1": "1", "s": 2}, {"n1": 1, "s": "2"}),
    ({"allOf": [obj(a=INT), obj(b=BOOL)]}, {"a": "1", "b": "true"}, {"a": 1, "b": True}),
    (TREE, {"n": "1", "below": [{"n": "2"}]}, {"n": 1, "below": [{"n": 2}]}),
    ({"anyOf": [{**obj(k=t("string", const="a"), v=INT), "required": ["k"]}, {**obj(k=STR, v=BOOL)}]},
     {"k": "a", "v": "7"}, {"k": "a", "v": 7}),
    ({**obj(kind=STR, v={}), "if": {"properties": {"kind": {"const": "n"}}}, "then": obj(v=INT), "else": obj(v=BOOL)},
     {"kind": "n", "v": "7"}, {"kind": "n", "v": 7}),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INT, BOOL],
      "additionalItems": STR}, ["1", "true", 3], [1, True, "3"]),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 1, "exclusiveMinimum": True},
     "1", NO),
    (INT, ["1"], NO),
    (t("array", items=INT), "1", NO),
    (obj(a=INT), '{"a": 1}', NO),
]  # fmt: skip


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(("schema", "value", "expected"), CASES, ids=lambda one: repr(one)[:40])
def test_a_value_is_converted_without_loss_or_not_at_all(schema: dict[str, Any], value: Any, expected: Any) -> None:
    before = msgspec.json.encode(value)
    found = coerce(read(schema), value)
    assert found == expected
    assert type(found) is type(expected)
    assert msgspec.json.encode(value) == before, "the value that was given is not touched"


def test_a_huge_answer_is_judged_and_not_converted() -> None:
    schema = read(t("array", items=INT))
    assert coerce(schema, ["1"] * (NODES_LIMIT + 1)) is NO
    many = [1] * (NODES_LIMIT + 1)
    assert coerce(schema, many) is many


def test_a_deep_answer_ends_in_no_result() -> None:
    schema = read({"type": "array", "items": {"$ref": "#"}})
    deep: list[Any] = ["1"]
    for _ in range(500):
        deep = [deep]
    assert coerce(schema, deep) is NO


def test_a_reference_to_itself_ends() -> None:
    schema = read({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, INT]}}, "type": "integer"})
    assert coerce(schema, "5") in (5, NO)


LEAF = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=6),
    st.sampled_from(["true", "False", "3", "4.5", "9007199254740993", "nan", "1e400", "007"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null"])
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        st.builds(lambda kind: {"type": kind}, TYPES),
        st.builds(lambda kinds: {"type": kinds}, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
        st.builds(lambda low: {"type": "integer", "minimum": low}, st.integers(-5, 5)),
        st.just({"type": "string", "enum": ["3", "true"]}),
        st.just({"$ref": "#/$defs/x"}),
    ),
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(lambda one, two: {"type": "object", "properties": {"a": one, "b": two}}, inner, inner),
        st.builds(lambda one: {"type": "object", "additionalProperties": one, "minProperties": 1}, inner),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
        st.builds(lambda one, two: {"oneOf": [one, two]}, inner, inner),
        st.builds(lambda one, two: {"allOf": [one, two]}, inner, inner),
        st.builds(lambda one, two: {"type": "array", "prefixItems": [one], "items": two}, inner, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, TYPES, VALUES)
def test_a_valid_value_is_never_changed_and_a_result_always_validates(
    schema: dict[str, Any], kind: str, value: Any
) -> None:
    judge = read({**schema, "$defs": {"x": {"anyOf": [{"type": kind}, {"type": "array", "items": INT}]}}})
    found = coerce(judge, value)
    if judge.is_valid(value):
        assert found is value
    elif found is not NO:
        assert judge.is_valid(found)
        assert coerce(judge, found) is found


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()))
def test_a_scalar_that_was_written_as_text_comes_back(value: Any) -> None:
    kind = "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "number"
    text = scalar("string", value)
    found = scalar(kind, text)
    assert found == value


def test_a_name_cannot_hold_up_the_reading_of_its_pattern() -> None:
    """The name is the agent's. The suite's time-out would end it."""
    schema = read({"type": "object", "patternProperties": {"^([a-z]+)*$": INT, "^b": INT}})
    assert coerce(schema, {"b" + "a" * 40 + "!": "1", "ab": "2"}) == {"b" + "a" * 40 + "!": 1, "ab": 2}
