"""The step `write-file`: writes text, bytes or a JSON value to a file of the workspace, atomically."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import Annotated, Any, Literal

from msgspec import Meta

from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed
from leadrope.workflows.steps.read_file import check_encoding
from leadrope.workflows.tools import file_calls, workspace_files


class WriteFileConfig(StepConfig, frozen=True, kw_only=True):
    file_path: Annotated[str, Meta(description="The file, seen from the workspace; folders above it are made.")]
    content: Annotated[Any, Meta(description="Text as it is; any other value as JSON.")]
    mode: Annotated[
        Literal["overwrite", "append", "create"],
        Meta(description="`append` adds at the end; `create` fails where the file is there already."),
    ] = "overwrite"
    encoding: Annotated[str, Meta(description="Of the text; `base64`: the content is bytes written so.")] = "utf-8"
    final_newline: Annotated[bool, Meta(description="A text that has no newline at its end gets one.")] = False


async def run(config: WriteFileConfig, context: StepContext) -> StepDone:
    check_encoding(config.encoding)
    text = text_of(config.content)
    if config.final_newline and config.encoding != "base64" and text and not text.endswith("\n"):
        text += "\n"
    data = _bytes(text, config.encoding)
    place = workspace_files.find(context.workspace, config.file_path)
    # The bytes are counted and shown, not their base64, which is a third longer.
    asked = file_calls.shown(data) if config.encoding == "base64" else text
    place, answered = await file_calls.may_write(context, place, asked)
    if answered != asked:
        data = _bytes(answered, "utf-8" if config.encoding == "base64" else config.encoding)
    context.say(f"writes {place.relative}")
    await asyncio.to_thread(workspace_files.write, place, data, config.mode)
    return StepDone(outputs={"path": place.relative, "bytes_written": len(data)})


def text_of(value: Any) -> str:
    """Format a value as file content: text verbatim, null as nothing, everything else as indented JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _bytes(text: str, encoding: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode(encoding)
    except (UnicodeError, binascii.Error, ValueError) as error:
        raise StepFailed(
            f"content: it cannot be written as {encoding}: {error}",
            kind="bad_input",
            hint="Choose another encoding; utf-8 knows every character.",
        ) from None


KIND = Kind(
    name="write-file",
    summary="Writes a file of the workspace.",
    config=WriteFileConfig,
    outputs={"path": {"type": "string"}, "bytes_written": {"type": "integer"}},
    run=run,
)
