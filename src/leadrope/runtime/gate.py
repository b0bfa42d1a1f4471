"""The gate: every tool call is held here until a rule or a person has said yes.

The agent asks twice. First for every call, in every mode, also for subagents (`held`); our answer is binding unless
the agent has safety checks of its own, which then come as a second request for the same call (`asked_again`) and are
answered from what was decided the first time. A result for a call that never passed here means that the gate is open:
`bypassed_by` says so, and the run is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from leadrope.core import events
from leadrope.core.tools import ToolCall, fingerprint, subject
from leadrope.policy.decide import Allow, Ask, Deny, Facts, Policy, Verdict, decide
from leadrope.policy.offers import offered, risk_of
from leadrope.runtime.approvals import Answer, Approver, DenyAll, QuestionAnswer
from leadrope.runtime.host_questions import Answered, HostQuestions
from leadrope.runtime.pauses import Pauses
from leadrope.runtime.questions import plan_of, questions_of
from leadrope.runtime.surroundings import Surroundings

By = Literal["rule", "person", "nobody", "timeout", "supervisor"]
T = TypeVar("T")

PLAN_TOOL = "ExitPlanMode"
QUESTION_TOOLS = ("AskUserQuestion", PLAN_TOOL)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent is told about one call."""

    allowed: bool
    reason: str = ""
    input: dict[str, Any] | None = None
    """The input that runs: the original, or a person's edit of it."""


class Host(Protocol):
    """What the gate needs of its run."""

    def emit(self, event: events.Event) -> None: ...

    def hold(self) -> None:
        """A person is waited for: the idle clock stands still."""

    def release(self) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


Tell = Callable[[Decision], None]
BeforeEffect = Callable[[ToolCall], Awaitable[str | None]]


class _Pending(msgspec.Struct):
    call: ToolCall
    future: asyncio.Future[Any]
    task: asyncio.Task[None] | None = None


class Gate:
    def __init__(
        self,
        policy: Policy,
        approver: Approver,
        host: Host,
        *,
        approval_s: float,
        is_sandboxed: bool = False,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._policy = policy
        self._approver = approver
        self._host = host
        self._approval_s = approval_s or None
        self._is_sandboxed = is_sandboxed
        self._surroundings = surroundings or Surroundings(workspace=policy.workspace)
        self._looking: dict[str, asyncio.Task[None]] = {}
        """Requests of the agent for which something is being looked up."""
        self._has_person = not isinstance(approver, DenyAll)
        self._decided: dict[str, Decision] = {}
        self._seen: dict[str, ToolCall] = {}
        self.allowed: set[str] = set()
        """Ids of calls whose results are expected."""
        self._pending: dict[str, _Pending] = {}
        """Approval or question id -> who waits for it."""
        self._by_request: dict[str, str] = {}
        """The agent's request id -> our approval id, for requests that it takes back."""
        self._plans: dict[str, dict[str, Any]] = {}
        self._standing: set[str] = set()
        """Calls that a person has approved for the whole run, to the letter."""
        self._count = 0
        self._is_closed = False
        self.hosts = HostQuestions(self._ask_about_host)
        """What the proxy of a sandbox without a network asks."""
        self.before_effect: BeforeEffect | None = None
        """Awaited before an allowed call is told so; what it gives is a warning."""
        self._is_paused = False
        self._pauses = Pauses()
        self._held_back: list[tuple[str, ToolCall, Tell]] = []
        """Calls that came while the run was paused."""

    def pause(self) -> None:
        """No call is decided until `unpause`; the agent waits, and a person's time to answer stands still."""
        self._is_paused = True
        self._pauses.begin()

    def unpause(self) -> None:
        self._is_paused = False
        self._pauses.end()
        waiting, self._held_back = self._held_back, []
        for request_id, call, tell in waiting:
            self.held(request_id, call, tell)

    @property
    def grants(self) -> tuple[str, ...]:
        """Patterns that a person has granted in this run."""
        return self._policy.grants

    def revoke(self, pattern: str, *, by: str = "person") -> bool:
        """Take a grant back; False if there is none. What it has let through stays done."""
        if pattern not in self._policy.grants:
            return False
        left = tuple(grant for grant in self._policy.grants if grant != pattern)
        self._policy = msgspec.structs.replace(self._policy, grants=left)
        self._host.emit(events.GrantRevoked(pattern=pattern, by=by))
        return True

    def _facts(self) -> Facts:
        return Facts(person=self._has_person, sandboxed=self._is_sandboxed, tool_calls=len(self.allowed))

    # -- requests of the agent ------------------------------------------------------------------------------------

    def plan_told(self, call: ToolCall) -> None:
        """A plan's text stands in the model's own call; the request for its approval comes without."""
        self._plans[call.id] = call.input

    def held(self, request_id: str, call: ToolCall, tell: Tell) -> None:
        if self._is_paused:
            self._held_back.append((request_id, call, tell))
            return
        if call.name in QUESTION_TOOLS and not self._policy.never_asks:
            # Held a second time, with the person, when the agent asks for the permission itself.
            self._settle(call, Decision(allowed=True, input=call.input), tell, by="rule", rule="question")
            return
        if self._surroundings.takes_time(call):
            self._looking[request_id] = self._host.spawn(self._look_up(request_id, call, tell))
        else:
            self._judge(request_id, call, tell, self._surroundings.at_hand(self._facts()))

    async def _look_up(self, request_id: str, call: ToolCall, tell: Tell) -> None:
        try:
            facts = await self._surroundings.looked_up(call, self._facts())
        finally:
            self._looking.pop(request_id, None)
        if self._is_paused:
            self._held_back.append((request_id, call, tell))
        else:
            # Other calls were let through meanwhile.
            self._judge(request_id, call, tell, msgspec.structs.replace(facts, tool_calls=len(self.allowed)))

    def _judge(self, request_id: str, call: ToolCall, tell: Tell, facts: Facts) -> None:
        verdict: Verdict = decide(self._policy, call, facts)
        if isinstance(verdict, Ask) and subject(call.name, call.input, call.cwd) in self._standing:
            verdict = Allow("approval", "approved before, for this run")
        match verdict:
            case Allow():
                decision = Decision(allowed=True, input=call.input)
                self._settle(call, decision, tell, by="rule", rule=verdict.rule, layer=verdict.layer)
            case Deny():
                self._settle(call, _no(verdict.reason), tell, by="rule", rule=verdict.rule, layer=verdict.layer)
            case Ask():
                self._ask(request_id, call, verdict, tell)

    def asked_again(self, request_id: str, call: ToolCall, tell: Tell) -> None:
        if call.name in QUESTION_TOOLS:
            self._question(request_id, call, tell)
            return
        first = self._decided.get(call.id)
        if call.cwd is None and call.id in self._seen:
            # The second request does not say where the agent is; the first one did.
            call = msgspec.structs.replace(call, cwd=self._seen[call.id].cwd)
        if first is None or call.input not in (first.input, self._seen[call.id].input):
            # Never seen, or not the call that was judged: judge it now.
            self.held(request_id, call, tell)
            return
        tell(first)

    def withdrawn(self, request_id: str) -> None:
        """The agent no longer waits for this answer, and will not use it."""
        self._held_back = [waiting for waiting in self._held_back if waiting[0] != request_id]
        if (looking := self._looking.pop(request_id, None)) is not None:
            looking.cancel()
        pending = self._pending.get(self._by_request.pop(request_id, ""))
        if pending and not pending.future.done():
            pending.future.cancel()

    def bypassed_by(self, done: events.ToolCompleted) -> str | None:
        """None, or why the result of a call that ran proves that the gate was passed by."""
        if done.call_id in self.allowed:
            return None
        if done.call_id not in self._decided:
            return f"tool call {done.call_id} has a result, but it never asked at the gate"
        return None if done.is_error else f"tool call {done.call_id} was denied, but it ran"

    # -- answers from outside -------------------------------------------------------------------------------------

    def resolve(self, pending_id: str, answer: Answer | QuestionAnswer) -> bool:
        """Hand in an answer; False if nobody waits for it (any more). The first answer counts."""
        pending = self._pending.get(pending_id)
        if pending is None or pending.future.done():
            return False
        is_for_another = isinstance(answer, Answer) and answer.fingerprint not in (
            None,
            fingerprint(pending.call.name, pending.call.input, pending.call.cwd),
        )
        if is_for_another:
            return False
        pending.future.set_result(answer)
        return True

    def close(self, reason: str) -> None:
        """The run is ending: whatever still waits is denied."""
        self._is_closed = True
        for looking in tuple(self._looking.values()):
            looking.cancel()
        for pending in list(self._pending.values()):
            if not pending.future.done():
                pending.future.cancel(reason)

    # -- approvals --------------------------------------------------------------------------------------------------

    def _ask(self, request_id: str, call: ToolCall, verdict: Ask, tell: Tell) -> None:
        asked = events.ApprovalRequested(
            approval_id=self._next_id("approval"),
            call=call,
            reason=verdict.reason,
            expires_s=self._approval_s or 0,
            fingerprint=fingerprint(call.name, call.input, call.cwd),
            risk=risk_of(call, self._policy.workspace),
            reading=verdict.reading,
            pattern=offered(self._policy, call, verdict),
        )
        self._start(request_id, asked.approval_id, call, self._approve(asked, verdict, tell))
        self._host.emit(asked)

    async def _approve(self, asked: events.ApprovalRequested, verdict: Ask, tell: Tell) -> None:
        by, answer = await self._heard(asked)
        decision = _no(answer.reason or "not approved")
        if answer.approved:
            decision = await self._approved(asked.call, answer)
        self._resolved(asked, answer, pattern=(answer.pattern or "") if decision.allowed else "")
        self._settle(asked.call, decision, tell, by=by, rule=verdict.rule, layer=verdict.layer, edited=answer.edited)

    async def _ask_about_host(self, call: ToolCall) -> Answered:
        """Not a call of the agent's: a command that runs already wants to reach a host outside of the sandbox."""
        if not self._has_person or self._policy.never_asks or self._is_closed:
            return "silence"
        asked = events.ApprovalRequested(
            approval_id=self._next_id("approval"),
            call=call,
            reason="a command wants to reach a host outside of the sandbox",
            expires_s=self._approval_s or 0,
            fingerprint=fingerprint(call.name, call.input, call.cwd),
        )
        self._pending[asked.approval_id] = _Pending(call, asyncio.get_running_loop().create_future())
        self._host.hold()
        self._host.emit(asked)
        by, answer = await self._heard(asked)
        if answer.edited is not None:
            answer = Answer(approved=False, by=answer.by, reason="a host cannot be edited")
        self._resolved(asked, answer)
        self._host.emit(
            events.ToolDecided(
                call=call,
                decision="allow" if answer.approved else "deny",
                by=by,
                rule="network",
                layer="run",
                reason=answer.reason,
            )
        )
        return "yes" if answer.approved else "no" if by == "person" else "silence"

    async def _heard(self, asked: events.ApprovalRequested) -> tuple[By, Answer]:
        """The answer to a question, and who gave it. Whatever goes wrong is a no."""
        by: By = "person"
        got = await self._wait(asked.approval_id, self._approver.approve(asked))
        match got:
            case Answer() if got.fingerprint not in (None, asked.fingerprint):
                by = "supervisor"
                answer = Answer(approved=False, by="supervisor", reason="the answer was meant for another call")
            case Answer() if (wrong := _malformed(got) or _wrong_grant(got, asked)) is not None:
                by = "supervisor"
                answer = Answer(approved=False, by="supervisor", reason=f"the answer is malformed: {wrong}")
            case Answer(by="nobody", approved=False):
                by, answer = "nobody", got
            case Answer(by="timeout"):
                # Its own clock ran out a moment before ours, where the answer could have come from elsewhere.
                by, answer = "timeout", got
            case Answer():
                answer = got
            case TimeoutError():
                by = "timeout"
                answer = Answer(
                    approved=False, by="timeout", reason=f"APPROVAL_TIMEOUT: no answer in {asked.expires_s:g} s"
                )
            case asyncio.CancelledError():
                by = "supervisor"
                answer = Answer(approved=False, by="supervisor", reason="the request was taken back")
            case Exception():
                by = "supervisor"
                answer = Answer(approved=False, by="supervisor", reason=f"the approver failed: {got!r}")
            case _:
                by = "supervisor"
                answer = Answer(approved=False, by="supervisor", reason=f"the approver gave no answer, but {got!r}")
        return by, answer

    def _resolved(self, asked: events.ApprovalRequested, answer: Answer, *, pattern: str = "") -> None:
        self._host.emit(
            events.ApprovalResolved(
                approval_id=asked.approval_id,
                approved=answer.approved,
                by=answer.by,
                reason=answer.reason,
                scope=answer.scope,
                pattern=pattern,
            )
        )

    async def _approved(self, call: ToolCall, answer: Answer) -> Decision:
        """A person may change a call, but not into one that the rules forbid.

        Judged again even when nothing was changed: of several calls that waited together, the yes to one may have used
        up what the others were counted against.
        """
        run_input = call.input if answer.edited is None else answer.edited
        call = msgspec.structs.replace(call, input=run_input)
        facts = await self._surroundings.looked_up(call, self._facts())
        verdict = decide(self._policy, call, msgspec.structs.replace(facts, tool_calls=len(self.allowed)))
        if isinstance(verdict, Deny):
            what = "the edited call is forbidden" if answer.edited is not None else "it was approved too late"
            return _no(f"{what}: {verdict.reason}")
        if answer.scope == "run":
            self._standing.add(subject(call.name, run_input, call.cwd))
        if answer.pattern:
            grants = dict.fromkeys((*self._policy.grants, answer.pattern))
            self._policy = msgspec.structs.replace(self._policy, grants=tuple(grants))
        return Decision(allowed=True, input=run_input, reason=answer.reason)

    # -- questions and plans ----------------------------------------------------------------------------------------

    def _question(self, request_id: str, call: ToolCall, tell: Tell) -> None:
        if self._policy.never_asks:
            tell(_no("nobody is asked in this run"))
            return
        question_id = self._next_id("question")
        if call.name == PLAN_TOOL:
            asked = plan_of(question_id, self._plans.get(call.id, {}) | call.input, self._approval_s or 0)
        else:
            asked = questions_of(question_id, call.input, self._approval_s or 0)
        self._start(request_id, question_id, call, self._answer(asked, call, tell))
        self._host.emit(asked)

    async def _answer(self, asked: events.QuestionRequested, call: ToolCall, tell: Tell) -> None:
        got = await self._wait(asked.question_id, self._approver.answer(asked))
        match got:
            case QuestionAnswer() if (wrong := _malformed(got)) is not None:
                reply = QuestionAnswer(answered=False, by="supervisor", reason=f"the answer is malformed: {wrong}")
            case QuestionAnswer():
                reply = got
            case TimeoutError():
                reply = QuestionAnswer(
                    answered=False, by="timeout", reason=f"APPROVAL_TIMEOUT: no answer in {asked.expires_s:g} s"
                )
            case asyncio.CancelledError():
                reply = QuestionAnswer(answered=False, by="supervisor", reason="the question was taken back")
            case _:
                reply = QuestionAnswer(answered=False, by="supervisor", reason=f"the approver failed: {got!r}")
        self._host.emit(
            events.QuestionResolved(
                question_id=asked.question_id,
                answered=reply.answered,
                answers=reply.answers,
                by=reply.by,
                reason=reply.reason,
            )
        )
        if not reply.answered:
            tell(_no(reply.reason or "turned down"))
        elif asked.kind == "plan":
            if self._policy.mode == "plan":
                # The person has seen the plan and wants it done: from here on each call is asked for as usual.
                self._policy = msgspec.structs.replace(self._policy, mode="default")
            tell(Decision(allowed=True, input=call.input))
        else:
            tell(Decision(allowed=True, input=call.input | {"answers": reply.answers}))

    # -- the common part ----------------------------------------------------------------------------------------------

    def _next_id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def _start(self, request_id: str, pending_id: str, call: ToolCall, work: Coroutine[Any, Any, None]) -> None:
        pending = _Pending(call, asyncio.get_running_loop().create_future())
        self._pending[pending_id] = pending
        self._by_request[request_id] = pending_id
        self._host.hold()
        pending.task = self._host.spawn(work)

    async def _wait(self, pending_id: str, approver: Coroutine[Any, Any, Any]) -> object:
        """The first of: the approver's answer, an answer from outside, the clock. A failure is returned, not raised."""
        pending = self._pending[pending_id]
        task = asyncio.ensure_future(approver)
        try:
            left = self._pauses.clock(self._approval_s)
            done: set[asyncio.Future[Any]] = set()
            while not done:
                if left.is_over:
                    return TimeoutError()
                done, _ = await asyncio.wait(
                    (task, pending.future), timeout=left.look_s, return_when=asyncio.FIRST_COMPLETED
                )
            first = pending.future if pending.future in done else task
            try:
                return first.result()
            except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001  # a person's code; any failure is a no
                return failure
        finally:
            if not task.done():
                task.cancel()
                # The approver's own clean-up gets a moment, but cannot hold the call for ever.
                await asyncio.wait((task,), timeout=1)
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that asyncio does not report it as forgotten
            self._pending.pop(pending_id, None)
            self._host.release()

    def _settle(
        self,
        call: ToolCall,
        decision: Decision,
        tell: Tell,
        *,
        by: By,
        rule: str,
        layer: str = "",
        edited: dict[str, Any] | None = None,
    ) -> None:
        self._decided[call.id] = decision
        self._seen[call.id] = call
        if decision.allowed:
            self.allowed.add(call.id)
            self.hosts.let_fetch(msgspec.structs.replace(call, input=decision.input or call.input))
        else:
            self.allowed.discard(call.id)
        self._host.emit(
            events.ToolDecided(
                call=call,
                decision="allow" if decision.allowed else "deny",
                by=by,
                rule=rule,
                layer=layer,
                reason=decision.reason,
                edited=edited,
            )
        )
        if decision.allowed and self.before_effect is not None:
            run = msgspec.structs.replace(call, input=decision.input if decision.input is not None else call.input)
            self._host.spawn(self._tell_after(self.before_effect(run), decision, tell))
        else:
            tell(decision)

    async def _tell_after(self, work: Awaitable[str | None], decision: Decision, tell: Tell) -> None:
        try:
            warning = await work
        except Exception as error:  # noqa: BLE001  # the caller's own code; the call was allowed all the same
            warning = f"what was to be done before the call failed: {error!r}"
        if warning:
            self._host.emit(events.Notice(level="warning", code="before_effect", message=warning))
        tell(decision)


def _malformed(answer: Answer | QuestionAnswer) -> str | None:
    """What is wrong with the types of an answer that a program built: `approved="no"` is no yes."""
    try:
        msgspec.convert(msgspec.to_builtins(answer), type(answer))
        msgspec.json.encode(answer)  # an edited call has to reach the agent as JSON
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return str(error)
    return None


def _wrong_grant(answer: Answer, asked: events.ApprovalRequested) -> str | None:
    """A pattern can be granted only as it was offered, and together with the call that it was offered for."""
    if answer.pattern is None:
        return None
    if not answer.pattern or answer.pattern != asked.pattern:
        return f"the pattern {answer.pattern!r} was not offered"
    if answer.edited is not None:
        return "a pattern cannot be granted together with an edited call"
    return None


def _no(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason)
