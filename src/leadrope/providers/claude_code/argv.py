"""Builds the command line of one run: its flags, and the texts that must go into private files.

Pure: writes nothing, starts nothing, and never contains the prompt, which is sent over stdin.
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
"""Longer texts go through a file. Larger values approach the kernel's 128 KiB limit per argument, and several of them
the limit for all; a smaller limit would make ordinary personas harder to see in a process list.
"""

_ONE_ARGUMENT_BYTES = 128 * 1024 - 1

_MODES: Mapping[Mode, str] = {
    "plan": "plan",
    "default": "default",
    "edit": "acceptEdits",
    "full": "bypassPermissions",
    # The gate denies what would require asking. The program's own dontAsk would also reject what the gate has allowed:
    # its safety checks become a question, and in that mode nobody can answer it.
    "dontAsk": "default",
    "sandboxed": "default",
}


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    files: tuple[LaunchFile, ...] = ()
    stderr_pipes: Mapping[str, str] = {}


def cli_mode(mode: str) -> str:
    """Return the program's name for our mode. In its `auto`, which is never used, the gate's approval is not final."""
    return _MODES[normal_mode(mode)]


def allowed_tools(request: RunRequest) -> tuple[str, ...]:
    """Return the request's list, or the default one, plus the baseline, in order and without duplicates.

    This grants nothing: the gate's hook is called for allowed tools too. It keeps the program from asking twice.
    """
    chosen = DEFAULT_TOOLS if request.tools is None else request.tools
    return tuple(dict.fromkeys((*chosen, *BASELINE_TOOLS)))


def settings(request: RunRequest) -> dict[str, Any]:
    mode = normal_mode(request.mode)
    # A skill's inline shell commands run without any hook; only this switch stops them.
    result: dict[str, Any] = {"disableSkillShellExecution": True}
    if request.network == "model-only":
        # Its preflight asks a service that cannot be reached in a sandbox; the gate and the proxy check the host.
        result["skipWebFetchPreflight"] = True
    if mode == "plan":
        # Otherwise a classifier answers instead of the gate, and is often unavailable.
        result["useAutoModeDuringPlan"] = False
    if request.agent_sandbox is not None:
        # Without failIfUnavailable the program warns and runs unsandboxed if bubblewrap or socat is missing; and by its
        # own default a command may ask to run outside.
        result["sandbox"] = {"allowUnsandboxedCommands": False, **request.agent_sandbox, "failIfUnavailable": True}
    return result


def mcp_config(
    connections: Mapping[str, McpServer],
    run_server: Sequence[str] = (),
    own_servers: Iterable[str] = (),
    stderr_pipes: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Build the MCP configuration. The program takes a server without a type for a command, so a bare URL gets type
    http.

    `run_server` is prepended to the command of each process server, with its pipe from `stderr_pipes`. `own_servers`
    are reached over the program's own input.
    """
    servers: dict[str, Any] = {name: {"type": "sdk", "name": name} for name in own_servers}
    for name, server in connections.items():
        kind = _kind(server)
        told = msgspec.to_builtins(msgspec.structs.replace(server, type=None))
        told.pop("required", None)  # evaluated by us
        if run_server and kind == "stdio" and server.command:
            words = [*run_server, stderr_pipes.get(name, ""), server.command, *server.args]
            told |= {"command": words[0], "args": words[1:]}
        servers[name] = {"type": kind, **told}
    return {"mcpServers": servers}


def stderr_pipes(connections: Mapping[str, McpServer], launch_dir: Path) -> dict[str, str]:
    """Return the pipe for each process server's stderr; connection names are not used as file names."""
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
    """Build the command of a run. `session_id` names the new session (or the fork's); a plain resume keeps its own."""
    line = _Line(launch_dir)
    line.words(binary, "-p", "--verbose", "--output-format", "stream-json", "--input-format", "stream-json")
    line.words("--permission-prompt-tool", "stdio", "--include-partial-messages")
    # The program echoes every message that it receives: that reveals messages that we have not sent.
    line.words("--replay-user-messages")
    # Both keep a repository's own hooks and servers from running before anyone was asked. The servers of a trusted
    # repository are passed as connections, where they can be named and checked.
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
        # If no tool may be used, none is offered: tool descriptions cost 20,000 tokens per request.
        line.words("--tools", "")
    line.maybe("max_turns", "--max-turns", request.max_turns)
    line.maybe("max_thinking_tokens", "--max-thinking-tokens", request.max_thinking_tokens)
    line.maybe("effort", "--effort", request.effort)
    if request.limits.cap_usd is not None:
        # Plain digits: Python would print a small number as `1e-05`.
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
        # With `=`, so that a session id that starts with a dash is not parsed as an option.
        line.option("resume", "--resume", request.resume)
        if not request.fork:
            return
        line.words("--fork-session")
    if session_id is not None:
        line.option("session_id", "--session-id", session_id)


def appended(request: RunRequest, instructions_text: str) -> str:
    """Return what is appended to the system prompt: CLAUDE.md and AGENTS.md, then the request's own text."""
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
    """Collects words and files, and rejects values that cannot be passed to a process."""

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
        """Add a text for a flag that has a `-file` variant."""
        content = _encode(field, value)
        if len(content) > INLINE_BYTES or "\0" in value:
            self.private(field, f"{flag}-file", content, file=file)
        else:
            self.option(field, flag, value)

    def json(self, field: str, flag: str, value: Any, *, file: str | None) -> None:
        """Add JSON for a flag that takes the text itself or, if `file` is given, a path to it."""
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
