"""What a caller asks for: one frozen value, and with each field what it means and where else it can be set.

Annotations are evaluated here: flags, defaults and reference pages are made from them (`request_parts/option.py`). The
checks are in `request_checks.py`.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Unpack

import msgspec

from leadrope.core.request_parts.field_docs import documented
from leadrope.core.request_parts.option import RequestOption, options_of
from leadrope.core.request_parts.sequences import SequenceNotStr
from leadrope.core.secrets.redaction import Secret

if TYPE_CHECKING:
    from leadrope.core.request_forms import RunFields

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

    start_s: Annotated[
        float,
        RequestOption(
            "Time from the start of the process to its first sign of life.", "limits", flag="--start-secs", value="N"
        ),
    ] = 60
    idle_s: Annotated[
        float | None,
        RequestOption(
            "Silence that ends the run. The clock stands still while a tool runs or an approval waits.",
            "limits",
            flag="--idle-secs",
            old=("--timeout-secs",),
            value="N",
            default="300",
            remote="lower",
        ),
    ] = None
    """Also while the consumer is slow. None: LEADROPE_SPAWN_IDLE_TIMEOUT_MS, else 300."""
    tool_s: Annotated[
        float,
        RequestOption(
            "Time for one tool call, from its approval to its result. Interrupts the turn, not the run.",
            "limits",
            flag="--tool-secs",
            value="N",
            remote="lower",
        ),
    ] = 900
    wall_s: Annotated[
        float | None,
        RequestOption(
            "Time for the whole run, whatever it does.",
            "limits",
            flag="--wall-secs",
            value="N",
            default="none",
            remote="lower",
        ),
    ] = None
    """None: LEADROPE_SPAWN_MAX_MS, else no limit."""
    exit_s: Annotated[
        float, RequestOption("Time from the result to the end of the process.", "limits", flag="--exit-secs", value="N")
    ] = 5
    approval_s: Annotated[
        float | None,
        RequestOption(
            "Time to answer a question, after which the call is denied.",
            "limits",
            flag="--approval-secs",
            value="N",
            default="300; detached runs wait",
            remote="lower",
        ),
    ] = None
    connection_s: Annotated[
        float,
        RequestOption("Time for an MCP server to connect at the start.", "limits", flag="--connection-secs", value="N"),
    ] = 30
    unreachable_s: Annotated[
        float,
        RequestOption(
            "How long to try to reach a model's server that refuses connections, or has no address or route. "
            "One that has answered in this run gets at least 180.",
            "limits",
            flag="--unreachable-secs",
            value="N",
        ),
    ] = 30
    stop_s: Annotated[
        float,
        RequestOption(
            "Time between asking the process to stop and killing it.", "limits", flag="--stop-secs", value="N"
        ),
    ] = 2
    budget_usd: Annotated[
        float | Literal["none"] | None,
        RequestOption(
            "Maximum cost of the run in US dollars; none: no cap of its own.",
            "limits",
            flag="--budget",
            value="USD",
            form="budget",
            default="what the policy says, 100 as shipped",
            remote="lower",
        ),
    ] = None
    memory_mb: Annotated[
        float | None,
        RequestOption(
            "Memory limit for the agent and everything it starts, in MiB (Linux).",
            "limits",
            flag="--memory-mb",
            value="MIB",
            default="none",
            remote="lower",
        ),
    ] = None

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
    attachments: Annotated[
        tuple[str, ...],
        RequestOption(
            "Files and images to send with the first prompt.",
            "task",
            flag="--attach",
            value="FILE",
            form="texts",
            config=False,
            step=True,
            remote="upload",
        ),
    ] = ()
    attachment_root: str | None = None
    """The only folder that attachments may lie in, links followed; set by workflows."""
    provider: Annotated[
        str, RequestOption("The kind of agent to start.", "agent", value="NAME", see="providers.md", remote="named")
    ] = "claude-code"
    agent: Annotated[
        str | None,
        RequestOption(
            "A saved agent; its settings apply where nothing else is set.",
            "agent",
            value="NAME",
            see="agents.md",
            if_empty="Name a saved agent, or leave it out.",
            agent=False,
            step=True,
            remote="named",
        ),
    ] = None
    agent_from: Literal["config", "user", "repository"] | None = None
    """Where the agent was found; set by whoever has put its settings into this request."""
    model: Annotated[
        str | None,
        RequestOption(
            "A tier (opus, sonnet, haiku), a name from `[models]`, or any model id.",
            "agent",
            flag="--model -m",
            value="NAME",
            if_empty="Name a tier (opus, sonnet, haiku) or a model, or leave it out.",
            project=True,
            remote="yes",
        ),
    ] = None
    fallback_model: Annotated[
        str | None,
        RequestOption(
            "The model to use when the first one is at capacity.",
            "agent",
            value="NAME",
            if_empty="Name a tier (opus, sonnet, haiku) or a model, or leave it out.",
            project=True,
            step=True,
            remote="yes",
        ),
    ] = None
    purpose: Annotated[
        str | None,
        RequestOption(
            "Choose the model by purpose: analysis, review, chat, writing, coding, research, creative, data or "
            "general.",
            "agent",
            value="WORD",
            project=True,
            step=True,
            remote="yes",
        ),
    ] = None
    system_prompt: Annotated[
        str | None,
        RequestOption(
            "Replaces the agent's own system prompt.", "agent", value="TEXT", project=True, step=True, remote="yes"
        ),
    ] = None
    append_system_prompt: Annotated[
        str | None,
        RequestOption(
            "Added to the agent's system prompt.", "agent", value="TEXT", project=True, step=True, remote="yes"
        ),
    ] = None
    instructions: Annotated[
        bool,
        RequestOption("Pass CLAUDE.md and AGENTS.md, yours and the project's, to the model.", "agent", remote="yes"),
    ] = True
    tools: Annotated[
        tuple[str, ...] | None,
        RequestOption(
            "The only tools that may be used besides Read and the web tools. Listed tools are pre-approved where the "
            "mode would ask.",
            "safety",
            see="policy.md#grants",
            flag="--tools --allowed-tools",
            value="LIST",
            form="list",
            remote="yes",
        ),
    ] = None
    """Names or patterns (`Bash(git *)`). None: the default list."""
    disallowed_tools: Annotated[
        tuple[str, ...],
        RequestOption(
            "Tools that may never be used.",
            "safety",
            value="LIST",
            form="list",
            grows="joined",
            step=True,
            remote="yes",
        ),
    ] = ()
    allow: Annotated[
        tuple[str, ...],
        RequestOption(
            'Calls that are approved where the mode would ask, such as "Bash(npm test *)". Blocks, approval rules and '
            "protected paths still hold.",
            "safety",
            value="PATTERN",
            form="list",
            grows="joined",
            step=True,
            remote="yes",
        ),
    ] = ()
    mode: Annotated[
        Mode | ModeAlias,
        RequestOption(
            "plan: read only. default: ask for everything but reading. edit: also edit files in the workspace. "
            "sandboxed: work freely inside the sandbox and ask to leave it. full: ask only where a rule says so. "
            "dontAsk: deny what would be asked.",
            "safety",
            see="run.md#modes",
            value="MODE",
            remote="yes",
        ),
    ] = _unsaid("default")
    policy: dict[str, Any] = {}
    """Rules of this run's own, as in a policy file; they can only tighten what other layers say."""
    policies: tuple[dict[str, Any], ...] = ()
    """More of the same, each a layer of its own: a workflow's rules, say, and those of its step."""
    policy_files: Annotated[
        tuple[str, ...],
        RequestOption(
            "A policy file for this run; it can only tighten.",
            "safety",
            flag="--policy",
            value="FILE",
            form="texts",
            grows="joined",
            config=False,
        ),
    ] = ()
    max_turns: Annotated[
        int | None,
        RequestOption("Maximum number of model requests.", "limits", value="N", low=1, high=100, remote="yes"),
    ] = None
    max_thinking_tokens: Annotated[
        int | None,
        RequestOption(
            "Maximum number of tokens for thinking.", "agent", value="N", low=1000, high=100_000, remote="yes"
        ),
    ] = None
    effort: Annotated[
        Effort | None,
        RequestOption(
            "How hard the model tries: low, medium, high, xhigh or max.",
            "agent",
            value="WORD",
            project=True,
            step=True,
            remote="yes",
        ),
    ] = None
    connections: Annotated[
        dict[str, McpServer],
        RequestOption(
            "Connections that the run gets, by their names in `[connections.NAME]`.",
            "connections",
            flag=None,
            config_type="tuple[str, ...]",
            remote="named",
        ),
    ] = {}
    """In a request, the MCP servers themselves by name."""
    extra_dirs: Annotated[
        tuple[str, ...],
        RequestOption(
            "More folders that belong to the workspace; with :ro they can only be read.",
            "task",
            flag="--add-dir",
            value="DIR[:ro]",
            form="texts",
            if_empty="Name a folder, or leave it out.",
        ),
    ] = ()
    subagents: Annotated[
        dict[str, dict[str, Any]],
        RequestOption(
            "Definitions of subagents by name, with the agent's own keys: `description` and `prompt`, and for example "
            "`tools`, `model`.",
            "agent",
            value="FILE|JSON",
            form="json",
            remote="yes",
        ),
    ] = {}
    """The keys are those of Claude Code's --agents; a key that it does not know is refused."""
    agent_sandbox: Annotated[
        dict[str, Any] | None,
        RequestOption(
            "Settings of the agent's own sandbox.",
            "safety",
            see="sandbox.md#the-agents-own-sandbox",
            flag="--sandbox-settings",
            value="FILE|JSON",
            form="json",
        ),
    ] = None
    sandbox: Annotated[
        SandboxLevel | None,
        RequestOption(
            "The sandbox around the whole agent (Linux, bubblewrap): workspace, read-only or off.",
            "safety",
            see="sandbox.md",
            form="choice",
            default="what the policy says",
            remote="lower",
        ),
    ] = None
    """If the machine cannot provide the level that is asked for, nothing starts."""
    network: Annotated[
        Network | None,
        RequestOption(
            "model-only: the sandbox reaches the model and allowed hosts, and nothing else.",
            "safety",
            see="sandbox.md#network",
            form="choice",
            default="what the policy says",
            remote="lower",
        ),
    ] = None
    output_schema: Annotated[
        dict[str, Any] | None,
        RequestOption(
            "A JSON Schema that the answer must satisfy.",
            "output",
            see="output.md",
            terminal="A JSON Schema that the answer must satisfy, else the exit code is 1. Only JSON goes to stdout.",
            flag="--schema",
            value="FILE|JSON",
            form="json",
            remote="yes",
        ),
    ] = None
    """Any draft up to 2020-12, with any type at its root."""
    schema_retries: Annotated[
        int,
        RequestOption(
            "Further turns for an answer that does not match the schema. With 0, no value is converted either.",
            "output",
            value="N",
            low=0,
            high=5,
            step=True,
            remote="yes",
        ),
    ] = 1
    cwd: Annotated[
        str | None,
        RequestOption(
            "The working directory.",
            "task",
            flag="--cwd -C",
            value="DIR",
            default="current directory",
            if_empty="Name a folder, or leave it out.",
        ),
    ] = None
    session_id: Annotated[
        str | None,
        RequestOption("The new session's id, a UUID.", "session", value="UUID", default="a new one", config=False),
    ] = None
    resume: Annotated[
        str | None,
        RequestOption(
            "The session to continue.",
            "session",
            terminal="Resume an earlier session with the settings it had, named by its id or a run's; a prefix is "
            "enough.",
            flag="--resume -r",
            value="ID",
            config=False,
            step=True,
            remote="named",
        ),
    ] = None
    fork: Annotated[
        bool,
        RequestOption(
            "Continue a copy of that session, and leave the original as it is.",
            "session",
            terminal="The same, in a copy of that session.",
            flag="--fork",
            value="ID",
            config=False,
            remote="yes",
        ),
    ] = False
    persist_session: Annotated[
        bool,
        RequestOption(
            "Keep the session, so that it can be resumed.", "session", flag="--session/--no-session", remote="yes"
        ),
    ] = True
    limits: Annotated[
        Limits,
        RequestOption(
            "Clocks, budget and memory.", "limits", see="config.md#runlimits", flag=None, grows="merged", remote="lower"
        ),
    ] = Limits()
    variables: Annotated[
        dict[str, str],
        RequestOption(
            "Environment variables for the agent.",
            "task",
            terminal="An environment variable for the agent; without =VALUE, its value in your environment.",
            flag="--var",
            value="NAME[=VALUE]",
            form="variables",
            grows="merged",
            remote="named",
        ),
    ] = {}
    secret_variables: Annotated[
        tuple[str, ...],
        RequestOption(
            "Names of variables whose values are never shown or stored.",
            "task",
            terminal="The same, with a value that is never shown or stored. NAME=VALUE also works, but is visible in "
            "the process list.",
            flag="--secret",
            value="NAME",
            form="texts",
            grows="joined",
            agent=False,
            remote="named",
        ),
    ] = ()
    """A variable whose name says that it is a secret (`DB_PASSWORD`) counts as one anyway."""
    billing: Annotated[
        Billing,
        RequestOption(
            "subscription (an API key is used only from leadrope's own .env), subscription_only (no key at all), "
            "api_key, or auto.",
            "billing",
            value="WHO",
        ),
    ] = _unsaid("subscription")
    """A key in the environment is used only with `api_key` or `auto`."""
    credential: Annotated[
        Secret | None,
        RequestOption(
            "The key or token to use.",
            "billing",
            terminal="A file with the key or token to use.",
            flag="--credential-file",
            value="FILE",
            form="secret_file",
            config=False,
        ),
    ] = None
    """None: found as `billing` says."""
    credential_kind: Annotated[
        CredentialKind | None,
        RequestOption(
            "The kind of that credential, if it cannot be seen from its form.", "billing", form="choice", config=False
        ),
    ] = None
    """A gateway that wants a bearer token needs `auth_token`."""
    broker: Annotated[
        bool | None,
        RequestOption(
            "Keep the credential out of the agent's reach.",
            "billing",
            see="budget.md#the-broker",
            default="for API keys, not for tokens",
        ),
    ] = None
    base_url: Annotated[
        str | None, RequestOption("The address of a gateway or a local model.", "billing", value="URL")
    ] = None
    binary: Annotated[
        str | None,
        RequestOption(
            "The agent program to start.", "billing", value="FILE", if_empty="Name a program, or leave it out."
        ),
    ] = None
    labels: Annotated[
        dict[str, str],
        RequestOption(
            "Labels of the run, for lists, costs and budgets.",
            "task",
            flag="--label",
            value="KEY=VALUE",
            form="pairs",
            grows="merged",
            remote="yes",
        ),
    ] = {}
    api_retries: Annotated[
        int | None,
        RequestOption("The agent's retries against a failing service.", "limits", value="N", low=0, high=100),
    ] = None
    max_structured_retries: Annotated[
        int | None,
        RequestOption(
            "The agent's own retries for structured output within a turn.",
            "output",
            flag="--structured-retries",
            value="N",
            low=0,
            high=100,
        ),
    ] = None
    attempts: Annotated[
        int,
        RequestOption(
            "Maximum number of starts. Only a failure that can heal, before any tool has run, leads to another one.",
            "limits",
            value="N",
            low=1,
            high=10,
            remote="yes",
        ),
    ] = 2
    wait_for_limit: Annotated[
        bool,
        RequestOption(
            "At a usage limit of the account, wait for its reset and continue in the session.", "limits", remote="yes"
        ),
    ] = False
    auto_continue: Annotated[
        int,
        RequestOption(
            "How often a run that has used up its turns continues in its session; never where `max_turns` is given "
            "with the run.",
            "limits",
            terminal="How often to continue when the turns are used up, unless --max-turns is given.",
            value="N",
            low=0,
            high=5,
            remote="yes",
        ),
    ] = 0

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


OPTIONS: dict[str, RequestOption] = {}
for _name, _option in options_of(RunRequest).items():
    OPTIONS[_name] = _option
    if _name == "limits":
        OPTIONS |= {f"limits.{limit}": option for limit, option in options_of(Limits).items()}
"""Every option of a run by the path of its field."""
_FLAGS = {"access.folders": "extra_dirs", "access.secrets": "secret_variables"}
"""What an execution is given, by the flags of the runs in it."""


def flag_of(field: str) -> str:
    """How an option is spelled at the terminal: `--idle-secs` for `limits.idle_s`."""
    option = OPTIONS.get(_FLAGS.get(field, field))
    spellings = option.flags(field) if option is not None else ()
    return spellings[0].partition("/")[0] if spellings else f"--{field.replace('_', '-')}"
