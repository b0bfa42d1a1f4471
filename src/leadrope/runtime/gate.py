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
from leadrope.policy import commands, shell
from leadrope.policy.decide import Allow, Ask, Deny, Facts, Policy, class_of_call, decide
from leadrope.runtime.approvals import Answer, Approver, DenyAll, QuestionAnswer
from leadrope.runtime.pauses import Pauses

By = Literal["rule", "person", "timeout", "supervisor"]
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
        self, policy: Policy, approver: Approver, host: Host, *, approval_s: float, is_sandboxed: bool = False
    ) -> None:
        self._policy = policy
        self._approver = approver
        self._host = host
        self._approval_s = approval_s or None
        self._is_sandboxed = is_sandboxed
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
        verdict = decide(self._policy, call, self._facts())
        if isinstance(verdict, Ask) and subject(call.name, call.input) in self._standing:
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
        if first is None or call.input not in (first.input, self._seen[call.id].input):
            # Never seen, or not the call that was judged: judge it now.
            self.held(request_id, call, tell)
            return
        tell(first)

    def withdrawn(self, request_id: str) -> None:
        """The agent no longer waits for this answer, and will not use it."""
        self._held_back = [waiting for waiting in self._held_back if waiting[0] != request_id]
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
            fingerprint(pending.call.name, pending.call.input),
        )
        if is_for_another:
            return False
        pending.future.set_result(answer)
        return True

    def close(self, reason: str) -> None:
        """The run is ending: whatever still waits is denied."""
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
            fingerprint=fingerprint(call.name, call.input),
            risk=risk_of(call, self._policy.workspace),
            reading=verdict.reading,
        )
        self._start(request_id, asked.approval_id, call, self._approve(asked, verdict, tell))
        self._host.emit(asked)

    async def _approve(self, asked: events.ApprovalRequested, verdict: Ask, tell: Tell) -> None:
        by: By = "person"
        got = await self._wait(asked.approval_id, self._approver.approve(asked))
        match got:
            case Answer() if got.fingerprint not in (None, asked.fingerprint):
                by = "supervisor"
                answer = Answer(approved=False, by="supervisor", reason="the answer was meant for another call")
            case Answer() if (wrong := _malformed(got)) is not None:
                by = "supervisor"
                answer = Answer(approved=False, by="supervisor", reason=f"the answer is malformed: {wrong}")
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
        self._host.emit(
            events.ApprovalResolved(
                approval_id=asked.approval_id,
                approved=answer.approved,
                by=answer.by,
                reason=answer.reason,
                scope=answer.scope,
            )
        )
        decision = self._approved(asked.call, answer) if answer.approved else _no(answer.reason or "not approved")
        self._settle(asked.call, decision, tell, by=by, rule=verdict.rule, layer=verdict.layer, edited=answer.edited)

    def _approved(self, call: ToolCall, answer: Answer) -> Decision:
        """A person may change a call, but not into one that the rules forbid.

        Judged again even when nothing was changed: of several calls that waited together, the yes to one may have used
        up what the others were counted against.
        """
        run_input = call.input if answer.edited is None else answer.edited
        verdict = decide(self._policy, msgspec.structs.replace(call, input=run_input), self._facts())
        if isinstance(verdict, Deny):
            what = "the edited call is forbidden" if answer.edited is not None else "it was approved too late"
            return _no(f"{what}: {verdict.reason}")
        if answer.scope == "run":
            self._standing.add(subject(call.name, run_input))
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
            self._host.spawn(self._tell_after(self.before_effect(call), decision, tell))
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


def risk_of(call: ToolCall, workspace: tuple[str, ...]) -> events.Risk:
    """How much could go wrong, for the eye of whoever is asked; it decides nothing."""
    kind = class_of_call(call, workspace)
    command = call.input.get("command")
    if kind == "command" and isinstance(command, str):
        return commands.risk(shell.read(command))
    return {"edit_outside": "high", "network": "low", "read": "low"}.get(kind, "medium")  # type: ignore[return-value]  # of the Literal


def _malformed(answer: Answer | QuestionAnswer) -> str | None:
    """What is wrong with the types of an answer that a program built: `approved="no"` is no yes."""
    try:
        msgspec.convert(msgspec.to_builtins(answer), type(answer))
        msgspec.json.encode(answer)  # an edited call has to reach the agent as JSON
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return str(error)
    return None


def _no(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason)


def questions_of(question_id: str, input_: dict[str, Any], expires_s: float) -> events.QuestionRequested:
    """The agent's question as ours; what is malformed is shown as it came rather than lost."""
    found: list[events.Question] = []
    raw = input_.get("questions")
    for item in raw if isinstance(raw, list) else [input_]:
        if not isinstance(item, dict):
            found.append(events.Question(question=str(item)))
            continue
        options = item.get("options")
        found.append(
            events.Question(
                question=str(item.get("question", "")),
                header=str(item.get("header", "")),
                multi_select=item.get("multiSelect") is True,
                options=tuple(
                    events.Option(label=str(o.get("label", "")), description=str(o.get("description", "")))
                    if isinstance(o, dict)
                    else events.Option(label=str(o))
                    for o in (options if isinstance(options, list) else ())
                ),
            )
        )
    return events.QuestionRequested(
        question_id=question_id, kind="question", questions=tuple(found), expires_s=expires_s
    )


def plan_of(question_id: str, input_: dict[str, Any], expires_s: float) -> events.QuestionRequested:
    prompts = input_.get("allowedPrompts")
    return events.QuestionRequested(
        question_id=question_id,
        kind="plan",
        plan=str(input_.get("plan", "")),
        allowed_prompts=tuple(
            f"{p.get('tool', '')}: {p.get('prompt', '')}" if isinstance(p, dict) else str(p)
            for p in (prompts if isinstance(prompts, list) else ())
        ),
        expires_s=expires_s,
    )
