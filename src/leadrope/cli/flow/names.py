"""Which execution a word means: the beginning of its id, an approval that it waits for, or a workflow's name."""

from __future__ import annotations

import contextlib

from leadrope import errors
from leadrope.runs.executions.values import ExecutionFilter, ExecutionInfo
from leadrope.runs.service import Service


async def named(service: Service, name: str | None) -> ExecutionInfo:
    """The newest execution without a name, and the last one of a workflow's name. Opens no file."""
    if name is None:
        rows = await service.executions.listing(ExecutionFilter(is_top=True, limit=1))
        if not rows:
            raise errors.UnknownRun("no workflow was run yet", hint="`leadrope flow run FILE` runs one.")
        return rows[0]
    try:
        return await service.executions.find(name)
    except errors.UnknownRun as unknown:
        with contextlib.suppress(errors.UnknownRun):
            return await service.executions.get((await service.known_approval(name.strip().lower())).outermost_id)
        last = await service.executions.last_of(name=name)
        if last is None:
            raise unknown from None
        return last
