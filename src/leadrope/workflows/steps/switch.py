"""The step `switch`: takes the branch of the first condition that holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from leadrope.workflows.language import choices
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone

ELSE = "else"


class SwitchConfig(StepConfig, frozen=True, kw_only=True):
    cases: Annotated[
        dict[str, Any],
        Meta(min_length=1, description="Conditions by the name of their branch; the first that holds is taken."),
    ]


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cases = parameters.get("cases")
    for name, condition in cases.items() if isinstance(cases, Mapping) else ():
        if name == ELSE:
            yield "cases", "`else` is not a case: it is taken if no case holds. Write it in `next`."
        elif condition is None:
            yield "cases", f"the case {name!r} has no condition"
        elif (wrong := choices.mistake(condition)) is not None:
            yield "cases", f"the condition of {name!r} cannot be read: {wrong}"


def branches(parameters: Mapping[str, Any]) -> Collection[str] | None:
    cases = parameters.get("cases")
    return tuple(cases) if isinstance(cases, Mapping) else None


def fill(given: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate the cases up to the first that is true: those after it may use values that do not exist."""
    cases = given.get("cases")
    if not isinstance(cases, Mapping):
        return dict(given)
    found: dict[str, Any] = {}
    for name, condition in cases.items():
        found[name] = choices.holds(condition, scope)
        if found[name]:
            break
    return {**given, "cases": found}


async def run(config: SwitchConfig, context: StepContext) -> StepDone:
    case = next((name for name, holds in config.cases.items() if holds), ELSE)
    return StepDone(outputs={"case": case}, branch=case)


KIND = Kind(
    name="switch",
    summary="Choose between several branches, by ordered conditions.",
    config=SwitchConfig,
    outputs={"case": {"type": "string"}},
    run=run,
    fill=fill,
    mistakes=mistakes,
    branches=branches,
)
