"""The published schemas are those of the code, and hold for what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest

from leadrope.core import events, execution_events
from leadrope.core.universal import schemas, types
from leadrope.core.universal.types import UniversalEvent

ROOT = Path(__file__).parents[4]
RENEW = "renew it with `python -m leadrope.core.universal.schemas docs`"


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("docs/events.schema.json", schemas.event_schema()),
        ("docs/execution-events.schema.json", schemas.execution_schema()),
        ("docs/universal.schema.json", schemas.universal_schema()),
    ],
)
def test_the_file_is_current(path: str, made: dict[str, Any]) -> None:
    assert (ROOT / path).read_text() == schemas.text_of(made), f"{path} is out of date: {RENEW}"


@pytest.mark.parametrize(
    ("schema", "union"),
    [
        (schemas.event_schema(), events.Event),
        (schemas.execution_schema(), execution_events.ExecutionEvent),
        (schemas.universal_schema(), UniversalEvent),
    ],
)
def test_a_schema_is_valid_and_names_every_type_by_a_constant(schema: dict[str, Any], union: Any) -> None:
    jsonschema_rs.meta.validate(schema)
    for kind in get_args(union):
        made = schema["$defs"][kind.__name__]
        assert made["properties"]["type"] == {"const": kind.__struct_config__.tag}
        assert "type" in made["required"]


def test_a_line_of_the_log_is_judged() -> None:
    valid = jsonschema_rs.Draft202012Validator(schemas.event_schema())
    started = events.SessionStarted(session_id="s", provider="p")
    line = msgspec.to_builtins(events.Recorded("run", 1, 1, 5.0, "agent", started))
    assert valid.is_valid(line)
    assert valid.is_valid(line | {"later": True}), "a reader ignores what a later version adds"
    assert not valid.is_valid(line | {"event": {"type": "session.begun"}})
    assert not valid.is_valid(line | {"event": {"type": "turn.started"}}), "a field is missing"
    assert not valid.is_valid(line | {"source": "someone"})


def test_the_version_is_written_in_the_first_event() -> None:
    started = msgspec.to_builtins(events.SessionStarted(session_id="s", provider="p"))
    assert started["schema_version"] == events.SCHEMA_VERSION
    assert schemas.event_schema()["$id"].endswith(f":{events.SCHEMA_VERSION}")


def test_the_universal_schema_refuses_what_it_does_not_name() -> None:
    valid = jsonschema_rs.Draft202012Validator(schemas.text_of(schemas.universal_schema()))
    line: dict[str, Any] = {
        "type": "turn.started",
        "event_id": "e",
        "sequence": 1,
        "time": "2026-01-02T03:04:05.678Z",
        "session_id": "s",
        "native_session_id": None,
        "source": "agent",
        "synthetic": False,
        "data": {"turn": 1},
    }
    assert valid.is_valid(line)
    wrong: list[dict[str, Any]] = [
        {"sequence": 0},
        {"time": "2026-01-02 03:04"},
        {"source": "supervisor"},
        {"type": "turn.begun"},
        {"data": {"turn": 1, "extra": 2}},
        {"extra": 1},
        {"data": {}},
        {"raw": None},
    ]
    for change in wrong:
        assert not valid.is_valid(line | change), change
    for name in line:
        assert not valid.is_valid({key: value for key, value in line.items() if key != name}), name


def test_the_pages_name_everything_that_the_schemas_name() -> None:
    ours = (ROOT / "docs/events.md").read_text()
    assert not [
        kind.__struct_config__.tag
        for kind in (*get_args(events.Event), *get_args(execution_events.ExecutionEvent))
        if f"`{kind.__struct_config__.tag}`" not in ours
    ]
    page = (ROOT / "docs/universal.md").read_text()
    names: set[str] = set(get_args(types.Kind)) | set(types.Item.__struct_fields__)
    for kind in (*get_args(UniversalEvent), *get_args(types.Part)):
        names |= {kind.__struct_config__.tag, *kind.__struct_fields__}
    assert not [name for name in names if f"`{name}`" not in page]
    mapped = page.partition("## From our events")[2]
    for event in get_args(events.Event):
        tag = event.__struct_config__.tag
        assert tag in mapped or f"{tag.partition('.')[0]}.\\*" in mapped, tag
