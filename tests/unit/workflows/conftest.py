"""Step types as data, enough of each kind to check workflows against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope.workflows.check.step import StepType

ROOT = Path(__file__).parents[3]


def _closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        "$defs": {"Names": {"type": "array", "items": {"type": "string"}}},
    }


TEXT = {"type": "string"}
NAMES = {"anyOf": [{"$ref": "#/$defs/Names"}, {"type": "null"}]}

_AGENT = StepType(
    parameters=_closed(
        ("prompt",),
        prompt=TEXT,
        prompt_notes=TEXT,
        output_schema={"type": "object"},
        cwd=TEXT,
        model=TEXT,
        allowed_tools=NAMES,
        disallowed_tools=NAMES,
        max_turns={"type": "integer", "minimum": 1, "maximum": 100},
        timeout={"type": "integer", "minimum": 30, "maximum": 3600},
        use_api_key={"type": "boolean"},
        sandbox={
            "type": "object",
            "properties": {
                "enabled": {"type": "boolean"},
                "autoAllowBashIfSandboxed": {"type": "boolean"},
                "excludedCommands": {"type": "array", "items": TEXT},
            },
            "additionalProperties": False,
        },
    ),
    outputs={"result": {}, "llm_usage": {"type": "object"}, "session_id": TEXT, "_schema_error": TEXT},
    output_schemas={"result": "output_schema"},
)


@pytest.fixture(scope="session")
def types() -> dict[str, StepType]:
    return {
        "agent": _AGENT,
        "claude-code": _AGENT,
        "shell": StepType(
            parameters=_closed(("command",), command={"anyOf": [TEXT, {"$ref": "#/$defs/Names"}]}, cwd=TEXT),
            outputs={"stdout": TEXT, "stderr": TEXT, "exit_code": {"type": "integer"}},
            branches=lambda _: (),
        ),
        "code": StepType(parameters=_closed(("code",), code=TEXT, inputs={"type": "object"}), has_open_outputs=True),
        "read-file": StepType(parameters=_closed(("file_path",), file_path=TEXT), outputs={"content": TEXT}),
        "write-file": StepType(
            parameters=_closed(("file_path", "content"), file_path=TEXT, content={}), outputs={"path": TEXT}
        ),
        "http": StepType(
            parameters=_closed(
                ("url",), url=TEXT, method={"enum": ["GET", "POST", "PUT"]}, headers={"type": "object"}, body={}
            ),
            outputs={"body": {}, "status": {"type": "integer"}},
        ),
        "condition": StepType(
            parameters=_closed((), value={}, contains=TEXT), outputs={"branch": TEXT}, branches=lambda _: ("yes", "no")
        ),
        "email": StepType(
            parameters=_closed(("to", "subject"), to={"type": "array", "maxItems": 50, "items": TEXT}, subject=TEXT)
        ),
        "note": StepType(parameters=_closed((), text=TEXT)),
    }


@pytest.fixture(scope="session")
def examples() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((ROOT / "tests/data/workflows").glob("*.md"))}
