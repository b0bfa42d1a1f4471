"""The step `copy-file`: copies a file inside the workspace."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed
from leadrope.workflows.steps.read_file import MOST_BYTES
from leadrope.workflows.tools import file_calls, workspace_files
from leadrope.workflows.tools.workspace_files import WorkspaceFiles


class CopyFileConfig(StepConfig, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description="The file, seen from the workspace.")]
    destination: Annotated[str, Meta(description="The new file; folders above it are made.")]
    overwrite: Annotated[bool, Meta(description="Replace a file that is there already.")] = False


async def run(config: CopyFileConfig, context: StepContext) -> StepDone:
    source, destination = ends(config.source, config.destination, context)
    source = await file_calls.may_read(context, source, parameter="source")
    content = await asyncio.to_thread(workspace_files.read, source, MOST_BYTES)
    asked = file_calls.shown(content.data)
    destination, answered = await file_calls.may_write(
        context, destination, asked, parameters=("source", "destination")
    )
    data = content.data if answered == asked else answered.encode()
    context.say(f"copies {source.relative} to {destination.relative}")
    mode: Literal["overwrite", "create"] = "overwrite" if config.overwrite else "create"
    await asyncio.to_thread(workspace_files.write, destination, data, mode, permissions=content.mode)
    return StepDone(outputs={"source": source.relative, "path": destination.relative, "bytes_written": len(data)})


def ends(source: str, destination: str, context: StepContext) -> tuple[WorkspaceFiles, WorkspaceFiles]:
    """Resolve source and destination, which must differ."""
    one = workspace_files.find(context.workspace, source, parameter="source")
    other = workspace_files.find(context.workspace, destination, parameter="destination")
    if one.parts == other.parts:
        raise StepFailed(
            f"source and destination are the same file: {one.relative}",
            kind="bad_input",
            hint="Name another destination.",
        )
    return one, other


KIND = Kind(
    name="copy-file",
    summary="Copies a file inside the workspace.",
    config=CopyFileConfig,
    outputs={"source": {"type": "string"}, "path": {"type": "string"}, "bytes_written": {"type": "integer"}},
    run=run,
)
