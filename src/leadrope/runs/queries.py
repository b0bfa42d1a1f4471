"""What a service tells of runs: lists, states, events, approvals. Starts none, and changes nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import events
from leadrope.runs.records.values import Approval, Artifact, Filter, RunInfo, Spending, Texts, Truncated
from leadrope.storage.change_notifier import Listener

if TYPE_CHECKING:
    from leadrope.runs.approvals.grants import RunGrant
    from leadrope.runs.executions.protocols import ExecutionReads
    from leadrope.runs.records.protocols import RunStore


class Queries:
    def __init__(self, store: RunStore, executions: ExecutionReads) -> None:
        self.store = store
        self.executions = executions

    async def get(self, run_id: str) -> RunInfo:
        return (await self._noted([await self.store.find(run_id)]))[0]

    async def known(self, run_id: str) -> RunInfo | None:
        """The run of exactly this id, if there is one."""
        try:
            return await self.store.get(run_id)
        except errors.UnknownRun:
            return None

    async def with_prefix(self, prefix: str) -> list[RunInfo]:
        """The runs whose ids begin so: a few of them, if there are many."""
        return await self.store.with_prefix(prefix)

    async def texts(self, run_id: str) -> Texts:
        return await self.store.texts((await self.store.find(run_id)).id)

    async def listing(self, wanted: Filter = Filter()) -> list[RunInfo]:  # noqa: B008  # frozen
        return await self._noted(await self.store.listing(wanted))

    async def _noted(self, rows: list[RunInfo]) -> list[RunInfo]:
        """With what no row says: how long a run has waited for a person, and that its account is held."""
        if any(row.state == "waiting" for row in rows):
            from leadrope.runs.approvals import waiting  # noqa: PLC0415  # few runs wait

            asked: dict[str, list[Approval]] = {}
            for one in await self.store.approvals(limit=5000):
                asked.setdefault(one.run_id, []).append(one)
            rows = [
                msgspec.structs.replace(row, note=waiting.in_words(asked.get(row.id, ()), time.time()))
                if row.state == "waiting"
                else row
                for row in rows
            ]
        if not any(row.state == "queued" and not row.note for row in rows):
            return rows
        holds = await self.store.holds(time.time())
        return [
            msgspec.structs.replace(row, note=holds[row.account][1])
            if row.state == "queued" and not row.note and row.account in holds
            else row
            for row in rows
        ]

    async def waits_for(self, run: RunInfo) -> str:
        """Why a run is not at work, in words; empty for one that is."""
        if run.state != "queued" or run.note:
            return run.note
        ahead = await self.store.ahead_of(run.id)
        return f"{ahead} {'run is' if ahead == 1 else 'runs are'} ahead of it" if ahead else "waiting for a free slot"

    async def approvals(self, **wanted: Any) -> list[Approval]:
        """What people are, or were, asked; see `ApprovalReads.approvals`."""
        return await self.store.approvals(**wanted)

    async def approval(self, name: str) -> Approval:
        """One by its id or the beginning of it, or by the run or execution that waits for exactly one answer."""
        from leadrope.runs.approvals import names as approval_names  # noqa: PLC0415  # of a person who answers

        return await approval_names.find(name, self.store, self.executions)

    async def known_approval(self, approval_id: str) -> Approval:
        """The approval of exactly this id."""
        return await self.store.approval(approval_id)

    async def page(self, run: RunInfo, seq: int, limit: int) -> list[events.Recorded]:
        """Events from `seq` on, at most so many; none when there are no more."""
        return await self.store.read(run, seq, limit)

    async def all_events(self, run: RunInfo) -> list[events.Recorded]:
        from leadrope.runs import recover  # noqa: PLC0415  # who only lists runs does not need it

        return await recover.all_events(self.store, run)

    async def artifacts(self, run: RunInfo) -> list[Artifact]:
        """What is kept of a run beside its events, without the bodies."""
        return await self.store.artifacts(run)

    async def states(self) -> dict[str, int]:
        """How many runs are in which state."""
        return await self.store.states()

    async def spending(self, since: float) -> list[Spending]:
        """What every run since then has cost."""
        return await self.store.spending(since)

    def listen(self) -> Listener:
        """`with service.listen() as heard: look(); await heard.wait(5)`: what comes after the look is heard."""
        return self.store.notifier.listen()

    async def grants(self, run_id: str) -> list[RunGrant]:
        """What people granted at a question of the run, patterns and exact calls, also what no longer holds."""
        from leadrope.runs.approvals import grants  # noqa: PLC0415  # of one run, for who asks

        return await grants.granted(self.store, await self.store.find(run_id))

    def follow(
        self, run_id: str, from_seq: int = 1, *, live: bool = True
    ) -> AsyncIterator[events.Recorded | Truncated]:
        """What is stored, then what comes: each event once, in order."""
        from leadrope.runs import feed  # noqa: PLC0415  # only who follows one

        return feed.follow(self.store, run_id, from_seq, live=live)
