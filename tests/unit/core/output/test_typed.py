"""Types as schemas and values as types: what is asked for is what comes back, or it is told why not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from leadrope import RunRequest, RunResult, TypedResult, errors, run_sync, schema_of
from leadrope.core.output.output_types import as_type
from leadrope.core.output.schema import read
from leadrope.core.result import with_type


class Item(msgspec.Struct):
    name: str
    price: Annotated[float, msgspec.Meta(ge=0)]


class Invoice(msgspec.Struct):
    items: list[Item]
    day: date
    status: Literal["open", "paid"] = "open"


class Node(msgspec.Struct):
    n: int
    below: list[Node] = []


@dataclass
class Data:
    n: int
    words: list[str] = field(default_factory=list)


class Keys(TypedDict):
    n: int


class Model(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


INVOICE = {"items": [{"name": "a", "price": 1.5}], "day": "2026-11-16"}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Invoice, INVOICE, Invoice(items=[Item(name="a", price=1.5)], day=date(2026, 11, 16))),
        (Node, {"n": 1, "below": [{"n": 2}]}, Node(n=1, below=[Node(n=2)])),
        (Data, {"n": 1}, Data(n=1)),
        (Keys, {"n": 1}, {"n": 1}),
        (Model, {"n": 2}, Model(n=2)),
        (list[Model], [{"n": 2}], [Model(n=2)]),
        (list[Data], [{"n": 1, "words": ["x"]}], [Data(n=1, words=["x"])]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (int, 3, 3),
        (int, 3.0, 3),
        (Literal["a", "b"], "b", "b"),
    ],
)
def test_a_value_that_fits_the_schema_becomes_the_type(kind: Any, value: Any, expected: Any) -> None:
    assert read(schema_of(kind)).is_valid(value)
    found = as_type(value, kind)
    assert found == expected
    assert type(found) is type(expected)


def test_a_type_that_is_an_object_has_an_object_as_its_root() -> None:
    assert schema_of(Data)["type"] == schema_of(Invoice)["type"] == schema_of(Node)["type"] == "object"
    assert "$defs" not in schema_of(Data)
    assert set(schema_of(Invoice)["$defs"]) == {"Item"}
    assert set(schema_of(Node)["$defs"]) == {"Node"}, "it refers to itself"


@pytest.mark.parametrize("kind", [complex, Any, object, lambda: 1])
def test_a_type_without_a_schema_is_refused_before_anything_starts(kind: Any) -> None:
    with pytest.raises(errors.BadValue) as caught:
        read(schema_of(kind))
    assert caught.value.field in ("output_type", "output_schema")


def result(output: Any, **more: Any) -> RunResult:
    given = {"run_id": "r", "outcome": "succeeded", "output": output, "output_rung": "structured", "text": "t", **more}
    return RunResult(**given)


def test_a_result_is_given_its_type() -> None:
    typed: TypedResult[Data] = with_type(result({"n": 1}), Data)
    assert typed.value == typed.output == Data(n=1)
    assert (typed.outcome, typed.text) == ("succeeded", "t")
    assert result({"n": 1}).output_as(Data) == Data(n=1)


def test_a_type_that_checks_more_than_its_schema_degrades_the_result() -> None:
    typed = with_type(result({"n": 1}), Model)
    assert (typed.outcome, typed.output, typed.output_rung, typed.text) == ("degraded", None, "none", "t")
    assert typed.schema_error is not None
    assert "odd" in typed.schema_error
    assert [warning.kind for warning in typed.warnings] == ["claude_code.schema_not_satisfied"]
    with pytest.raises(errors.RunFailed, match="no structured output"):
        _ = typed.value
    with pytest.raises(errors.RunFailed, match="odd"):
        result({"n": 1}).output_as(Model)


@pytest.mark.parametrize("outcome", ["failed", "degraded"])
def test_without_an_output_there_is_no_value(outcome: str) -> None:
    typed = with_type(result(None, outcome=outcome, output_rung="none", schema_error="it is not there"), Data)
    assert typed.output is None
    with pytest.raises(errors.RunFailed, match="it is not there"):
        _ = typed.value
    with pytest.raises(errors.RunFailed, match="it is not there"):
        result(None, output_rung="none", schema_error="it is not there").output_as(Data)


def test_null_is_a_value_where_the_type_says_so() -> None:
    kind: Any = int | None
    assert with_type(result(None), kind).value is None


def test_a_type_and_a_schema_are_one_too_many() -> None:
    request = RunRequest(prompt="x", output_schema={"type": "object"})
    cases: list[tuple[RunRequest, Any]] = [
        (request, {}),
        (RunRequest(prompt="x"), {"output_schema": {"type": "object"}}),
    ]
    for given, more in cases:
        with pytest.raises(errors.BadValue) as caught:
            run_sync(given, output_type=Data, **more)
        assert caught.value.field == "output_type"


def test_pydantic_is_not_imported_for_other_types() -> None:
    code = (
        "import sys, dataclasses; from leadrope.core.output.output_types import schema_of, as_type\n"
        "@dataclasses.dataclass\nclass D: n: int\n"
        "schema_of(D), as_type({'n': 1}, D)\n"
        "assert 'pydantic' not in sys.modules and 'jsonschema_rs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
