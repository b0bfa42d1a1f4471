"""The list of step kinds, each imported when a workflow first uses it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from leadrope.workflows.check_step import StepType
from leadrope.workflows.steps.base import Kind

KINDS: Mapping[str, str] = {
    "agent": "agent",
    "claude-code": "agent",
    "llm": "llm",
    "shell": "shell",
    "code": "code",
    "http": "http",
    "read-file": "read_file",
    "write-file": "write_file",
    "copy-file": "copy_file",
    "move-file": "move_file",
    "delete-file": "delete_file",
    "mcp": "mcp",
    "approval": "approval",
    "condition": "condition",
    "structure": "structure",
    "save-dataset": "save_dataset",
    "email": "email",
    "output": "output",
    "workflow": "workflow",
    "wait": "wait",
    "note": "note",
}
"""The name in a file -> the module that holds the kind."""


def kind_of(name: str) -> Kind[Any]:
    """KeyError for a name that is no kind."""
    module = importlib.import_module(f"leadrope.workflows.steps.{KINDS[name]}")
    found: Kind[Any] = module.KIND
    return found


_SCHEMAS: dict[type[Any], dict[str, Any]] = {}
"""Made once for a type: it takes a millisecond."""


def step_type(kind: Kind[Any]) -> StepType:
    """A kind as `check` and forms see it."""
    if kind.config not in _SCHEMAS:
        _SCHEMAS[kind.config] = msgspec.json.schema(kind.config)
    schema = _SCHEMAS[kind.config]
    definitions = schema.get("$defs", {})
    own = definitions.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return StepType(
        parameters={**own, "$defs": definitions},
        outputs=kind.outputs,
        has_open_outputs=kind.has_open_outputs,
        output_schemas=kind.output_schemas,
        mistakes=kind.mistakes,
        branches=kind.branches or _no_branches,
    )


def _no_branches(_parameters: Mapping[str, Any]) -> tuple[str, ...]:
    return ()


class _Types(Mapping[str, StepType]):
    """Knows every name, and imports a kind only when it is looked at."""

    def __init__(self) -> None:
        self._found: dict[str, StepType] = {}

    def __getitem__(self, name: str) -> StepType:
        if name not in self._found:
            self._found[name] = step_type(kind_of(name))
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)

    def __contains__(self, name: object) -> bool:
        return name in KINDS


TYPES: Mapping[str, StepType] = _Types()
