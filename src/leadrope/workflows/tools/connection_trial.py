"""Tests a configured connection: starts it as an `mcp` step would, lists its tools, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import connections, home
from leadrope.core.request import McpServer
from leadrope.core.secrets.redaction import Redactor
from leadrope.runtime.sandboxing.sandboxed_process import Notify
from leadrope.workflows.tools import mcp_client, mcp_process, mcp_transports
from leadrope.workflows.tools.step_redactor import KnownSecrets


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """A JSON Schema."""


class CannotConnect(errors.LeadropeError):
    """A connection that cannot be used; the message contains none of its secrets."""

    kind = "connection_failed"


async def tools_of(
    name: str,
    server: McpServer,
    *,
    environ: Mapping[str, str],
    config: configs.Config,
    timeout_s: float,
    notify: Notify,
) -> list[Tool]:
    """Return the tools that the server offers; raises CannotConnect. The server has ended when this returns.

    `notify` receives notices about its sandbox.
    """
    own = home.leadrope_home(environ)
    filled = connections.fill({name: server}, {**home.load_env(own), **environ})
    clean = Redactor(filled.secrets).clean
    client: mcp_client.McpClient | None = None
    try:
        async with asyncio.timeout(timeout_s), _wire(name, filled.servers[name], environ, config, own, notify) as wire:
            client = mcp_client.McpClient(wire)
            await client.start()
            found = await client.descriptions()
    except TimeoutError:
        doing = client.doing if client is not None else "connect"
        raise CannotConnect(
            f"no answer to {doing} within {timeout_s:g} s",
            hint="Try its command or url by hand, or give it more time with --timeout.",
        ) from None
    except mcp_client.ServerRefused as refused:
        doing = client.doing if client is not None else "connect"
        raise CannotConnect(f"the server refused {doing}: {clean(str(refused))} (code {refused.code})") from None
    except mcp_client.Lost as lost:
        raise CannotConnect(clean(str(lost)), hint="Try its command or url by hand.") from None
    except errors.LeadropeError as error:
        raise CannotConnect(clean(error.message), hint=error.hint) from None
    told = KnownSecrets(filled.secrets).value([_tool(called, tool) for called, tool in found.items()])
    return msgspec.convert(told, list[Tool])


def _tool(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    description, schema = told.get("description"), told.get("inputSchema")
    return {
        "name": name,
        "description": description if isinstance(description, str) else "",
        "parameters": schema if isinstance(schema, dict) else {},
    }


@contextlib.asynccontextmanager
async def _wire(
    name: str, server: McpServer, environ: Mapping[str, str], config: configs.Config, own: Path, notify: Notify
) -> AsyncIterator[mcp_client.Wire]:
    if server.url:
        opened = mcp_transports.open_stream if server.type == "sse" else mcp_transports.open_http
        async with opened(server.url, server.headers) as wire:
            yield wire
        return
    # Not in the user's folder: a project's server is started there only by the project's own runs, under its rules.
    with tempfile.TemporaryDirectory(prefix="leadrope-connection-") as folder:
        options: dict[str, Any] = {"environ": environ, "config": config, "home": own, "policies": (), "notify": notify}
        async with mcp_process.open_server(name, server, workspace=Path(folder), **options) as child:
            yield mcp_transports.ProcessWire(child)
