"""What a caller asks for: one frozen value, checked before anything is started."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, get_args

import msgspec

from leadrope import errors
from leadrope.core import models
from leadrope.core.output import schema
from leadrope.core.request_parts import agent_sandbox, subagents
from leadrope.core.request_parts.field_docs import documented
from leadrope.core.request_parts.sequences import SequenceNotStr, as_tuple
from leadrope.core.secrets.redaction import SHORTEST, Secret
from leadrope.core.text.toml_lines import dotted
from leadrope.regex import regex
from leadrope.spelling import close_matches

if TYPE_CHECKING:
    from leadrope.core.request_keywords import RunFields

T = TypeVar("T")

Mode = Literal["plan", "default", "edit", "sandboxed", "full", "dontAsk"]
Billing = Literal["subscription", "subscription_only", "api_key", "auto"]
"""`subscription` takes a key from leadrope's own .env all the same; `subscription_only` takes none from anywhere."""
Effort = Literal["low", "medium", "high", "xhigh", "max"]

ModeAlias = Literal["acceptEdits", "bypassPermissions", "auto", "manual"]
SandboxLevel = Literal["workspace", "read-only", "off"]
Network = Literal["any", "model-only"]
CredentialKind = Literal["api_key", "oauth_token", "auth_token"]

# The agent's own spellings are accepted and mean the same thing.
MODE_ALIASES: dict[str, Mode] = {
    "acceptEdits": "edit",
    "bypassPermissions": "full",
    "auto": "default",
    "manual": "default",
}


@documented
class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds on the monotonic clock, each with its own named ending; 0 switches a clock off. Then money and memory."""

    start_s: float = 60
    """From the start of the process to its first sign of life."""
    idle_s: float | None = None
    """Silence between events; stands still while a tool runs, an approval waits, or the consumer is slow. Left out:
    what LEADROPE_SPAWN_IDLE_TIMEOUT_MS says, else 300."""
    tool_s: float = 900
    """One tool call, from its approval to its result; interrupts the turn, not the run."""
    wall_s: float | None = None
    """The whole run, whatever it does. Left out: what LEADROPE_SPAWN_MAX_MS says, else off."""
    exit_s: float = 5
    """From the last result to the end of the process."""
    approval_s: float | None = None
    """A person's time to answer; then the call is denied. Left out: 300, and a detached run waits without a limit."""
    connection_s: float = 30
    """For a connection to answer when the run starts."""
    unreachable_s: float = 30
    """How long the agent may try to reach a model's server that refuses connections, or has no address or route. One
    that has answered in this run gets at least 180."""
    stop_s: float = 2
    """Between asking the process to end and ending it."""
    budget_usd: float | Literal["none"] | None = None
    """What the run may cost. Left out: what the policy says, 100 as it ships; "none": no cap of this run's own."""
    memory_mb: float | None = None
    """MiB that the agent and everything it starts may hold together; watched, on Linux. Left out or 0: off."""

    @property
    def cap_usd(self) -> float | None:
        """The budget as a number; None where there is none."""
        return None if self.budget_usd == "none" else self.budget_usd


@documented
class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One connection: `command` (stdio) or `url` (http, sse), never both."""

    type: Literal["stdio", "http", "sse"] | None = None
    """None: told by whether there is a command or a url."""
    command: str | None = None
    """The program to start."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = {}
    """Its variables; `${NAME}` is filled from your environment."""
    url: str | None = None
    """The address of a server that runs already."""
    headers: dict[str, str] = {}
    """HTTP headers to send with each request; `${NAME}` is filled here too."""
    timeout: int | None = None
    """Milliseconds for one call of its tools."""
    required: bool = True
    """A run whose required connection cannot be made ends with an error that names it; False only warns."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            type: Literal["stdio", "http", "sse"] | None = None,  # noqa: A002  # the field of the file
            command: str | None = None,
            args: SequenceNotStr[str] = (),
            env: dict[str, str] = {},  # noqa: B006  # never run
            url: str | None = None,
            headers: dict[str, str] = {},  # noqa: B006
            timeout: int | None = None,
            required: bool = True,
        ) -> None:
            """As the fields, but `args` may be a list: the request makes it a tuple."""


class McpFile(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a .mcp.json file."""

    servers: dict[str, McpServer] = msgspec.field(default={}, name="mcpServers")


def _unsaid(word: T) -> T:
    """The same word as another object: a default that can be told from a caller who writes that very word.

    Without it `mode="default"` in a program would be taken for a field left out, and `[run] mode = "full"` of the
    user's config would win over it.
    """
    return "".join(str(word))  # type: ignore[return-value]  # the same text, so the same Literal


@documented
class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to run, and how: one value that is checked before anything starts.

    `leadrope.run("text", mode="plan")` makes one from its keywords. Fields that are left out take `[run]` of your
    config.toml, then the defaults below.
    """

    prompt: str
    """What the agent is asked to do."""
    attachments: tuple[str, ...] = ()
    """Paths of files and images to send with the first prompt."""
    attachment_root: str | None = None
    """The only folder that attachments may lie in, links followed; set by workflows."""
    provider: str = "claude-code"
    """The agent program."""
    agent: str | None = None
    """The saved agent whose settings count where the request says nothing; appears in the session's name."""
    agent_from: Literal["config", "user", "repository"] | None = None
    """Where the agent was found; set by whoever has put its settings into this request."""
    model: str | None = None
    """A tier (opus, sonnet, haiku) or any model id."""
    fallback_model: str | None = None
    """The model to use while the first one is overloaded."""
    purpose: str | None = None
    """Chooses a model tier when `model` is left out: analysis, review, chat, writing, coding …"""
    system_prompt: str | None = None
    """Replaces the agent's own; None leaves it alone."""
    append_system_prompt: str | None = None
    """Text added to the end of the system prompt."""
    instructions: bool = True
    """Pass the project's and the user's CLAUDE.md / AGENTS.md to the model."""
    tools: tuple[str, ...] | None = None
    """What may be used at all, as names or patterns (`Bash(git *)`). What you list needs no further approval. None: the
    default list."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools that this run must not use."""
    allow: tuple[str, ...] = ()
    """Tool patterns that need no further approval where the mode would ask; never past a block or an approval rule."""
    mode: Mode | ModeAlias = _unsaid("default")
    """What is allowed, asked for and denied where no rule decides."""
    policy: dict[str, Any] = {}
    """Rules of this run's own, as in a policy file; they can only tighten what other layers say."""
    policies: tuple[dict[str, Any], ...] = ()
    """More of the same, each a layer of its own: a workflow's rules, say, and those of its step."""
    policy_files: tuple[str, ...] = ()
    """Paths of policy files; they can only tighten, too."""
    max_turns: int | None = None
    """Most model calls of the run, 1 to 100."""
    max_thinking_tokens: int | None = None
    """Most tokens for thinking, 1,000 to 100,000."""
    effort: Effort | None = None
    """How hard the model tries."""
    connections: dict[str, McpServer] = {}
    """MCP servers by name."""
    extra_dirs: tuple[str, ...] = ()
    """More folders that belong to the workspace; `DIR:ro` can only be read."""
    subagents: dict[str, dict[str, Any]] = {}
    """Definitions by name, with the agent's own keys (its --agents); a key that it does not know is refused."""
    agent_sandbox: dict[str, Any] | None = None
    """Settings of the agent program's own sandbox."""
    sandbox: SandboxLevel | None = None
    """The sandbox around the whole agent. None: what the policy says. A value must be possible, or nothing starts."""
    network: Network | None = None
    """`model-only`: the agent and its commands reach the model and the policy's allowed hosts, and nothing else."""
    output_schema: dict[str, Any] | None = None
    """A JSON Schema, any draft up to 2020-12, that the answer must fit; whatever its root is."""
    schema_retries: int = 1
    """Corrective turns for an answer that does not fit; with 0 leadrope converts no scalars either."""
    cwd: str | None = None
    """The working directory. None: the current one."""
    session_id: str | None = None
    """A UUID for the new session; made when missing."""
    resume: str | None = None
    """The session to continue."""
    fork: bool = False
    """Continue a copy of that session and leave the original as it is."""
    persist_session: bool = True
    """Keep the session; without it the run cannot be resumed."""
    limits: Limits = Limits()
    """Clocks, budget and memory."""
    variables: dict[str, str] = {}
    """Environment variables for the agent."""
    secret_variables: tuple[str, ...] = ()
    """Names among `variables` whose values are never shown or kept; beside those whose name says so (`DB_PASSWORD`)."""
    billing: Billing = _unsaid("subscription")
    """Which kind of credential may be used. A key in the environment is used only with `api_key` or `auto`."""
    credential: Secret | None = None
    """A key or token for this run. None: found as `billing` says."""
    credential_kind: CredentialKind | None = None
    """Told by the credential's shape when left out; a gateway that wants a bearer token needs `auth_token`."""
    broker: bool | None = None
    """Keep the credential out of the agent's reach behind a broker of ours. None: for API keys, not for tokens."""
    base_url: str | None = None
    """The address of the model's API, if not the usual one."""
    binary: str | None = None
    """The path of the agent program, if not the one that leadrope finds."""
    labels: dict[str, str] = {}
    """Your own marks, for lists, budgets and statistics."""
    api_retries: int | None = None
    """How often the agent repeats a failed request to the model."""
    max_structured_retries: int | None = None
    """How often the agent itself tries again to satisfy `output_schema`."""
    attempts: int = 2
    """Most tries in all, for failures that can heal and before any tool has run."""
    wait_for_limit: bool = False
    """At a usage limit of the account, wait for the reset and continue in the session."""
    auto_continue: int = 0
    """How often a run that has used up its turns continues in its session; never where the caller set max_turns."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            prompt: str,
            agent_from: Literal["config", "user", "repository"] | None = None,
            attachment_root: str | None = None,
            **fields: Unpack[RunFields],
        ) -> None:
            """As the keywords of `run`: lists may be given where the fields hold tuples; `check` converts them."""


class _Range(msgspec.Struct, frozen=True):
    low: int
    high: int


_RANGES = {
    "max_turns": _Range(1, 100),
    "max_thinking_tokens": _Range(1000, 100_000),
    "schema_retries": _Range(0, 5),
    "api_retries": _Range(0, 100),
    "max_structured_retries": _Range(0, 100),
    "attempts": _Range(1, 10),
    "auto_continue": _Range(0, 5),
}
_UUID = regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL_EXAMPLE = "For example http://localhost:8000."
_SERVER_NAME = regex(r"[A-Za-z0-9_-]{1,64}")


def normal_mode(mode: object) -> Mode:
    """Our name for a mode; the agent's own spellings are understood."""
    name = MODE_ALIASES.get(mode, mode) if isinstance(mode, str) else mode
    if name not in get_args(Mode):
        known = {word.lower(): word for word in (*get_args(Mode), *MODE_ALIASES)}
        close = close_matches(str(mode).lower(), known, n=1)
        hint = f"Did you mean {known[close[0]]}? " if close else ""
        raise errors.BadValue("mode", f"{mode!r} is not a mode", hint=f"{hint}Use one of: {', '.join(get_args(Mode))}.")
    return name  # type: ignore[return-value]  # checked against the Literal's own members


def check_words(values: Mapping[str, Any]) -> None:
    """Refuses an unknown mode, billing, effort, sandbox or network with the words that are known.

    Before the types are checked: what a type check says of a wrong word names none of the right ones.
    """
    if "mode" in values:
        normal_mode(values["mode"])
    if "billing" in values:
        _one_of("billing", values["billing"], get_args(Billing))
    for name, kind in (("effort", Effort), ("sandbox", SandboxLevel), ("network", Network)):
        if values.get(name) is not None:
            _one_of(name, values[name], get_args(kind))


_SEQUENCES = tuple(name for name, kind in RunRequest.__annotations__.items() if kind.startswith("tuple["))


def with_tuples(request: RunRequest) -> RunRequest:
    """The request with a tuple wherever a list or another collection was given; a bare text is refused."""
    given = {name: getattr(request, name) for name in _SEQUENCES}
    changes = {name: as_tuple(name, value) for name, value in given.items() if not isinstance(value, tuple | None)}
    return msgspec.structs.replace(request, **changes) if changes else request


def check(request: RunRequest) -> RunRequest:
    """The request with every value of its declared type, or the first thing that is wrong with it.

    Looks at values only; directories are runtime's.
    """
    check_words({name: getattr(request, name) for name in ("mode", "billing", "effort", "sandbox", "network")})
    request = _typed(with_tuples(request))
    if not request.prompt.strip():
        raise errors.EmptyPrompt(
            "the prompt is empty",
            hint="Give the agent something to do.",
        )
    if request.purpose is not None:
        models.check_purpose(request.purpose)
    _check_filled(request)
    for field, allowed in _RANGES.items():
        value = getattr(request, field)
        if value is not None and not allowed.low <= value <= allowed.high:
            raise errors.BadValue(field, f"{value} is out of range", hint=f"Use {allowed.low} to {allowed.high}.")
    _check_limits(request.limits)
    _check_session(request)
    if request.output_schema is not None and request.max_turns is not None and request.max_turns < 2:
        raise errors.BadValue(
            "max_turns",
            "an output schema needs at least 2 turns, one of them to hand over the answer",
            hint="Raise max_turns to 2 or more, or leave it out.",
        )
    if request.output_schema is not None:
        schema.read(request.output_schema)
    if request.base_url is not None and not re.fullmatch(r"https?://[^\s/]\S*", request.base_url):
        raise errors.BadValue(
            "base_url", f"{request.base_url!r} must start with http:// or https://", hint=_URL_EXAMPLE
        )
    for name, server in request.connections.items():
        check_connection(name, server)
    if request.agent_sandbox is not None:
        agent_sandbox.check(request.agent_sandbox)
    subagents.check(request.subagents)
    for name in request.secret_variables:
        if 0 < len(request.variables.get(name, "")) < SHORTEST:
            raise errors.BadValue(
                "secret_variables",
                f"the value of {name} is too short to be taken out of texts: it would take ordinary words with it",
                hint=f"A secret needs {SHORTEST} characters or more.",
            )
    return request


_EMPTY = {
    "model": "Name a tier (opus, sonnet, haiku) or a model, or leave it out.",
    "fallback_model": "Name a tier (opus, sonnet, haiku) or a model, or leave it out.",
    "agent": "Name a saved agent, or leave it out.",
    "cwd": "Name a folder, or leave it out.",
    "binary": "Name a program, or leave it out.",
    "extra_dirs": "Name a folder, or leave it out.",
}


def _check_filled(request: RunRequest) -> None:
    """An empty name is most often a variable of a script that was not set."""
    for field, hint in _EMPTY.items():
        value = getattr(request, field)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and not one.strip():
                raise errors.BadValue(field, "is empty", hint=hint)


def _typed(request: RunRequest) -> RunRequest:
    given: Any = request.output_schema
    if not isinstance(given, dict | None):
        schema.read(given)
    # A struct takes whatever it is given; a text in place of a number must not surface as a TypeError later.
    if not isinstance(request.credential, Secret | None):
        raise errors.BadValue("credential", "is not a Secret", hint="Wrap it: Secret(value).")
    try:
        plain = msgspec.to_builtins(msgspec.structs.replace(request, credential=None))
        check_text(plain)
        return msgspec.structs.replace(msgspec.convert(plain, RunRequest), credential=request.credential)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        raise errors.BadValue(path.rstrip("`") or "request", message) from None
    except (TypeError, msgspec.EncodeError) as error:
        raise errors.BadValue("request", f"holds a value that JSON cannot carry: {error}") from None


def check_text(values: Mapping[str, Any]) -> None:
    """Refuses what is not text by the name of its field: events, logs and the agent's input are UTF-8.

    Bytes of a terminal or a file name that are not UTF-8 come to Python as halves of surrogate pairs.
    """
    for field, value in values.items():
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError:
            raise errors.BadValue(
                field, "holds bytes that are not UTF-8 text", hint="Look at the encoding of where it comes from."
            ) from None


def check_connection(name: str, server: McpServer) -> None:
    field = dotted("connections", name)
    if not _SERVER_NAME.fullmatch(name):
        hint = f"Name it {re.sub('[^A-Za-z0-9_-]+', '-', name)[:64] or 'docs'}."
        raise errors.BadValue(field, "the name may hold letters, digits, - and _ only", hint=hint)
    if bool(server.command) == bool(server.url):
        raise errors.BadValue(
            field,
            "needs either a command (stdio) or a url (http, sse)",
            hint='For example command = "npx" with args = ["server"], or url = "http://localhost:8000/mcp".',
        )
    if server.url and not re.match(r"https?://", server.url):
        raise errors.BadValue(f"{field}.url", f"{server.url!r} must start with http:// or https://", hint=_URL_EXAMPLE)
    if server.type == "stdio" and server.url:
        raise errors.BadValue(f"{field}.type", "stdio takes a command, not a url", hint="Leave type out.")
    if server.type in ("http", "sse") and server.command:
        raise errors.BadValue(f"{field}.type", f"{server.type} takes a url, not a command", hint="Leave type out.")
    if server.timeout is not None and server.timeout <= 0:
        raise errors.BadValue(
            f"{field}.timeout", f"{server.timeout} is not a number above zero", hint="Write milliseconds: 60000."
        )
    for key, takes, hint in (
        ("headers", server.url, "Pass it in env or args, or write a url in place of the command."),
        ("args", server.command, "Leave them out, or write a command in place of the url."),
        ("env", server.command, "Write them as headers, or write a command in place of the url."),
    ):
        if getattr(server, key) and not takes:
            kind = "command" if server.command else "url"
            raise errors.BadValue(f"{field}.{key}", f"a connection with a {kind} has no {key}", hint=hint)
    for key in server.env:
        if not _VARIABLE.fullmatch(key):
            hint = "Use letters, digits and _, and start with a letter."
            raise errors.BadValue(f"{field}.env.{key}", "cannot be the name of a variable", hint=hint)
    for key in server.headers:
        if not _HEADER.fullmatch(key):
            hint = "Use letters, digits and -: X-Api-Key."
            raise errors.BadValue(f"{field}.headers.{key}", "cannot be the name of a header", hint=hint)


_NO_BUDGET = "Write an amount in USD, or none for no cap of the run's own."


def _check_limits(limits: Limits) -> None:
    for name in Limits.__struct_fields__:
        value = getattr(limits, name)
        if value in (None, "none") or (math.isfinite(value) and value >= 0):
            continue
        is_budget = name == "budget_usd"
        wrong = f"{value:g} is not {'an amount above zero' if is_budget else 'a number of zero or more'}"
        raise errors.BadValue(f"limits.{name}", wrong, hint=_NO_BUDGET if is_budget else "Write 0 for no limit.")
    if limits.budget_usd == 0:
        raise errors.BadValue("limits.budget_usd", "0 would end the run before its first request", hint=_NO_BUDGET)


def _check_session(request: RunRequest) -> None:
    if request.session_id is not None:
        # Not uuid.UUID(): it also takes braces, a urn: and bare digits, which the agent refuses.
        if not _UUID.fullmatch(request.session_id):
            raise errors.BadValue("session_id", f"{request.session_id!r} is not a UUID")
        if request.resume and not request.fork:
            raise errors.BadValue(
                "session_id", "a resumed session keeps its id", hint="Add fork, or drop one of the two."
            )
    if request.fork and not request.resume:
        raise errors.BadValue("fork", "there is nothing to fork", hint="Say which session with resume.")
    if request.resume is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", request.resume):
        raise errors.BadValue("resume", f"{request.resume!r} is not a session id")


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        close = close_matches(str(value).lower(), allowed, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise errors.BadValue(field, f"{value!r} is not known", hint=f"{meant}Use one of: {', '.join(allowed)}.")
