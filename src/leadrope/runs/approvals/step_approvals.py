"""What the steps of executions have asked, for the engine that acts on the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leadrope.runs.records.values import Approval, Decided

if TYPE_CHECKING:
    from leadrope.runs.records.protocols import RunStore
    from leadrope.storage.change_notifier import Listener

ALL = 2**31


class StepApprovals:
    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def get(self, approval_id: str) -> Approval:
        return await self._store.approval(approval_id)

    async def of(self, execution_id: str) -> list[Approval]:
        """All that one execution has asked, the oldest first."""
        return await self._store.approvals(state="", execution_id=execution_id, limit=ALL)

    async def pending(self, outermost_id: str) -> list[Approval]:
        """What an execution and those that it has called ask now."""
        return await self._store.approvals(outermost_id=outermost_id)

    async def pending_ids(self, outermost_id: str) -> set[str]:
        return await self._store.pending_ids(outermost_id)

    def listen(self) -> Listener:
        return self._store.notifier.listen()

    async def use(self, approval_id: str) -> bool:
        """True once for an answer: whoever gets it acts on it, and nobody does again."""
        return await self._store.use_approval(approval_id)

    async def give_back(self, approval_ids: Sequence[str]) -> None:
        """Answers that were taken, and led to nothing yet: the same question finds them again."""
        await self._store.give_back(approval_ids)

    async def decide(self, approval: Approval, state: Decided, *, by: str, reason: str, answer: bytes) -> bool:
        """True for the one whose answer counts; False when it was answered before, or something else is asked now."""
        return await self._store.decide(
            approval.id, state, by=by, reason=reason, answer=answer, fingerprint=approval.fingerprint
        )
