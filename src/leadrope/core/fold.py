"""Events into a result: pure, so that a stored log replayed gives the result its run gave. Knows no provider.

What counts, in this order: why the supervisor ended the run; what the agent said of its last turn; its exit code; that
it said nothing. A run that would be a success is `denied` when all it asked for beyond reading was denied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast, get_args

import msgspec

from leadrope import spelling
from leadrope.core import denials, ending_text, events
from leadrope.core.events import Problem, Recorded
from leadrope.core.result import Denial, ErrorKind, Outcome, RunError, RunResult, Warning_
from leadrope.core.tools import ToolCall
from leadrope.core.usage_rollup import Spending

WARNINGS_LIMIT = 50
"""A run that warns more often than this says nothing new, and its result must stay small."""

TOOL_TIMED_OUT = "tool_timed_out"
"""The code of the notice that the supervisor gives when a tool call takes too long."""

SUSPENDED = "suspended_for_answer"
"""The code of the notice that the supervisor gives when it ends an agent that only waits for a person's answer."""

_KINDS = frozenset(get_args(ErrorKind))
_NO_TURN = "The agent ended without a result: look at the end of its stderr, and run `leadrope doctor`."
_HINTS: dict[str, str] = {
    "not_authenticated": "Log the agent in, or opt in to a key with billing `api_key`.",
    "rate_limited": "Wait a moment and try again; fewer runs at once help.",
    "usage_limit": "Wait until the limit resets, then resume the session.",
    "overloaded": "The model is at capacity: try again in a moment, or set a fallback model.",
    "api_error": "Usually temporary: try again; if it stays, look at the status of the model's service or gateway.",
    "bad_request": "The request was refused as it is: check the model, the tools and the options.",
    "prompt_too_long": "Shorten the prompt, or start a new session.",
    "empty_prompt": "Give the agent something to do.",
    "empty_output": "Ask again, or look at the events: the agent worked but said nothing.",
    "malformed_output": "Look at the unrecognised lines among the events; the agent may be of an untested version.",
    "agent_died": _NO_TURN,
    "spawn_failed": "Run `leadrope doctor` to see what is wrong with the installation.",
    "connection_failed": "Check the network, the proxy variables and base_url.",
    "timed_out": "Raise the limit of the clock that ran out, or split the task.",
    "stopped": "Resume the session to continue.",
    "denied": "Allow what the task needs with {allow}, {tools} or another {mode}, or ask for less.",
    "over_budget": "Raise the budget, or resume the session with a new one.",
    "out_of_memory": "Give the machine more memory, or run fewer agents at once.",
    "gate_unsupported": "Install a supported version of the agent.",
    "gate_bypassed": "Report this: a tool ran without a decision. Install a supported version of the agent.",
    "sandbox_unavailable": "Install bubblewrap, or run without a sandbox.",
    "session_lost": "Check the id with `leadrope sessions list`; a run that was not persisted cannot be resumed.",
    "cli_not_found": "Install the agent, or say where it is.",
}


def _hint(kind: ErrorKind) -> str:
    return _HINTS[kind].format(**{name: spelling.option(name) for name in ("allow", "tools", "mode")})


def fold(records: Iterable[Recorded]) -> RunResult:
    """The result of a stored log: `fold(store.events(run_id))`."""
    state = Fold()
    for record in records:
        state.add(record)
    return state.result()


def kind_of_status(status: int) -> ErrorKind:
    """What an HTTP status of a model's API means, whoever serves it."""
    if status in (401, 403):
        return "not_authenticated"
    if status == 429:
        return "rate_limited"
    if status == 529:
        return "overloaded"
    # 408 and 409 are the server's own trouble: every client tries them again.
    return "api_error" if status >= 500 or status in (408, 409) else "bad_request"


class _Attempt:
    """What one process said; a later attempt supersedes it."""

    def __init__(self) -> None:
        self.ending: events.RunEnding | None = None
        self.exit: events.AgentExited | None = None
        self.last_turn: events.TurnEnded | None = None
        self.limit: events.LimitReached | None = None
        self.plain: events.Unrecognised | None = None
        """The line that explains a failure, else the first that was not understood."""
        self.in_turn = False
        self.tool_timeout: events.Notice | None = None
        """The tool clock ran out in this turn, which was then interrupted."""
        self.text = ""
        self.partial = ""
        """The model's last words in a turn that has not ended."""
        self.streamed: list[str] = []
        """Pieces of a message that is not complete, and its id."""
        self.streaming = ""
        self.output: Any = None
        self.checked: events.OutputChecked | None = None
        """Our judgement on the last answer, where a schema was asked for."""
        self.turns = 0
        self.warnings: list[Warning_] = []
        self.model = ""
        self.session_id: str | None = None
        self.credential: events.CredentialUsed | None = None


class Fold:
    """Adds up events as they come.

    state = Fold(run_id); state.add(recorded); state.result()
    """

    def __init__(self, run_id: str = "") -> None:
        self._run_id = run_id
        self._attempt_no = 1
        self._now = _Attempt()
        self._first_time: float | None = None
        self._last_time = 0.0
        self._spending = Spending()
        self._denials: dict[str, Denial] = {}
        self._acted: set[str] = set()
        """Ids of allowed calls that can change something, of all attempts."""
        self._asked: dict[str, ToolCall] = {}
        """Calls that nobody has decided yet: in the recording of an agent that no gate held, they only run."""
        self._refusals: dict[str, str] = {}
        """What the agent was told about calls that did not run."""
        self._leftovers = 0
        self._suspended = 0
        """Attempts that ended because a person took long to answer: the next one continues them."""
        self._unread: deque[str] = deque(maxlen=5)
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.SessionStarted: self._session_started,
            events.TurnStarted: self._turn_started,
            events.TurnEnded: self._turn_ended,
            events.MessageDelta: self._message_delta,
            events.MessageCompleted: self._message_completed,
            events.ToolRequested: self._tool_requested,
            events.ToolDecided: self._tool_decided,
            events.ToolCompleted: self._tool_completed,
            events.UsageUpdated: self._spending.message,
            events.UsageEstimated: self._spending.estimated,
            events.OutputChecked: self._output_checked,
            events.LimitReached: self._limit_reached,
            events.Notice: self._notice,
            events.Unrecognised: self._unrecognised,
            events.RunEnding: self._run_ending,
            events.AgentExited: self._agent_exited,
        }

    def add(self, item: Recorded | events.Event) -> None:
        """One event, in order; a bare one belongs to the attempt at hand. A result in the log is not asked."""
        if type(item) is Recorded:
            if type(item.event) is not events.RunEnded:
                self.add_batch((item.event,), run_id=item.run_id, attempt=item.attempt, time=item.time)
        else:
            self._take((cast("events.Event", item),))

    def add_batch(self, batch: Iterable[events.Event], *, run_id: str, attempt: int, time: float) -> None:
        """Events of one moment, as a run records them."""
        if attempt > self._attempt_no:
            self._attempt_no = attempt
            self._now = _Attempt()
            self._spending.next_attempt(time)
        if self._first_time is None:
            self._first_time = time
            self._spending.began(time)
            self._run_id = self._run_id or run_id
        self._last_time = time
        self._take(batch)

    def _take(self, batch: Iterable[events.Event]) -> None:
        find = self._handlers.get
        for event in batch:
            handler = find(type(event))
            if handler is not None:
                handler(event)

    def result(self) -> RunResult:
        now = self._now
        answered, error = self._verdict()
        outcome = answered
        well = answered in ("succeeded", "degraded")
        if well and (refused := self._refused()):
            outcome, error = "denied", self._error("denied", refused)
        checked = now.checked
        return RunResult(
            run_id=self._run_id,
            outcome=outcome,
            text=now.text if well and now.text else "".join(now.streamed) or now.partial or now.text,
            output=now.output,
            output_rung=checked.rung if checked else None,
            corrections=checked.correction + checked.retrying if checked else 0,
            schema_error=self._schema_error(answered),
            error=error,
            usage=self._spending.usage,
            cost_usd=self._spending.cost_usd,
            llm_usage=self._spending.llm_usage(),
            totals=self._spending.totals(),
            model=now.model,
            session_id=now.session_id,
            turns=now.turns,
            denials=tuple(self._denials.values()),
            warnings=self._warnings(answered),
            attempts=max(1, self._attempt_no - self._suspended),
            leftovers_killed=self._leftovers,
            duration_s=max(0.0, self._last_time - self._first_time) if self._first_time is not None else 0.0,
            resets_at=now.limit.resets_at if outcome == "parked" and now.limit else None,
        )

    # -- adding up --------------------------------------------------------------------------------------------------

    def _session_started(self, event: events.SessionStarted) -> None:
        self._now.session_id = event.session_id
        self._now.model = event.model
        self._now.credential = event.credential
        self._spending.session_started(event)

    def _turn_started(self, event: events.TurnStarted) -> None:
        self._now.in_turn = True
        self._now.tool_timeout = None

    def _message_delta(self, event: events.MessageDelta) -> None:
        now = self._now
        if event.agent_id is None and not event.thinking:
            if event.message_id != now.streaming:
                now.streaming = event.message_id
                now.streamed.clear()
            now.streamed.append(event.text)

    def _message_completed(self, event: events.MessageCompleted) -> None:
        if event.agent_id is None and not event.is_error:
            self._now.partial = event.text or self._now.partial
            self._now.streamed.clear()

    def _turn_ended(self, event: events.TurnEnded) -> None:
        now = self._now
        now.in_turn = False
        now.turns += event.steps
        self._spending.turn_ended(event, self._last_time)
        for call in event.denials:
            if call.id not in self._denials:
                self._deny(call, self._refusals.get(call.id, "denied by the agent's own rules"))
        if ending_text.is_local(event) and now.last_turn is not None:
            return
        now.last_turn = event
        is_correcting = now.checked is not None and now.checked.retrying
        if not event.background and not is_correcting and now.checked is not None:
            now.checked = now.output = None  # of the prompt before
        if event.problem is not None and event.problem.outcome == "degraded":
            now.text = event.text or now.partial or (now.text if is_correcting else "")
        if event.reason == events.MALFORMED_RESULT:
            now.partial = event.text or now.partial
        if event.is_error:
            return
        now.limit = None
        if event.text or not event.background:
            # An agent that says what it did, calls one more tool and ends without a word has said it all the same.
            now.text = event.text or now.partial
            now.partial = ""
            now.streamed.clear()
        if event.output is not msgspec.UNSET:
            now.output = event.output
        elif not event.background:
            now.output = None

    def _output_checked(self, event: events.OutputChecked) -> None:
        self._now.checked = event
        self._now.output = event.value if event.valid else None
        if event.retrying:
            self._spending.replaced()

    def _tool_requested(self, event: events.ToolRequested) -> None:
        self._asked[event.call.id] = event.call

    def _tool_decided(self, event: events.ToolDecided) -> None:
        self._asked.pop(event.call.id, None)
        if event.decision == "deny":
            self._deny(event.call, event.reason or event.rule)
        elif denials.acts(event.call, only_reads=event.only_reads):
            self._acted.add(event.call.id)

    def _deny(self, call: ToolCall, reason: str) -> None:
        self._denials[call.id or f"#{len(self._denials)}"] = Denial(call=call, reason=reason)

    def _tool_completed(self, event: events.ToolCompleted) -> None:
        undecided = self._asked.pop(event.call_id, None)
        if not event.executed:
            self._refusals[event.call_id] = event.text[:500]
        elif undecided is not None and denials.acts(undecided):
            self._acted.add(event.call_id)

    def _limit_reached(self, event: events.LimitReached) -> None:
        if event.status == "rejected":
            self._now.limit = event
        else:
            self._warn("usage_limit", event.message or f"{event.kind or 'usage'} limit: {event.status}")

    def _notice(self, event: events.Notice) -> None:
        if event.code == TOOL_TIMED_OUT:
            self._now.tool_timeout = event
        if event.code == SUSPENDED:
            self._suspended += 1
        if event.level in ("warning", "error"):
            self._warn(event.code, event.message)

    @property
    def unread(self) -> tuple[str, ...]:
        """The last lines that were not understood, cut short, for whoever tells of a failure."""
        return tuple(self._unread)

    def _unrecognised(self, event: events.Unrecognised) -> None:
        self._unread.append(event.raw[:200])
        plain = self._now.plain
        if plain is None or (plain.problem is None and event.problem is not None):
            self._now.plain = event

    def _run_ending(self, event: events.RunEnding) -> None:
        if self._now.ending is None:
            self._now.ending = event

    def _agent_exited(self, event: events.AgentExited) -> None:
        self._now.exit = event
        self._leftovers += event.leftovers_killed
        self._spending.exited(event, self._last_time)

    def _warn(self, kind: str, message: str) -> None:
        warning = Warning_(kind=kind, message=message)
        if len(self._now.warnings) < WARNINGS_LIMIT and warning not in self._now.warnings:
            self._now.warnings.append(warning)

    # -- judging ----------------------------------------------------------------------------------------------------

    def _verdict(self) -> tuple[Outcome, RunError | None]:
        now = self._now
        if now.ending is not None:
            return now.ending.cause, self._ended_error(now.ending)
        outcome, error = self._agents_verdict()
        if now.checked is not None and outcome in ("succeeded", "degraded", "failed"):
            # The work was done: an answer that does not fit, or a corrective turn that fails, throws none of it away.
            return ("succeeded", None) if now.checked.valid and not self._error_beside() else ("degraded", None)
        return outcome, error

    def _refused(self) -> str | None:
        """What was denied, if a call was and none that acts was allowed."""
        # A call that the gate allowed and the agent program then denied has not acted.
        if self._acted - self._denials.keys():
            return None
        counted = denials.counted(self._denials.values())
        return denials.describe(counted) if counted else None

    def _error_beside(self) -> str:
        """What the agent itself says went wrong in the turn that was judged, or in the corrective turn after it."""
        turn = self._now.last_turn
        if turn is not None and not self._now.in_turn:
            if turn.problem is None and not turn.is_error:
                return "the agent gave a result and then failed" if self._exited_badly() else ""
            return "" if ending_text.is_schema_miss(turn) else "; ".join(turn.errors) or turn.text or turn.reason
        return "the agent ended before its turn did"

    def _agents_verdict(self) -> tuple[Outcome, RunError | None]:
        now = self._now
        turn = now.last_turn
        if turn is not None and not now.in_turn:
            if turn.problem is not None or turn.is_error:
                return self._turn_verdict(turn)
            if self._exited_badly():
                code = now.exit.exit_code if now.exit else None
                return "failed", self._error(
                    "agent_died", f"the agent gave a result and then {ending_text.how_it_ended(code)}"
                )
            if not now.text and now.output is None:
                return "failed", self._error("empty_output", ending_text.nothing_said(turn))
            return "succeeded", None
        return self._silent_verdict()

    def _turn_verdict(self, turn: events.TurnEnded) -> tuple[Outcome, RunError | None]:
        problem = turn.problem or Problem(kind=kind_of_status(turn.api_status) if turn.api_status else "api_error")
        if problem.outcome == "degraded":
            return "degraded", None
        is_malformed = turn.reason == events.MALFORMED_RESULT
        told = "; ".join(turn.errors)
        message = (told if is_malformed else turn.text or told) or f"the agent ended its turn with {turn.reason}"
        if problem.outcome == "stopped" and self._now.tool_timeout is not None:
            told = self._now.tool_timeout.message
            return "timed_out", self._error("timed_out", told, clock="tool", code="TIMEOUT_ERROR")
        message = problem.message or message
        if problem.outcome == "stopped":
            message = f"the turn was interrupted ({turn.terminal_reason or turn.reason})"
        if problem.kind == "rate_limited" and self._now.limit is not None and self._now.limit.resets_at is not None:
            return "parked", self._error("usage_limit", message, api_status=turn.api_status)
        code = "MALFORMED_RESULT" if is_malformed else None
        return problem.outcome, self._error(problem.kind, message, problem, api_status=turn.api_status, code=code)

    def _silent_verdict(self) -> tuple[Outcome, RunError | None]:
        """The last turn has no end: what is known comes from the process and from plain text."""
        now = self._now
        if now.limit is not None and now.limit.resets_at is not None:
            return "parked", self._error(
                "usage_limit", now.limit.message or "the usage limit of the account is reached"
            )
        told = self._told_outside()
        if told is not None:
            outcome = told.outcome if told.outcome != "degraded" else "failed"
            return outcome, self._error(told.kind, self._first_words() or "the agent could not work", told)
        if now.exit is None:
            return "failed", self._error("agent_died", "the record ends before the agent did")
        ended = ending_text.how_it_ended(now.exit.exit_code)
        if now.plain is not None and now.last_turn is None and not ending_text.by_signal(now.exit.exit_code):
            return "failed", self._error(
                "malformed_output", f"the agent {ended} after output that is not understood: {now.plain.raw[:200]}"
            )
        words = self._first_words()
        return "failed", self._error(
            "agent_died", f"the agent {ended} without a result" + (f": {words}" if words else "")
        )

    def _told_outside(self) -> Problem | None:
        """What plain output or stderr explains."""
        now = self._now
        if now.plain is not None and now.plain.problem is not None:
            return now.plain.problem
        return now.exit.problem if now.exit else None

    def _first_words(self) -> str:
        now = self._now
        if now.plain is not None and now.plain.problem is not None:
            return now.plain.raw.strip()[:500]
        lines = (now.exit.stderr_head or now.exit.stderr_tail) if now.exit else ()
        return " ".join(line.strip() for line in lines if line.strip())[:500]

    def _exited_badly(self) -> bool:
        exited = self._now.exit
        return exited is not None and exited.ended_by == "agent" and exited.exit_code not in (0, None)

    def _ended_error(self, ending: events.RunEnding) -> RunError:
        code = ending.code
        if ending.cause == "timed_out" or ending.kind == "timed_out":
            code = "APPROVAL_TIMEOUT" if ending.clock == "approval" else "TIMEOUT_ERROR"
        error = self._error(
            ending.kind,
            ending.message,
            Problem(kind=ending.kind, hint=ending.hint),
            api_status=ending.api_status,
            clock=ending.clock,
            code=code,
        )
        if ending.connection is None:
            return error
        return msgspec.structs.replace(error, connection=ending.connection, stderr_tail=ending.stderr_tail)

    def _error(
        self,
        kind: str,
        message: str,
        problem: Problem | None = None,
        *,
        api_status: int | None = None,
        clock: str | None = None,
        code: str | None = None,
    ) -> RunError:
        exited = self._now.exit
        hint = problem.hint if problem else None
        used = self._now.credential
        if kind == "not_authenticated" and used is not None and used.billing == "api_key":
            hint = f"Check the API key ({used.source}): it may be mistyped, revoked, or meant for another address."
        known = cast("ErrorKind", kind if kind in _KINDS else "agent_died")
        return RunError(
            kind=known,
            message=message,
            code=code,
            clock=clock,
            api_status=api_status,
            exit_code=exited.exit_code if exited else None,
            stderr_tail=exited.stderr_tail if exited else (),
            hint=hint or _hint(known),
        )

    def _warnings(self, outcome: Outcome) -> tuple[Warning_, ...]:
        turn = self._now.last_turn
        found = []
        if outcome == "degraded" and self._now.checked is not None:
            kind = ending_text.schema_kind(self._now.checked, turn, self._error_beside())
            found.append(Warning_(kind=kind, message=self._schema_error(outcome) or ""))
        if outcome == "degraded" and turn is not None and turn.problem is not None:
            is_told = self._now.checked is not None and (
                ending_text.is_schema_miss(turn) or turn.problem.outcome != "degraded"
            )
            if not is_told:
                message = "; ".join(turn.errors) or turn.reason
                hint = f" {turn.problem.hint}" if turn.problem.hint else ""
                found.append(Warning_(kind=turn.problem.kind, message=f"{message}.{hint}"))
        return (*found, *self._now.warnings)

    def _schema_error(self, outcome: Outcome) -> str | None:
        if self._now.checked is None or outcome == "succeeded":
            return None
        return ending_text.schema_error(self._now.checked, self._error_beside() if outcome == "degraded" else "")
