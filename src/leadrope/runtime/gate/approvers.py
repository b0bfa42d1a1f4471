"""Who says yes: an approver is asked what no rule has settled. No approver, no answer, a broken one: each is a no."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

import msgspec

from leadrope.core import actors
from leadrope.core.events import ApprovalRequested, QuestionRequested, Scope
from leadrope.core.request_parts.field_docs import documented
from leadrope.runtime.embedding import user_code


@documented
class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an approval: a tool call, a question, a plan or a step. It is good for that one request."""

    approved: bool
    """True lets the call run, the plan begin or the workflow continue, and answers a question; False turns it down."""
    by: str = actors.USER
    """Who answered, for the record: `user:ID`, `program`, `token:ID`. A plain name is taken as that of a user."""
    reason: str = ""
    """On a denial, the agent reads it. A workflow has it as an output of the step."""
    edited: dict[str, Any] | None = None
    """Of a tool call: the input to run instead of the one that was asked for."""
    choice: str = ""
    """Of a step that offers choices: the chosen one."""
    answers: dict[str, Any] = {}
    """Of a question: its text -> the chosen label (several joined by ", "), or free text. Of a form: field -> value."""
    scope: Scope = "once"
    """Of a tool call. `run`: identical calls of this run are not asked for again."""
    pattern: str | None = None
    """Of a tool call: approve it, and for the rest of the run all calls that the pattern covers. Only the one that was
    offered (`ApprovalRequested.pattern`) can be given."""
    fingerprint: str | None = None
    """If given: the request that was meant. An answer to another one is refused, and does not count."""

    def __post_init__(self) -> None:
        if isinstance(self.by, str):  # what is malformed is refused where it is used
            msgspec.structs.force_setattr(self, "by", actors.read(self.by))


def read_answer(text: bytes) -> Answer:
    """An answer as it was stored. Earlier versions stored those to questions in another form."""
    said = msgspec.json.decode(text, type=dict[str, Any])
    if "answered" in said:
        said["approved"] = said.pop("answered")
    return msgspec.convert(said, Answer)


@runtime_checkable
class Approver(Protocol):
    """Whoever answers what no rule has settled. Any class with these two methods is one."""

    async def approve(self, asked: ApprovalRequested) -> Answer:
        """Decide one tool call. An exception, or anything but an `Answer`, denies it."""

    async def answer(self, asked: QuestionRequested) -> Answer:
        """Answer a question of the agent, or approve its plan."""


class DenyAll:
    """Denies everything: no one can be asked. The default."""

    def __init__(self, reason: str = "no one is available to approve it") -> None:
        self._reason = reason

    async def approve(self, asked: ApprovalRequested) -> Answer:
        """Deny the call."""
        return Answer(approved=False, by=actors.NOBODY, reason=self._reason)

    async def answer(self, asked: QuestionRequested) -> Answer:
        """Turn the question down."""
        return Answer(approved=False, by=actors.NOBODY, reason="no one is available to answer")


class InlineApprover:
    """The program that iterates the events answers: run.approve(), run.deny(), run.answer()."""

    async def approve(self, asked: ApprovalRequested) -> Answer:
        """Wait for `run.approve()` or `run.deny()`, or for the clock."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError  # the future above never ends; the run's own answer or its clock does

    async def answer(self, asked: QuestionRequested) -> Answer:
        """Wait for `run.answer()`, or for the clock."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError


@documented
class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waits for an answer."""

    run_id: str
    """As given to `for_run`."""
    asked: ApprovalRequested | QuestionRequested
    """What the run waits for."""


class ApprovalQueue:
    """Requests of many runs in one place, for whoever answers them: a page, another terminal, a bot.

    queue = ApprovalQueue()
    async with open_run(request, approver=queue.for_run("nightly")) as run:
        ...
    # elsewhere
    for waiting in queue.pending():
        queue.answer(waiting.run_id, waiting.asked.approval_id, Answer(approved=True))
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[Waiting, asyncio.Future[Any]]] = {}

    def for_run(self, run_id: str) -> Approver:
        """The approver of one run; `run_id` is any name that tells the runs apart."""
        return _QueuedRun(self, run_id)

    def pending(self) -> tuple[Waiting, ...]:
        """In the order in which they came."""
        return tuple(waiting for waiting, _ in self._open.values())

    def answer(self, run_id: str, request_id: str, answer: Answer) -> bool:
        """False if nobody waits for it (any more), or if it is meant for another call. The first answer counts."""
        waiting, future = self._open.get((run_id, request_id), (None, None))
        if waiting is None or future is None or future.done():
            return False
        if answer.fingerprint not in (None, waiting.asked.fingerprint):
            return False
        future.set_result(answer)
        return True

    async def hold(self, run_id: str, request_id: str, asked: ApprovalRequested | QuestionRequested) -> Any:
        """Put a request into the queue and wait for its answer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open[run_id, request_id] = (Waiting(run_id=run_id, asked=asked), future)
        try:
            return await future
        finally:
            del self._open[run_id, request_id]


class _QueuedRun:
    def __init__(self, queue: ApprovalQueue, run_id: str) -> None:
        self._queue = queue
        self._run_id = run_id

    async def approve(self, asked: ApprovalRequested) -> Answer:
        answer: Answer = await self._queue.hold(self._run_id, asked.approval_id, asked)
        return answer

    async def answer(self, asked: QuestionRequested) -> Answer:
        reply: Answer = await self._queue.hold(self._run_id, asked.question_id, asked)
        return reply


Approve = Callable[[ApprovalRequested], bool | Answer | Awaitable[bool | Answer]]
AnswerQuestion = Callable[[QuestionRequested], Answer | Awaitable[Answer]]


class WrongAnswer(TypeError):
    """An approver returned something that is neither yes nor no."""


class Callback:
    """A function answers. A sync function runs in a thread of its own, an async one is awaited.

    approver = Callback(lambda asked: asked.call.name == "Bash")
    """

    def __init__(self, approve: Approve, answer: AnswerQuestion | None = None) -> None:
        self._approve = approve
        self._answer = answer

    async def approve(self, asked: ApprovalRequested) -> Answer:
        """Call the function; True and False count, and an `Answer`."""
        got = await user_code.call(self._approve, asked, name="approver")
        if isinstance(got, Answer):
            return got
        # Not by its truth: a string "no" is true, and so is a coroutine that was not awaited.
        if not isinstance(got, bool):
            raise WrongAnswer(f"the approver returned {_short(got)}; it must return True, False or an Answer")
        return Answer(approved=got, by=actors.PROGRAM, reason="" if got else "the callback said no")

    async def answer(self, asked: QuestionRequested) -> Answer:
        """Call the second function; without one every question is turned down."""
        if self._answer is None:
            return Answer(approved=False, by=actors.PROGRAM, reason="this program answers no questions")
        got = await user_code.call(self._answer, asked, name="approver")
        if not isinstance(got, Answer):
            raise WrongAnswer(f"the approver returned {_short(got)}; it must return an Answer")
        return got


def _short(value: object) -> str:
    text = repr(value)
    return f"{text[:80]}{'…' if len(text) > 80 else ''} ({type(value).__name__})"


def as_approver(approver: Approver | Approve | None) -> Approver:
    """What `open_run` accepts: an approver, a plain function, or nothing."""
    if approver is None:
        return DenyAll()
    if not isinstance(approver, Approver):
        return Callback(approver)
    if user_code.is_async(approver.approve) and user_code.is_async(approver.answer):
        return approver
    return Callback(approver.approve, approver.answer)
