"""The step `move-file`: moves or renames a file inside the workspace."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone
from leadrope.workflows.steps.copy_file import ends
from leadrope.workflows.tools import file_calls, workspace_files


class MoveFileConfig(StepConfig, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description="The file, seen from the workspace.")]
    destination: Annotated[str, Meta(description="Where it goes; folders above it are made.")]
    overwrite: Annotated[bool, Meta(description="Replace a file that is there already.")] = False


async def run(config: MoveFileConfig, context: StepContext) -> StepDone:
    source, destination = ends(config.source, config.destination, context)
    source = await file_calls.may_change(context, source, parameter="source")
    # A move writes no content whose size could be checked.
    destination, _ = await file_calls.may_write(context, destination, "", parameters=("destination",))
    context.say(f"moves {source.relative} to {destination.relative}")
    await asyncio.to_thread(workspace_files.move, source, destination, overwrites=config.overwrite)
    return StepDone(outputs={"source": source.relative, "path": destination.relative})


KIND = Kind(
    name="move-file",
    summary="Moves or renames a file inside the workspace.",
    config=MoveFileConfig,
    outputs={"source": {"type": "string"}, "path": {"type": "string"}},
    run=run,
)
