"""Who says yes: an approver is asked what no rule has settled. No approver, no answer, a broken one: each is a no."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

import msgspec

from leadrope.core.events import ApprovalRequested, QuestionRequested, Scope


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one approval; it is good for that one call."""

    approved: bool
    by: str = "person"
    reason: str = ""
    """On a no, the agent reads it."""
    edited: dict[str, Any] | None = None
    """The input to run instead of the one that was asked for."""
    scope: Scope = "once"
    pattern: str | None = None
    """Approve this call, and for the rest of the run all calls that the pattern covers. Only the one that was offered
    (`ApprovalRequested.pattern`) can be given."""
    fingerprint: str | None = None
    """When given: the call that was meant. An answer for another call is refused, not used."""


class QuestionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question or a plan; `answered=False` turns it down."""

    answered: bool
    answers: dict[str, str] = {}
    """Question text -> the chosen label (several joined by ", "), or free text."""
    by: str = "person"
    reason: str = ""


@runtime_checkable
class Approver(Protocol):
    async def approve(self, asked: ApprovalRequested) -> Answer: ...

    async def answer(self, asked: QuestionRequested) -> QuestionAnswer: ...


class DenyAll:
    """Nobody is there. The default."""

    def __init__(self, reason: str = "nobody is there to approve it") -> None:
        self._reason = reason

    async def approve(self, asked: ApprovalRequested) -> Answer:
        return Answer(approved=False, by="nobody", reason=self._reason)

    async def answer(self, asked: QuestionRequested) -> QuestionAnswer:
        return QuestionAnswer(answered=False, by="nobody", reason="nobody is there to answer")


class Caller:
    """The program that iterates the events answers: run.approve(), run.deny(), run.answer()."""

    async def approve(self, asked: ApprovalRequested) -> Answer:
        await asyncio.get_running_loop().create_future()
        raise AssertionError  # the future above never ends; the run's own answer or its clock does

    async def answer(self, asked: QuestionRequested) -> QuestionAnswer:
        await asyncio.get_running_loop().create_future()
        raise AssertionError


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A request on the desk."""

    run_id: str
    asked: ApprovalRequested | QuestionRequested


class Desk:
    """Requests of many runs in one place, for whoever answers them: a page, another terminal, a bot.

    desk = Desk()
    async with open_run(request, approver=desk.for_run("nightly")) as run: ...
    # elsewhere
    for waiting in desk.pending(): desk.answer(waiting.run_id, waiting.asked.approval_id, Answer(approved=True))
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[Waiting, asyncio.Future[Any]]] = {}

    def for_run(self, run_id: str) -> Approver:
        return _AtDesk(self, run_id)

    def pending(self) -> tuple[Waiting, ...]:
        """In the order in which they came."""
        return tuple(waiting for waiting, _ in self._open.values())

    def answer(self, run_id: str, request_id: str, answer: Answer | QuestionAnswer) -> bool:
        """False if nobody waits for it (any more), or if it is meant for another call. The first answer counts."""
        waiting, future = self._open.get((run_id, request_id), (None, None))
        if waiting is None or future is None or future.done() or not _fits(waiting.asked, answer):
            return False
        future.set_result(answer)
        return True

    async def hold(self, run_id: str, request_id: str, asked: ApprovalRequested | QuestionRequested) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[run_id, request_id] = (Waiting(run_id=run_id, asked=asked), future)
        try:
            return await future
        finally:
            del self._open[run_id, request_id]


class _AtDesk:
    def __init__(self, desk: Desk, run_id: str) -> None:
        self._desk = desk
        self._run_id = run_id

    async def approve(self, asked: ApprovalRequested) -> Answer:
        answer: Answer = await self._desk.hold(self._run_id, asked.approval_id, asked)
        return answer

    async def answer(self, asked: QuestionRequested) -> QuestionAnswer:
        reply: QuestionAnswer = await self._desk.hold(self._run_id, asked.question_id, asked)
        return reply


def _fits(asked: ApprovalRequested | QuestionRequested, answer: Answer | QuestionAnswer) -> bool:
    match asked, answer:
        case ApprovalRequested(), Answer():
            return answer.fingerprint in (None, asked.fingerprint)
        case QuestionRequested(), QuestionAnswer():
            return True
        case _:
            return False


Approve = Callable[[ApprovalRequested], bool | Answer | Awaitable[bool | Answer]]
AnswerQuestion = Callable[[QuestionRequested], QuestionAnswer | Awaitable[QuestionAnswer]]


class Callback:
    """A function answers.

    approver = Callback(lambda asked: asked.call.name == "Bash")
    """

    def __init__(self, approve: Approve, answer: AnswerQuestion | None = None) -> None:
        self._approve = approve
        self._answer = answer

    async def approve(self, asked: ApprovalRequested) -> Answer:
        got = self._approve(asked)
        if inspect.isawaitable(got):
            got = await got
        if isinstance(got, Answer):
            return got
        # `is True`: a truthy accident (a string "no", a coroutine that was not awaited) is not a yes.
        return Answer(approved=got is True, by="callback", reason="" if got is True else "the callback said no")

    async def answer(self, asked: QuestionRequested) -> QuestionAnswer:
        if self._answer is None:
            return QuestionAnswer(answered=False, by="callback", reason="this program answers no questions")
        got = self._answer(asked)
        if inspect.isawaitable(got):
            got = await got
        return got


def as_approver(approver: Approver | Approve | None) -> Approver:
    """What `open_run` accepts: an approver, a plain function, or nothing."""
    if approver is None:
        return DenyAll()
    if isinstance(approver, Approver):
        return approver
    return Callback(approver)
