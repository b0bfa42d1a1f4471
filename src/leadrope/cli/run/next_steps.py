"""The last line of a run at the terminal: its id, what it has changed, and the command that comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadrope import errors, spelling
from leadrope.cli.runs import names
from leadrope.cli.screen import table
from leadrope.core.result import RunResult

if TYPE_CHECKING:
    from leadrope.runs.service import Service

RESUMABLE = ("stopped", "parked", "timed_out", "over_budget", "denied")


async def lines(service: Service, run_id: str, result: RunResult, width: int) -> list[str]:
    """Nothing where the store cannot be read: the run itself has said how it ended."""
    try:
        return table.joined([spelling.runnable(part) for part in await _parts(service, run_id, result)], width)
    except (errors.LeadropeError, OSError):
        return []


async def _parts(service: Service, run_id: str, result: RunResult) -> list[str]:
    from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # workflows without agents do not need it

    run = await service.get(run_id)
    name = await names.short(service, run.id)
    texts = await service.texts(run.id)
    parts = [f"run {run.id[:8]}"]
    changed = len(await run_workspace.changed_files(service, run))
    files = f"{changed} file{'' if changed == 1 else 's'} changed"
    if run_workspace.tree_of(texts.place) is not None:
        parts.append(f"{files} in its worktree" if changed else "nothing changed in its worktree")
        parts.append(f"leadrope runs diff {name} (or apply, discard)" if changed else f"leadrope runs discard {name}")
    elif changed:
        parts += [files, f"leadrope runs diff {name} (or undo)"]
    if not result.ok and result.outcome in RESUMABLE and texts.request.persist_session and result.session_id:
        parts.append(f"leadrope runs resume {name}")
    elif not changed or not result.ok:
        parts.append(f"leadrope runs show {name}")
    return parts
