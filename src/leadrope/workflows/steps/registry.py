"""The registry of step kinds; each is imported when a workflow first uses it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from leadrope.workflows.check.step import StepType
from leadrope.workflows.model import Dialect
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
    "switch": "switch",
    "set": "set",
    "fail": "fail",
    "structure": "structure",
    "save-dataset": "save_dataset",
    "email": "email",
    "output": "output",
    "workflow": "workflow",
    "group": "group",
    "wait": "wait",
    "note": "note",
}
"""Name in a file -> module that defines the kind."""


def kind_of(name: str, dialect: Dialect = "flow") -> Kind[Any]:
    """Return the kind; raises KeyError for an unknown name."""
    if dialect == "pflow":
        from leadrope.workflows.pflow import kinds  # noqa: PLC0415  # few files are pflow's

        return kinds.kind_of(name)
    module = importlib.import_module(f"leadrope.workflows.steps.{KINDS[name]}")
    found: Kind[Any] = module.KIND
    return found


_SCHEMAS: dict[type[Any], dict[str, Any]] = {}
"""Cached per type: building one takes a millisecond."""


def step_type(kind: Kind[Any]) -> StepType:
    """Describe a kind for `check` and forms."""
    if kind.config not in _SCHEMAS:
        _SCHEMAS[kind.config] = msgspec.json.schema(kind.config)
    schema = _SCHEMAS[kind.config]
    definitions = schema.get("$defs", {})
    own = definitions.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return StepType(
        parameters={**own, "$defs": definitions},
        outputs=kind.outputs,
        has_open_outputs=kind.has_open_outputs,
        own_outputs=kind.own_outputs,
        output_schemas=kind.output_schemas,
        outputs_of=kind.outputs_of,
        mistakes=kind.mistakes,
        branches=kind.branches or _no_branches,
        secret_references=kind.secret_references,
    )


def _no_branches(_parameters: Mapping[str, Any]) -> tuple[str, ...]:
    return ()


class _Types(Mapping[str, StepType]):
    """A mapping of all kinds that imports each only on access."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect: Dialect = dialect
        self._found: dict[str, StepType] = {}

    def __getitem__(self, name: str) -> StepType:
        if name not in self._found:
            self._found[name] = step_type(kind_of(name, self._dialect))
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)

    def __contains__(self, name: object) -> bool:
        return name in KINDS


TYPES: Mapping[str, StepType] = _Types("flow")
_TYPES_OF: Mapping[Dialect, Mapping[str, StepType]] = {"flow": TYPES, "pflow": _Types("pflow")}


def types_of(dialect: Dialect) -> Mapping[str, StepType]:
    """Return the step types that a file of this dialect may use."""
    return _TYPES_OF[dialect]
