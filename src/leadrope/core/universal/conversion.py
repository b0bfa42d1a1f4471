"""Our events into the universal schema: stateful and pure, none lost. Knows no provider, no file and no clock.

Order is kept whole where the agent left gaps: every item is started, then told, then completed, and what was never
ended is ended by `finish`. All that is added for that is marked `synthetic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from leadrope.core import events
from leadrope.core.events import Recorded
from leadrope.core.fold import Fold
from leadrope.core.result import RunResult
from leadrope.core.tools import ToolCall, class_of, edited_path
from leadrope.core.universal import types as u
from leadrope.core.universal.types import UniversalEvent
from leadrope.core.universal.writer import EnvelopeWriter, Open

PROMPT = "prompt"
"""The code of a notice that holds what the agent was asked to do; our events have no word of their own for it."""

# Outcomes in which somebody other than the agent has ended the session.
_TERMINATED = ("stopped", "timed_out", "over_budget", "parked")
_IMAGE = "[image]"
"""What a tool result's text says in place of an image."""
_encode = msgspec.json.Encoder().encode
T = TypeVar("T", bound=msgspec.Struct)
_Key = tuple[str | None, str, bool]


class Universal:
    """Converts one session.

    converter = Universal("run-1")
    for recorded in log: yield from converter.feed(recorded)
    yield from converter.finish()
    """

    def __init__(self, session_id: str) -> None:
        self._to = EnvelopeWriter(session_id)
        self._fold = Fold(session_id)
        self._attempt = 1
        self._is_started = self._is_ended = False
        self._turn: int | None = None
        """The turn that is open."""
        self._messages: dict[_Key, Open] = {}
        """Messages that are being streamed, by agent, message and whether it is thinking."""
        self._calls: dict[str, Open] = {}
        self._call_items: dict[str, u.Item] = {}
        """Every call's item, also after its end: results, permissions and subagents refer to it."""
        self._agent_calls: dict[str, str] = {}
        """From a subagent to the call that started it."""
        self._permissions: dict[str, None] = {}
        self._questions: dict[str, None] = {}
        self._exit: events.AgentExited | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.SessionStarted: self._session_started,
            events.TurnStarted: self._turn_started,
            events.TurnEnded: self._turn_ended,
            events.MessageDelta: self._message_delta,
            events.ThinkingDelta: self._message_delta,
            events.MessageCompleted: self._message_completed,
            events.ThinkingCompleted: self._thinking_completed,
            events.ToolRequested: self._tool_requested,
            events.ToolDecided: self._tool_decided,
            events.ToolProgress: self._tool_progress,
            events.ToolCompleted: self._tool_completed,
            events.ApprovalRequested: self._approval_requested,
            events.ApprovalResolved: self._approval_resolved,
            events.GrantRevoked: self._grant_revoked,
            events.QuestionRequested: self._question_requested,
            events.QuestionResolved: self._question_resolved,
            events.SubagentStarted: self._subagent_started,
            events.SubagentEnded: self._subagent_ended,
            events.UsageUpdated: self._usage_updated,
            events.UsageEstimated: self._usage_estimated,
            events.LimitReached: self._limit_reached,
            events.RetryScheduled: self._retry_scheduled,
            events.Notice: self._notice,
            events.Unrecognised: self._unrecognised,
            events.OutputChecked: self._output_checked,
            events.SandboxViolation: self._sandbox_violation,
            events.RunEnding: self._run_ending,
            events.AgentExited: self._agent_exited,
            events.RunEnded: self._run_ended,
        }

    def feed(self, recorded: Recorded, *, raw: str | None = None) -> list[UniversalEvent]:
        """What one event means, at least one thing; `raw` stays with the first of them that is not synthetic."""
        self._attempt = recorded.attempt
        self._to.at(recorded.time, "daemon" if recorded.source == "supervisor" else "agent", raw)
        self._fold.add(recorded)
        event = recorded.event
        if not self._is_started:
            self._start(event)
        self._handlers[type(event)](event)
        return self._to.take()

    def finish(self) -> list[UniversalEvent]:
        """The end: open items, the open turn and the session are ended. Called once, after the last event."""
        if not self._is_started:
            self._to.emit("session.started", _nothing_known(), synthetic=True)
        self._close_all()
        if not self._is_ended:
            self._end(self._fold.result(), synthetic=True)
        return self._to.take()

    # -- items --------------------------------------------------------------------------------------------------------

    def _status(self, event: events.Event, label: str, detail: str = "", **fields: Any) -> None:
        """An event that has no type of its own: told whole, as an item."""
        kind = fields.pop("kind", "status")
        content = (u.StatusPart(label=label, detail=detail), u.JsonPart(json=msgspec.to_builtins(event)))
        opened = self._to.start(self._new_item(kind, content, role="system", **fields), synthetic=True)
        self._to.complete(opened, "failed" if opened.item.is_error else "completed")

    def _new_item(self, kind: u.Kind, content: Iterable[u.Part], **fields: Any) -> u.Item:
        agent_id = fields.get("agent_id")
        if fields.get("parent_id") is None and agent_id is not None:
            # An agent whose start was not told is named by the call that started it.
            fields["parent_id"] = self._item_of_call(self._agent_calls.get(agent_id, agent_id))
        return self._to.item(kind, content, **fields)

    def _item_of_call(self, call_id: str) -> str | None:
        item = self._call_items.get(call_id)
        return item.id if item is not None else None

    # -- the session and its turns ------------------------------------------------------------------------------------

    def _start(self, event: events.Event) -> None:
        """The first line of an export is a start. Some agents print a note before they describe their session."""
        self._is_started = True
        if type(event) is not events.SessionStarted:
            self._to.emit("session.started", _nothing_known(), synthetic=True)

    def _session_started(self, event: events.SessionStarted) -> None:
        self._to.native_id = event.session_id
        self._to.emit(
            "session.started",
            u.SessionStartedData(
                schema_version=u.UNIVERSAL_VERSION,
                event_schema_version=event.schema_version,
                agent=event.provider,
                model=event.model or None,
                mode=event.mode or None,
                cwd=event.cwd or None,
                agent_version=event.agent_version or None,
                tools=event.tools,
                connections=event.connections,
                credential=event.credential,
                instructions=event.instructions,
                origin=event.origin,
                sandbox=event.sandbox,
                attempt=self._attempt,
            ),
        )

    def _turn_started(self, event: events.TurnStarted) -> None:
        self._close_turn()
        self._turn = event.turn
        self._to.emit("turn.started", u.TurnStartedData(turn=event.turn))

    def _turn_ended(self, event: events.TurnEnded) -> None:
        if self._turn is None:
            self._to.emit("turn.started", u.TurnStartedData(turn=event.turn), synthetic=True)
        self._close_items(of_main=True)
        self._turn = None
        self._to.emit("turn.ended", _same_fields(event, u.TurnEndedData))
        if event.is_error:
            self._error(
                event.problem.kind if event.problem else "api_error",
                event.text or "; ".join(event.errors) or f"the agent ended its turn with {event.reason}",
                api_status=event.api_status,
                hint=event.problem.hint if event.problem else None,
            )

    def _close_turn(self) -> None:
        if self._turn is not None:
            self._close_items(of_main=True)
            self._to.emit(
                "turn.ended",
                u.TurnEndedData(turn=self._turn, is_error=False, reason="unknown"),
                synthetic=True,
            )
            self._turn = None

    def _close_items(self, *, of_main: bool = False) -> None:
        """End what is open as unfinished; `of_main`: a turn's end does not end what background agents do."""
        for key, opened in tuple(self._messages.items()):
            if not of_main or opened.item.agent_id is None:
                del self._messages[key]
                text = "".join(opened.pieces)
                part: u.Part = u.ReasoningPart(text=text) if key[2] else u.TextPart(text=text)
                self._to.complete(opened, "failed", synthetic=True, content=(part,))
        for call_id, opened in tuple(self._calls.items()):
            if not of_main or opened.item.agent_id is None:
                del self._calls[call_id]
                self._to.complete(opened, "failed", synthetic=True)

    def _close_all(self) -> None:
        self._close_items()
        self._close_turn()
        for permission_id in self._permissions:
            self._to.emit(
                "permission.resolved",
                u.PermissionResolvedData(permission_id=permission_id, status="abandoned"),
                synthetic=True,
            )
        self._permissions.clear()
        for question_id in self._questions:
            self._to.emit(
                "question.resolved",
                u.QuestionResolvedData(question_id=question_id, status="abandoned"),
                synthetic=True,
            )
        self._questions.clear()

    def _run_ending(self, event: events.RunEnding) -> None:
        if event.cause in ("stopped", "parked"):
            self._status(event, "run.ending", event.message)
        else:
            self._error(
                event.kind,
                event.message,
                cause=event.cause,
                code=event.code,
                api_status=event.api_status,
                clock=event.clock,
                hint=event.hint,
                connection=event.connection,
                stderr_tail=event.stderr_tail,
            )

    def _agent_exited(self, event: events.AgentExited) -> None:
        self._exit = event
        detail = "" if event.exit_code is None else f"exit code {event.exit_code}"
        self._status(event, "agent.exited", detail)
        # The process is gone: nothing of it can go on, also when another attempt follows.
        self._close_items()
        self._close_turn()

    def _run_ended(self, event: events.RunEnded) -> None:
        self._close_all()
        self._end(event.result)

    def _end(self, result: RunResult, *, synthetic: bool = False) -> None:
        self._is_ended = True
        well = result.outcome in ("succeeded", "degraded", "denied")  # whose agent worked to its end
        exited = self._exit
        self._to.emit(
            "session.ended",
            u.SessionEndedData(
                reason="completed" if well else "terminated" if result.outcome in _TERMINATED else "error",
                exit_code=exited.exit_code if exited is not None else None,
                stderr=u.Stderr(head=exited.stderr_head, tail=exited.stderr_tail) if exited is not None else None,
                message=result.error.message if result.error is not None else "",
                result=result,
            ),
            synthetic=synthetic,
        )

    def _error(self, kind: str, message: str, **fields: Any) -> None:
        self._to.emit("error", u.ErrorData(kind=kind or "unknown", message=message or "no message", **fields))

    # -- messages -----------------------------------------------------------------------------------------------------

    def _message_delta(self, event: events.MessageDelta | events.ThinkingDelta) -> None:
        is_thought = events.is_thought(event)
        key = (event.agent_id, event.message_id, is_thought)
        opened = self._messages.get(key)
        if opened is None:
            opened = self._messages[key] = self._to.start(self._message(event.message_id, event.agent_id))
        self._to.delta(opened, event.text, "reasoning" if is_thought else "text")

    def _message_completed(self, event: events.MessageCompleted) -> None:
        self._say(event.message_id, event.agent_id, u.TextPart(text=event.text), is_error=event.is_error)

    def _thinking_completed(self, event: events.ThinkingCompleted) -> None:
        self._say(event.message_id, event.agent_id, u.ReasoningPart(text=event.text))

    def _message(self, message_id: str, agent_id: str | None, role: u.Role = "assistant") -> u.Item:
        return self._new_item("message", (), role=role, native_id=message_id, agent_id=agent_id)

    def _say(
        self,
        message_id: str,
        agent_id: str | None,
        part: u.TextPart | u.ReasoningPart,
        *,
        is_error: bool = False,
        role: u.Role = "assistant",
    ) -> None:
        thinking = isinstance(part, u.ReasoningPart)
        opened = self._messages.pop((agent_id, message_id, thinking), None) if role == "assistant" else None
        if opened is None:
            opened = self._to.start(self._message(message_id, agent_id, role), synthetic=True)
        if not opened.told:
            self._to.delta(opened, part.text, "reasoning" if thinking else "text", synthetic=True)
        self._to.complete(opened, "failed" if is_error else "completed", content=(part,), is_error=is_error)

    # -- tools --------------------------------------------------------------------------------------------------------

    def _tool_requested(self, event: events.ToolRequested) -> None:
        call = event.call
        before = self._calls.pop(call.id, None)
        if before is not None:
            self._to.complete(before, "failed", synthetic=True)
        content: list[u.Part] = [u.ToolCallPart(call_id=call.id, name=call.name, arguments=call.input)]
        reference = _file_ref(call)
        if reference is not None:
            content.append(reference)
        item = self._new_item("tool_call", content, role="assistant", native_id=call.id, agent_id=call.agent_id)
        opened = self._calls[call.id] = self._to.start(item)
        self._call_items[call.id] = item
        self._to.delta(opened, _encode(call.input).decode(), "json", synthetic=True)

    def _tool_completed(self, event: events.ToolCompleted) -> None:
        status: u.Status = "failed" if event.is_error else "completed"
        call = self._calls.pop(event.call_id, None)
        if call is not None:
            self._to.complete(call, status, is_error=event.is_error)
        known = self._call_items.get(event.call_id)
        content: list[u.Part] = [
            u.ToolResultPart(call_id=event.call_id, output=event.text, is_error=event.is_error, executed=event.executed)
        ]
        content += _images(event.text, known)
        item = self._new_item(
            "tool_result",
            content,
            role="tool",
            native_id=event.call_id,
            agent_id=event.agent_id,
            parent_id=known.id if known is not None else None,
            is_error=event.is_error,
        )
        opened = self._to.start(item, synthetic=True)
        self._to.delta(opened, event.text, "text", synthetic=True)
        self._to.complete(opened, status)

    def _tool_decided(self, event: events.ToolDecided) -> None:
        who = "nobody, " if event.by == "nobody" else ""
        detail = f"{event.decision} by {who}{event.rule}" + (f": {event.reason}" if event.reason else "")
        self._status(event, "tool.decided", detail, **self._about(event.call.id))

    def _tool_progress(self, event: events.ToolProgress) -> None:
        self._status(event, "tool.progress", f"{event.elapsed_s:g} s", **self._about(event.call_id))

    def _about(self, call_id: str) -> dict[str, Any]:
        return {"native_id": call_id, "parent_id": self._item_of_call(call_id)}

    # -- people -------------------------------------------------------------------------------------------------------

    def _approval_requested(self, event: events.ApprovalRequested) -> None:
        self._permissions[event.approval_id] = None
        item_id = self._item_of_call(event.call.id)
        self._to.emit(
            "permission.requested",
            _same_fields(event, u.PermissionRequestedData, permission_id=event.approval_id, item_id=item_id),
        )

    def _approval_resolved(self, event: events.ApprovalResolved) -> None:
        self._permissions.pop(event.approval_id, None)
        status = "approved" if event.approved else "denied"
        self._to.emit(
            "permission.resolved",
            _same_fields(event, u.PermissionResolvedData, permission_id=event.approval_id, status=status),
        )

    def _grant_revoked(self, event: events.GrantRevoked) -> None:
        self._status(event, "grant.revoked", event.pattern)

    def _question_requested(self, event: events.QuestionRequested) -> None:
        self._questions[event.question_id] = None
        self._to.emit("question.requested", _same_fields(event, u.QuestionRequestedData))

    def _question_resolved(self, event: events.QuestionResolved) -> None:
        self._questions.pop(event.question_id, None)
        status = "answered" if event.answered else "rejected"
        self._to.emit("question.resolved", _same_fields(event, u.QuestionResolvedData, status=status))

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _subagent_started(self, event: events.SubagentStarted) -> None:
        if event.call_id:
            self._agent_calls[event.agent_id] = event.call_id
        self._status(event, "subagent.started", event.description, agent_id=event.agent_id)

    def _subagent_ended(self, event: events.SubagentEnded) -> None:
        self._status(event, "subagent.ended", event.status, agent_id=event.agent_id)

    def _usage_updated(self, event: events.UsageUpdated) -> None:
        detail = f"{event.usage.total_tokens} tokens"
        self._status(event, "usage.updated", detail, agent_id=event.agent_id, native_id=event.message_id)

    def _usage_estimated(self, event: events.UsageEstimated) -> None:
        detail = f"a request broke off unreported: about {event.usage.total_tokens} tokens, {event.cost_usd:.2g} USD"
        self._status(event, "usage.estimated", detail)

    def _limit_reached(self, event: events.LimitReached) -> None:
        self._status(event, "limit.reached", event.message or event.status, is_error=event.status == "rejected")

    def _retry_scheduled(self, event: events.RetryScheduled) -> None:
        self._status(event, "retry.scheduled", f"attempt {event.attempt} of {event.max_attempts}: {event.error}")

    def _notice(self, event: events.Notice) -> None:
        if event.code == PROMPT:
            self._say("", None, u.TextPart(text=event.message), role="user")
        else:
            self._status(event, event.code or "notice", event.message, kind="system", is_error=event.level == "error")

    def _unrecognised(self, event: events.Unrecognised) -> None:
        self._to.emit(
            "agent.unparsed",
            u.AgentUnparsedData(
                reason=event.reason, text=event.raw, size=event.size, path=event.path, problem=event.problem
            ),
        )

    def _output_checked(self, event: events.OutputChecked) -> None:
        detail = "valid" if event.valid else "; ".join(event.errors) or "there is no value"
        self._status(event, "output.checked", detail, is_error=not event.valid)

    def _sandbox_violation(self, event: events.SandboxViolation) -> None:
        self._status(event, "sandbox.violation", event.message or event.target, **self._about(event.call_id))


def universal(records: Iterable[Recorded], session_id: str | None = None) -> Iterator[UniversalEvent]:
    """A whole log; the session is named after its run unless a name is given."""
    converter: Universal | None = None
    for recorded in records:
        if converter is None:
            converter = Universal(session_id or recorded.run_id)
        yield from converter.feed(recorded)
    yield from (converter or Universal(session_id or "")).finish()


def _same_fields(event: msgspec.Struct, kind: type[T], **others: Any) -> T:
    """Data that is the event itself, field by field, but for the `others`."""
    return kind(**{name: getattr(event, name) for name in kind.__struct_fields__ if name not in others}, **others)


def _nothing_known() -> u.SessionStartedData:
    return u.SessionStartedData(schema_version=u.UNIVERSAL_VERSION)


def _file_ref(call: ToolCall) -> u.FileRefPart | None:
    kind, path = class_of(call.name), edited_path(call)
    if path is None or kind not in ("read", "edit"):
        return None
    action: u.Action = "read" if kind == "read" else "write" if call.name == "Write" else "patch"
    return u.FileRefPart(path=path, action=action)


def _images(text: str, call: u.Item | None) -> list[u.Part]:
    """One for each image of a result; it was read from the file that its call names, if it names one."""
    if _IMAGE not in text:
        return []
    paths = [part.path for part in call.content if isinstance(part, u.FileRefPart)] if call is not None else []
    count = text.split("\n").count(_IMAGE)
    return [u.ImagePart(path=paths[0] if paths else None) for _ in range(count)]
