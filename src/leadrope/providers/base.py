"""The seam between a run and an agent: what to start, what to say to it, what it said.

A `Provider` turns a request into a `Launch` (a process) or an `Endpoint` (a connection); a `Session` is the I/O-free
translation of one live conversation: lines in, events and signals out; intentions in, bytes out. The run owns the
process or the connection, the clocks and the gate.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from leadrope import errors
from leadrope.core.attachments import Attachment
from leadrope.core.config import Config
from leadrope.core.events import Connection, CredentialUsed, Event, Notice, Problem, Question
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Secret
from leadrope.core.tools import ToolCall

# -- signals: what a session tells the run beside events ------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The agent has answered the opening. Without `gate` no prompt may be sent."""

    gate: bool
    reason: str = ""
    version: str = ""
    is_tested: bool = True
    """False for a version whose gate nobody has tried; the run tries it before the first prompt."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The agent describes its session; told again for every turn."""

    session_id: str
    model: str = ""
    mode: str = ""
    cwd: str = ""
    version: str = ""
    key_source: str = ""
    tools: tuple[str, ...] = ()
    connections: tuple[Connection, ...] = ()


class CallHeld(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call waits for our yes."""

    request_id: str
    call: ToolCall


class PermissionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's own second thoughts about a call that was already held, or a question for a person."""

    request_id: str
    call: ToolCall
    reason: str = ""


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """The agent shows that something came to its input which we have not sent."""

    what: str


class Replied(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to something we asked of the agent, an interrupt for instance."""

    request_id: str
    ok: bool
    error: str = ""
    payload: Any = None


class BackgroundWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work that goes on behind the conversation; agents are awaited, commands are not."""

    agents: int
    commands: int


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    idle: bool


class MessageToServer(msgspec.Struct, frozen=True, kw_only=True):
    """A message (JSON-RPC) to a server that lives in this process."""

    request_id: str
    server: str
    message: dict[str, Any]
    call_id: str = ""
    """The tool call that a `tools/call` belongs to, as the agent says; without it nothing is called."""


class Unanswerable(msgspec.Struct, frozen=True, kw_only=True):
    """A request that nobody here can serve; `answer` is the refusal to send."""

    answer: bytes


Signal = (
    Ready
    | Started
    | CallHeld
    | PermissionAsked
    | Withdrawn
    | Foreign
    | Replied
    | BackgroundWork
    | SessionState
    | MessageToServer
    | Unanswerable
)

# -- starting -------------------------------------------------------------------------------------------------------


class LaunchFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to write into `Place.launch_dir` before the start. The content may hold secrets: it is never logged."""

    path: str
    content: bytes

    def __repr__(self) -> str:
        return f"LaunchFile({self.path!r}, {len(self.content)} bytes)"


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    """What every start has, whatever is started."""

    cwd: str
    session_id: str | None
    model: str
    credential: CredentialUsed | None = None
    secrets: tuple[str, ...] = ()
    """What must be redacted from anything that is shown."""
    instructions: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    patience_401: int = 1
    """The how-manieth refused login ends the run: an agent that refreshes its own login may need two."""
    attachments: tuple[Attachment, ...] = ()
    """Read before the start, said with the first prompt."""
    overhead_tokens: int = 0
    """About what the agent adds to every prompt: its own instructions and its tools."""


class Launch(_Start, frozen=True, kw_only=True, tag="process"):
    """Everything that starts one agent process. `argv` holds no secret and no prompt."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: tuple[LaunchFile, ...] = ()
    folders: tuple[str, ...] = ()
    """Made before the start, for their owner only."""
    stderr_pipes: Mapping[str, str] = {}
    """By connection: a named pipe in `Place.launch_dir`, made before the start, that takes its server's stderr."""
    config_dir: str | None = None
    """The program's private folder, None when it uses the user's own."""
    own_login: tuple[str, ...] = ()
    """Where the program keeps the login that it uses itself: files and folders that a sandbox must show it."""
    key_sources: frozenset[str] | None = None
    """What the agent may report as the source of its key; None: anything."""
    shown: tuple[str, ...] = ()
    """Folders of ours that the agent must find in a sandbox, where it may only read them."""
    opened: tuple[str, ...] = ()
    """Places with keys that the sandbox would hide, and that the user has opened for this start. No agent has any."""
    model_url: str = ""
    """Where the agent itself connects to; empty: not known."""
    own_servers: tuple[str, ...] = ()
    """Names of servers in this process whose messages the session passes on (`MessageToServer`)."""
    commands_apart: bool = False
    """Commands are started so that they cannot look into the agent, nor at its environment."""

    def __repr__(self) -> str:
        return f"Launch(argv={list(self.argv)!r}, env={sorted(self.env)!r}, cwd={self.cwd!r})"


class Endpoint(_Start, frozen=True, kw_only=True, tag="endpoint"):
    """Where a model is reached over HTTP. Nothing is started on this machine: the run sends each prompt of the session
    as the body of one request, and reads the events of the answer (`text/event-stream`).
    """

    url: str
    """http:// or https://, whole: with its path. It holds no secret."""
    headers: tuple[tuple[str, str], ...] = ()
    """Of each request: the credential, a version. The run sets those that frame the message, and what it accepts."""
    method: str = "POST"

    @property
    def model_url(self) -> str:
        return self.url

    def __repr__(self) -> str:
        names = [name for name, _ in self.headers]
        return f"Endpoint({self.method} {self.url!r}, headers={names!r}, cwd={self.cwd!r})"


Start = Launch | Endpoint
"""What a provider needs: a process of its own, or a connection."""


class Brokered(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent reaches its model instead, and the token that is good for this run alone."""

    url: str
    token: Secret


OpenBroker = Callable[[str, Secret, str], Awaitable[Brokered]]
"""Upstream url, credential and its kind in."""


class StartContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run lives on this machine; the environment enters here and nowhere below."""

    run_id: str
    environ: Mapping[str, str]
    """The caller's, with leadrope's own .env below it."""
    ambient: Mapping[str, str]
    """The caller's alone."""
    settings: Mapping[str, str]
    """leadrope's own .env alone: a credential there was put there for leadrope."""
    home: Path
    """LEADROPE_HOME."""
    run_dir: Path
    """Private to this run, removed after it. The agent can write here, so leadrope opens nothing in it by name."""
    launch_dir: Path
    """For the files of this start: another folder each time, which the agent can read and not write."""
    config: Config
    open_broker: OpenBroker | None = None
    is_trusted: bool = False
    """The user has said yes to the repository's own settings, hooks, servers and agents as they are."""
    own_servers: tuple[str, ...] = ()
    """Servers in this process that the agent is to know."""
    blocked_programs: tuple[str, ...] = ()
    """By the policy; a sandbox has them masked."""
    is_root: bool = hasattr(os, "geteuid") and os.geteuid() == 0


# -- what an endpoint's session hears beside the events of the answer -------------------------------------------------


class RequestSent(msgspec.Struct, frozen=True, kw_only=True):
    """The body that `prompt` gave is on its way."""


AnswerEnd = Literal["whole", "broken", "cancelled", "refused", "not_a_stream", "unreachable"]


class AnswerEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing more comes for this request. Told once for each, after its last event."""

    how: AnswerEnd
    """`whole`: as HTTP says; whether the model was done, its own last event says. `broken`: the connection ended in the
    middle. `cancelled`: by the run. `refused`: another status than 2xx. `not_a_stream`: 2xx, but not an event stream.
    `unreachable`: no connection was made.
    """
    status: int = 0
    """0: there was no answer."""
    headers: Mapping[str, str] = {}
    """Of the answer, by their names in lower case."""
    body: bytes = b""
    """Of an answer that is not an event stream, as far as it is kept."""
    reason: str = ""
    """What was wrong with the connection, in words."""


# -- the conversation ------------------------------------------------------------------------------------------------


class Session(Protocol):
    """One conversation, whatever carries it. Without the rest of `AgentSession` it is that of an `Endpoint`."""

    def receive(self, lines: Sequence[Any]) -> list[Event | Signal]:
        """What was said: lines of a process (`Several` of them in one piece); for an endpoint the data of each event,
        and `RequestSent` and `AnswerEnded` around them.
        """

    def prompt(self, text: str) -> bytes:
        """What is written to the process, or the body of a request."""


@runtime_checkable
class AgentSession(Session, Protocol):
    """The conversation with a process that holds its tool calls until we have answered."""

    def open(self) -> bytes:
        """What is said first; the agent's answer becomes `Ready`."""

    def answer_held(self, request_id: str, call: ToolCall, *, allowed: bool, reason: str, edited: Any) -> bytes: ...

    def answer_asked(self, request_id: str, *, allowed: bool, reason: str, input_: Any) -> bytes: ...

    def interrupt(self, request_id: str) -> bytes: ...

    def ask_connections(self, request_id: str) -> bytes:
        """How the connections stand; `connections_of` reads the reply's payload."""

    def connections_of(self, payload: Any) -> tuple[Connection, ...]: ...

    def explain(self, stderr: Iterable[str]) -> Problem | None:
        """What the agent's error output says is wrong, if it says so."""


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent asks a person: questions with their options, or whether its plan may be carried out."""

    kind: Literal["question", "plan"]
    questions: tuple[Question, ...] = ()
    plan: str = ""
    allowed_prompts: tuple[str, ...] = ()
    """What the plan says it would like to run, in words; shown only."""


@runtime_checkable
class AskingSession(Protocol):
    """What the session of an agent with the capability `questions` can do beside.

    Such a question is a call of one of `asking_tools`. It is held as any call, let through, and asked of a person when
    the agent asks for the permission (`PermissionAsked`).
    """

    asking_tools: frozenset[str]

    def requested(self, call: ToolCall) -> None:
        """The model has made such a call. The request for its permission may come without what it asks."""

    def asks(self, call: ToolCall) -> Asking:
        """What is malformed is shown as it came rather than lost."""

    def answered(self, call: ToolCall, answers: Mapping[str, str]) -> dict[str, Any]:
        """The call's input with a person's answers in it, as the agent reads them; a plan has none."""


@runtime_checkable
class ServerSession(Protocol):
    """What the session of an agent with the capability `functions` can do beside."""

    def answer_message(self, request_id: str, reply: dict[str, Any]) -> bytes:
        """The reply of a server in this process to a `MessageToServer`."""


# -- the provider ---------------------------------------------------------------------------------------------------


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do, as data: for a page that offers it, and to refuse a request before anything starts."""

    process: bool = True
    """It is a program that is started on this machine; else an address that is asked over HTTP, and has no tools."""
    tools: bool = False
    """It calls tools, and each call can be held before it runs."""
    mcp: bool = False
    """It uses connections."""
    functions: bool = False
    """It can call functions of the program that started it."""
    approvals: bool = False
    """A held call can wait for a person, and its input can be changed."""
    questions: bool = False
    """It asks people questions in the middle of a turn."""
    structured_output: bool = False
    """It takes a schema and hands over a value; without, a value is looked for in its text."""
    sessions: bool = False
    """A session can be resumed and forked."""
    images: bool = False
    """Files and images can go with a prompt."""
    partial_text: bool = False
    """Its text comes as it is written."""

    @property
    def endpoint(self) -> bool:
        """The opposite of `process`, for checks that need that."""
        return not self.process


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """Can it be used here? True or false as a condition, and the reason in words."""

    available: bool
    reason: str = ""
    """Why not; for an agent that can be used, what is worth knowing."""
    version: str = ""

    def __bool__(self) -> bool:
        return self.available


@runtime_checkable
class Provider(Protocol):
    """One kind of agent. It plans and translates; only the run starts processes, so that no provider can forget a
    protection.
    """

    id: str
    """As in `RunRequest.provider`."""
    label: str
    """What people call it."""
    capabilities: Capabilities
    requires_api_key: bool

    async def is_available(self, environ: Mapping[str, str] | None = None) -> Availability:
        """Is the program there, in a version that works? Never raises, asks no model."""

    async def prepare(self, request: RunRequest, place: StartContext, *, attempt: int) -> Start:
        """Find the program or the address, the credential and the words; raise what is wrong. Starts no agent.

        A `Launch` where the capabilities say `process`, else an `Endpoint`.
        """

    # Any: each provider takes the one of the two that it gives.
    def session(self, request: RunRequest, launch: Any) -> Session:
        """For what `prepare` gave; an `AgentSession` for a `Launch`."""

    def tidy(self, launch: Any) -> None:
        """After the last process of the run: remove what no later run needs. Must not fail."""


@runtime_checkable
class Diagnosing(Protocol):
    """A provider that can look at a program which failed before its session began."""

    async def why_unusable(self, launch: Launch, environ: Mapping[str, str]) -> str | None:
        """Why this program cannot be used by leadrope at all, a version for instance; None if that is not why."""


# A schema is not among them: where the agent takes none, the answer's text is judged.
_NEEDS = (
    ("connections", "mcp"),
    ("resume", "sessions"),
    ("attachments", "images"),
    ("extra_dirs", "tools"),
    ("binary", "process"),
    ("agent_sandbox", "process"),
)


def require(provider: Provider, request: RunRequest) -> None:
    """Refuse what the agent cannot do: left alone, it would do its work without and call that a success."""
    for field, capability in _NEEDS:
        if getattr(request, field) and not getattr(provider.capabilities, capability):
            raise errors.BadValue(
                field,
                f"the provider {provider.id} has no {capability.replace('_', ' ')}",
                hint=f"Leave {field} out, or choose another provider.",
            )


def check_start(provider: Provider, start: Start, session: Session) -> None:
    """Refuse a provider whose parts do not fit: a process whose session cannot hold a call would not be supervised."""
    wrong = None
    if isinstance(start, Launch) is not provider.capabilities.process:
        wrong = f"it prepares a start of class {type(start).__name__}, and its capabilities say otherwise (process)"
    elif isinstance(start, Launch) and not isinstance(session, AgentSession):
        wrong = "the session of its process cannot hold a tool call (AgentSession)"
    elif isinstance(start, Endpoint) and provider.capabilities.tools:
        wrong = "it promises tools, which nobody would run or hold behind an address (capabilities.tools)"
    if wrong is not None:
        raise errors.BadProvider(provider.id, wrong, hint="Report it to its author.")
