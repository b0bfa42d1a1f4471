"""The gate: every tool call is held here until a rule or a person has said yes.

The agent asks twice. First for every call, in every mode, also for subagents (`held`); our answer is binding unless
the agent has safety checks of its own, which then come as a second request for the same call (`asked_again`) and are
answered from what was decided the first time. A result for a call that never passed here means that the gate is open:
`bypassed_by` says so, and the run is ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

from leadrope.core import actors, events
from leadrope.core.tools import ToolCall, fingerprint, grant_name, subject
from leadrope.policy.decide import Allow, Ask, Deny, Facts, Policy, Verdict, decide
from leadrope.policy.offers import offered, risk_of
from leadrope.providers.base import AskingSession
from leadrope.runtime.embedding import hooks
from leadrope.runtime.embedding.hooks import BeforeTool, HookVerdict
from leadrope.runtime.gate.approvers import Answer, Approver, DenyAll, WrongAnswer
from leadrope.runtime.gate.host_questions import Answered, HostQuestions
from leadrope.runtime.gate.machine_facts import MachineFacts
from leadrope.runtime.gate.questions import requested
from leadrope.runtime.limits.pauses import Pauses

log = logging.getLogger("leadrope.run")

HOOK = "before_tool"

T = TypeVar("T")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent is told about one call."""

    allowed: bool
    reason: str = ""
    input: dict[str, Any] | None = None
    """The input that runs: the original, or a person's edit of it."""
    only_reads: bool = False
    """A command that is known to change nothing."""


class GateHost(Protocol):
    """What the gate needs of its run."""

    def emit(self, event: events.Event) -> None: ...

    def hold(self) -> None:
        """A person is waited for: the idle clock stands still."""

    def release(self) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


Tell = Callable[[Decision], None]
BeforeEffect = Callable[[ToolCall], Awaitable[str | None]]


class _Pending(msgspec.Struct):
    fingerprint: str
    """Of what was asked; an answer that names another one is refused."""
    future: asyncio.Future[Any]
    task: asyncio.Task[None] | None = None


class Gate:
    def __init__(
        self,
        policy: Policy,
        approver: Approver,
        host: GateHost,
        *,
        approval_s: float,
        is_sandboxed: bool = False,
        surroundings: MachineFacts | None = None,
        asking: AskingSession | None = None,
    ) -> None:
        """`asking`: of an agent that asks people questions."""
        self._asking = asking
        self._policy = policy
        self._approver = approver
        self._host = host
        self._approval_s = approval_s or None
        self._is_sandboxed = is_sandboxed
        self._surroundings = surroundings or MachineFacts(workspace=policy.workspace)
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
        self.standing: set[str] = set()
        """Calls that a person has approved for the whole run, to the letter."""
        self._count = 0
        self._is_closed = False
        self.hosts = HostQuestions(self._ask_about_host)
        """What the proxy of a sandbox without a network asks."""
        self.before_effect: BeforeEffect | None = None
        """Awaited before an allowed call is told so; what it gives is a warning."""
        self.before_tool: BeforeTool | None = None
        """The program's own word on a call before it is judged; it can only tighten."""
        self._hooked: dict[str, HookVerdict] = {}
        """What it has said, by the agent's request."""
        self._originals: dict[str, ToolCall] = {}
        """Calls that it has changed, as the agent made them."""
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
        """Patterns, and names of exact calls, that a person has granted in this run."""
        return (*self._policy.grants, *map(grant_name, self.standing))

    def revoke(self, pattern: str, *, by: str = actors.USER) -> bool:
        """Take a grant back; False if there is none. What it has let through stays done."""
        if pattern not in self.grants:
            return False
        left = tuple(grant for grant in self._policy.grants if grant != pattern)
        self._policy = msgspec.structs.replace(self._policy, grants=left)
        self.standing = {call for call in self.standing if grant_name(call) != pattern}
        self._host.emit(events.GrantRevoked(pattern=pattern, by=by))
        return True

    def _facts(self) -> Facts:
        return Facts(person=self._has_person, sandboxed=self._is_sandboxed, tool_calls=len(self.allowed))

    # -- requests of the agent ------------------------------------------------------------------------------------

    def held(self, request_id: str, call: ToolCall, tell: Tell) -> None:
        if self._is_paused:
            self._held_back.append((request_id, call, tell))
        elif self.before_tool is None:
            self._admit(request_id, call, tell)
        elif request_id in self._hooked:
            self._tighten(request_id, call, tell, self._hooked.pop(request_id))
        else:
            self._looking[request_id] = self._host.spawn(self._ask_hook(request_id, call, tell, self.before_tool))

    async def _ask_hook(self, request_id: str, call: ToolCall, tell: Tell, hook: BeforeTool) -> None:
        self._host.hold()
        try:
            self._hooked[request_id] = await hooks.before(hook, call, self._host.emit, limit_s=self._approval_s)
        finally:
            self._host.release()
            self._looking.pop(request_id, None)
        self.held(request_id, call, tell)

    def _tighten(self, request_id: str, call: ToolCall, tell: Tell, said: HookVerdict) -> None:
        match said:
            case None:
                self._admit(request_id, call, tell)
            case hooks.DenyCall():
                self._settle(call, _no(said.reason), tell, by=actors.POLICY, rule=HOOK, layer="run")
            case hooks.AskFirst():
                self._admit(request_id, call, tell, ask=said.reason)
            case hooks.EditCall() if self._is_question(call):
                self._settle(call, _no("a question cannot be edited"), tell, by=actors.POLICY, rule=HOOK, layer="run")
            case hooks.EditCall():
                self._originals[call.id] = call
                self._admit(request_id, msgspec.structs.replace(call, input=said.input), tell)

    def _admit(self, request_id: str, call: ToolCall, tell: Tell, *, ask: str = "") -> None:
        """Judge a call, at once or when what the verdict needs is known. `ask`: why a person must see it anyway."""
        if self._is_question(call) and not self._policy.never_asks:
            # Held a second time, with the person, when the agent asks for the permission itself.
            self._settle(call, Decision(allowed=True, input=call.input), tell, by=actors.POLICY, rule="question")
            return
        if self._surroundings.takes_time(call):
            self._looking[request_id] = self._host.spawn(self._look_up(request_id, call, tell, ask))
        else:
            self._judge(request_id, call, tell, self._surroundings.at_hand(self._facts()), ask)

    async def _look_up(self, request_id: str, call: ToolCall, tell: Tell, ask: str) -> None:
        try:
            facts = await self._surroundings.looked_up(call, self._facts())
        finally:
            self._looking.pop(request_id, None)
        if self._is_paused:
            if self.before_tool is not None:
                self._hooked[request_id] = hooks.AskFirst(ask) if ask else None  # it was asked already
            self._held_back.append((request_id, call, tell))
        else:
            # Other calls were let through meanwhile.
            self._judge(request_id, call, tell, msgspec.structs.replace(facts, tool_calls=len(self.allowed)), ask)

    def _judge(self, request_id: str, call: ToolCall, tell: Tell, facts: Facts, ask: str = "") -> None:
        verdict: Verdict = decide(self._policy, call, facts)
        if ask and isinstance(verdict, Allow):
            never = Deny(HOOK, f"{ask}, and nobody is asked in this run", "run")
            verdict = never if self._policy.never_asks else Ask(HOOK, ask, "run")
        if isinstance(verdict, Ask) and subject(call.name, call.input, call.cwd) in self.standing:
            verdict = Allow("approval", "approved before, for this run")
        match verdict:
            case Allow():
                decision = Decision(allowed=True, input=call.input, only_reads=verdict.only_reads)
                self._settle(call, decision, tell, by=actors.POLICY, rule=verdict.rule, layer=verdict.layer)
            case Deny():
                by = actors.NOBODY if verdict.is_unasked else actors.POLICY
                self._settle(call, _no(verdict.reason), tell, by=by, rule=verdict.rule, layer=verdict.layer)
            case Ask():
                self._ask(request_id, call, verdict, tell)

    def asked_again(self, request_id: str, call: ToolCall, tell: Tell) -> None:
        if self._asking is not None and self._is_question(call):
            self._question(request_id, call, tell, self._asking)
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

    def allowed_call(self, call_id: str) -> ToolCall | None:
        """The call of that id with the input that was allowed; None: it was not allowed."""
        return self.seen(call_id) if call_id in self.allowed else None

    def seen(self, call_id: str) -> ToolCall | None:
        """The call of that id, with the input that ran; None: it never came here."""
        call, decision = self._seen.get(call_id), self._decided.get(call_id)
        if call is None or decision is None or decision.input is None:
            return call
        return msgspec.structs.replace(call, input=decision.input)

    # -- answers from outside -------------------------------------------------------------------------------------

    def resolve(self, pending_id: str, answer: Answer) -> bool:
        """Hand in an answer; False if nobody waits for it (any more), or it is for another request."""
        pending = self._pending.get(pending_id)
        if pending is None or pending.future.done() or answer.fingerprint not in (None, pending.fingerprint):
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

    @property
    def is_asking(self) -> bool:
        """A person is being asked about a call, or has been asked a question."""
        return bool(self._pending)

    def suspend(self) -> None:
        """The process is ending while a person is asked: the questions stay open, and no answer is recorded."""
        self._is_closed = True
        for looking in tuple(self._looking.values()):
            looking.cancel()
        for pending in self._pending.values():
            if pending.task is not None:
                pending.task.cancel()
            else:
                pending.future.cancel()
        self._pending.clear()

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
            rule=verdict.rule,
            layer=verdict.layer,
        )
        self._start(request_id, asked.approval_id, asked.fingerprint, self._approve(asked, verdict, tell))
        self._host.emit(asked)

    async def _approve(self, asked: events.ApprovalRequested, verdict: Ask, tell: Tell) -> None:
        answer = await self._heard(asked)
        decision = _no(answer.reason or "not approved")
        if answer.approved:
            decision = await self._approved(asked.call, answer)
        self._resolved(asked, answer, decision)
        self._settle(
            asked.call, decision, tell, by=answer.by, rule=verdict.rule, layer=verdict.layer, edited=answer.edited
        )

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
            rule="network",
            layer="run",
        )
        self._pending[asked.approval_id] = _Pending(asked.fingerprint, asyncio.get_running_loop().create_future())
        self._host.hold()
        self._host.emit(asked)
        answer = await self._heard(asked)
        if answer.edited is not None:
            answer = Answer(approved=False, by=answer.by, reason="a host cannot be edited")
        self._resolved(asked, answer, None)
        self._host.emit(
            events.ToolDecided(
                call=call,
                decision="allow" if answer.approved else "deny",
                by=answer.by,
                rule=asked.rule,
                layer=asked.layer,
                reason=answer.reason,
            )
        )
        return "yes" if answer.approved else "no" if actors.is_answer(answer.by) else "silence"

    async def _heard(self, asked: events.ApprovalRequested) -> Answer:
        """The answer to a request, and in it who gave it. Whatever goes wrong is a denial."""
        got = await self._wait(asked.approval_id, self._approver.approve(asked))
        if isinstance(got, Answer):
            if got.fingerprint not in (None, asked.fingerprint):
                return _unusable("the answer was meant for another call")
            if (wrong := _malformed(got) or _wrong_grant(got, asked)) is not None:
                return _unusable(f"the answer is malformed: {wrong}")
            # A rule, a clock or nobody never approves anything: then the program itself has spoken.
            is_program = got.approved and not actors.is_answer(got.by)
            return msgspec.structs.replace(got, by=actors.PROGRAM) if is_program else got
        return self._no_answer(got, asked.expires_s, "the request was taken back", f"{asked.call.name} was denied")

    def _no_answer(self, got: object, expires_s: float, withdrawn: str, then: str) -> Answer:
        match got:
            case TimeoutError():
                reason = f"APPROVAL_TIMEOUT: no answer in {expires_s:g} s"
                return Answer(approved=False, by=actors.TIMEOUT, reason=reason)
            case asyncio.CancelledError():
                return _unusable(withdrawn)
            case _:
                return _unusable(self._approver_failed(got, then))

    def _approver_failed(self, got: object, then: str) -> str:
        """Told to the log with its traceback, and as a warning of the result: else it looks like a person's no."""
        match got:
            case WrongAnswer():
                reason = str(got)
            case BaseException():
                reason = f"the approver failed: {got!r}"
                log.error("the approver failed, so %s", then, exc_info=got)
            case _:
                reason = f"the approver gave no answer, but {got!r}"
        self._host.emit(events.Notice(level="warning", code="approver_failed", message=f"{reason}; {then}"))
        return reason

    def _resolved(self, asked: events.ApprovalRequested, answer: Answer, decision: Decision | None) -> None:
        """`decision`: of a call of the agent's. Only an allowed one has granted anything."""
        pattern, call = "", None
        if decision is not None and decision.allowed:
            pattern = answer.pattern or ""
            if answer.scope == "run" and not pattern:
                call = msgspec.structs.replace(asked.call, input=decision.input or {})
                pattern = grant_name(subject(call.name, call.input, call.cwd))
        self._host.emit(
            events.ApprovalResolved(
                approval_id=asked.approval_id,
                approved=answer.approved,
                by=answer.by,
                reason=answer.reason,
                scope=answer.scope,
                pattern=pattern,
                call=call,
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
        if answer.edited is not None and self.before_tool is not None:
            said = await hooks.before(self.before_tool, call, self._host.emit, limit_s=self._approval_s)
            if isinstance(said, hooks.DenyCall):
                return _no(f"the edited call is forbidden: {said.reason}")
            if isinstance(said, hooks.EditCall) and said.input != run_input:
                return _no("the edited call is forbidden: before_tool would change it, and that was not approved")
        if isinstance(verdict, Deny):
            what = "the edited call is forbidden" if answer.edited is not None else "it was approved too late"
            return _no(f"{what}: {verdict.reason}")
        if answer.scope == "run" and not answer.pattern:  # which covers this call, too
            self.standing.add(subject(call.name, run_input, call.cwd))
        if answer.pattern:
            grants = dict.fromkeys((*self._policy.grants, answer.pattern))
            self._policy = msgspec.structs.replace(self._policy, grants=tuple(grants))
        return Decision(allowed=True, input=run_input, reason=answer.reason)

    # -- questions and plans ----------------------------------------------------------------------------------------

    def _is_question(self, call: ToolCall) -> bool:
        return self._asking is not None and call.name in self._asking.asking_tools

    def _question(self, request_id: str, call: ToolCall, tell: Tell, asking: AskingSession) -> None:
        if self._policy.never_asks:
            tell(_no("nobody is asked in this run"))
            return
        question_id = self._next_id("question")
        asked = requested(question_id, asking.asks(call), self._approval_s or 0)
        self._start(request_id, question_id, asked.fingerprint, self._answer(asked, call, tell, asking))
        self._host.emit(asked)

    async def _answer(self, asked: events.QuestionRequested, call: ToolCall, tell: Tell, asking: AskingSession) -> None:
        got = await self._wait(asked.question_id, self._approver.answer(asked))
        if not isinstance(got, Answer):
            reply = self._no_answer(got, asked.expires_s, "the question was taken back", "the question was turned down")
        elif got.fingerprint not in (None, asked.fingerprint):
            reply = _unusable("the answer was meant for another question")
        elif (wrong := _malformed(got) or _wrong_reply(got)) is not None:
            reply = _unusable(f"the answer is malformed: {wrong}")
        else:
            reply = got
        self._host.emit(
            events.QuestionResolved(
                question_id=asked.question_id,
                answered=reply.approved,
                answers=reply.answers,
                by=reply.by,
                reason=reply.reason,
            )
        )
        if not reply.approved:
            tell(_no(reply.reason or "turned down"))
            return
        if asked.kind == "plan" and self._policy.mode == "plan":
            # The person has seen the plan and wants it done: from here on each call is asked for as usual.
            self._policy = msgspec.structs.replace(self._policy, mode="default")
        tell(Decision(allowed=True, input=asking.answered(call, reply.answers)))

    # -- the common part ----------------------------------------------------------------------------------------------

    def _next_id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def _start(self, request_id: str, pending_id: str, mark: str, work: Coroutine[Any, Any, None]) -> None:
        pending = _Pending(mark, asyncio.get_running_loop().create_future())
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
        by: str,
        rule: str,
        layer: str = "",
        edited: dict[str, Any] | None = None,
    ) -> None:
        original = self._originals.pop(call.id, None)
        if original is not None:
            edited, call = (decision.input if decision.allowed else None), original
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
                only_reads=decision.only_reads,
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


def _unusable(reason: str) -> Answer:
    return Answer(approved=False, by=actors.LEADROPE, reason=reason)


def _malformed(answer: Answer) -> str | None:
    """What is wrong with the types of an answer that a program built: `approved="no"` is no yes."""
    try:
        msgspec.convert(msgspec.to_builtins(answer), Answer)
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


def _wrong_reply(answer: Answer) -> str | None:
    """The agent reads the answers to its questions as texts."""
    wrong = [value for value in answer.answers.values() if not isinstance(value, str)]
    return f"{wrong[0]!r} is not a text" if wrong else None


def _no(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason)
