"""The step `set`: named values for the steps that follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone


class SetConfig(StepConfig, frozen=True, kw_only=True):
    values: Annotated[dict[str, Any], Meta(min_length=1, description="Names and their values; each is an output.")]


def own_outputs(parameters: Mapping[str, Any]) -> Collection[str] | None:
    values = parameters.get("values")
    return tuple(values) if isinstance(values, Mapping) else None


async def run(config: SetConfig, context: StepContext) -> StepDone:
    return StepDone(outputs=config.values)


KIND = Kind(
    name="set",
    summary="Give values names.",
    config=SetConfig,
    outputs={},
    has_open_outputs=True,
    own_outputs=own_outputs,
    run=run,
)
