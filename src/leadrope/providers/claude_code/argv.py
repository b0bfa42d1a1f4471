"""The command line of one run, as a value: which flags, and which texts must go into private files.

Pure: writes nothing, starts nothing, and never holds the prompt, which goes over stdin.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.output import schema, schema_copy
from leadrope.core.request import McpServer, Mode, RunRequest
from leadrope.core.request_checks import normal_mode
from leadrope.core.request_parts import extra_dirs
from leadrope.core.tools import BASELINE_TOOLS, DEFAULT_TOOLS
from leadrope.providers.base import LaunchFile

INLINE_BYTES = 32 * 1024
"""A longer text goes through a file. Larger values come near the kernel's 128 KiB for one argument, and several
of them near the limit for all; a smaller one would make ordinary personas harder to see in a process list."""

_ONE_ARGUMENT_BYTES = 128 * 1024 - 1

_MODES: Mapping[Mode, str] = {
    "plan": "plan",
    "default": "default",
    "edit": "acceptEdits",
    "full": "bypassPermissions",
    # The gate denies what would be asked. The program's own dontAsk would also refuse what the gate has allowed:
    # its safety checks come back as a question, and in that mode nobody can answer it.
    "dontAsk": "default",
    "sandboxed": "default",
}


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    files: tuple[LaunchFile, ...] = ()
    stderr_pipes: Mapping[str, str] = {}


def cli_mode(mode: str) -> str:
    """The program's name for one of our modes. Its `auto` is never used: there the gate's yes is not the last word."""
    return _MODES[normal_mode(mode)]


def allowed_tools(request: RunRequest) -> tuple[str, ...]:
    """The request's list, or the default one, with the baseline added; each once, in order.

    This opens nothing: the gate's hook fires for allowed tools too. It keeps the program from asking twice.
    """
    chosen = DEFAULT_TOOLS if request.tools is None else request.tools
    return tuple(dict.fromkeys((*chosen, *BASELINE_TOOLS)))


def settings(request: RunRequest) -> dict[str, Any]:
    mode = normal_mode(request.mode)
    # A skill's inline shell runs without any hook; this switch is the only thing that stops it.
    result: dict[str, Any] = {"disableSkillShellExecution": True}
    if request.network == "model-only":
        # Its preflight asks a service that is out of reach then; the gate and the proxy judge the host.
        result["skipWebFetchPreflight"] = True
    if mode == "plan":
        # Else a classifier answers in the gate's place, and is unavailable as often as not.
        result["useAutoModeDuringPlan"] = False
    if request.agent_sandbox is not None:
        # Without the last the program warns and runs unsandboxed when bubblewrap or socat is missing; and by its own
        # default a command may ask to run outside.
        result["sandbox"] = {"allowUnsandboxedCommands": False, **request.agent_sandbox, "failIfUnavailable": True}
    return result


def mcp_config(
    connections: Mapping[str, McpServer],
    run_server: Sequence[str] = (),
    own_servers: Iterable[str] = (),
    stderr_pipes: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The program takes a server without a type for a command, so a bare url is named http.

    `run_server` are words before the command of each server that is a process, with its pipe of `stderr_pipes`.
    `own_servers` are reached over the program's own input.
    """
    servers: dict[str, Any] = {name: {"type": "sdk", "name": name} for name in own_servers}
    for name, server in connections.items():
        kind = _kind(server)
        told = msgspec.to_builtins(msgspec.structs.replace(server, type=None))
        told.pop("required", None)  # ours to judge
        if run_server and kind == "stdio" and server.command:
            words = [*run_server, stderr_pipes.get(name, ""), server.command, *server.args]
            told |= {"command": words[0], "args": words[1:]}
        servers[name] = {"type": kind, **told}
    return {"mcpServers": servers}


def stderr_pipes(connections: Mapping[str, McpServer], launch_dir: Path) -> dict[str, str]:
    """Where the error output of each server that is a process goes; names of connections are no names of files."""
    started = (name for name, server in connections.items() if _kind(server) == "stdio" and server.command)
    return {name: str(launch_dir / f"stderr-{number}") for number, name in enumerate(started, 1)}


def _kind(server: McpServer) -> str:
    return server.type or ("http" if server.url else "stdio")


def session_name(agent: str | None) -> str:
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", agent or "").strip("-")[:80]
    return f"leadrope-{label}" if label else "leadrope"


def command(
    request: RunRequest,
    *,
    binary: str,
    model: str,
    session_id: str | None,
    launch_dir: Path,
    instructions_text: str = "",
    is_trusted: bool = False,
    run_server: Sequence[str] = (),
    own_servers: Iterable[str] = (),
) -> CommandLine:
    """The whole command of a run. `session_id` names the new session (or the fork's); a plain resume keeps its own."""
    line = _Line(launch_dir)
    line.words(binary, "-p", "--verbose", "--output-format", "stream-json", "--input-format", "stream-json")
    line.words("--permission-prompt-tool", "stdio", "--include-partial-messages")
    # Every message that comes to its input is told again: one that we have not sent is noticed by that.
    line.words("--replay-user-messages")
    # Both keep a repository's own hooks and servers from running before anyone was asked. The servers of a trusted one
    # are handed over as connections, where they can be named and judged.
    line.words("--setting-sources", "project,local" if is_trusted else "", "--strict-mcp-config")
    line.words("--permission-mode", cli_mode(request.mode))
    _session(line, request, session_id)
    line.option("agent", "--name", session_name(request.agent))
    line.option("model", "--model", model)
    line.maybe("fallback_model", "--fallback-model", request.fallback_model)
    _prompts(line, request, instructions_text)
    line.option("tools", "--allowedTools", ",".join(allowed_tools(request)))
    if request.disallowed_tools:
        line.option("disallowed_tools", "--disallowedTools", ",".join(request.disallowed_tools))
    if request.tools == () and set(BASELINE_TOOLS) <= set(request.disallowed_tools):
        # Nothing may be used, so nothing is offered: descriptions of tools cost 20,000 tokens a request.
        line.words("--tools", "")
    line.maybe("max_turns", "--max-turns", request.max_turns)
    line.maybe("max_thinking_tokens", "--max-thinking-tokens", request.max_thinking_tokens)
    line.maybe("effort", "--effort", request.effort)
    if request.limits.cap_usd is not None:
        # Plain digits: `1e-05` is how Python would print a small number.
        digits = format(Decimal(repr(float(request.limits.cap_usd))), "f")
        line.option("limits.budget_usd", "--max-budget-usd", digits)
    line.json("agent_sandbox", "--settings", settings(request), file="settings.json")
    own = tuple(own_servers)
    pipes = stderr_pipes(request.connections, launch_dir) if run_server else {}
    if request.connections or own:
        servers = _json(mcp_config(request.connections, run_server, own, pipes))
        line.private("connections", "--mcp-config", servers, file="mcp.json")
    for folder in extra_dirs.paths(request.extra_dirs):
        line.option("extra_dirs", "--add-dir", folder)
    if request.subagents:
        line.json("subagents", "--agents", request.subagents, file="agents.json")
    if request.output_schema is not None:
        copy = schema_copy.copy_of(schema.read(request.output_schema))
        line.json("output_schema", "--json-schema", copy.document, file=None)
    if not request.persist_session:
        line.words("--no-session-persistence")
    return CommandLine(argv=tuple(line.argv), files=tuple(line.files), stderr_pipes=pipes)


def _session(line: _Line, request: RunRequest, session_id: str | None) -> None:
    if request.resume is not None:
        # `=`: a session id that starts with a dash must not become an option.
        line.option("resume", "--resume", request.resume)
        if not request.fork:
            return
        line.words("--fork-session")
    if session_id is not None:
        line.option("session_id", "--session-id", session_id)


def appended(request: RunRequest, instructions_text: str) -> str:
    """What follows the system prompt: CLAUDE.md and AGENTS.md, then what the request adds."""
    return "\n\n".join(part for part in (instructions_text, request.append_system_prompt) if part)


def _prompts(line: _Line, request: RunRequest, instructions_text: str) -> None:
    if request.system_prompt is not None:
        line.text("system_prompt", "--system-prompt", request.system_prompt, file="system-prompt.txt")
    if more := appended(request, instructions_text):
        line.text("append_system_prompt", "--append-system-prompt", more, file="append-system-prompt.txt")
    if request.resume is not None and (request.system_prompt is not None or request.append_system_prompt):
        # A session keeps the system prompt of its first request and silently ignores another one at resume.
        line.words("--system-prompt-snapshot=off")


class _Line:
    """Collects words and files, and refuses a value that no process can be started with."""

    def __init__(self, launch_dir: Path) -> None:
        self.argv: list[str] = []
        self.files: list[LaunchFile] = []
        self._launch_dir = launch_dir

    def words(self, *words: str) -> None:
        self.argv.extend(words)

    def option(self, field: str, flag: str, value: object) -> None:
        word = f"{flag}={value}"
        if "\0" in word:
            raise errors.BadValue(field, "holds a NUL character, which no argument can carry")
        try:
            size = len(os.fsencode(word))
        except UnicodeEncodeError:
            raise errors.BadValue(field, "holds half of a surrogate pair, which cannot be encoded") from None
        if size > _ONE_ARGUMENT_BYTES:
            raise errors.BadValue(field, f"is {size} bytes long; one argument holds {_ONE_ARGUMENT_BYTES}")
        self.argv.append(word)

    def maybe(self, field: str, flag: str, value: object | None) -> None:
        if value is not None:
            self.option(field, flag, value)

    def text(self, field: str, flag: str, value: str, *, file: str) -> None:
        """A text for a flag that has a `-file` twin."""
        content = _encode(field, value)
        if len(content) > INLINE_BYTES or "\0" in value:
            self.private(field, f"{flag}-file", content, file=file)
        else:
            self.option(field, flag, value)

    def json(self, field: str, flag: str, value: Any, *, file: str | None) -> None:
        """JSON for a flag that takes the text itself or, where `file` is given, a path to it."""
        content = _json(value)
        if file is not None and len(content) > INLINE_BYTES:
            self.private(field, flag, content, file=file)
        else:
            self.option(field, flag, content.decode())

    def private(self, field: str, flag: str, content: bytes, *, file: str) -> None:
        path = self._launch_dir / file
        self.files.append(LaunchFile(path=str(path), content=content))
        self.option(field, flag, path)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _encode(field: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise errors.BadValue(field, "holds half of a surrogate pair, which cannot be encoded") from None
