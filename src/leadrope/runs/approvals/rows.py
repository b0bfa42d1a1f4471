"""Approvals in the run store: everything that a person is asked, by runs and by steps of workflows, in one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from leadrope import errors
from leadrope.core import actors
from leadrope.core.secrets.redaction import redact
from leadrope.runs.records import claims
from leadrope.runs.records.statements import sql
from leadrope.runs.records.values import Approval, Decided, RunInfo
from leadrope.runtime.gate.approvers import read_answer

if TYPE_CHECKING:
    from leadrope.storage.db import Db

T = TypeVar("T")
ANSWERED = "a person has answered"
MOST_NAMED = 20
"""Approvals that one prefix names, for the message that says so."""


class ApprovalReads:
    async def _rows(self, statement: str, /, **values: Any) -> list[Any]:
        raise NotImplementedError

    async def approval(self, approval_id: str) -> Approval:
        rows = await self._rows("get_approval", id=approval_id)
        if not rows:
            raise errors.UnknownRun(
                f"there is no approval {approval_id!r}", hint="`leadrope approvals list` shows what waits."
            )
        return _approval(rows[0])

    async def approvals(
        self,
        *,
        state: str = "pending",
        run_id: str = "",
        outermost_id: str = "",
        execution_id: str = "",
        limit: int = 500,
    ) -> list[Approval]:
        """The oldest first; `state` may be empty for all of them.

        `outermost_id`: of an execution with those that it has called; `execution_id`: of one execution alone.
        """
        if run_id:
            rows = await self._rows("approvals_of_run", id=run_id, state=state, limit=limit)
        elif outermost_id:
            rows = await self._rows("approvals_of_outermost", id=outermost_id, state=state, limit=limit)
        elif execution_id:
            rows = await self._rows("approvals_of_execution", id=execution_id, state=state, limit=limit)
        elif state == "pending":
            rows = await self._rows("pending_approvals", limit=limit)
        else:
            rows = await self._rows("list_approvals", state=state, limit=limit)
        return [_approval(row) for row in rows]

    async def pending_ids(self, outermost_id: str) -> set[str]:
        """Of an execution with those that it has called; all of them."""
        return {row[0] for row in await self._rows("pending_ids", id=outermost_id)}

    async def approvals_beginning(self, prefix: str) -> list[Approval]:
        """Those whose id begins so, pending ones first; only the first few."""
        rows = await self._rows("approvals_with_prefix", low=prefix, high=prefix + "\uffff", limit=MOST_NAMED)
        return [_approval(row) for row in rows]

    async def unused_answers(self, run: RunInfo) -> list[Approval]:
        """Answers of people to earlier attempts of a run that no call has got yet."""
        return [_approval(row) for row in await self._rows("unused_answers", run=run.n, attempt=run.attempt)]


class ApprovalWrites(ApprovalReads):
    async def write(self, work: Callable[[Db], T]) -> T:
        raise NotImplementedError

    async def decide(
        self,
        approval_id: str,
        state: Decided,
        *,
        by: str,
        reason: str = "",
        answer: bytes | None = None,
        fingerprint: str | None = None,
    ) -> bool:
        """True for the one whose answer counts: an approval leaves `pending` once, and only as what was answered.

        What has waited for the answer without an owner is queued in the same transaction.
        """
        values = {
            "id": approval_id,
            "state": state,
            "decided": time.time(),
            "by": redact(actors.read(by)),
            "reason": redact(reason),
            "answer": redact(answer.decode()) if answer is not None else None,
            "fingerprint": fingerprint,
        }

        def work(db: Db) -> bool:
            if db.execute(sql("decide_approval"), values).rowcount != 1:
                return False
            db.execute(sql("resume_answered"), {"id": approval_id})
            if (row := db.execute(sql("resume_answered_execution"), {"id": approval_id}).fetchone()) is not None:
                _tell_answer(db, row[0], approval_id)
            return True

        return await self.write(work)

    async def use_approval(self, approval_id: str) -> bool:
        """True once for an answer: whoever gets it acts on it, and nobody does again."""
        return await self.write(lambda db: db.execute(sql("use_approval"), {"id": approval_id}).rowcount == 1)

    # -- of runs ------------------------------------------------------------------------------------------------------

    async def add_approval(self, run: RunInfo, approval: Approval, *, has_clock: bool = False) -> str:
        """The id of the row that is to be watched: that of an earlier attempt, where the same is still open.

        `has_clock`: the time to answer begins anew.
        """
        values = {
            "id": approval.id,
            "run": run.n,
            "attempt": approval.attempt,
            "asked_id": approval.asked_id,
            "kind": approval.kind,
            "fingerprint": approval.fingerprint,
            "requested": approval.requested,
            "asked": redact(approval.asked.decode()),
        }

        def work(db: Db) -> str:
            claims.check(db, run)
            row = db.execute(sql("open_earlier"), values).fetchone()
            if row is None:
                db.execute(sql("add_run_approval"), values)
                return approval.id
            db.execute(sql("ask_again"), {**values, "id": row[0], "has_clock": has_clock})
            return str(row[0])

        return await self.write(work)

    async def close_approvals(self, run: RunInfo, state: Decided, *, by: str, reason: str, attempt: int) -> int:
        values = {"run": run.n, "state": state, "decided": time.time(), "by": by, "attempt": attempt}
        values["reason"] = redact(reason)

        def work(db: Db) -> int:
            claims.check(db, run)
            return db.execute(sql("close_approvals"), values).rowcount

        return await self.write(work)

    async def use_earlier(self, run: RunInfo, attempt: int, kind: str, fingerprint: str) -> bytes | None:
        """An answer that came too late for the process that asked, for the same call to the letter; given once."""

        def work(db: Db) -> str | None:
            claims.check(db, run)
            values = {"run": run.n, "attempt": attempt, "kind": kind, "fingerprint": fingerprint}
            row = db.execute(sql("earlier_answer"), values).fetchone()
            if row is None or not db.execute(sql("use_approval"), {"id": row[0]}).rowcount:
                return None
            return str(row[1])

        found = await self.write(work)
        return found.encode() if found is not None else None

    # -- of steps -----------------------------------------------------------------------------------------------------

    async def give_back(self, approval_ids: Sequence[str]) -> None:
        """Answers that were taken, and led to nothing yet: the same question finds them again."""
        if approval_ids:
            names = list(approval_ids)
            await self.write(lambda db: [db.execute(sql("give_back_approval"), {"id": name}) for name in names])


def _tell_answer(db: Db, n: int, approval_id: str) -> None:
    """Into the log of an execution that nobody owns. Where it has an owner, that one tells it."""
    from leadrope.core.execution_events import ExecutionQueued, StepAnswered  # noqa: PLC0415  # only for workflows
    from leadrope.runs.executions.log import extend_unowned  # noqa: PLC0415  # which knows the store

    approval = _approval(db.execute(sql("get_approval"), {"id": approval_id}).fetchone())
    answer = read_answer(approval.answer) if approval.answer is not None else None
    answered = StepAnswered(
        execution=approval.execution_id if approval.execution_id != approval.outermost_id else "",
        step=approval.step,
        iteration=approval.iteration,
        item=approval.item,
        approval_id=approval.id,
        approved=approval.state == "approved",
        choice=answer.choice if answer is not None else "",
        by=approval.by,
        reason=approval.reason,
    )
    extend_unowned(db, n, answered, ExecutionQueued(reason=ANSWERED))


def _approval(row: Sequence[Any]) -> Approval:
    id_, kind, state, run_id, attempt, asked_id, execution_id, execution, step, iteration, item, *rest = row
    fingerprint, requested, decided, by, reason, used, asked, answer, cwd, title, name, file = rest
    return Approval(
        id=id_,
        kind=kind,
        state=state,
        run_id=run_id or "",
        attempt=attempt,
        asked_id=asked_id,
        execution_id=execution_id or "",
        outermost_id=execution,
        step=step,
        iteration=iteration,
        item=None if item < 0 else item,
        fingerprint=fingerprint,
        requested=requested,
        decided=decided,
        by=by,
        reason=reason,
        used=bool(used),
        asked=asked.encode(),
        answer=answer.encode() if answer is not None else None,
        cwd=cwd,
        title=title or PurePath(file or "").name or name or "",
    )
