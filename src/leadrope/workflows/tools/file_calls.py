"""The gate's word on a file, asked under every name that the file has. Opens nothing; `places` does.

A link gives a file two names, and a rule may speak of either: what is protected under one name must not be reached by
the other. So both are asked for, and what is opened later is the one without links.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from leadrope.core.tools import ToolCall
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import StepContext, StepFailed
from leadrope.workflows.tools import workspace_files
from leadrope.workflows.tools.workspace_files import WorkspaceFiles

_SHOWN = bytes(byte if 32 <= byte < 127 or byte in b"\t\n\r" else ord("?") for byte in range(256))


async def may_read(context: StepContext, place: WorkspaceFiles, *, parameter: str = "file_path") -> WorkspaceFiles:
    return (await _asked(context, "Read", place, {}, (parameter,)))[0]


async def may_write(
    context: StepContext, place: WorkspaceFiles, content: str, *, parameters: Iterable[str] = ("file_path", "content")
) -> tuple[WorkspaceFiles, str]:
    """Where it may be written, and what: a person may have changed either."""
    place, given = await _asked(context, "Write", place, {"content": content}, parameters)
    written = given.get("content")
    return place, written if isinstance(written, str) else content


async def may_change(context: StepContext, place: WorkspaceFiles, *, parameter: str) -> WorkspaceFiles:
    """For a file that goes away from where it is, and is not lost."""
    return (await _asked(context, "Edit", place, {}, (parameter,)))[0]


async def may_delete(context: StepContext, place: WorkspaceFiles) -> None:
    """A deleted file is a removed one, so whatever is said of `rm` holds."""
    for path in _names(place):
        command = f"rm -- {shlex.quote(path)}"
        call = await _permit(context, "Bash", {"command": command}, ("file_path",))
        if call.input.get("command") != command:
            raise StepFailed(
                f"{place.relative} was not deleted: the answer was another command, and this step runs none",
                kind="denied",
                hint="Approve or deny it.",
            )


def shown(data: bytes) -> str:
    """Bytes as the gate counts and a person sees them: a text as it is, else each byte as one character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.translate(_SHOWN).decode("ascii")


async def _asked(
    context: StepContext, name: str, place: WorkspaceFiles, more: dict[str, Any], parameters: Iterable[str]
) -> tuple[WorkspaceFiles, dict[str, Any]]:
    first, *others = _names(place)
    call = await _permit(context, name, {"file_path": first, **more}, parameters)
    path = call.input.get("file_path")
    if isinstance(path, str) and path != first:
        place = workspace_files.find(context.workspace, path)
        others = [one for one in _names(place) if one != path]
    for other in others:
        # The name that is opened: an answer that changes it would name a file that nobody was asked about.
        again = await _permit(context, name, {**call.input, "file_path": other}, parameters)
        call = ToolCall(id=call.id, name=name, input={**again.input, "file_path": other})
    return place, call.input


def _names(place: WorkspaceFiles) -> list[str]:
    return list(dict.fromkeys((place.written, place.real)))


async def _permit(context: StepContext, name: str, given: dict[str, Any], parameters: Iterable[str]) -> ToolCall:
    is_own = not any(templates.references(context.sources.get(parameter)) for parameter in parameters)
    return await context.permit(ToolCall(id=f"{context.key}:{name}", name=name, input=given), is_own=is_own)
