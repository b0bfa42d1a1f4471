"""The step `group`: the steps inside it, as one. With `loop` all of them again, with `batch` all of them per item."""

from __future__ import annotations

from leadrope.workflows.steps.base import Config, Context, Done, Kind


class GroupConfig(Config, frozen=True, kw_only=True):
    pass


async def run(config: GroupConfig, context: Context) -> Done:
    return await context.run_inside()


KIND = Kind(
    name="group",
    summary="Several steps as one: to repeat them, or to handle their errors.",
    config=GroupConfig,
    outputs={},
    has_open_outputs=True,
    run=run,
)
