"""Converts a run's events to a readable list: one entry per thing that happened, each call with its full history.

Independent of markup. Deltas and progress are skipped, because complete messages follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, assert_never

import msgspec

from leadrope.core import events
from leadrope.core.tools import ToolCall
from leadrope.runs.page import diff

Kind = Literal["message", "tool", "asked", "note"]
Mark = Literal["", "good", "warn", "bad"]


class QuestionEntry(msgspec.Struct, kw_only=True):
    """A question to a person."""

    id: str
    time: float
    call: Call | None = None
    reason: str = ""
    risk: str = ""
    reading: str = ""
    question: events.QuestionRequested | None = None
    answered: float | None = None
    is_yes: bool | None = None
    by: str = ""
    why: str = ""
    scope: str = ""
    answers: dict[str, str] = {}


class Call(msgspec.Struct, kw_only=True):
    """One tool call: request, decision, result."""

    call: ToolCall
    time: float
    decided: events.ToolDecided | None = None
    decided_at: float | None = None
    done: events.ToolCompleted | None = None
    done_at: float | None = None
    asked: QuestionEntry | None = None

    @property
    def input(self) -> dict[str, object]:
        edited = self.decided.edited if self.decided else None
        return edited if edited is not None else self.call.input

    @property
    def mark(self) -> Mark:
        if self.decided is not None and self.decided.decision == "deny":
            return "warn"
        if self.done is None:
            return ""
        return "bad" if self.done.is_error else "good"


class StoryEntry(msgspec.Struct, kw_only=True):
    time: float
    kind: Kind
    label: str
    """What it is, in a word or two."""
    title: str = ""
    text: str = ""
    mark: Mark = ""
    agent_id: str | None = None
    call: Call | None = None
    asked: QuestionEntry | None = None
    is_thought: bool = False

    @property
    def state(self) -> Mark:
        return self.call.mark if self.call is not None else self.mark

    @property
    def is_notable(self) -> bool:
        """Whether the entry is kept when a long run is cut."""
        return self.state in ("warn", "bad") or self.asked is not None


class Story:
    """Consumes records in order; its fields are the result."""

    def __init__(self, records: Iterable[events.Recorded] = ()) -> None:
        self.entries: list[StoryEntry] = []
        self.calls: dict[str, Call] = {}
        self.asked: list[QuestionEntry] = []
        self.session: events.SessionStarted | None = None
        self.exits: list[events.AgentExited] = []
        self.events = 0
        self.first: float | None = None
        self.last = 0.0
        self._open: dict[str, QuestionEntry] = {}
        self._attempt = 1
        for record in records:
            self.add(record)

    def add(self, record: events.Recorded) -> None:
        self.events += 1
        self.first = record.time if self.first is None else self.first
        self.last = max(self.last, record.time)
        if record.attempt != self._attempt:
            self._attempt = record.attempt
            self._note(record.time, f"attempt {record.attempt}", "The agent was started again.", mark="warn")
        self._take(record.time, record.event)

    def changes(self, redact: Callable[[str], str]) -> list[diff.FileDiff]:
        """Return the edits that were allowed and did not fail."""
        found = diff.Changes(redact)
        for call in self.calls.values():
            input_ = dict(call.input)
            path = diff.path_of(call.call.name, input_)
            if path is None or call.decided is None or call.decided.decision == "deny":
                continue
            if call.done is not None and (call.done.is_error or not call.done.executed):
                continue
            found.add(call.call.name, path, input_, is_certain=call.done is not None)
        return found.found()

    def _take(self, time: float, event: events.Event) -> None:
        match event:
            case events.SessionStarted():
                self.session = event
                sandbox = f", in the sandbox ({event.sandbox})" if event.sandbox else ""
                self._note(time, "session", f"{event.origin}: {event.model or event.provider}, {event.mode}{sandbox}")
            case events.MessageCompleted():
                self._say(time, "error" if event.is_error else "agent", event.text, event.agent_id, event.is_error)
            case events.ThinkingCompleted():
                entry = StoryEntry(time=time, kind="message", label="thought", text=event.text, agent_id=event.agent_id)
                entry.is_thought = True
                self.entries.append(entry)
            case events.ToolRequested():
                self._call(time, event.call)
            case events.ToolDecided():
                call = self._call(time, event.call)
                call.decided, call.decided_at = event, time
            case events.ToolCompleted():
                known = self.calls.get(event.call_id) or self._call(time, ToolCall(id=event.call_id, name="(unknown)"))
                known.done, known.done_at = event, time
            case events.ApprovalRequested():
                self._approval(time, event)
            case events.QuestionRequested():
                asked = QuestionEntry(id=event.question_id, time=time, question=event)
                self._ask(asked, "plan" if event.kind == "plan" else "question")
            case events.ApprovalResolved():
                self._answered(time, event.approval_id, event.approved, event.by, event.reason, event.scope)
            case events.GrantRevoked():
                self._note(time, "grant revoked", event.pattern)
            case events.QuestionResolved():
                self._answered(time, event.question_id, event.answered, event.by, event.reason, "", event.answers)
            case events.SubagentStarted():
                title = f"{event.kind}: {event.description}" if event.kind else event.description
                self._note(time, "subagent", title, agent_id=event.agent_id)
            case events.SubagentEnded():
                self._note(time, "subagent end", event.status, text=event.summary, agent_id=event.agent_id)
            case events.LimitReached():
                is_bad = event.status == "rejected"
                self._note(
                    time, "limit", event.message or f"{event.kind} {event.status}", mark="bad" if is_bad else "warn"
                )
            case events.RetryScheduled():
                status = f" after {event.api_status}" if event.api_status else ""
                title = f"try {event.attempt} of {event.max_attempts} in {event.delay_s:.0f} s{status}"
                self._note(time, "retry", title, text=event.error, mark="warn")
            case events.UsageEstimated():
                title = f"a request broke off unreported; counted as about {event.cost_usd:.2g} USD"
                self._note(time, "estimate", title, mark="warn")
            case events.Notice():
                self._notice(time, event)
            case events.Unrecognised():
                self._note(time, "not understood", event.reason, text=event.raw, mark="warn")
            case events.OutputChecked():
                title = (
                    f"the answer fits its schema ({event.rung})"
                    if event.valid
                    else "the answer does not fit its schema"
                )
                self._note(time, "output", title, text="\n".join(event.errors), mark="good" if event.valid else "warn")
            case events.SandboxViolation():
                self._note(time, "sandbox held", f"{event.kind} {event.target}", text=event.message, mark="warn")
            case events.RunEnding():
                self._note(time, "ending", event.message, text=event.hint or "", mark="bad")
            case events.AgentExited():
                self._exited(time, event)
            case events.TurnEnded():
                if event.is_error:
                    told = "; ".join(event.errors) or event.text or event.reason
                    self._note(time, "turn failed", event.reason, text=told, mark="bad")
            case events.RunEnded():
                good = event.result.outcome == "succeeded"
                self._note(time, "run ended", event.result.outcome, mark="good" if good else "warn")
            case (
                events.TurnStarted()
                | events.MessageDelta()
                | events.ThinkingDelta()
                | events.ToolProgress()
                | events.UsageUpdated()
            ):
                pass
            case _:
                assert_never(event)

    def _note(
        self, time: float, label: str, title: str, *, text: str = "", mark: Mark = "", agent_id: str | None = None
    ) -> None:
        entry = StoryEntry(time=time, kind="note", label=label, title=title, text=text, mark=mark, agent_id=agent_id)
        self.entries.append(entry)

    def _say(self, time: float, label: str, text: str, agent_id: str | None, is_error: bool) -> None:
        mark: Mark = "bad" if is_error else ""
        self.entries.append(StoryEntry(time=time, kind="message", label=label, text=text, mark=mark, agent_id=agent_id))

    def _notice(self, time: float, event: events.Notice) -> None:
        if event.code == "prompt":
            self.entries.append(StoryEntry(time=time, kind="message", label="prompt", text=event.message))
            return
        marks: dict[str, Mark] = {"warning": "warn", "error": "bad"}
        self._note(time, event.code, event.message, mark=marks.get(event.level, ""))

    def _exited(self, time: float, event: events.AgentExited) -> None:
        self.exits.append(event)
        went_bad = event.ended_by == "agent" and event.exit_code not in (0, None)
        left = f", {event.leftovers_killed} processes that it left were ended" if event.leftovers_killed else ""
        stderr = "\n".join(event.stderr_tail or event.stderr_head)
        title = f"exit code {event.exit_code}{left}"
        self._note(time, "agent exited", title, text=stderr if went_bad else "", mark="bad" if went_bad else "")

    def _call(self, time: float, call: ToolCall) -> Call:
        known = self.calls.get(call.id)
        if known is None:
            known = self.calls[call.id] = Call(call=call, time=time)
            self.entries.append(StoryEntry(time=time, kind="tool", label=call.name, agent_id=call.agent_id, call=known))
        return known

    def _approval(self, time: float, event: events.ApprovalRequested) -> None:
        call = self._call(time, event.call)
        asked = QuestionEntry(id=event.approval_id, time=time, call=call, reason=event.reason, risk=event.risk)
        asked.reading = event.reading
        call.asked = asked
        self._ask(asked, "approval")

    def _ask(self, asked: QuestionEntry, label: str) -> None:
        self.asked.append(asked)
        self._open[asked.id] = asked
        self.entries.append(StoryEntry(time=asked.time, kind="asked", label=label, asked=asked))

    def _answered(
        self,
        time: float,
        asked_id: str,
        is_yes: bool,
        by: str,
        why: str,
        scope: str,
        answers: dict[str, str] | None = None,
    ) -> None:
        asked = self._open.pop(asked_id, None)
        if asked is None:
            self._note(time, "answer", f"{'yes' if is_yes else 'no'} by {by}", text=why)
            return
        asked.answered, asked.is_yes, asked.by, asked.why, asked.scope = time, is_yes, by, why, scope
        asked.answers = answers or {}
