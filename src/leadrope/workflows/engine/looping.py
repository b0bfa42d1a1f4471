"""The rules of a loop: its limits, when and why it ends, what it carries over, how long it pauses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from leadrope.workflows import model
from leadrope.workflows.language import choices, templates
from leadrope.workflows.steps.base import StepFailed

Stopped = Literal["condition", "max_iterations", "max_seconds"]
"""Why a loop ended: the output `loop_stopped`."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    turns: int
    seconds: float | None = None


def bounds_of(loop: model.Loop, scope: Mapping[str, Any]) -> Bounds:
    """Return the limits of the loop, with their templates resolved."""
    turns = _number("max_iterations", loop.max_iterations, scope, most=model.TURNS_MOST)
    if turns != int(turns) or turns < 1:
        raise _bad("max_iterations", turns, f"a whole number from 1 to {model.TURNS_MOST}")
    if loop.max_seconds is None:
        return Bounds(turns=int(turns))
    seconds = _number("max_seconds", loop.max_seconds, scope)
    if seconds <= 0:
        raise _bad("max_seconds", seconds, "a number above 0")
    return Bounds(turns=int(turns), seconds=seconds)


def pause_of(loop: model.Loop, scope: Mapping[str, Any]) -> float:
    """Return the seconds before the next turn. A template may use the last turn's outputs, e.g. Retry-After."""
    return _number("wait", loop.wait, scope, most=model.WAIT_MOST_S)


def goes_on(loop: model.Loop, scope: Mapping[str, Any]) -> bool | None:
    """Whether the condition asks for another turn; None if there is no condition and the loop runs to its limit."""
    if loop.while_ is not None:
        return choices.holds(loop.while_, scope)
    if loop.until is not None:
        return not choices.holds(loop.until, scope)
    return None


def stopped(bounds: Bounds, *, turns: int, wants: bool | None, used_s: float) -> Stopped | None:
    """Return why no further turn begins, or None. `used_s` includes the pauses, also the one before the next turn."""
    if wants is False:
        return "condition"
    if turns >= bounds.turns:
        return "max_iterations"
    return "max_seconds" if bounds.seconds is not None and used_s >= bounds.seconds else None


def with_carried(step: model.Step, carried: Mapping[str, Any]) -> model.Step:
    """Return the step with carried values filled in: they replace `inputs` of the same name."""
    inputs = step.parameters.get("inputs")
    if not isinstance(inputs, Mapping):
        return step
    named = {name: f"${{{name}}}" for name in inputs if name in carried and model.ID.fullmatch(name)}
    if not named:
        return step
    return msgspec.structs.replace(step, parameters={**step.parameters, "inputs": {**inputs, **named}})


def _number(key: str, said: float | str, scope: Mapping[str, Any], *, most: float = 1e9) -> float:
    value = templates.resolve(said, scope)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number <= most:
        raise _bad(key, value, f"a number from 0 to {most:g}")
    return number


def _bad(key: str, value: Any, wanted: str) -> StepFailed:
    return StepFailed(f"loop.{key} is {templates.as_text(value)[:60]!r}, not {wanted}", kind="bad_input")
