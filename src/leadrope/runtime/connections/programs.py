"""Are the programs of MCP servers there? Looked up before anything starts; the agent's own words do not name them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from leadrope import errors
from leadrope.core import connections
from leadrope.core.events import Notice
from leadrope.core.request import McpServer


def missing(servers: Mapping[str, McpServer], cwd: str, environ: Mapping[str, str]) -> dict[str, Notice]:
    """Raises for a required server whose program is missing; a warning, by its name, for each other one."""
    found: dict[str, Notice] = {}
    for name, server in servers.items():
        if server.command is None or _is_there(name, server, cwd, environ):
            continue
        told = f"the program {server.command!r} was not found"
        told += "" if "/" in server.command else " on PATH"
        if server.required:
            hint = f"Install it, correct `command`, or write `required = false` for {name} to run without it."
            raise errors.BadValue(f"connections.{name}", told, hint=hint)
        message = f"connection {name} could not be made: {told}"
        found[name] = Notice(level="warning", code="connection_failed", message=message)
    return found


def _is_there(name: str, server: McpServer, cwd: str, environ: Mapping[str, str]) -> bool:
    try:
        filled = connections.fill({name: server}, environ).servers[name]
    except errors.BadValue:
        return True  # A variable is missing: the error about that comes first, when the connections are filled in.
    command = filled.command or ""
    if "/" in command:
        return shutil.which(str(Path(cwd, Path(command).expanduser()))) is not None
    return shutil.which(command, path=filled.env.get("PATH", environ.get("PATH"))) is not None
