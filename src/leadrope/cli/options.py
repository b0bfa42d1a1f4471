"""The flags of a run: one table, and how given flags become fields of a request. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from leadrope import errors
from leadrope.cli import values
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


class Flag(click.Option):
    """An option that knows its section of the help and, if it is one, the request's field."""

    def __init__(
        self,
        *names: str,
        section: str,
        field: str | None = None,
        read: Callable[[str, Any], Any] | None = None,
        **attrs: Any,
    ) -> None:
        super().__init__(list(names), default=() if attrs.get("multiple") else None, **attrs)
        self.section = section
        self.field = field
        self.read = read

    @property
    def spelling(self) -> str:
        return max(self.opts, key=len)

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


def _seconds(name: str, field: str, text: str) -> Flag:
    return Flag(f"--{name}", section=LIMITS, field=f"limits.{field}", type=float, metavar="N", help=text)


FLAGS: tuple[Flag, ...] = (
    Flag("--file", "-f", section=TASK, metavar=_FILE, help="Take the prompt from a file."),
    Flag(
        "--attach",
        section=TASK,
        field="attachments",
        multiple=True,
        read=values.as_given,
        metavar=_FILE,
        help="A file or an image to hand over with the prompt; repeatable.",
    ),
    Flag("--cwd", "-C", section=TASK, field="cwd", metavar=_DIRECTORY, help="Work there instead of here."),
    Flag(
        "--add-dir",
        section=TASK,
        field="extra_dirs",
        multiple=True,
        read=values.as_given,
        metavar=_DIRECTORY,
        help="Another folder that belongs to the workspace; repeatable.",
    ),
    Flag(
        "--var",
        section=TASK,
        field="variables",
        multiple=True,
        read=values.variables,
        metavar="NAME[=VALUE]",
        help="An environment variable for the agent; without =VALUE its value here. Repeatable.",
    ),
    Flag(
        "--secret",
        section=TASK,
        field="secret_variables",
        multiple=True,
        read=values.as_given,
        metavar="NAME",
        help="The same with its value here, which is never shown or kept; repeatable. NAME=VALUE also works, and is "
        "visible in the process list.",
    ),
    Flag(
        "--secret-file",
        section=TASK,
        multiple=True,
        metavar="NAME=FILE",
        help="The same with the content of a file as its value, without one newline at its end; repeatable.",
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
    Flag("--provider", section=AGENT, field="provider", metavar="NAME", help="The agent program; claude-code."),
    Flag("--agent", section=AGENT, field="agent", metavar="NAME", help="The saved agent that this run belongs to."),
    Flag(
        "--subagents",
        section=AGENT,
        field="subagents",
        read=values.json_object,
        metavar=_JSON,
        help="Definitions of subagents, handed to the agent.",
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
        "sandboxed: work freely inside the sandbox and ask to leave it. full: ask for nothing but what rules name. "
        "dontAsk: deny what would be asked.",
    ),
    Flag(
        "--tools",
        "--allowed-tools",
        section=SAFETY,
        field="tools",
        multiple=True,
        read=values.split_list,
        metavar="LIST",
        help="The only tools it may use, comma-separated; tools named here are not asked for. Repeatable.",
    ),
    Flag(
        "--allow",
        section=SAFETY,
        field="allow",
        multiple=True,
        read=values.split_list,
        metavar="PATTERN",
        help='Calls that need no approval where the mode would ask, such as "Bash(npm test *)"; repeatable. '
        "Blocks, approval rules and protected paths still hold.",
    ),
    Flag(
        "--disallowed-tools",
        section=SAFETY,
        field="disallowed_tools",
        multiple=True,
        read=values.split_list,
        metavar="LIST",
        help="Tools it may never use; repeatable.",
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
        "--walls",
        section=SAFETY,
        field="walls",
        type=click.Choice(["workspace", "read-only", "off"]),
        help="A box around the whole agent (Linux, bubblewrap); without it, what the policy says.",
    ),
    Flag(
        "--network",
        section=SAFETY,
        field="network",
        type=click.Choice(["any", "model-only"]),
        help="model-only: inside the walls nothing but the model and allowed hosts is reached.",
    ),
    Flag(
        "--sandbox-settings",
        section=SAFETY,
        field="sandbox",
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
        help="Go on with an earlier session; the beginning of its id will do.",
    ),
    Flag(
        "--continue",
        section=SESSION,
        is_flag=True,
        flag_value=True,
        help="Go on with the session that was used last in this folder.",
    ),
    Flag("--fork", section=SESSION, field="fork", metavar="ID", help="Go on in a copy of an earlier session."),
    Flag("--session-id", section=SESSION, field="session_id", metavar="UUID", help="The new session's id."),
    Flag(
        "--session/--no-session",
        section=SESSION,
        field="persist_session",
        help="Keep the session so that it can be resumed, or not.",
    ),
    Flag(
        "--schema",
        section=SHAPE,
        field="output_schema",
        read=values.json_object,
        metavar=_JSON,
        help="A JSON Schema that the answer must satisfy.",
    ),
    Flag(
        "--schema-retries",
        section=SHAPE,
        field="schema_retries",
        type=int,
        metavar="N",
        help="Tries after an answer that does not fit; 0 to 5.",
    ),
    Flag(
        "--structured-retries",
        section=SHAPE,
        field="max_structured_retries",
        type=int,
        metavar="N",
        help="The agent's own tries within a turn.",
    ),
    Flag("--max-turns", section=LIMITS, field="max_turns", type=int, metavar="N", help="Model calls; 1 to 100."),
    Flag(
        "--budget",
        section=LIMITS,
        field="limits.budget_usd",
        read=values.budget,
        metavar="USD",
        help="Stop at this cost; none: no cap of its own [default: 100, or the policy's].",
    ),
    Flag(
        "--memory-mb",
        section=LIMITS,
        field="limits.memory_mb",
        type=float,
        metavar="MIB",
        help="Of all processes; off.",
    ),
    _seconds("timeout-secs", "idle_s", "Silence that ends the run; 300."),
    _seconds("wall-secs", "wall_s", "The whole run; off."),
    _seconds("start-secs", "start_s", "To the first sign of life; 60."),
    _seconds("tool-secs", "tool_s", "One tool call; 900."),
    _seconds("approval-secs", "approval_s", "Your time to answer, after which it is a no; 300."),
    _seconds("connection-secs", "connection_s", "For a connection to answer at the start; 30."),
    _seconds("exit-secs", "exit_s", "From the result to the end of the process; 5."),
    _seconds("stop-secs", "stop_s", "Between asking the process to end and ending it; 2."),
    Flag(
        "--api-retries",
        section=LIMITS,
        field="api_retries",
        type=int,
        metavar="N",
        help="The agent's tries against a failing service.",
    ),
    Flag(
        "--auto-continue",
        section=LIMITS,
        field="auto_continue",
        type=int,
        metavar="N",
        help="Go on that often when the turns are used up, unless --max-turns is given; 0 to 5.",
    ),
    Flag(
        "--wait-for-limit/--no-wait-for-limit",
        section=LIMITS,
        field="wait_for_limit",
        help="At a usage limit of the account wait for its reset and go on, or end as parked.",
    ),
    Flag("--attempts", section=LIMITS, field="attempts", type=int, metavar="N", help="Starts in all; 2."),
    Flag(
        "--billing",
        section=PAYING,
        field="billing",
        metavar="WHO",
        help="subscription (an API key is used only from leadrope's own .env), subscription_only (no key at all), "
        "api_key, or auto.",
    ),
    Flag(
        "--credential-file",
        section=PAYING,
        field="credential",
        read=values.secret_file,
        metavar=_FILE,
        help="A file that holds the token or key to use.",
    ),
    Flag(
        "--credential-kind",
        section=PAYING,
        field="credential_kind",
        type=click.Choice(["api_key", "oauth_token", "auth_token"]),
        help="What it is, where its shape does not tell.",
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
        help="text; json: the result as one object; stream-json: one event per line.",
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
        "--worktree",
        "-w",
        section=KEEPING,
        is_flag=True,
        flag_value=True,
        help="Work in a git worktree and branch of its own; `leadrope runs diff|apply|discard ID` afterwards.",
    ),
    Flag("--branch", section=KEEPING, metavar="NAME", help="The worktree's branch; leadrope/ID."),
    Flag(
        "--carry",
        section=KEEPING,
        is_flag=True,
        flag_value=True,
        help="Take uncommitted changes along into the worktree.",
    ),
    Flag(
        "--checkpoint/--no-checkpoint",
        section=KEEPING,
        help="Remember the files before the first edit, for `leadrope runs undo ID`; the default.",
    ),
    Flag("--title", section=KEEPING, metavar="TEXT", help="What lists call the run; the prompt's beginning."),
    Flag("--priority", section=KEEPING, type=int, metavar="N", help="Higher goes first when runs wait; 0."),
    Flag(
        "--ci",
        section=SHOWING,
        is_flag=True,
        flag_value=True,
        help="For a job that nobody watches: annotations and a job summary on GitHub.",
    ),
    Flag("--junit", section=SHOWING, metavar=_FILE, help="Write the outcome as a JUnit file."),
    Flag("--strict", section=SHOWING, is_flag=True, flag_value=True, help="A degraded run exits with 1."),
    Flag("--quiet", "-q", section=SHOWING, is_flag=True, flag_value=True, help="Only the answer and what went wrong."),
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


def in_flags(error: errors.BadValue, given: Mapping[str, Any]) -> errors.BadValue:
    """The same error under the flag's name, if the user wrote the value as a flag."""
    if error.field == "resume" and given.get("fork"):
        return errors.BadValue("--fork", error.message.removeprefix("resume: "), hint=error.hint)
    for flag in FLAGS:
        if flag.field == error.field and flag.is_given(given.get(flag.name or "")):
            message = re.sub(rf"^{re.escape(error.field)}: ", "", error.message)
            return errors.BadValue(flag.spelling, message, hint=error.hint)
    return error
