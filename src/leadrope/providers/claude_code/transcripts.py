"""Converts recordings of the CLI to our events: its stdout (stream-json), or its session file. Opens no file.

No line is lost: each produces at least one event. A line that is understood but adds nothing becomes a `debug` notice;
one that is not understood is kept completely as `unrecognised`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from leadrope.core import actors, events
from leadrope.core.tools import ToolCall
from leadrope.core.universal.conversion import PROMPT
from leadrope.providers.claude_code import decode, questions, signals, unreadable

Form = Literal["stream-json", "session"]
PROVIDER = "claude-code"


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """An event and the line it was read from; further events of a line, and derived ones, have no line."""

    recorded: events.Recorded
    raw: str | None = None


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that distinguish the two forms, and the time of a line."""

    type: Any = None
    timestamp: Any = None
    session_id: Any = None
    session_file_id: Any = msgspec.field(default=None, name="sessionId")
    message: Any = None
    subtype: Any = None
    request_id: Any = None


_HEAD = msgspec.json.Decoder(_Head)
_TYPES_OF_STDOUT = frozenset(
    (
        "control_request",
        "control_response",
        "control_cancel_request",
        "stream_event",
        "result",
        "tool_use",
        "tool_result",
    )
)


def form_of(line: bytes) -> Form | None:
    """Return the form that a line belongs to; None if it does not show."""
    head = _head(line)
    if head is None or not isinstance(head.type, str):
        return None
    if isinstance(head.session_file_id, str) or head.type == "summary":
        return "session"
    known = head.type in _TYPES_OF_STDOUT or isinstance(head.session_id, str)
    if known or (head.type in ("assistant", "user") and isinstance(head.message, dict)):
        return "stream-json"
    return "stream-json" if head.type == "system" and isinstance(head.subtype, str) else None


def time_of(line: bytes) -> float | None:
    """Return when a line was written, in seconds since the epoch, if it says so."""
    head = _head(line)
    return seconds(head.timestamp) if head is not None else None


def seconds(stamp: Any) -> float | None:
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return None


def _head(line: bytes) -> _Head | None:
    try:
        return _HEAD.decode(line)
    except unreadable.ERRORS:
        return None


def session_of(lines: Iterable[bytes]) -> str | None:
    """Return the session of a recording that does not begin with it: older programs name it only in their last line."""
    for line in lines:
        head = _head(line)
        if head is None:
            continue
        if head.type == "system" and head.subtype == "init":
            return None
        if isinstance(head.session_id, str) and head.session_id:
            return head.session_id
    return None


def read_stream(
    lines: Iterable[bytes], *, run_id: str, start: float = 0.0, session_id: str | None = None
) -> Iterator[Read]:
    """Convert the output of `--output-format stream-json`; `start` is the time of lines before the first dated one.

    `session_id` is for a recording that does not name it at its beginning (`session_of`).
    """
    log = Log(run_id, start)
    reader = _Stream()
    if session_id is not None:
        yield from log.derived([events.SessionStarted(session_id=session_id, provider=PROVIDER)])
    for line in lines:
        if not line.strip():
            continue
        log.time = time_of(line) or log.time
        yield from log.of(reader.read(line), line)


class LineEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a line: its own, and those derived from it, which come first."""

    own: list[events.Event]
    before: list[events.Event] = []


class Log:
    """Assigns numbers and times to events, and each line to its first event."""

    def __init__(self, run_id: str, start: float) -> None:
        self._run_id = run_id
        self._seq = 0
        self.time = start

    def of(self, told: LineEvents, line: bytes) -> Iterator[Read]:
        yield from self.derived(told.before)
        raw: str | None = line.decode("utf-8", "replace").rstrip("\r\n")
        for event in told.own:
            yield Read(recorded=self._recorded(event, "agent"), raw=raw)
            raw = None

    def derived(self, found: Iterable[events.Event]) -> Iterator[Read]:
        """Yield events that are derived, not read from a line."""
        for event in found:
            yield Read(recorded=self._recorded(event, "supervisor"))

    def _recorded(self, event: events.Event, source: events.Source) -> events.Recorded:
        self._seq += 1
        return events.Recorded(self._run_id, 1, self._seq, self.time, source, event)


class _Stream:
    """Reads one process's stdout. A recording lacks the answers sent to stdin; they are inferred from results."""

    def __init__(self) -> None:
        self._decoder = decode.Decoder()
        self._session_id: str | None = None
        self._calls: dict[str, ToolCall] = {}
        self._asked: dict[str, list[str]] = {}
        """Open permission requests or questions, by call."""
        self._is_question: dict[str, bool] = {}
        self._by_request: dict[str, str] = {}
        self._has_said = False
        """Whether a message or a call was read."""

    def read(self, line: bytes) -> LineEvents:
        own: list[events.Event] = []
        before: list[events.Event] = []
        for item in self._decoder.feed([line]):
            match item:
                case events.ToolCompleted():
                    before += self._settle(item.call_id, approved=item.executed, reason="told by the call's result")
                    own.append(item)
                case events.ToolRequested():
                    self._calls[item.call.id] = item.call
                    self._has_said = True
                    own.append(item)
                case events.MessageCompleted():
                    self._has_said = True
                    own.append(item)
                case events.TurnEnded():
                    if item.text and not self._has_said:
                        # Only a result: its text is the message.
                        own.append(events.MessageCompleted(text=item.text, is_error=item.is_error))
                        self._has_said = True
                    own.append(item)
                case _:
                    own += self._meaning(item)
        return LineEvents(own=own or [said_nothing(line)], before=before)

    def _meaning(self, item: decode.Item) -> list[events.Event]:
        match item:
            case signals.Init():
                return self._init(item)
            case signals.CliPermissionAsked():
                return [self._ask(item)]
            case signals.ControlCancelled():
                call_id = self._by_request.get(item.request_id)
                taken = (
                    [] if call_id is None else self._settle(call_id, approved=False, reason="the agent took it back")
                )
                return taken or [debug("control_cancel_request", item.request_id)]
            case signals.HookCall():
                return [debug("hook_callback", item.call.name)]
            case signals.Replay():
                return []
            case signals.ControlReply():
                return [debug("control_response", item.error or ("ok" if item.ok else "refused"))]
            case signals.McpMessage():
                return [debug("mcp_message", item.server)]
            case signals.OtherControl():
                return [debug("control_request", item.subtype)]
            case signals.BackgroundTasks():
                return [debug("background_tasks", f"{item.agents} agents, {item.commands} commands")]
            case signals.CliSessionState():
                return [debug("session_state", item.state)]
            case _:
                return [item]

    def _init(self, init: signals.Init) -> list[events.Event]:
        """Handle `init`, which is repeated every turn; only another conversation is another session."""
        if init.session_id == self._session_id:
            return []
        self._session_id = init.session_id
        return [
            events.SessionStarted(
                session_id=init.session_id,
                provider=PROVIDER,
                model=init.model,
                mode=init.mode,
                cwd=init.cwd,
                agent_version=init.version,
                tools=init.tools,
                connections=init.connections,
            )
        ]

    def _ask(self, asked: signals.CliPermissionAsked) -> events.Event:
        call = asked.call
        self._asked.setdefault(call.id, []).append(asked.request_id)
        self._by_request[asked.request_id] = call.id
        self._is_question[asked.request_id] = call.name in questions.TOOLS
        if call.name == questions.PLAN_TOOL:
            # The request's own input is empty; the plan is in the call.
            told = self._calls.get(call.id, call).input
            return events.QuestionRequested(question_id=asked.request_id, kind="plan", plan=str(told.get("plan", "")))
        if call.name == questions.QUESTION_TOOL:
            asking = questions.of_input(call.input)
            return events.QuestionRequested(question_id=asked.request_id, kind="question", questions=asking.questions)
        return events.ApprovalRequested(
            approval_id=asked.request_id, call=call, reason=asked.reason or asked.description, expires_s=0.0
        )

    def _settle(self, call_id: str, *, approved: bool, reason: str) -> list[events.Event]:
        found: list[events.Event] = []
        for request_id in self._asked.pop(call_id, ()):
            if self._is_question[request_id]:
                found.append(events.QuestionResolved(question_id=request_id, answered=approved, reason=reason))
            else:
                found.append(
                    events.ApprovalResolved(approval_id=request_id, approved=approved, by=actors.UNKNOWN, reason=reason)
                )
        return found


def prompt(text: str) -> events.Notice:
    return events.Notice(level="info", code=PROMPT, message=text)


def said_nothing(line: bytes) -> events.Event:
    """Return a debug event for a line that has none of its own: an echoed prompt, or a keep-alive."""
    try:
        value = msgspec.json.decode(line)
    except unreadable.ERRORS:
        # Its text was repaired before it could be decoded.
        return debug("line", "")
    kind = str(value.get("type", "")) if isinstance(value, dict) else ""
    if kind == "user" and (text := text_of(value.get("message"))):
        return prompt(text)
    inner = value.get("event") if isinstance(value, dict) else None
    return debug(kind or "line", str(inner.get("type", "")) if isinstance(inner, dict) else "")


def text_of(message: Any) -> str:
    """Return the text of a user's message, without the tool results in it."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else ()
    told = [block.get("text") or f"[{block.get('type')}]" for block in blocks if isinstance(block, dict)]
    return "\n".join(str(text) for text in told)


def debug(code: str, message: str) -> events.Notice:
    return events.Notice(level="debug", code=code, message=message)
