"""The step `fail`: ends its path as a failure, with a message and an exit code chosen by the author."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed


class FailConfig(StepConfig, frozen=True, kw_only=True):
    message: Annotated[str, Meta(min_length=1, description="Why the workflow fails.")]
    code: Annotated[int, Meta(ge=1, le=125, description="The exit code of `leadrope flow run`.")] = 1
    kind: Annotated[
        str,
        Meta(pattern="^[a-z][a-z0-9_]*$", description="Its `${step.error.kind}`, for the step that handles it."),
    ] = "failed"


async def run(config: FailConfig, context: StepContext) -> StepDone:
    raise StepFailed(config.message, kind=config.kind, code=config.code)


KIND = Kind(
    name="fail",
    summary="Fail the workflow with a message and an exit code.",
    config=FailConfig,
    outputs={},
    run=run,
)
