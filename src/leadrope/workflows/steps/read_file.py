"""The step `read-file`: the content of a file of the workspace, as text if it decodes, otherwise as base64."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed
from leadrope.workflows.tools import file_calls, media, workspace_files

MIB = 1024 * 1024
MOST_BYTES = 50 * MIB


class ReadFileConfig(StepConfig, frozen=True, kw_only=True):
    file_path: Annotated[str, Meta(description="The file, seen from the workspace.")]
    encoding: Annotated[str, Meta(description="Of its text; `base64` takes the bytes as they are.")] = "utf-8"
    max_bytes: Annotated[int, Meta(ge=1, le=MOST_BYTES, description="A larger file is an error.")] = 10 * MIB


async def run(config: ReadFileConfig, context: StepContext) -> StepDone:
    check_encoding(config.encoding)
    place = workspace_files.find(context.workspace, config.file_path)
    place = await file_calls.may_read(context, place)
    context.say(f"reads {place.relative}")
    content = await asyncio.to_thread(workspace_files.read, place, config.max_bytes)
    return StepDone(outputs=_outputs(content.data, place, config.encoding))


def _outputs(data: bytes, place: workspace_files.WorkspaceFiles, encoding: str) -> dict[str, Any]:
    text = _decoded(data, encoding)
    found: dict[str, Any] = {
        "path": place.relative,
        "size": len(data),
        "media_type": media.type_of(place.name, is_text=text is not None),
        "encoding": "base64" if text is None else encoding,
        "binary": text is None,
    }
    if text is not None:
        return {"content": text, **found}
    found["content_base64"] = media.as_base64(data)
    if encoding == "base64":
        return {"content": found["content_base64"], **found}
    why = (
        f"{place.relative} is {len(data):,} bytes of {found['media_type']} and not {encoding} text; "
        "use content_base64, or say `encoding: base64`"
    )
    return {**found, templates.ABSENT: {"content": why}}


def check_encoding(name: str) -> None:
    if name == "base64":
        return
    try:
        # Fails for unknown encodings and for codecs that are not text encodings (`zlib`, `rot13`).
        "a".encode(name)
    except (LookupError, UnicodeError, ValueError):
        raise StepFailed(
            f"encoding: {name[:40]!r} is not an encoding of text",
            kind="bad_input",
            hint="Use for example utf-8, utf-16, latin-1 or cp1252; or base64 for bytes.",
        ) from None


def _decoded(data: bytes, encoding: str) -> str | None:
    if encoding == "base64":
        return None
    is_utf8 = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    try:
        # The byte order mark that some editors write belongs to the file, not to the text.
        return data.decode("utf-8-sig" if is_utf8 else encoding)
    except UnicodeError:
        return None


KIND = Kind(
    name="read-file",
    summary="Reads a file of the workspace.",
    config=ReadFileConfig,
    outputs={
        "content": {"type": "string"},
        "content_base64": {"type": "string"},
        "path": {"type": "string"},
        "size": {"type": "integer"},
        "media_type": {"type": "string"},
        "encoding": {"type": "string"},
        "binary": {"type": "boolean"},
    },
    run=run,
)
