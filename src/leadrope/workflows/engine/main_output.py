"""Picks a step's main output, which is printed if a workflow declares no outputs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadrope.workflows import model

_NAMES = ("results", "result", "response", "stdout", "content", "json", "body", "rows", "text", "case")
"""Names of outputs in order of preference."""
_OF_LOOPS = ("iterations", "loop_stopped")


def main_output(step: model.Step, outputs: Mapping[str, Any]) -> Any:
    """Return the main output; None if the step only has side effects."""
    if step.type == "set" and step.batch is None:
        return {name: value for name, value in outputs.items() if name in step.parameters.get("values", ())}
    if step.type == "workflow" and step.batch is None:
        own = {name: value for name, value in outputs.items() if step.loop is None or name not in _OF_LOOPS}
        return next(iter(own.values())) if len(own) == 1 else own or None
    if step.steps and step.batch is None:
        inner = next((inner for inner in reversed(step.steps) if inner.id in outputs), None)
        return main_output(inner, outputs[inner.id]) if inner is not None else None
    return next((outputs[name] for name in _NAMES if name in outputs), None)
