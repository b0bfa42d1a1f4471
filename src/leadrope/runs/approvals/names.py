"""Which approval a person means: by its id, the beginning of it, or by the run or execution that asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadrope import errors
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runs.records.values import Approval, RunInfo

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import ExecutionReads
    from leadrope.runs.records.protocols import RunStore

LEAST = 4
"""Characters. An answer to another approval than the one that was meant could not be taken back."""
_HINT = "`leadrope approvals list` shows what waits."


async def find(name: str, reads: RunStore, executions: ExecutionReads) -> Approval:
    name = name.strip().lower()
    begun = await reads.approvals_beginning(name) if name else []
    for approval in begun:
        if approval.id == name:
            return approval
    if len(name) < LEAST:
        raise errors.UnknownRun(
            f"{name!r} is too short to name an approval", hint=f"Write at least {LEAST} characters of its id."
        )
    asking = await _asking(name, reads, executions)
    # Where several begin so none is meant, though only one of them may ask something.
    if len(asking) > 1:
        raise _several(name, [one.id[: len(name) + 8] for one in asking])
    found = {one.id: one for one in begun if one.state == "pending"}
    for one in asking:
        found |= {approval.id: approval for approval in await _asked_by(one, reads)}
    if len(found) > 1:
        raise _several(name, list(found))
    if found:
        return next(iter(found.values()))
    if asking:
        raise _asks_nothing(asking[0])
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise _several(name, [one.id for one in begun])
    raise errors.UnknownRun(f"there is no approval {name!r}", hint=_HINT)


async def _asking(name: str, reads: RunStore, executions: ExecutionReads) -> list[RunInfo | ExecutionInfo]:
    """Runs and executions whose id begins so."""
    return [
        *await reads.with_prefix(name),
        *[await executions.get(execution_id) for execution_id in await executions.ids_beginning(name)],
    ]


async def _asked_by(one: RunInfo | ExecutionInfo, reads: RunStore) -> list[Approval]:
    if isinstance(one, RunInfo):
        return await reads.approvals(run_id=one.id)
    if one.parent is None:
        return await reads.approvals(outermost_id=one.id)
    return await reads.approvals(execution_id=one.id)


def _several(name: str, ids: list[str]) -> errors.UnknownRun:
    return errors.UnknownRun(f"several begin with {name}: {', '.join(sorted(ids)[:5])}", hint="Write more of the id.")


def _asks_nothing(one: RunInfo | ExecutionInfo) -> errors.WrongState:
    short = one.id[:8]
    if isinstance(one, RunInfo):
        called, show, resume = f"run {short}", f"`leadrope runs show {short}` tells how.", None
    else:
        called = f"the execution {short} ({one.name})"
        show = f"See `leadrope flow report {short}`."
        resume = f"`leadrope flow resume {short}` continues it."
    if one.state == "ended":
        hint = resume if one.outcome == "stopped" and resume else show
        return errors.WrongState(f"{called} has ended: {one.outcome}", hint=hint)
    if one.state == "interrupted":
        return errors.WrongState(f"{called} was interrupted, and asks nothing", hint=resume)
    return errors.WrongState(f"{called} is {one.state}, and asks nothing now", hint=_HINT)
