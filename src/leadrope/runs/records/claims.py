"""Whose a run is: what an owner writes names the claim by which it has the run, and is refused after the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadrope import errors
from leadrope.runs.records.statements import sql
from leadrope.runs.records.values import RunInfo

if TYPE_CHECKING:
    from leadrope.storage.db import Db


def claimed(run: RunInfo) -> dict[str, Any]:
    """Which run, and by which claim of it: every write of an owner names both."""
    return {"n": run.n, "owner": run.owner, "epoch": run.epoch}


def check(db: Db, run: RunInfo) -> None:
    """NotOwner for a process that has lost the run: to the next owner, or to whoever took it for dead."""
    row = db.execute(sql("place_of"), {"run": run.n}).fetchone()
    if row is None:
        raise errors.UnknownRun(f"run {run.id} was deleted")
    state, owner, epoch = row[1], row[3], row[4]
    if (owner, epoch) == (run.owner, run.epoch):
        return
    whose = f"it was taken over by {owner}" if owner is not None else f"it is {state}"
    raise errors.NotOwner(f"run {run.id} no longer belongs to {run.owner or 'whoever wrote'}: {whose}")
