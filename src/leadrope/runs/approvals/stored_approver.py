"""The approver of a stored run: each request is a row that anybody may answer, once, from any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope.core import actors
from leadrope.core.events import ApprovalRequested, QuestionRequested
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.approvals.waiting import Suspension
from leadrope.runs.records.redacted_rows import as_json
from leadrope.runs.records.values import Approval, ApprovalKind, Decided, RunInfo
from leadrope.runtime.gate.approvers import Answer, Approver, read_answer
from leadrope.runtime.limits.pauses import Pauses

if TYPE_CHECKING:
    from leadrope.runs.records.protocols import RunStore

EARLY_S = 0.25
"""How long before the gate's own clock the row expires: then nobody is told yes for a call that was denied."""
LOOK_S = 30.0


def approval_id(run_id: str, attempt: int, asked_id: str) -> str:
    """The id under which a request of a run is stored; `asked_id` is the one in its events."""
    return f"{run_id[:12]}-{attempt}-{asked_id}"


class StoredApprover:
    """Asks the person at this process, if there is one, and at the same time whoever else looks."""

    def __init__(
        self,
        store: RunStore,
        run: RunInfo,
        inner: Approver | None,
        redactor: Callable[[], Redactor],
        pauses: Pauses,
        suspension: Suspension | None = None,
    ) -> None:
        """`redactor` is asked each time: what a run must not show is known when it has started.

        `suspension` ends the agent when a question without a time limit has been open for long.
        """
        self._store = store
        self._run = run
        self._inner = inner
        self._redactor = redactor
        self._pauses = pauses
        self._suspension = suspension
        self.pending = 0

    async def approve(self, asked: ApprovalRequested) -> Answer:
        local = self._inner.approve(asked) if self._inner is not None else None
        return await self._ask("tool_call", asked.approval_id, asked, local)

    async def answer(self, asked: QuestionRequested) -> Answer:
        local = self._inner.answer(asked) if self._inner is not None else None
        return await self._ask(asked.kind, asked.question_id, asked, local)

    async def _ask(
        self,
        kind: ApprovalKind,
        asked_id: str,
        asked: ApprovalRequested | QuestionRequested,
        local: Coroutine[Any, Any, Answer] | None,
    ) -> Answer:
        store, run = self._store, self._run
        earlier = await store.use_earlier(run, run.attempt, kind, asked.fingerprint)
        if earlier is not None:
            if local is not None:
                local.close()
            return read_answer(earlier)
        row = approval_id(run.id, run.attempt, asked_id)
        request = Approval(
            id=row,
            run_id=run.id,
            attempt=run.attempt,
            asked_id=asked_id,
            kind=kind,
            state="pending",
            fingerprint=asked.fingerprint,
            requested=time.time(),
            asked=as_json(asked, self._redactor()).encode(),
        )
        row = await store.add_approval(run, request, has_clock=asked.expires_s > 0)
        person = asyncio.ensure_future(local) if local is not None else None
        self.pending += 1
        try:
            return await self._first(row, person, asked)
        except asyncio.CancelledError:
            if self._suspension is not None and self._suspension.is_on:
                raise  # it stays open: the answer is for the next attempt
            await asyncio.shield(
                store.decide(row, "withdrawn", by=actors.LEADROPE, reason="the request was taken back")
            )
            raise
        finally:
            self.pending -= 1
            if person is not None and not person.done():
                person.cancel()
                await asyncio.wait((person,), timeout=1)

    async def _first(
        self, row: str, person: asyncio.Future[Answer] | None, asked: ApprovalRequested | QuestionRequested
    ) -> Answer:
        """The first word that the store accepts, wherever it comes from; only that one counts."""
        store, expires_s = self._store, asked.expires_s
        patience = self._pauses.clock(max(0.0, expires_s - EARLY_S) if expires_s else None)
        suspension = self._suspension if person is None and not expires_s else None
        until_suspended = self._pauses.clock(suspension.after_s if suspension is not None else None)
        with store.notifier.listen() as heard:
            while True:
                found = await store.approval(row)
                if found.state != "pending" and found.answer is not None:
                    await store.use_approval(row)
                    return read_answer(found.answer)
                if found.state != "pending":
                    return _no_answer(expires_s)
                if person is not None and person.done():
                    said = person.result()  # what it raises is the gate's to judge: a no
                    if said.fingerprint not in (None, asked.fingerprint):
                        reason = "the answer was meant for another request"
                        said = Answer(approved=False, by=actors.LEADROPE, reason=reason)
                    state: Decided = "approved" if said.approved else "denied"
                    clean = self._redactor().clean
                    # An answer that holds a secret is used here and now, and is not kept for another attempt.
                    text = msgspec.json.encode(said)
                    kept = text if clean(text.decode()).encode() == text else None
                    if await store.decide(row, state, by=clean(said.by), reason=clean(said.reason), answer=kept):
                        await store.use_approval(row)
                        return said
                    person = None
                    continue
                if patience.is_over:
                    await store.decide(row, "expired", by=actors.TIMEOUT, reason="APPROVAL_TIMEOUT")
                    patience = self._pauses.clock(None)
                    continue
                if suspension is not None and until_suspended.is_over:
                    until_suspended = self._pauses.clock(None if suspension.begin() else suspension.again_s)
                    continue
                waits = (patience.look_s, until_suspended.look_s, LOOK_S)
                await _either(heard.wait(min(each for each in waits if each is not None)), person)


async def _either(notifier: Coroutine[Any, Any, bool], person: asyncio.Future[Any] | None) -> None:
    ring = asyncio.ensure_future(notifier)
    try:
        await asyncio.wait((ring, person) if person is not None else (ring,), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ring.cancel()
        await asyncio.wait((ring,))


def _no_answer(expires_s: float) -> Answer:
    return Answer(approved=False, by=actors.TIMEOUT, reason=f"APPROVAL_TIMEOUT: no answer in {expires_s:g} s")
