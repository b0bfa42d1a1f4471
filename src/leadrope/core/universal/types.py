"""The universal schema's values: thirteen event types in one envelope, whoever the agent was. Converts nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from leadrope.core.cost.usage import ModelShare, Usage
from leadrope.core.events import Connection, CredentialUsed, Origin, Problem, Question, Risk, Scope
from leadrope.core.result import RunResult
from leadrope.core.tools import ToolCall

UNIVERSAL_VERSION = 1
"""Of this schema; told in the first line of every export."""

Source = Literal["agent", "daemon"]
Kind = Literal["message", "tool_call", "tool_result", "system", "status", "unknown"]
Role = Literal["user", "assistant", "tool", "system"]
Status = Literal["in_progress", "completed", "failed"]
Action = Literal["read", "write", "patch"]
Reason = Literal["completed", "error", "terminated"]
Text = Annotated[str, Meta(min_length=1)]
Time = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


# -- content parts ----------------------------------------------------------------------------------------------------


class _Part(_Value, frozen=True, kw_only=True, tag_field="type"):
    pass


class TextPart(_Part, frozen=True, kw_only=True, tag="text"):
    text: str


class JsonPart(_Part, frozen=True, kw_only=True, tag="json"):
    json: Any


class ToolCallPart(_Part, frozen=True, kw_only=True, tag="tool_call"):
    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolResultPart(_Part, frozen=True, kw_only=True, tag="tool_result"):
    call_id: str
    output: str
    is_error: bool
    executed: bool = True
    """False when the call never ran: denied, or refused as malformed."""


class FileRefPart(_Part, frozen=True, kw_only=True, tag="file_ref"):
    path: str
    action: Action


class ReasoningPart(_Part, frozen=True, kw_only=True, tag="reasoning"):
    text: str


class ImagePart(_Part, frozen=True, kw_only=True, tag="image"):
    """An image that the agent was shown; its bytes are not kept."""

    path: str | None = None
    mime: str | None = None


class StatusPart(_Part, frozen=True, kw_only=True, tag="status"):
    label: Text
    detail: str = ""


Part = TextPart | JsonPart | ToolCallPart | ToolResultPart | FileRefPart | ReasoningPart | ImagePart | StatusPart


class Item(_Value, frozen=True, kw_only=True):
    id: Text
    kind: Kind
    status: Status
    content: tuple[Part, ...]
    native_id: str | None = None
    """The agent's own id of the message or of the call."""
    parent_id: str | None = None
    """The item that this one belongs to: a result to its call, a subagent's words to the call that started it."""
    role: Role | None = None
    agent_id: str | None = None
    """Set for what a subagent says and does."""
    is_error: bool = False


# -- data of the thirteen types ---------------------------------------------------------------------------------------


class SessionStartedData(_Value, frozen=True, kw_only=True):
    schema_version: int
    """Of the universal schema."""
    event_schema_version: int | None = None
    """Of the events this was made from; None when the session never described itself."""
    agent: str | None = None
    model: str | None = None
    mode: str | None = None
    cwd: str | None = None
    agent_version: str | None = None
    tools: tuple[str, ...] = ()
    connections: tuple[Connection, ...] = ()
    credential: CredentialUsed | None = None
    instructions: tuple[str, ...] = ()
    origin: Origin | None = None
    sandbox: str = ""
    attempt: int = 1


class Stderr(_Value, frozen=True, kw_only=True):
    head: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()


class SessionEndedData(_Value, frozen=True, kw_only=True):
    reason: Reason
    exit_code: int | None = None
    stderr: Stderr | None = None
    message: str = ""
    """What went wrong; empty when nothing did."""
    result: RunResult
    """What the session came to, with our finer word for its end, its usage, cost, denials and warnings."""


class TurnStartedData(_Value, frozen=True, kw_only=True):
    turn: int


class TurnEndedData(_Value, frozen=True, kw_only=True):
    turn: int
    is_error: bool
    reason: str
    text: str = ""
    stop_reason: str | None = None
    terminal_reason: str | None = None
    api_status: int | None = None
    api_error: str | None = None
    errors: tuple[str, ...] = ()
    output: Any = UNSET
    steps: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    models: dict[str, ModelShare] = {}
    duration_ms: int = 0
    denials: tuple[ToolCall, ...] = ()
    background: bool = False
    startup_failure: str | None = None
    never_connected: bool = False
    problem: Problem | None = None


class ItemData(_Value, frozen=True, kw_only=True):
    item: Item


class ItemDeltaData(_Value, frozen=True, kw_only=True):
    item_id: Text
    native_item_id: str | None = None
    part: Literal["text", "reasoning", "json"] = "text"
    """What the piece belongs to; `json` is a piece of a call's arguments."""
    delta: str


class PermissionRequestedData(_Value, frozen=True, kw_only=True):
    permission_id: str
    call: ToolCall
    item_id: str | None = None
    """The call's item."""
    reason: str = ""
    expires_s: float = 0.0
    risk: Risk = "medium"
    reading: str = ""
    fingerprint: str = ""
    pattern: str = ""
    """What may be granted for the rest of the run instead of this one call."""
    rule: str = ""
    layer: str = ""


class PermissionResolvedData(_Value, frozen=True, kw_only=True):
    permission_id: str
    status: Literal["approved", "denied", "abandoned"]
    """`abandoned`: the session ended before anybody answered."""
    by: str = ""
    reason: str = ""
    scope: Scope = "once"
    pattern: str = ""
    """What was granted for the rest of the run."""


class QuestionRequestedData(_Value, frozen=True, kw_only=True):
    question_id: str
    kind: Literal["question", "plan"]
    questions: tuple[Question, ...] = ()
    plan: str = ""
    allowed_prompts: tuple[str, ...] = ()
    expires_s: float = 0.0
    fingerprint: str = ""


class QuestionResolvedData(_Value, frozen=True, kw_only=True):
    question_id: str
    status: Literal["answered", "rejected", "abandoned"]
    answers: dict[str, str] = {}
    by: str = ""
    reason: str = ""


class ErrorData(_Value, frozen=True, kw_only=True):
    message: Text
    kind: Text
    cause: str = ""
    """Why the supervisor ended the run, when it did."""
    code: str | None = None
    """A stable word for scripts, where the kind alone does not say what happened."""
    api_status: int | None = None
    clock: str | None = None
    hint: str | None = None
    connection: str | None = None
    """The connection that could not be made."""
    stderr_tail: tuple[str, ...] = ()
    """The last lines that the server of this connection wrote to stderr."""


class AgentUnparsedData(_Value, frozen=True, kw_only=True):
    reason: str
    text: str = ""
    """The line, or its beginning when it is long."""
    size: int = 0
    path: str | None = None
    problem: Problem | None = None


# -- the envelope -----------------------------------------------------------------------------------------------------


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", rename=None, forbid_unknown_fields=True):
    event_id: Text
    sequence: Annotated[int, Meta(ge=1)]
    time: Time
    session_id: str
    """Ours: the run's id, or the imported file's name."""
    native_session_id: str | None
    """The agent's own, once it is known."""
    source: Source
    synthetic: bool
    """True for what neither the agent nor the supervisor has told, and is here to keep the order whole."""
    raw: str | UnsetType = UNSET
    """On request, the line that this event is the first to tell of."""


class SessionStarted(_Envelope, frozen=True, kw_only=True, tag="session.started"):
    data: SessionStartedData


class SessionEnded(_Envelope, frozen=True, kw_only=True, tag="session.ended"):
    data: SessionEndedData


class TurnStarted(_Envelope, frozen=True, kw_only=True, tag="turn.started"):
    data: TurnStartedData


class TurnEnded(_Envelope, frozen=True, kw_only=True, tag="turn.ended"):
    data: TurnEndedData


class ItemStarted(_Envelope, frozen=True, kw_only=True, tag="item.started"):
    data: ItemData


class ItemDelta(_Envelope, frozen=True, kw_only=True, tag="item.delta"):
    data: ItemDeltaData


class ItemCompleted(_Envelope, frozen=True, kw_only=True, tag="item.completed"):
    data: ItemData


class PermissionRequested(_Envelope, frozen=True, kw_only=True, tag="permission.requested"):
    data: PermissionRequestedData


class PermissionResolved(_Envelope, frozen=True, kw_only=True, tag="permission.resolved"):
    data: PermissionResolvedData


class QuestionRequested(_Envelope, frozen=True, kw_only=True, tag="question.requested"):
    data: QuestionRequestedData


class QuestionResolved(_Envelope, frozen=True, kw_only=True, tag="question.resolved"):
    data: QuestionResolvedData


class Error(_Envelope, frozen=True, kw_only=True, tag="error"):
    data: ErrorData


class AgentUnparsed(_Envelope, frozen=True, kw_only=True, tag="agent.unparsed"):
    data: AgentUnparsedData


UniversalEvent = (
    SessionStarted
    | SessionEnded
    | TurnStarted
    | TurnEnded
    | ItemStarted
    | ItemDelta
    | ItemCompleted
    | PermissionRequested
    | PermissionResolved
    | QuestionRequested
    | QuestionResolved
    | Error
    | AgentUnparsed
)
