"""The flags of a run: one table, and how given flags become fields of a request. Starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from leadrope import errors
from leadrope.cli import flags, values
from leadrope.core.config import Config
from leadrope.core.request import McpServer

TASK, AGENT, SAFETY, TOOLS, SESSION, SHAPE, LIMITS, PAYING, KEEPING, SHOWING = (
    "The task",
    "The agent",
    "What it may do",
    "Connections",
    "The session",
    "Structured output",
    "Limits (seconds; 0 switches a clock off)",
    "Who pays, and what is started",
    "Where it works, and what is kept",
    "What you see",
)
SECTIONS = (TASK, AGENT, SAFETY, TOOLS, SESSION, SHAPE, LIMITS, PAYING, KEEPING, SHOWING)


class Flag(flags.Renamed):
    """An option that knows its section of the help and, if it is one, the request's field."""

    def __init__(
        self,
        *names: str,
        section: str,
        field: str | None = None,
        read: Callable[[str, Any], Any] | None = None,
        old: tuple[str, ...] = (),
        **attrs: Any,
    ) -> None:
        super().__init__(names, old=old, default=() if attrs.get("multiple") else None, **attrs)
        self.section = section
        self.field = field
        self.read = read

    @property
    def spelling(self) -> str:
        return next(name for name in self.opts if name.startswith("--"))

    def is_given(self, value: object) -> bool:
        return value is not None and value != ()


class GroupedCommand(click.Command):
    """Help with one block of options per section, in the order of SECTIONS."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        blocks: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                blocks[getattr(param, "section", SHOWING)].append(record)
        for section, records in blocks.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


# -- the table -------------------------------------------------------------------------------------------------------

_DIRECTORY, _FILE, _JSON = "DIR", "FILE", "FILE|JSON"


def _seconds(name: str, field: str, text: str, default: str, *, old: tuple[str, ...] = ()) -> Flag:
    told = f"{text} [default: {default}]"
    return Flag(f"--{name}", section=LIMITS, field=f"limits.{field}", type=float, metavar="N", old=old, help=told)


FLAGS: tuple[Flag, ...] = (
    Flag("--file", "-f", section=TASK, metavar=_FILE, help="Read the prompt from a file."),
    Flag(
        "--attach",
        section=TASK,
        field="attachments",
        multiple=True,
        read=values.as_given,
        metavar=_FILE,
        help="A file or an image to pass with the prompt; repeatable.",
    ),
    Flag(
        "--cwd",
        "-C",
        section=TASK,
        field="cwd",
        metavar=_DIRECTORY,
        help="The working directory [default: current directory].",
    ),
    Flag(
        "--add-dir",
        section=TASK,
        field="extra_dirs",
        multiple=True,
        read=values.as_given,
        metavar="DIR[:ro]",
        help="Another folder that belongs to the workspace; with :ro it can only be read. Repeatable.",
    ),
    Flag(
        "--var",
        section=TASK,
        field="variables",
        multiple=True,
        read=values.variables,
        metavar="NAME[=VALUE]",
        help="An environment variable for the agent; without =VALUE, its value in your environment. Repeatable.",
    ),
    Flag(
        "--secret",
        section=TASK,
        field="secret_variables",
        multiple=True,
        read=values.as_given,
        metavar="NAME",
        help="The same, with a value that is never shown or stored; repeatable. NAME=VALUE also works, but is "
        "visible in the process list.",
    ),
    Flag(
        "--secret-file",
        section=TASK,
        multiple=True,
        metavar="NAME=FILE",
        help="The same, with the content of a file as its value (without a newline at its end); repeatable.",
    ),
    Flag(
        "--label",
        section=TASK,
        field="labels",
        multiple=True,
        read=values.pairs,
        metavar="KEY=VALUE",
        help="A label of the run; repeatable.",
    ),
    Flag("--profile", section=TASK, metavar="NAME", help="Use [profiles.NAME] of your config.toml."),
    Flag("--model", "-m", section=AGENT, field="model", metavar="NAME", help="opus, sonnet, haiku or any model id."),
    Flag(
        "--purpose",
        section=AGENT,
        field="purpose",
        metavar="WORD",
        help="Choose the model by purpose: analysis, review, chat, writing, coding, research, creative, data, general.",
    ),
    Flag(
        "--fallback-model",
        section=AGENT,
        field="fallback_model",
        metavar="NAME",
        help="Used when the model is at capacity.",
    ),
    Flag(
        "--provider",
        section=AGENT,
        field="provider",
        metavar="NAME",
        help="The kind of agent program [default: claude-code].",
    ),
    Flag("--agent", section=AGENT, field="agent", metavar="NAME", help="A saved agent; see `leadrope agents list`."),
    Flag(
        "--subagents",
        section=AGENT,
        field="subagents",
        read=values.json_object,
        metavar=_JSON,
        help="Definitions of subagents, passed to the agent.",
    ),
    Flag("--effort", section=AGENT, field="effort", metavar="WORD", help="low, medium, high, xhigh or max."),
    Flag(
        "--max-thinking-tokens",
        section=AGENT,
        field="max_thinking_tokens",
        type=int,
        metavar="N",
        help="1000 to 100000.",
    ),
    Flag("--system-prompt", section=AGENT, field="system_prompt", metavar="TEXT", help="Replace the agent's own."),
    Flag(
        "--system-prompt-file",
        section=AGENT,
        field="system_prompt",
        read=values.read_text,
        metavar=_FILE,
        help="The same, from a file.",
    ),
    Flag(
        "--append-system-prompt",
        section=AGENT,
        field="append_system_prompt",
        metavar="TEXT",
        help="Add to the agent's own.",
    ),
    Flag(
        "--append-system-prompt-file",
        section=AGENT,
        field="append_system_prompt",
        read=values.read_text,
        metavar=_FILE,
        help="The same, from a file.",
    ),
    Flag(
        "--instructions/--no-instructions",
        section=AGENT,
        field="instructions",
        help="Pass CLAUDE.md and AGENTS.md to the model, or not.",
    ),
    Flag(
        "--mode",
        section=SAFETY,
        field="mode",
        metavar="MODE",
        help="plan: read only. default: ask for everything but reading. edit: also edit files in the workspace. "
        "sandboxed: work freely inside the sandbox and ask to leave it. full: ask only where a rule says so. "
        "dontAsk: deny what would be asked. [default: default]",
    ),
    Flag(
        "--tools",
        "--allowed-tools",
        section=SAFETY,
        field="tools",
        multiple=True,
        read=values.split_list,
        metavar="LIST",
        help="The only tools that it may use besides Read and web tools, comma-separated, pre-approved; repeatable.",
    ),
    Flag(
        "--allow",
        section=SAFETY,
        field="allow",
        multiple=True,
        read=values.split_list,
        metavar="PATTERN",
        help='Calls to approve where the mode would ask, such as "Bash(npm test *)"; repeatable. '
        "Blocks, approval rules and protected paths still hold.",
    ),
    Flag(
        "--disallowed-tools",
        section=SAFETY,
        field="disallowed_tools",
        multiple=True,
        read=values.split_list,
        metavar="LIST",
        help="Tools that it may never use; repeatable.",
    ),
    Flag(
        "--policy",
        section=SAFETY,
        field="policy_files",
        multiple=True,
        metavar=_FILE,
        help="A policy file for this run; it can only tighten. Repeatable.",
    ),
    Flag(
        "--sandbox",
        section=SAFETY,
        field="sandbox",
        callback=flags.or_old("sandbox"),
        type=click.Choice(flags.SANDBOX_LEVELS),
        help="The sandbox around the whole agent (Linux, bubblewrap) [default: what the policy says].",
    ),
    Flag(
        "--network",
        section=SAFETY,
        field="network",
        type=click.Choice(["any", "model-only"]),
        help="model-only: the sandbox reaches the model and allowed hosts, and nothing else.",
    ),
    Flag(
        "--sandbox-settings",
        section=SAFETY,
        field="agent_sandbox",
        read=values.json_object,
        metavar=_JSON,
        help="Settings of the agent's own sandbox.",
    ),
    Flag("--mcp-config", section=TOOLS, metavar=_FILE, help="MCP servers from a file shaped like .mcp.json."),
    Flag(
        "--mcp-server",
        section=TOOLS,
        multiple=True,
        metavar="NAME",
        help="[connections.NAME] of your config.toml; repeatable.",
    ),
    Flag(
        "--resume",
        "-r",
        section=SESSION,
        field="resume",
        metavar="ID",
        help="Resume an earlier session with the settings it had, named by its id or a run's; a prefix is enough.",
    ),
    Flag(
        "--continue",
        section=SESSION,
        is_flag=True,
        flag_value=True,
        help="Continue the session that was last used in this folder.",
    ),
    Flag("--fork", section=SESSION, field="fork", metavar="ID", help="The same, in a copy of that session."),
    Flag("--session-id", section=SESSION, field="session_id", metavar="UUID", help="The new session's id."),
    Flag(
        "--session/--no-session",
        section=SESSION,
        field="persist_session",
        help="Keep the session, so that it can be resumed, or not.",
    ),
    Flag(
        "--schema",
        section=SHAPE,
        field="output_schema",
        read=values.json_object,
        metavar=_JSON,
        help="A JSON Schema that the answer must satisfy, else the exit code is 1. Only JSON goes to stdout.",
    ),
    Flag(
        "--schema-retries",
        section=SHAPE,
        field="schema_retries",
        type=int,
        metavar="N",
        help="Corrective turns for an answer that does not fit, 0 to 5 [default: 1].",
    ),
    Flag(
        "--structured-retries",
        section=SHAPE,
        field="max_structured_retries",
        type=int,
        metavar="N",
        help="The agent's own retries within a turn.",
    ),
    Flag(
        "--max-turns",
        section=LIMITS,
        field="max_turns",
        type=int,
        metavar="N",
        help="Maximum number of model requests, 1 to 100.",
    ),
    Flag(
        "--budget",
        section=LIMITS,
        field="limits.budget_usd",
        read=values.budget,
        metavar="USD",
        help="Stop at this cost in USD; none: no cap of its own [default: 100, or the policy's].",
    ),
    Flag(
        "--memory-mb",
        section=LIMITS,
        field="limits.memory_mb",
        type=float,
        metavar="MIB",
        help="Memory of the agent and everything it starts [default: none].",
    ),
    _seconds("idle-secs", "idle_s", "End the run after this much silence.", "300", old=("--timeout-secs",)),
    _seconds("wall-secs", "wall_s", "End the run after this time, whatever it does.", "none"),
    _seconds("start-secs", "start_s", "Time until the agent's first sign of life.", "60"),
    _seconds("tool-secs", "tool_s", "Time for one tool call.", "900"),
    _seconds(
        "approval-secs", "approval_s", "Time to answer a question; then the call is denied.", "300; detached runs wait"
    ),
    _seconds("connection-secs", "connection_s", "Time for an MCP server to connect at the start.", "30"),
    _seconds("unreachable-secs", "unreachable_s", "Give up on a model's server that cannot be reached.", "30"),
    _seconds("exit-secs", "exit_s", "Time between the result and the end of the process.", "5"),
    _seconds("stop-secs", "stop_s", "Time between asking the process to stop and killing it.", "2"),
    Flag(
        "--api-retries",
        section=LIMITS,
        field="api_retries",
        type=int,
        metavar="N",
        help="The agent's retries against a failing service.",
    ),
    Flag(
        "--auto-continue",
        section=LIMITS,
        field="auto_continue",
        type=int,
        metavar="N",
        help="How often to continue when the turns are used up, unless --max-turns is given; 0 to 5 [default: 0].",
    ),
    Flag(
        "--wait-for-limit/--no-wait-for-limit",
        section=LIMITS,
        field="wait_for_limit",
        help="At a usage limit of the account, wait for its reset and continue, or end as parked.",
    ),
    Flag(
        "--attempts",
        section=LIMITS,
        field="attempts",
        type=int,
        metavar="N",
        help="Maximum number of starts [default: 2].",
    ),
    Flag(
        "--billing",
        section=PAYING,
        field="billing",
        metavar="WHO",
        help="subscription (an API key is used only from leadrope's own .env), subscription_only (no key at all), "
        "api_key, or auto [default: subscription].",
    ),
    Flag(
        "--credential-file",
        section=PAYING,
        field="credential",
        read=values.secret_file,
        metavar=_FILE,
        help="A file with the token or key to use.",
    ),
    Flag(
        "--credential-kind",
        section=PAYING,
        field="credential_kind",
        type=click.Choice(["api_key", "oauth_token", "auth_token"]),
        help="Its kind, if that cannot be seen from its form.",
    ),
    Flag(
        "--broker/--no-broker",
        section=PAYING,
        field="broker",
        is_flag=True,
        help="Keep the credential out of the agent's reach (for keys by default).",
    ),
    Flag("--base-url", section=PAYING, field="base_url", metavar="URL", help="A gateway or a local model."),
    Flag("--binary", section=PAYING, field="binary", metavar=_FILE, help="The agent program to start."),
    Flag(
        "--output",
        "-o",
        section=SHOWING,
        type=click.Choice(["text", "json", "stream-json"]),
        help="json: the result as one object; stream-json: one event per line [default: text].",
    ),
    Flag(
        "--detach",
        "-d",
        section=KEEPING,
        is_flag=True,
        flag_value=True,
        help="Hand the run to the background and print its id; `leadrope runs logs -f ID` follows it.",
    ),
    Flag(
        "--rehearse",
        section=PAYING,
        metavar="SCRIPT",
        help="Take the model's answers from a script: no account, no config.",
    ),
    Flag(
        "--worktree",
        "-w",
        section=KEEPING,
        is_flag=True,
        flag_value=True,
        help="Work in a git worktree and branch of its own; `leadrope runs diff|apply|discard ID` afterwards.",
    ),
    Flag("--branch", section=KEEPING, metavar="NAME", help="The worktree's branch [default: leadrope/ID]."),
    Flag(
        "--carry",
        section=KEEPING,
        is_flag=True,
        flag_value=True,
        help="Copy uncommitted changes into the worktree.",
    ),
    Flag(
        "--checkpoint/--no-checkpoint",
        section=KEEPING,
        help="Save the files before the first edit, for `leadrope runs undo ID` [default: checkpoint].",
    ),
    Flag(
        "--title",
        section=KEEPING,
        metavar="TEXT",
        help="The run's name in lists [default: the beginning of the prompt].",
    ),
    Flag(
        "--priority", section=KEEPING, type=int, metavar="N", help="Runs with a higher number start first [default: 0]."
    ),
    Flag(
        "--ci",
        section=SHOWING,
        is_flag=True,
        flag_value=True,
        help="For a job that nobody watches: annotations and a job summary on GitHub.",
    ),
    Flag("--junit", section=SHOWING, metavar=_FILE, help="Write the outcome as a JUnit file; its folder is made."),
    Flag(
        "--fail-on-denied",
        section=SHOWING,
        is_flag=True,
        flag_value=True,
        help="Exit with 3 if any call was denied, whatever else was allowed.",
    ),
    Flag(
        "--strict",
        section=SHOWING,
        is_flag=True,
        flag_value=True,
        help="Exit with 3 if any call was denied, and with 1 if the run is degraded.",
    ),
    Flag("--quiet", "-q", section=SHOWING, is_flag=True, flag_value=True, help="Print only the answer and errors."),
)


def overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that flags were given for; `limits` is nested. Connections are `connections`' matter."""
    found: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for flag in FLAGS:
        value = given.get(flag.name or "")
        if flag.field is None or not flag.is_given(value):
            continue
        if flag.read is not None:
            value = flag.read(flag.spelling, value)
        if flag.field.startswith("limits."):
            limits[flag.field.removeprefix("limits.")] = value
        elif flag.field in found:
            raise errors.BadValue(flag.spelling, "is given both as text and as a file", hint="Give one of the two.")
        else:
            found[flag.field] = value
    if limits:
        found["limits"] = limits
    if "secret_variables" in found or given.get("secret_file"):
        in_files = values.secret_files("--secret-file", given.get("secret_file") or ())
        found |= _marked(found.get("secret_variables", ()), in_files, found.get("variables", {}))
    if "fork" in found:
        found |= {"resume": found["fork"], "fork": True}
    return found


def _marked(given: Sequence[str], in_files: Mapping[str, str], known: Mapping[str, str]) -> dict[str, Any]:
    """Variables and their marks out of --secret and --secret-file; one that --var has set already is only marked."""
    new = values.secrets("--secret", [text for text in given if text not in known])
    for name in in_files:
        if name in new or name in known:
            raise errors.BadValue("--secret-file", f"{name} is given twice", hint="Give it once.")
    names = (*(text for text in given if text in known), *new, *in_files)
    return {"variables": {**known, **new, **in_files}, "secret_variables": names}


def one_session(given: Mapping[str, Any]) -> None:
    """Of the three ways to go on with a session only one can be meant."""
    named = [name for name in ("--resume", "--continue", "--fork") if given.get(name.strip("-"))]
    if len(named) > 1:
        raise errors.RequestError(f"{' and '.join(named)} were given", hint="Give one of them.")


def connections(config: Config, path: str | None, names: Sequence[str]) -> dict[str, McpServer] | None:
    """The servers of --mcp-config and --mcp-server together; None when neither was given."""
    if path is None and not names:
        return None
    found: dict[str, McpServer] = {}
    for name in names:
        if name not in config.connections:
            known = ", ".join(config.connections)
            raise errors.BadValue(
                "--mcp-server",
                f"{config.source} has no connection {name!r}",
                hint=f"Known there: {known}." if known else f"Add [connections.{name}] to it, or use --mcp-config.",
            )
        found[name] = config.connections[name]
    for name, server in (values.mcp_file("--mcp-config", path) if path is not None else {}).items():
        if name in found:
            raise errors.BadValue("--mcp-config", f"{name!r} is named by --mcp-server too")
        found[name] = server
    return found
