"""Events: one tagged union for all that happens in a run, whoever the agent is.

Each event is stored and streamed inside `Recorded`, which says when and in which order. Consumers `match` on the
class and end with `assert_never`, so that a new event shows every place that must think about it.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, get_args

import msgspec

from leadrope.core import actors
from leadrope.core.cost.usage import ModelShare, Usage
from leadrope.core.request_parts.field_docs import documented
from leadrope.core.result import Outcome, Rung, RunResult
from leadrope.core.tools import ToolCall

Source = Literal["agent", "supervisor"]
Risk = Literal["low", "medium", "high"]
Origin = Literal["new", "resumed", "forked", "rebuilt"]
SCHEMA_VERSION = 1
"""Of the events themselves: a reader that knows this number understands every log that says it."""
Scope = Literal["once", "run"]
"""`run`: the same call, to the letter, needs no further yes in this run."""


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """Values without cycles: the collector need not look at them, and a fast run makes many."""


def _read_actor(event: Any) -> None:
    """The `by` of a log that an earlier version wrote, in today's form."""
    if (by := actors.read(event.by)) != event.by:
        msgspec.structs.force_setattr(event, "by", by)


class CredentialUsed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which credential pays, without the credential."""

    kind: Literal["oauth_token", "api_key", "auth_token", "own_login", "none"]
    source: str
    """Where it was found, in words a person understands: `setup token`, `ANTHROPIC_API_KEY`."""
    billing: Literal["subscription", "api_key", "none"]
    masked: str = ""


class Connection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    status: str
    error: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a provider's own words mean in ours; in the event, so that a stored log folds without its provider."""

    kind: str
    """An error kind; for a degraded turn the kind of its warning."""
    outcome: Outcome = "failed"
    hint: str | None = None
    message: str | None = None
    """One sentence that says what is wrong better than the agent's own text does."""


class SessionStarted(_Event, frozen=True, kw_only=True, tag="session.started"):
    session_id: str
    provider: str
    model: str = ""
    mode: str = ""
    cwd: str = ""
    agent_version: str = ""
    tools: tuple[str, ...] = ()
    connections: tuple[Connection, ...] = ()
    credential: CredentialUsed | None = None
    instructions: tuple[str, ...] = ()
    """The instruction files whose text the model was given."""
    origin: Origin = "new"
    """`rebuilt`: the session to resume was gone, and a new one was started from what we had kept of it."""
    # A factory, so that it is written: `omit_defaults` leaves out what equals a plain default.
    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    sandbox: str = ""
    """The level of its sandbox: `workspace` or `read-only`; empty when it has none."""


class TurnStarted(_Event, frozen=True, kw_only=True, tag="turn.started"):
    turn: int


MALFORMED_RESULT = "malformed_result"
"""The `reason` of a turn whose end came and could not be read."""


class TurnEnded(_Event, frozen=True, kw_only=True, tag="turn.ended"):
    """The agent's own verdict on a turn. Not the end of the run: background agents may continue."""

    turn: int
    is_error: bool
    reason: str
    """The agent's word: success, error_max_turns, error_during_execution …"""
    text: str = ""
    stop_reason: str | None = None
    terminal_reason: str | None = None
    api_status: int | None = None
    api_error: str | None = None
    errors: tuple[str, ...] = ()
    output: Any = msgspec.UNSET
    """The structured output, when there is one."""
    steps: int = 0
    """Model calls the agent counted in this turn."""
    usage: Usage = Usage()
    cost_usd: float = 0.0
    """This turn's own cost, an estimate by the agent."""
    models: dict[str, ModelShare] = {}
    """The same by model, subagents included, where the agent tells it."""
    duration_ms: int = 0
    """The agent's own measure of the turn."""
    denials: tuple[ToolCall, ...] = ()
    background: bool = False
    """The answer to a background task's notification, not to a prompt."""
    startup_failure: str | None = None
    never_connected: bool = False
    """The agent says that its last request did not reach the model's address."""
    problem: Problem | None = None
    """None when all went well, or when the provider cannot say what did not."""


class MessageDelta(_Event, frozen=True, kw_only=True, tag="message.delta"):
    """A piece of the text that the model writes."""

    text: str
    message_id: str = ""
    thinking: bool = False
    """Only in logs that were stored before `thinking.delta` was an event of its own: a piece of its thoughts."""
    agent_id: str | None = None


class ThinkingDelta(_Event, frozen=True, kw_only=True, tag="thinking.delta"):
    """A piece of what the model thinks before it answers; no part of the answer."""

    text: str
    message_id: str = ""
    agent_id: str | None = None


class MessageCompleted(_Event, frozen=True, kw_only=True, tag="message.completed"):
    text: str
    message_id: str = ""
    agent_id: str | None = None
    is_error: bool = False
    """Written by the agent program itself to report a failed request, not by the model."""


class ThinkingCompleted(_Event, frozen=True, kw_only=True, tag="thinking.completed"):
    text: str
    message_id: str = ""
    agent_id: str | None = None


class ToolRequested(_Event, frozen=True, kw_only=True, tag="tool.requested"):
    call: ToolCall
    message_id: str = ""


class ToolDecided(_Event, frozen=True, kw_only=True, tag="tool.decided"):
    call: ToolCall
    decision: Literal["allow", "deny"]
    by: str
    """Who decided: `policy`, `user:ID`, `token:ID`, `program`; `timeout`: nobody answered in time; `nobody`: a person
    was needed, and none was there; `leadrope`: the request was withdrawn, or its answer could not be used."""
    rule: str
    """What said so: `mode:plan`, `tools`, `approval` …"""
    layer: str = ""
    """Where that rule came from: `default`, `global`, `agent:NAME`, `project`, `run` …"""
    reason: str = ""
    edited: dict[str, Any] | None = None
    """The input that runs instead, when a person or a `before_tool` hook changed it."""
    only_reads: bool = False
    """An allowed command that changes nothing, as far as every program in it is known."""

    def __post_init__(self) -> None:
        _read_actor(self)


class ToolProgress(_Event, frozen=True, kw_only=True, tag="tool.progress"):
    call_id: str
    tool: str = ""
    elapsed_s: float = 0.0
    heartbeat: bool = False


class ToolCompleted(_Event, frozen=True, kw_only=True, tag="tool.completed"):
    call_id: str
    is_error: bool = False
    text: str = ""
    agent_id: str | None = None
    executed: bool = True
    """False when the agent program says that the call never ran (denied, or rejected as malformed)."""


class ApprovalRequested(_Event, frozen=True, kw_only=True, tag="approval.requested"):
    approval_id: str
    call: ToolCall
    reason: str
    expires_s: float
    """Seconds from this event until silence becomes a no; 0 means never."""
    fingerprint: str = ""
    """The hash of the exact call; an answer that names another one is refused."""
    risk: Risk = "medium"
    reading: str = ""
    """For a command, which programs it would start, as far as that can be known."""
    pattern: str = ""
    """A pattern that may be granted for the rest of the run instead of this one call; empty: none is offered."""
    rule: str = ""
    """The rule that wants a person's approval: `mode:edit`, `require_approval`, `opaque` …"""
    layer: str = ""
    """Where that rule comes from, as in `ToolDecided`."""


class ApprovalResolved(_Event, frozen=True, kw_only=True, tag="approval.resolved"):
    approval_id: str
    approved: bool
    by: str
    """As in `ToolDecided`."""
    reason: str = ""
    scope: Scope = "once"
    pattern: str = ""
    """What was granted for the rest of the run: a pattern, or `call:ID` for one exact call."""
    call: ToolCall | None = None
    """Where that is one exact call: the call as it runs."""

    def __post_init__(self) -> None:
        _read_actor(self)


class GrantRevoked(_Event, frozen=True, kw_only=True, tag="grant.revoked"):
    """A pattern, or an exact call, that was granted in this run no longer holds."""

    pattern: str
    by: str = ""

    def __post_init__(self) -> None:
        _read_actor(self)


class Option(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    label: str
    description: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    question: str
    header: str = ""
    options: tuple[Option, ...] = ()
    multi_select: bool = False


class QuestionRequested(_Event, frozen=True, kw_only=True, tag="question.requested"):
    """`questions` for a question; `plan` (and what it says it would like to run) for a plan's approval."""

    question_id: str
    kind: Literal["question", "plan"]
    questions: tuple[Question, ...] = ()
    plan: str = ""
    allowed_prompts: tuple[str, ...] = ()
    """Shown only: approving the plan approves none of them."""
    expires_s: float = 0.0
    fingerprint: str = ""
    """The hash of the exact question or plan; an answer that names another one is refused."""


class QuestionResolved(_Event, frozen=True, kw_only=True, tag="question.resolved"):
    question_id: str
    answered: bool
    answers: dict[str, str] = {}
    by: str = ""
    """As in `ToolDecided`."""
    reason: str = ""

    def __post_init__(self) -> None:
        _read_actor(self)


class SubagentStarted(_Event, frozen=True, kw_only=True, tag="subagent.started"):
    agent_id: str
    call_id: str = ""
    description: str = ""
    kind: str = ""
    background: bool = False


class SubagentEnded(_Event, frozen=True, kw_only=True, tag="subagent.ended"):
    agent_id: str
    call_id: str = ""
    status: str = ""
    summary: str = ""
    tokens: int = 0


class UsageUpdated(_Event, frozen=True, kw_only=True, tag="usage.updated"):
    """One message's tokens, told once per message."""

    message_id: str
    model: str
    usage: Usage
    agent_id: str | None = None


class UsageEstimated(_Event, frozen=True, kw_only=True, tag="usage.estimated"):
    """A request broke off and the agent has reported nothing of it: what it may have used and cost."""

    model: str
    usage: Usage
    cost_usd: float


class LimitReached(_Event, frozen=True, kw_only=True, tag="limit.reached"):
    """A usage limit of the account: `rejected` stops work, `allowed_warning` is a warning."""

    status: str
    kind: str = ""
    resets_at: float | None = None
    """Seconds since the epoch."""
    message: str = ""


class RetryScheduled(_Event, frozen=True, kw_only=True, tag="retry.scheduled"):
    attempt: int
    max_attempts: int
    delay_s: float
    api_status: int | None = None
    error: str = ""
    by: Source = "agent"


UNREACHABLE = "cannot reach "
"""How the error of a retry begins that had no connection to the model's server; its address and the reason follow."""


def is_unreachable(error: str) -> bool:
    return error.startswith(UNREACHABLE)


class Notice(_Event, frozen=True, kw_only=True, tag="notice"):
    level: Literal["debug", "info", "warning", "error"]
    code: str
    message: str


class Unrecognised(_Event, frozen=True, kw_only=True, tag="unrecognised"):
    """A line that is not understood. Never lost, never fatal."""

    reason: str
    raw: str = ""
    size: int = 0
    path: str | None = None
    """Where the line lies when it was too long to hold."""
    problem: Problem | None = None
    """Set when the text itself tells what is wrong, as a plain `Not logged in` does."""


class OutputChecked(_Event, frozen=True, kw_only=True, tag="output.checked"):
    """Our own judgement on a turn's answer against the schema that was asked for."""

    rung: Rung
    """Where the value was found: handed over by the agent, read from its text, or repaired without loss."""
    valid: bool
    value: Any = None
    """The value that conforms, as the caller's schema says; None when there is none."""
    errors: tuple[str, ...] = ()
    correction: int = 0
    """0 for the first answer, then which corrective turn this judges."""
    retrying: bool = False
    """A corrective turn follows; what the judged turn has used is then that of a superseded attempt."""


class SandboxViolation(_Event, frozen=True, kw_only=True, tag="sandbox.violation"):
    """The sandbox prevented a read, a write, a signal or a connection."""

    kind: Literal["write", "read", "signal", "network"]
    target: str = ""
    """The path, process or host, as far as it is known."""
    call_id: str = ""
    message: str = ""


class RunEnding(_Event, frozen=True, kw_only=True, tag="run.ending"):
    """The supervisor has decided to end the run, and why; the first one counts."""

    cause: Literal["stopped", "timed_out", "over_budget", "denied", "parked", "failed"]
    kind: str
    """An error kind, for instance `timed_out` or `gate_bypassed`."""
    message: str
    code: str | None = None
    """A stable word for scripts, where the kind alone does not say what happened."""
    clock: str | None = None
    api_status: int | None = None
    hint: str | None = None
    connection: str | None = None
    """The connection that could not be made."""
    stderr_tail: tuple[str, ...] = ()
    """The last lines that the server of this connection wrote to stderr."""


class AgentExited(_Event, frozen=True, kw_only=True, tag="agent.exited"):
    """The process is gone, and everything it started."""

    exit_code: int | None
    stderr_head: tuple[str, ...] = ()
    stderr_tail: tuple[str, ...] = ()
    leftovers_killed: int = 0
    survivors: int = 0
    """Processes that could not be ended; 0 unless the machine refused."""
    spent_usd: float = 0.0
    """What the run has spent until now by the supervisor's own meter, an estimate."""
    ended_by: Source = "agent"
    """`supervisor` when it was ended after its work was done: then the exit code says nothing about the run."""
    problem: Problem | None = None
    """What stderr says is wrong."""


class RunEnded(_Event, frozen=True, kw_only=True, tag="run.ended"):
    result: RunResult


Event = (
    SessionStarted
    | TurnStarted
    | TurnEnded
    | MessageDelta
    | ThinkingDelta
    | MessageCompleted
    | ThinkingCompleted
    | ToolRequested
    | ToolDecided
    | ToolProgress
    | ToolCompleted
    | ApprovalRequested
    | ApprovalResolved
    | GrantRevoked
    | QuestionRequested
    | QuestionResolved
    | SubagentStarted
    | SubagentEnded
    | UsageUpdated
    | UsageEstimated
    | LimitReached
    | RetryScheduled
    | Notice
    | Unrecognised
    | OutputChecked
    | SandboxViolation
    | RunEnding
    | AgentExited
    | RunEnded
)


for _kind in get_args(Event):
    documented(_kind)


def is_thought(piece: MessageDelta | ThinkingDelta) -> bool:
    """Whether a piece belongs to the model's thoughts, also in a log of an earlier version."""
    return type(piece) is ThinkingDelta or (type(piece) is MessageDelta and piece.thinking)


@functools.cache
def decoder() -> msgspec.json.Decoder[Event]:
    """Made where it is first needed: all types are looked at, which takes a tenth of the time of a short workflow."""
    return msgspec.json.Decoder(Event)


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event in its place: `seq` has no gaps within a run."""

    run_id: str
    attempt: int
    seq: int
    time: float
    """Seconds since the epoch."""
    source: Source
    event: Event
