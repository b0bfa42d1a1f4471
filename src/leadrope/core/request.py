"""What a caller asks for: one frozen value, checked before anything is started."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from leadrope import errors
from leadrope.core import agent_sandbox, schema
from leadrope.core.redaction import SHORTEST, Secret

Mode = Literal["plan", "default", "edit", "sandboxed", "full", "dontAsk"]
Billing = Literal["subscription", "subscription_only", "api_key", "auto"]
"""`subscription` takes a key from leadrope's own .env all the same; `subscription_only` takes none from anywhere."""
Effort = Literal["low", "medium", "high", "xhigh", "max"]

# The agent's own spellings are accepted and mean the same thing.
MODE_ALIASES = {"acceptEdits": "edit", "bypassPermissions": "full", "auto": "default", "manual": "default"}


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds on the monotonic clock, each with its own named ending; 0 switches a clock off. Then money and memory."""

    start_s: float = 60
    """From the start of the process to its first sign of life."""
    idle_s: float | None = None
    """Silence between events; stands still while a tool runs, an approval waits, or the consumer is slow. Left out:
    what LEADROPE_SPAWN_IDLE_TIMEOUT_MS says, else 300."""
    tool_s: float = 900
    """One tool call, from the yes to its result; interrupts the turn, not the run."""
    wall_s: float | None = None
    """The whole run, whatever it does. Left out: what LEADROPE_SPAWN_MAX_MS says, else off."""
    exit_s: float = 5
    """From the last result to the end of the process."""
    approval_s: float = 300
    """A person's time to answer; after it the answer is no."""
    connection_s: float = 30
    """For a connection to answer when the run starts."""
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


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One connection: `command` (stdio) or `url` (http, sse), never both."""

    type: Literal["stdio", "http", "sse"] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    timeout: int | None = None
    """Milliseconds for one call of its tools."""
    required: bool = True
    """A run whose required connection cannot be made ends with an error that names it; False only warns."""


class McpFile(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a .mcp.json file."""

    servers: dict[str, McpServer] = msgspec.field(default={}, name="mcpServers")


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    prompt: str
    attachments: tuple[str, ...] = ()
    """Files and images by path, handed over with the first prompt."""
    provider: str = "claude-code"
    agent: str | None = None
    """The saved agent this run belongs to; appears in the session's name."""
    model: str | None = None
    """A tier (opus, sonnet, haiku) or any model id."""
    fallback_model: str | None = None
    purpose: str | None = None
    system_prompt: str | None = None
    """Replaces the agent's own; None leaves it alone."""
    append_system_prompt: str | None = None
    instructions: bool = True
    """Pass the project's and the user's CLAUDE.md / AGENTS.md to the model."""
    tools: tuple[str, ...] | None = None
    """None: the default list. What is named here by the caller needs no further yes in modes that would ask."""
    disallowed_tools: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    """Tool patterns that need no further approval where the mode would ask; never past a block or an approval rule."""
    mode: str = "default"
    policy: dict[str, Any] = {}
    """Rules of this run's own, as in a policy file; they can only tighten what other layers say."""
    policies: tuple[dict[str, Any], ...] = ()
    """More of the same, each a layer of its own: a workflow's rules, say, and those of its step."""
    policy_files: tuple[str, ...] = ()
    max_turns: int | None = None
    max_thinking_tokens: int | None = None
    effort: str | None = None
    connections: dict[str, McpServer] = {}
    extra_dirs: tuple[str, ...] = ()
    subagents: dict[str, dict[str, Any]] = {}
    """Definitions handed to the agent as they are (its --agents)."""
    sandbox: dict[str, Any] | None = None
    """The agent's own sandbox settings."""
    walls: Literal["workspace", "read-only", "off"] | None = None
    """A box around the whole agent. Left out: what the policy says; named: it must be possible, or nothing starts."""
    network: Literal["any", "model-only"] | None = None
    """`model-only`: the agent and its commands reach the model and the policy's allowed hosts, and nothing else."""
    output_schema: dict[str, Any] | None = None
    """A JSON Schema, any draft up to 2020-12, that the answer must fit; whatever its root is."""
    schema_retries: int = 1
    """Corrective turns for an answer that does not fit; with 0 leadrope converts no scalars either."""
    cwd: str | None = None
    session_id: str | None = None
    """A UUID for the new session; made when missing."""
    resume: str | None = None
    fork: bool = False
    persist_session: bool = True
    limits: Limits = Limits()
    variables: dict[str, str] = {}
    secret_variables: tuple[str, ...] = ()
    """Names among `variables` whose values are never shown or kept; beside those whose name says so (`DB_PASSWORD`)."""
    billing: str = "subscription"
    credential: Secret | None = None
    credential_kind: Literal["api_key", "oauth_token", "auth_token"] | None = None
    """Told by the credential's shape when left out; a gateway that wants a bearer token needs `auth_token`."""
    broker: bool | None = None
    """Keep the credential out of the agent's reach behind a broker of ours. Left out: for API keys, not for tokens."""
    base_url: str | None = None
    binary: str | None = None
    labels: dict[str, str] = {}
    api_retries: int | None = None
    max_structured_retries: int | None = None
    attempts: int = 2
    """Tries in all, for failures that can heal and before any tool has run."""
    wait_for_limit: bool = False
    """A usage limit of the account does not end the run: it waits for the reset and goes on in its session."""
    auto_continue: int = 0
    """How often a run that has used up its turns goes on in its session; never where the caller set max_turns."""


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
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def normal_mode(mode: str) -> Mode:
    """Our name for a mode; the agent's own spellings are understood."""
    name = MODE_ALIASES.get(mode, mode)
    if name not in get_args(Mode):
        raise errors.BadValue(
            "mode",
            f"{mode!r} is not a mode",
            hint=f"Use one of: {', '.join(get_args(Mode))}.",
        )
    return name  # type: ignore[return-value]  # checked against the Literal's own members


def check(request: RunRequest) -> RunRequest:
    """The request with every value of its declared type, or the first thing that is wrong with it.

    Looks at values only; directories are runtime's.
    """
    request = _typed(request)
    if not request.prompt.strip():
        raise errors.EmptyPrompt(
            "the prompt is empty",
            hint="Give the agent something to do; if the text came from an earlier step, that step produced nothing.",
        )
    normal_mode(request.mode)
    _one_of("billing", request.billing, get_args(Billing))
    if request.effort is not None:
        _one_of("effort", request.effort, get_args(Effort))
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
        raise errors.BadValue("base_url", f"{request.base_url!r} must start with http:// or https://")
    for name, server in request.connections.items():
        check_connection(name, server)
    if request.sandbox is not None:
        agent_sandbox.check(request.sandbox)
    for name in request.secret_variables:
        if 0 < len(request.variables.get(name, "")) < SHORTEST:
            raise errors.BadValue(
                "secret_variables",
                f"the value of {name} is too short to be taken out of texts: it would take ordinary words with it",
                hint=f"A secret needs {SHORTEST} characters or more.",
            )
    return request


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
    """Refuses what is no text by the name of its field: events, logs and the agent's input are UTF-8.

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
    field = f"connections.{name}"
    if not _SERVER_NAME.fullmatch(name):
        raise errors.BadValue(field, "the name may hold letters, digits, - and _ only")
    if bool(server.command) == bool(server.url):
        raise errors.BadValue(
            field,
            "needs either a command (stdio) or a url (http, sse)",
            hint='For example {"command": "npx", "args": ["server"]} or {"type": "http", "url": "http://…"}.',
        )
    if server.url and not re.match(r"https?://", server.url):
        raise errors.BadValue(field, f"url {server.url!r} must start with http:// or https://")
    if server.type == "stdio" and server.url:
        raise errors.BadValue(field, "type stdio takes a command, not a url")
    if server.type in ("http", "sse") and server.command:
        raise errors.BadValue(field, f"type {server.type} takes a url, not a command")


def _check_limits(limits: Limits) -> None:
    for name in Limits.__struct_fields__:
        value = getattr(limits, name)
        if value not in (None, "none") and not (math.isfinite(value) and value >= 0):
            raise errors.BadValue(f"limits.{name}", f"{value} is not a number of zero or more")
    if limits.budget_usd == 0:
        raise errors.BadValue("limits.budget_usd", "a budget of 0 lets nothing happen", hint='Write "none" for no cap.')


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


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise errors.BadValue(field, f"{value!r} is not known", hint=f"Use one of: {', '.join(allowed)}.")
