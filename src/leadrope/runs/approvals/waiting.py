"""Detached runs that wait for a person: when their agent is ended, and what the resumed one is told. Starts nothing.

A question without a time limit keeps the agent for a while. Then the agent is ended, the run stays `waiting` without an
owner, and its approvals stay open in the store. The last answer queues the run; its next attempt resumes the session,
and the same calls get those answers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope.core import events
from leadrope.core.fold import SUSPENDED
from leadrope.core.request import RunRequest
from leadrope.runtime.gate.approvers import Answer, read_answer

if TYPE_CHECKING:
    from leadrope.runs.job import Job
    from leadrope.runs.records.protocols import ApprovalStore
    from leadrope.runs.records.values import Approval, RunInfo

QUIET_S = 30.0
"""How long nothing else may have happened: a subagent that is at work must not be ended."""
AGAIN_S = 5.0
"""Between two looks at an agent that still has something to do."""
ENDED_WITH_OWNER = "the background process was told to end; an answer resumes the session"
TOOK_LONG = (
    "You asked a person, and the answer took so long that your process was ended meanwhile, with everything that you "
    "had started in the background. What you asked for has not run. The answer has come:"
)
CONTINUE = (
    "Make each approved call again now, with exactly the same input: it gets its answer without another question, and "
    "any other call is judged anew. Then continue with your task, and do not repeat what is already done."
)


class Suspension:
    """Ends the agent of one run when it has waited long enough for a person."""

    def __init__(
        self, job: Job, after_s: float, spawn: Callable[[Coroutine[Any, Any, Any]], object], *, is_able: bool = True
    ) -> None:
        """`after_s` of 0, or not `is_able`: the agent is kept, however long it takes."""
        self._job = job
        self._spawn = spawn
        self.after_s = after_s if after_s and is_able else None
        self.again_s = min(after_s, AGAIN_S)

    @property
    def is_on(self) -> bool:
        return self._job.run is not None and self._job.run.is_suspended

    def begin(self) -> bool:
        """False when the agent has something else to do, or its session cannot be resumed."""
        run = self._job.run
        if run is None or self.after_s is None or not run.is_only_waiting(min(self.after_s, QUIET_S)):
            return False
        message = f"nobody answered within {self.after_s:g} s, so the agent was ended; an answer resumes the session"
        self._spawn(run.suspend(message))
        return True


async def can_suspend(store: ApprovalStore, run: RunInfo, place: Mapping[str, Any]) -> bool:
    """Whether a run whose owner died waits for a person: then it needs no agent until it is answered."""
    if not place.get("waits") or place.get("pending", "keep") == "deny" or run.session_id is None:
        return False
    found = await store.approvals(run_id=run.id)
    return bool(found) and not any(expires_s(row) for row in found)


def expires_s(row: Approval) -> float:
    """A person's time to answer; 0: without a limit."""
    return msgspec.json.decode(row.asked, type=_Expires).expires_s


class _Expires(msgspec.Struct, frozen=True):
    expires_s: float = 0.0


def suspensions(records: Sequence[events.Recorded]) -> int:
    return sum(isinstance(record.event, events.Notice) and record.event.code == SUSPENDED for record in records)


def told(request: RunRequest, answered: Sequence[Approval]) -> RunRequest:
    """The request of an attempt that resumes a session, with what people have answered since."""
    if request.resume is None or not answered:
        return request
    lines = [line for row in answered for line in _lines(row)]
    return msgspec.structs.replace(request, prompt="\n".join((TOOK_LONG, "", *lines, "", CONTINUE)))


def resolved(answered: Sequence[Approval]) -> list[events.Event]:
    """What the agent is told with its prompt, for the log: a denied call need not be made again to be on record."""
    found: list[events.Event] = []
    for row in answered:
        if row.kind != "tool_call":
            reply = read_answer(row.answer or b"")
            found.append(
                events.QuestionResolved(
                    question_id=row.asked_id,
                    answered=reply.approved,
                    answers=reply.answers,
                    by=reply.by,
                    reason=reply.reason,
                )
            )
            continue
        answer = read_answer(row.answer or b"")
        if not answer.approved:
            asked = msgspec.json.decode(row.asked, type=events.ApprovalRequested)
            reason = answer.reason or "not approved"
            found.append(events.ApprovalResolved(approval_id=row.asked_id, approved=False, by=answer.by, reason=reason))
            found.append(
                events.ToolDecided(call=asked.call, decision="deny", by=answer.by, rule="approval", reason=reason)
            )
    return found


def in_words(asked: Sequence[Approval], now: float) -> str:
    """For lists: how long a run has waited for a person, and how long it still will."""
    if not asked:
        return ""
    waited = _time(now - min(row.requested for row in asked))
    left = [row.requested + limit - now for row in asked if (limit := expires_s(row))]
    count = "" if len(asked) == 1 else f"{len(asked)} approvals, "
    return f"{count}asked {waited} ago, " + (f"{_time(max(0.0, min(left)))} left" if left else "no time limit")


def _time(seconds: float) -> str:
    for limit, unit, size in ((90, "s", 1), (90 * 60, "min", 60), (36 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{max(0, round(seconds / size))} {unit}"
    return f"{round(seconds / 86400)} days"


def _lines(row: Approval) -> list[str]:
    if row.kind != "tool_call":
        question = msgspec.json.decode(row.asked, type=events.QuestionRequested)
        return list(_about_question(question, read_answer(row.answer or b"")))
    asked = msgspec.json.decode(row.asked, type=events.ApprovalRequested)
    answer = read_answer(row.answer or b"")
    call = f"{asked.call.name} {_json(asked.call.input)}"
    if not answer.approved:
        return [f"- Denied ({answer.reason or 'no reason was given'}): {call}"]
    if answer.edited is not None:
        return [f"- Approved: {call}", f"  The person has edited it: it will run as {_json(answer.edited)}"]
    return [f"- Approved: {call}"]


def _about_question(asked: events.QuestionRequested, answer: Answer) -> Sequence[str]:
    if asked.kind == "plan":
        if answer.approved:
            return ["- Your plan was approved. Call ExitPlanMode again with the same plan."]
        return [f"- Your plan was not approved: {answer.reason or 'no reason was given'}"]
    if not answer.approved:
        return [f"- Your question was not answered: {answer.reason or 'no reason was given'}"]
    return [f"- You asked: {question}\n  The answer: {text}" for question, text in answer.answers.items()]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
