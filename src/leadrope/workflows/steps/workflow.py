"""The step `workflow`: runs another workflow, with its own journal, under the same gate, budget and people."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone


class WorkflowConfig(StepConfig, frozen=True, kw_only=True):
    workflow: Annotated[str, Meta(description="A file, beside this one, or the name of a saved workflow.")]
    inputs: Annotated[dict[str, Any], Meta(description="Its inputs by name.")] = {}


async def run(config: WorkflowConfig, context: StepContext) -> StepDone:
    return await context.subflow(config.workflow, config.inputs)


KIND = Kind(
    name="workflow",
    summary="Another workflow; its outputs are the step's.",
    config=WorkflowConfig,
    outputs={},
    has_open_outputs=True,
    run=run,
)
