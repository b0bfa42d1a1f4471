"""Deleting runs and executions: which of them may go, which are old enough, and what lies outside of the store."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from leadrope import errors
from leadrope.runs.records.values import Filter, RunInfo

if TYPE_CHECKING:
    from leadrope.runs.service import Service

PAGE = 500


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    runs: int
    executions: int
    swept: tuple[str, ...] = ()
    """Worktrees and checkpoints without a run that were removed, in words."""


class Cleanup:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def delete(self, run_ids: Iterable[str]) -> int:
        """Ended runs, with their events, worktrees and checkpoints; one that has not ended is refused."""
        from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # services that only look do not need it

        deleted = 0
        for run_id in run_ids:
            run = await self._service.store.find(run_id)
            if run.state != "ended":
                raise errors.WrongState(f"run {run.id[:8]} has not ended", hint="Stop it first.")
            await run_workspace.forget(self._service, run)
            deleted += await self._service.store.delete_run(run.id)
        return deleted

    async def prune(
        self, *, keep_days: float | None = None, keep_runs: int | None = None, dry_run: bool = False
    ) -> Pruned:
        """Delete what ended longer ago than `keep_days`, except for the newest `keep_runs`; by default as configured.

        A run whose worktree may hold changes is kept. `dry_run` only counts.
        """
        from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # as above

        service = self._service
        keep_s = (service.settings.keep_days if keep_days is None else keep_days) * 86400
        newest = service.settings.keep_runs if keep_runs is None else keep_runs
        executions = await service.executions.stale(keep_s=keep_s, keep_executions=newest)
        found = [run.id for run in await self.stale(keep_s, newest) if not await run_workspace.has_work(service, run)]
        swept: list[str] = []
        if not dry_run:
            await self.delete(found)
            await service.executions.delete(executions)
            swept = await run_workspace.sweep(service)
            await service.store.shrink()
        return Pruned(runs=len(found), executions=len(executions), swept=tuple(swept))

    async def stale(self, keep_s: float, keep_runs: int) -> list[RunInfo]:
        """Ended runs that are older than `keep_s`, beyond the newest `keep_runs`."""
        before = time.time() - keep_s
        found: list[RunInfo] = []
        cursor: int | None = None
        seen = 0
        while page := await self._service.store.listing(Filter(state="ended", before=cursor, limit=PAGE)):
            cursor = page[-1].n
            for run in page:
                seen += 1
                if seen > keep_runs and (run.ended or run.created) < before:
                    found.append(run)
        return found
