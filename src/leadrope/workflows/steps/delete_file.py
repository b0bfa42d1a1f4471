"""The step `delete-file`: deletes one file of the workspace. The policy treats it as an `rm`."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone
from leadrope.workflows.tools import file_calls, workspace_files


class DeleteFileConfig(StepConfig, frozen=True, kw_only=True):
    file_path: Annotated[str, Meta(description="The file, seen from the workspace; a link's target is what goes.")]
    missing_ok: Annotated[bool, Meta(description="Ignore a file that does not exist.")] = False


async def run(config: DeleteFileConfig, context: StepContext) -> StepDone:
    place = workspace_files.find(context.workspace, config.file_path)
    if config.missing_ok and not workspace_files.exists(place):
        # No approval is needed for a file that does not exist.
        return StepDone(outputs={"path": place.relative, "deleted": False})
    await file_calls.may_delete(context, place)
    context.say(f"deletes {place.relative}")
    was_there = await asyncio.to_thread(workspace_files.delete, place, missing_ok=config.missing_ok)
    return StepDone(outputs={"path": place.relative, "deleted": was_there})


KIND = Kind(
    name="delete-file",
    summary="Deletes a file of the workspace; asks like `rm` does.",
    config=DeleteFileConfig,
    outputs={"path": {"type": "string"}, "deleted": {"type": "boolean"}},
    run=run,
)
