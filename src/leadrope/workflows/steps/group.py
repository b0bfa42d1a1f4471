"""The step `group`: runs the steps inside it as one. `loop` repeats all of them, `batch` runs all of them per item."""

from __future__ import annotations

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone


class GroupConfig(StepConfig, frozen=True, kw_only=True):
    pass


async def run(config: GroupConfig, context: StepContext) -> StepDone:
    return await context.run_inside()


KIND = Kind(
    name="group",
    summary="Several steps as one: to repeat them, or to handle their errors.",
    config=GroupConfig,
    outputs={},
    has_open_outputs=True,
    run=run,
)
