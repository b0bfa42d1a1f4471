"""`leadrope connections`: list the MCP servers of config.toml, try them, and list their tools."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any
from urllib.parse import urlsplit

import click

from leadrope import errors
from leadrope.cli import flags, json_output
from leadrope.cli.screen import table
from leadrope.cli.screen.live_lines import seconds
from leadrope.cli.screen.screen import Screen
from leadrope.core import config as configs
from leadrope.core import connections, home
from leadrope.core.events import Notice
from leadrope.core.request import McpServer
from leadrope.core.secrets.redaction import Redactor
from leadrope.runtime.terminal_text import clean, one_line

_HELP = """Connections: MCP servers that agents and `mcp` steps can use.

A connection is [connections.NAME] of your config.toml. Values of its environment and headers are never shown.
"""
_EPILOG = """\b
Examples:
  leadrope connections list
  leadrope connections test              try all of them
  leadrope connections tools github      what `github` offers
"""
TIMEOUT_S = 30.0
_OUTPUT = flags.output("text", "json", help="json: one object per line.")
_TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 300),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds for a connection, its start included.",
)


@click.group("connections", help=_HELP, epilog=_EPILOG, short_help="List and test connections to MCP servers.")
def command() -> None:
    pass


@command.command("list")
@_OUTPUT
def list_(output: str) -> int:
    """List the connections of config.toml. Nothing is started."""
    config, environ = _read()
    rows = [_row(name, server, environ) for name, server in config.connections.items()]
    if output == "json":
        for row in rows:
            json_output.write(row)
        return 0
    if not rows:
        click.echo("No connections. Add [connections.NAME] to your config.toml.", err=True)
        return 0
    cells = [(row["name"], row["type"], row["address"]) for row in rows]
    for line in table.table(("NAME", "TYPE", "ADDRESS"), cells, Screen.of_process().size()[0]):
        click.echo(line)
    for row in rows:
        if row["problem"]:
            click.echo(f"{row['name']} cannot be used: {clean(row['problem'])}", err=True)
    return 0


@command.command("test")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_TIMEOUT
@_OUTPUT
def test(names: tuple[str, ...], timeout_s: float, output: str) -> int:
    """Start each connection, ask for its tools, and end it. The exit code is 1 if one of them fails.

    Without NAME all connections of config.toml are tested.
    """
    config, environ = _read()
    chosen = names or tuple(config.connections)
    servers = {name: _known(config, name) for name in chosen}
    if not servers:
        click.echo("No connections. Add [connections.NAME] to your config.toml.", err=True)
    has_failed = False
    for name, server in servers.items():
        row = _tried(name, server, environ, config, timeout_s)
        has_failed |= not row["ok"]
        if output == "json":
            json_output.write(row)
        elif row["ok"]:
            count = row["tools"]
            click.echo(f"✓ {name}: {count} tool{'' if count == 1 else 's'}, {seconds(row['duration_s'])}")
        else:
            click.echo(f"✗ {name}: {clean(row['error'])}")
            if row["hint"]:
                click.echo(f"  {clean(row['hint'])}")
    return int(has_failed)


@command.command("tools")
@click.argument("name")
@_TIMEOUT
@_OUTPUT
def tools(name: str, timeout_s: float, output: str) -> int:
    """List the tools of a connection. With -o json each has the JSON Schema of its parameters."""
    from leadrope.workflows.tools import connection_trial  # noqa: PLC0415  # starts processes

    config, environ = _read()
    server = _known(config, name)
    options: dict[str, Any] = {"environ": environ, "config": config, "timeout_s": timeout_s, "notify": _note}
    try:
        found = asyncio.run(connection_trial.tools_of(name, server, **options))
    except errors.LeadropeError as error:
        raise connection_trial.CannotConnect(f"connection {name}: {error.message}", hint=error.hint) from None
    if output == "json":
        for tool in found:
            json_output.write(tool)
        return 0
    cells = [(clean(tool.name), one_line(clean(tool.description), 200)) for tool in found]
    for line in table.table(("TOOL", "DESCRIPTION"), cells, Screen.of_process().size()[0]):
        click.echo(line)
    return 0


def _read() -> tuple[configs.Config, dict[str, str]]:
    environ = dict(os.environ)
    return configs.load({**home.load_env(home.leadrope_home(environ)), **environ}), environ


def _known(config: configs.Config, name: str) -> McpServer:
    if name in config.connections:
        return config.connections[name]
    from leadrope.workflows.problems import nearest  # noqa: PLC0415  # only for a mistake

    near = nearest(name, config.connections)
    known = ", ".join(config.connections) or "none"
    hint = f"Did you mean {near}? There are: {known}." if near else f"There are: {known}."
    raise errors.BadValue("connections", f"there is no connection {name!r}", hint=hint)


def _tried(
    name: str, server: McpServer, environ: dict[str, str], config: configs.Config, timeout_s: float
) -> dict[str, Any]:
    from leadrope.workflows.tools import connection_trial  # noqa: PLC0415  # starts processes

    began = time.monotonic()
    row: dict[str, Any] = {"name": name, "ok": True, "tools": 0, "error": "", "hint": ""}
    try:
        options: dict[str, Any] = {"environ": environ, "config": config, "timeout_s": timeout_s, "notify": _note}
        row["tools"] = len(asyncio.run(connection_trial.tools_of(name, server, **options)))
    except errors.LeadropeError as error:
        row |= {"ok": False, "error": error.message, "hint": error.hint or ""}
    return {**row, "duration_s": round(time.monotonic() - began, 3)}


def _note(notice: Notice) -> None:
    if notice.level == "warning":
        click.echo(f"note: {clean(notice.message)}", err=True)


def _row(name: str, server: McpServer, environ: dict[str, str]) -> dict[str, Any]:
    """Without any value that could be a secret: references stay as they are written."""
    redact = Redactor([text for text in connections.secrets_of(server) if len(text) > 3]).clean
    if server.url:
        kind, parts = server.type or "http", urlsplit(server.url)
        host = parts.netloc.rpartition("@")[2]
        address = redact(f"{parts.scheme}://{host}{parts.path}")
    else:
        kind, address = "stdio", redact(" ".join((server.command or "", *server.args)))
    try:
        connections.fill({name: server}, {**home.load_env(home.leadrope_home(environ)), **environ})
        problem = ""
    except errors.BadValue as error:
        problem = error.message
    return {"name": name, "type": kind, "address": address, "required": server.required, "problem": problem}
