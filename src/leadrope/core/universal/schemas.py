"""The JSON Schemas of what leadrope writes, made from the types themselves. Checks nothing.

`docs/events.schema.json`, `docs/execution-events.schema.json` and `docs/universal.schema.json` hold them for those who
do not run Python; to renew all of them:

    python -m leadrope.core.universal.schemas docs
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope.core import execution_events
from leadrope.core.events import SCHEMA_VERSION, Recorded
from leadrope.core.universal.types import UNIVERSAL_VERSION, UniversalEvent

DIALECT = "https://json-schema.org/draft/2020-12/schema"
UNIVERSAL_FILE = "universal.schema.json"
EVENTS_FILE = "events.schema.json"
EXECUTIONS_FILE = "execution-events.schema.json"


def event_schema() -> dict[str, Any]:
    """Of one line of our own log: `Recorded`."""
    return _published(
        Recorded,
        id_=f"urn:leadrope:events:{SCHEMA_VERSION}",
        title="leadrope event",
        description=f"One line of leadrope's event log, version {SCHEMA_VERSION}. Ignore fields that you do not know.",
    )


def execution_schema() -> dict[str, Any]:
    """Of one line of the log of an execution: `ExecutionRecord`."""
    version = execution_events.SCHEMA_VERSION
    return _published(
        execution_events.ExecutionRecord,
        id_=f"urn:leadrope:execution-events:{version}",
        title="leadrope execution event",
        description=f"One line of the log of a workflow's execution, version {version}. Ignore fields you do not know.",
    )


def universal_schema() -> dict[str, Any]:
    """Of one line of a universal export; a field that it does not name is refused."""
    return _published(
        UniversalEvent,
        id_=f"urn:leadrope:universal:{UNIVERSAL_VERSION}",
        title="universal event",
        description=f"One line of a universal export of an agent's session, version {UNIVERSAL_VERSION}.",
    )


def text_of(schema: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def write(folders: Sequence[Path]) -> None:
    for folder in folders:
        (folder / EVENTS_FILE).write_text(text_of(event_schema()), encoding="utf-8")
        (folder / EXECUTIONS_FILE).write_text(text_of(execution_schema()), encoding="utf-8")
        (folder / UNIVERSAL_FILE).write_text(text_of(universal_schema()), encoding="utf-8")


def _published(kind: Any, *, id_: str, title: str, description: str) -> dict[str, Any]:
    made = msgspec.json.schema(kind)
    definitions = {name: _tidy(value) for name, value in sorted(made.pop("$defs").items())}
    return {
        "$schema": DIALECT,
        "$id": id_,
        "title": title,
        "description": description,
        **_tidy(made),
        "$defs": definitions,
    }


def _tidy(value: Any) -> Any:
    """Tags as `const`, and a tagged union as `oneOf`: what generators of types and forms read best."""
    if isinstance(value, list):
        return [_tidy(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _tidy(each) for key, each in value.items()}
    if isinstance(found.get("description"), str):
        # A docstring keeps its indentation up to Python 3.12, and loses it from 3.13 on.
        found["description"] = inspect.cleandoc(found["description"])
    choices = found.get("enum")
    if isinstance(choices, list) and len(choices) == 1:
        del found["enum"]
        found["const"] = choices[0]
    if "discriminator" in found and "anyOf" in found:
        found = {"oneOf": found.pop("anyOf"), **found}
    return found


if __name__ == "__main__":
    write([Path(name) for name in sys.argv[1:]])
