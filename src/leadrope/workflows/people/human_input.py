"""Questions from an execution to people: stored as approvals and answered here or elsewhere, even days later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from leadrope import errors
from leadrope.core import actors
from leadrope.core.execution_events import StepAnswered, StepAsked
from leadrope.runs.approvals import answers
from leadrope.runs.executions import bodies
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runs.records.values import Approval, Decided
from leadrope.runtime.gate.approvers import Answer, read_answer
from leadrope.workflows.engine.execution_context import ExecutionContext
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.report import PendingApproval, pending_of
from leadrope.workflows.steps.base import Parked, StepFailed, StepQuestion

if TYPE_CHECKING:
    from leadrope.runs.approvals.step_approvals import StepApprovals

LOOK_S = 2.0
"""Between two looks for an answer from another process that rang no bell here."""


class HumanInput:
    def __init__(self, host: ExecutionContext, info: ExecutionInfo) -> None:
        self._host = host
        self._info = info
        self._executions = host.service.executions
        self._put_aside: dict[str, set[str]] = {}
        """Approval id -> the steps parked for it; one answer may count for several."""

    @property
    def _approvals(self) -> StepApprovals:
        return self._host.service.step_approvals

    async def ask(self, key: Key, asked: StepQuestion) -> tuple[str, Answer]:
        """Return an answer given before, or the first one from here or elsewhere, with the approval's id for
        `give_back`.

        Raises Parked if nobody is there.
        """
        if self._is_refused:
            reason = "no one can answer, and the workflow was started without waiting"
            return "", Answer(approved=False, by=actors.NOBODY, reason=reason)
        approval = await self._executions.ask(
            self._info,
            key,
            asked.kind,
            asked,
            outermost_id=self._host.tag,
            fingerprint=asked.fingerprint,
            redactor=self._host.redactor,
            log=self._host.log,
            told=lambda approval_id: self._event(key, approval_id, asked),
        )
        self._host.parked.discard(approval.id)
        answer: Answer | None = None
        if approval.state == "pending":
            answer = await self._heard(key, approval, asked)
        if not await self._approvals.use(approval.id):
            raise errors.WrongState(f"the answer to {approval.id} was used already", hint="It is asked anew.")
        answer = answer or _stored(await self._approvals.get(approval.id))
        self._tell_answer(key, approval.id, answer)
        return approval.id, answer

    async def earlier_answer(self, key: Key, asked: StepQuestion, *, is_for_all: bool) -> Answer | None:
        """What was answered to the same question before; Parked where that is open and nobody is here.

        `is_for_all`: whichever step and turn asked it. A denial counts once: starting the step again asks again.
        """
        same = [
            approval
            for approval in await self._approvals.of(self._info.id)
            if (approval.kind, approval.fingerprint) == (asked.kind, asked.fingerprint)
            and (is_for_all or (approval.step, approval.iteration) == (key.step, key.iteration))
        ]
        for approval in same:
            if approval.state == "approved" or (approval.state == "denied" and not approval.used):
                self._host.parked.discard(approval.id)
                return _stored(approval)
        pending = next((approval for approval in same if approval.state == "pending"), None)
        if pending is not None and self._host.people is None:
            raise await self._parked(key, pending.id)
        return None

    def tell(self, key: Key, run_id: str, approval_id: str, asked: StepQuestion) -> None:
        """Report that a step's agent is asking, so that watchers know why nothing happens.

        If it was denied already, nothing waits and the step gets a warning.
        """
        if not self._is_refused:
            self._host.tell(self._event(key, approval_id, asked, run_id))

    @property
    def _is_refused(self) -> bool:
        """Return whether nobody is there and nobody is waited for."""
        return self._host.on_ask == "deny" and self._host.people is None

    def _event(self, key: Key, approval_id: str, asked: StepQuestion, run_id: str = "") -> StepAsked:
        values = bodies.excerpt(asked.values, self._host.redactor)
        return StepAsked(
            execution=self._execution,
            step=key.step,
            iteration=key.iteration,
            item=key.item,
            approval_id=approval_id,
            kind=asked.kind,
            title=asked.title,
            detail=self._host.cut(asked.detail),
            values=bodies.read_excerpt(values.body, "values"),
            choices=asked.choices,
            fields=tuple(field.name for field in asked.fields if field.is_needed),
            reason=self._host.cut(asked.reason),
            rule=asked.rule,
            layer=asked.layer,
            risk=asked.risk if asked.kind == "tool_call" else "",
            expires_s=asked.expires_s,
            fingerprint=asked.fingerprint,
            run_id=run_id,
        )

    def _tell_answer(self, key: Key, approval_id: str, answer: Answer) -> None:
        """Report an answer once: answers given while nobody owned the execution were reported then."""
        if approval_id in self._host.answered:
            return
        self._host.answered.add(approval_id)
        self._host.tell(
            StepAnswered(
                execution=self._execution,
                step=key.step,
                iteration=key.iteration,
                item=key.item,
                approval_id=approval_id,
                approved=answer.approved,
                choice=answer.choice,
                by=answer.by,
                reason=self._host.cut(answer.reason),
            )
        )

    @property
    def _execution(self) -> str:
        """The id as used in events: empty for the execution that owns the log."""
        return self._info.id if self._info.parent is not None else ""

    async def give_back(self, approval_ids: Sequence[str]) -> None:
        """Answers that led to nothing yet: the same questions find them again."""
        await self._approvals.give_back([approval_id for approval_id in approval_ids if approval_id])

    async def _heard(self, key: Key, approval: Approval, asked: StepQuestion) -> Answer | None:
        """Wait for the first answer from anywhere. None: it is in the store."""
        if self._host.people is None:
            raise await self._parked(key, approval.id)
        here = asyncio.ensure_future(self._host.people.ask(asked, approval.id))
        elsewhere = asyncio.ensure_future(self._decided(approval.id))
        try:
            await asyncio.wait((here, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            if elsewhere.done():
                elsewhere.result()
                return None
            answer = here.result()
            if answer is None:
                raise await self._parked(key, approval.id)
            return await self._decide(approval, answer)
        finally:
            for task in (here, elsewhere):
                task.cancel()
            await asyncio.wait((here, elsewhere))

    async def _parked(self, key: Key, approval_id: str) -> Exception:
        """An execution that could never go on is not put aside."""
        if "inputs" not in (await self._executions.texts(self._host.tag)).redacted:
            self._host.parked.add(approval_id)
            self._put_aside.setdefault(approval_id, set()).add(key.step)
            return Parked(approval_id)
        return StepFailed(
            "a person is needed who is not there, and the workflow cannot wait: one of its inputs is a secret, and "
            "secrets are not kept",
            kind="cannot_wait",
            hint="Run it at a terminal where somebody answers, or with --no-wait.",
        )

    async def _decide(self, approval: Approval, answer: Answer) -> Answer | None:
        """Record an answer given here, without secrets, and return it as given."""
        answer = answers.checked(approval, answer)
        clean = self._host.redactor.clean
        text = clean(msgspec.json.encode(answer).decode()).encode()
        state: Decided = "approved" if answer.approved else "denied"
        is_first = await self._approvals.decide(approval, state, by=answer.by, reason=clean(answer.reason), answer=text)
        return answer if is_first else None  # somebody else was quicker, and the first answer counts

    async def _decided(self, approval_id: str) -> None:
        """Once somebody has answered it, in whatever process."""
        with self._approvals.listen() as heard:
            while (await self._approvals.get(approval_id)).state == "pending":
                await heard.wait(LOOK_S)

    # -- open questions -----------------------------------------------------------------------------------------------

    async def answered_steps(self) -> set[str]:
        """Steps that were put aside and have an answer since, also to a question of a workflow that they call."""
        answered = self._host.parked - await self._approvals.pending_ids(self._host.tag)
        asking = [await self._step_of(await self._approvals.get(one)) for one in answered]
        callers = {step for step in asking if step is not None}
        return callers.union(*(self._put_aside.get(one, ()) for one in answered))

    async def _step_of(self, approval: Approval) -> str | None:
        """The step of this execution that an approval belongs to: its own, or the one that has called who asks."""
        execution_id, step = approval.execution_id, approval.step
        while execution_id != self._info.id:
            execution = await self._executions.get(execution_id)
            if execution.parent is None:
                return None
            execution_id, step = execution.parent, execution.parent_key.partition("#")[0]
        return step

    async def pending(self) -> tuple[PendingApproval, ...]:
        """All that is asked, here and inside."""
        found = await self._approvals.pending(self._host.tag)
        mine = [one for one in found if await self._step_of(one) is not None]
        return tuple(pending_of(one) for one in mine)


def _stored(approval: Approval) -> Answer:
    """Return the stored answer; one without a text was withdrawn or closed by leadrope itself."""
    if approval.answer is not None:
        return read_answer(approval.answer)
    return Answer(approved=False, by=approval.by, reason=approval.reason)
