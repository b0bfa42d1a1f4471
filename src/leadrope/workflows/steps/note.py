"""The step `note`: text for readers of a workflow. It does nothing."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone


class NoteConfig(StepConfig, frozen=True, kw_only=True):
    text: Annotated[str, Meta(description="What there is to say.")] = ""


async def run(config: NoteConfig, context: StepContext) -> StepDone:
    return StepDone(outputs={"text": config.text})


KIND = Kind(
    name="note",
    summary="Words for the reader; does nothing.",
    config=NoteConfig,
    outputs={"text": {"type": "string"}},
    run=run,
)
