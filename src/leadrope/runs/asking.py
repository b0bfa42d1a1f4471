"""The approver of a stored run: each request is a row that anybody may answer, once, from any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import msgspec

from leadrope.core.events import ApprovalRequested, QuestionRequested
from leadrope.core.redaction import Redactor
from leadrope.core.tools import fingerprint
from leadrope.runs.cleaning import as_json
from leadrope.runs.sqlite import Sqlite
from leadrope.runs.store import Approval, Decided, RunInfo
from leadrope.runtime.approvals import Answer, Approver, QuestionAnswer
from leadrope.runtime.pauses import Pauses

A = TypeVar("A", Answer, QuestionAnswer)
EARLY_S = 0.25
"""How long before the gate's own clock the row expires: then nobody is told yes for a call that was denied."""
LOOK_S = 30.0


class StoredApprover:
    """Asks the person at this process, if there is one, and at the same time whoever else looks."""

    def __init__(
        self,
        store: Sqlite,
        run: RunInfo,
        inner: Approver | None,
        redactor: Callable[[], Redactor],
        pauses: Pauses,
    ) -> None:
        """`redactor` is asked each time: what a run must not show is known when it has started."""
        self._store = store
        self._run = run
        self._inner = inner
        self._redactor = redactor
        self._pauses = pauses
        self.pending = 0

    async def approve(self, asked: ApprovalRequested) -> Answer:
        local = self._inner.approve(asked) if self._inner is not None else None
        return await self._ask(
            "approval", asked.approval_id, asked, asked.fingerprint, asked.expires_s, local, Answer, _no_answer
        )

    async def answer(self, asked: QuestionRequested) -> QuestionAnswer:
        local = self._inner.answer(asked) if self._inner is not None else None
        mark = fingerprint("question", msgspec.to_builtins([asked.kind, asked.plan, asked.questions]))
        return await self._ask(
            "question", asked.question_id, asked, mark, asked.expires_s, local, QuestionAnswer, _no_reply
        )

    async def _ask(
        self,
        kind: Any,
        asked_id: str,
        asked: ApprovalRequested | QuestionRequested,
        mark: str,
        expires_s: float,
        local: Coroutine[Any, Any, A] | None,
        shape: type[A],
        too_late: Callable[[float], A],
    ) -> A:
        store, run = self._store, self._run
        earlier = await store.use_earlier(run, run.attempt, kind, mark)
        if earlier is not None:
            if local is not None:
                local.close()
            # It still approves this one call; what it granted ended with the attempt that it was given in.
            return msgspec.convert(msgspec.json.decode(earlier) | {"pattern": None}, type=shape)
        row = f"{run.id[:12]}-{run.attempt}-{asked_id}"
        request = Approval(
            id=row,
            run_id=run.id,
            attempt=run.attempt,
            asked_id=asked_id,
            kind=kind,
            state="pending",
            fingerprint=mark,
            requested=time.time(),
            decided=None,
            by="",
            reason="",
            used=False,
            asked=as_json(asked, self._redactor()).encode(),
            answer=None,
        )
        await store.add_approval(run, request)
        person = asyncio.ensure_future(local) if local is not None else None
        self.pending += 1
        try:
            return await self._first(row, person, expires_s, shape, too_late)
        except asyncio.CancelledError:
            await asyncio.shield(store.decide(row, "withdrawn", by="supervisor", reason="the request was taken back"))
            raise
        finally:
            self.pending -= 1
            if person is not None and not person.done():
                person.cancel()
                await asyncio.wait((person,), timeout=1)

    async def _first(
        self,
        row: str,
        person: asyncio.Future[A] | None,
        expires_s: float,
        shape: type[A],
        too_late: Callable[[float], A],
    ) -> A:
        """The first word that the store accepts, wherever it comes from; only that one counts."""
        store = self._store
        patience = self._pauses.clock(max(0.0, expires_s - EARLY_S) if expires_s else None)
        with store.bell.listen() as heard:
            while True:
                found = store.approval(row)
                if found.state != "pending" and found.answer is not None:
                    await store.mark_used(row)
                    return msgspec.json.decode(found.answer, type=shape)
                if found.state != "pending":
                    return too_late(expires_s)
                if person is not None and person.done():
                    said = person.result()  # what it raises is the gate's to judge: a no
                    yes = cast("Answer | QuestionAnswer", said)  # of the two
                    is_yes = yes.approved if isinstance(yes, Answer) else yes.answered
                    state: Decided = "approved" if is_yes else "denied"
                    clean = self._redactor().clean
                    # An answer that holds a secret is used here and now, and is not kept for another attempt.
                    text = msgspec.json.encode(said)
                    kept = text if clean(text.decode()).encode() == text else None
                    if await store.decide(row, state, by=clean(said.by), reason=clean(said.reason), answer=kept):
                        await store.mark_used(row)
                        return said
                    person = None
                    continue
                if patience.is_over:
                    await store.decide(row, "expired", by="timeout", reason="APPROVAL_TIMEOUT")
                    patience = self._pauses.clock(None)
                    continue
                await _either(heard.wait(min(patience.look_s or LOOK_S, LOOK_S)), person)


async def _either(bell: Coroutine[Any, Any, bool], person: asyncio.Future[Any] | None) -> None:
    ring = asyncio.ensure_future(bell)
    try:
        await asyncio.wait((ring, person) if person is not None else (ring,), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ring.cancel()
        await asyncio.wait((ring,))


def _no_answer(expires_s: float) -> Answer:
    return Answer(approved=False, by="timeout", reason=f"APPROVAL_TIMEOUT: no answer in {expires_s:g} s")


def _no_reply(expires_s: float) -> QuestionAnswer:
    return QuestionAnswer(answered=False, by="timeout", reason=f"APPROVAL_TIMEOUT: no answer in {expires_s:g} s")
