"""Asks the gate about a file, under every name that the file has. Opens nothing; `workspace_files` does.

A link gives a file two names, and a rule may match either; what is protected under one name must not be reachable by
the other. So both are checked, and the file that is opened later is the one with links resolved.
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
    """Return where and what may be written; a person may have edited either."""
    place, given = await _asked(context, "Write", place, {"content": content}, parameters)
    written = given.get("content")
    return place, written if isinstance(written, str) else content


async def may_change(context: StepContext, place: WorkspaceFiles, *, parameter: str) -> WorkspaceFiles:
    """Return the permitted place of a file that is moved away, but not lost."""
    return (await _asked(context, "Edit", place, {}, (parameter,)))[0]


async def may_delete(context: StepContext, place: WorkspaceFiles) -> None:
    """Ask for the deletion of a file as an `rm`, so that rules about `rm` apply."""
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
    """Return bytes as the gate counts and a person sees them: decoded as text, or else one character per byte."""
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
        # This is the name that is opened; an answer that changed it would name a file that nobody approved.
        again = await _permit(context, name, {**call.input, "file_path": other}, parameters)
        call = ToolCall(id=call.id, name=name, input={**again.input, "file_path": other})
    return place, call.input


def _names(place: WorkspaceFiles) -> list[str]:
    return list(dict.fromkeys((place.written, place.real)))


async def _permit(context: StepContext, name: str, given: dict[str, Any], parameters: Iterable[str]) -> ToolCall:
    is_own = not any(templates.references(context.sources.get(parameter)) for parameter in parameters)
    return await context.permit(ToolCall(id=f"{context.key}:{name}", name=name, input=given), is_own=is_own)
