"""`mcp`: calls one tool of a connection of the user's configuration. Messages and outputs never contain its secrets."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from leadrope import errors
from leadrope.core import connections
from leadrope.core import home as homes
from leadrope.core.request import McpServer
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.regex import regex
from leadrope.workflows.language import schema_match, templates
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed, brief
from leadrope.workflows.tools import mcp_client, mcp_process, mcp_transports
from leadrope.workflows.tools.step_redactor import KnownSecrets

DEFAULT_S = 60.0
_TOOL = regex(r"[A-Za-z0-9_./-]{1,128}")


class Mcp(StepConfig, frozen=True, kw_only=True):
    server: Annotated[str, Meta(description="The name of a connection in your config.toml.")]
    tool: Annotated[str, Meta(description="The name of one of its tools.")]
    arguments: Annotated[dict[str, Any], Meta(description="What the tool is given.")] = msgspec.field(
        default_factory=dict
    )
    result_format: Annotated[
        Literal["auto", "json_block"],
        Meta(description="`json_block`: the one ```json block in the text of the answer is the result."),
    ] = "auto"
    timeout: Annotated[float, Meta(ge=1, le=300, description="Seconds for the whole, the start too.")] = DEFAULT_S


async def run(config: Mcp, context: StepContext) -> StepDone:
    config = _parted(config, context.service.config.connections)
    server = _known(config, context)
    if not _TOOL.fullmatch(config.tool):
        raise StepFailed(f"{brief(config.tool, 60)!r} cannot be the name of a tool", kind="bad_input")
    # Parsed before the policy check: rules look at every text in it.
    opened = templates.opened_inside(context.sources.get("arguments"), config.arguments)
    call = await context.permit(
        ToolCall(id=str(context.key), name=f"mcp__{config.server}__{config.tool}", input=opened)
    )
    given = _Given(arguments=call.input, texts=config.arguments if call.input == opened else call.input)
    filled = _filled(config.server, server, context)
    context.say(f"{config.server}: {config.tool}")
    try:
        result = await _called(config, context, filled.servers[config.server], given)
    except StepFailed as failed:
        clean = Redactor(filled.secrets).clean
        failed.message = clean(failed.message)
        failed.args = (failed.message,)
        raise
    return _done(config, KnownSecrets(filled.secrets).value(result))


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    arguments: dict[str, Any]
    texts: dict[str, Any]
    """The same, with JSON texts left as they came."""

    def for_tool(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for a tool; one that takes text gets the text."""
        return {
            name: self.texts[name] if schema_match.types_at(schema, (name,), schema) - {"null"} == {"string"} else value
            for name, value in self.arguments.items()
        }


async def _called(config: Mcp, context: StepContext, server: McpServer, given: _Given) -> dict[str, Any]:
    doing = "connect"
    name = f"connection {config.server}"
    client: mcp_client.McpClient | None = None
    try:
        async with asyncio.timeout(config.timeout), _wire(config, context, server) as wire:
            client = mcp_client.McpClient(wire)
            await client.start()
            tools = await client.tools()
            if config.tool not in tools:
                raise _no_such_tool(config, tools)
            return await client.call(config.tool, given.for_tool(tools[config.tool]))
    except TimeoutError:
        doing = client.doing if client is not None else doing
        raise StepFailed(
            f"{name} did not answer to {doing} within {config.timeout:g} s",
            kind="timed_out",
            hint="Try its command or url by hand, or give the step a longer timeout (at most 300 s).",
            can_heal=True,
        ) from None
    except mcp_client.ServerRefused as refused:
        doing = client.doing if client is not None else doing
        raise StepFailed(
            f"{name} refused {doing}: {brief(str(refused), 500)} (code {refused.code})",
            kind="tool_failed",
            hint="Look at the arguments that the tool wants.",
        ) from None
    except mcp_client.Lost as lost:
        raise StepFailed(
            f"{name} could not be used: {lost}",
            kind="connection_failed",
            hint="Try its command or url by hand.",
            can_heal=True,
        ) from None
    except StepFailed:
        raise
    except errors.LeadropeError as error:
        raise StepFailed(
            f"{name} could not be started: {error.message}", kind="connection_failed", hint=error.hint
        ) from None


def _wire(
    config: Mcp, context: StepContext, server: McpServer
) -> contextlib.AbstractAsyncContextManager[mcp_client.Wire]:
    if server.url and server.type == "sse":
        return mcp_transports.open_stream(server.url, server.headers)
    if server.url:
        return mcp_transports.open_http(server.url, server.headers)
    return _process(config, context, server)


@contextlib.asynccontextmanager
async def _process(config: Mcp, context: StepContext, server: McpServer) -> AsyncIterator[mcp_client.Wire]:
    opened = mcp_process.open_server(
        config.server,
        server,
        workspace=context.workspace,
        policies=context.policies,
        environ=context.environ,
        config=context.service.config,
        home=context.home,
        notify=context.notify,
    )
    async with opened as child:
        yield mcp_transports.ProcessWire(child)


def _parted(config: Mcp, known: Collection[str]) -> Mcp:
    """Split the server off the tool's name if no server is given, as pflow does: the longest known name wins."""
    if config.server:
        return config
    servers = [name for name in known if config.tool.startswith(f"{name}-") and len(config.tool) > len(name) + 1]
    if not servers:
        raise StepFailed(
            f"{brief(config.tool, 60)!r} begins with no connection",
            kind="bad_input",
            hint=f"Connections are in [connections.NAME] of your config.toml. There are: {_listed(known)}.",
        )
    server = max(servers, key=len)
    return structs.replace(config, server=server, tool=config.tool[len(server) + 1 :])


def _known(config: Mcp, context: StepContext) -> McpServer:
    known = context.service.config.connections
    if config.server not in known:
        close = nearest(config.server, known)
        raise StepFailed(
            f"there is no connection {config.server!r}" + (f"; did you mean {close}?" if close else ""),
            kind="bad_input",
            hint=f"Connections are in [connections.NAME] of your config.toml. There are: {_listed(known)}.",
        )
    return known[config.server]


def _filled(name: str, server: McpServer, context: StepContext) -> connections.Filled:
    values = {**homes.load_env(context.home), **context.environ}
    try:
        return connections.fill({name: server}, values)
    except errors.BadValue as error:
        raise StepFailed(error.message, kind="bad_input", hint=error.hint) from None


def _no_such_tool(config: Mcp, tools: Collection[str]) -> StepFailed:
    close = nearest(config.tool, tools)
    return StepFailed(
        f"connection {config.server} has no tool {config.tool!r}" + (f"; did you mean {close}?" if close else ""),
        kind="bad_input",
        hint=f"Its tools are: {_listed(tools)}.",
    )


def _done(config: Mcp, result: dict[str, Any]) -> StepDone:
    content = [part for part in result.get("content") or [] if isinstance(part, dict)]
    text = "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    is_error = result.get("isError") is True
    value = result.get("structuredContent")
    if value is None:
        value = _block(text, config.tool) if config.result_format == "json_block" and not is_error else _value(text)
    outputs = {"result": value, "content": content, "is_error": is_error}
    if is_error:
        raise StepFailed(
            f"the tool {config.tool} of connection {config.server} failed: {brief(text, 500) or 'no reason given'}",
            kind="tool_failed",
            hint="Look at the arguments that the tool wants.",
            outputs=outputs,
        )
    return StepDone(outputs=outputs)


_JSON_BLOCK = regex(r"^```json[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def _block(text: str, tool: str) -> Any:
    found = _JSON_BLOCK.findall(text)
    try:
        if len(found) == 1:
            return msgspec.json.decode(found[0])
        why = f"{len(found)} of them" if found else "none"
    except (msgspec.DecodeError, RecursionError) as error:
        why = f"one that is not JSON ({error})"
    raise StepFailed(
        f"the answer of {tool} should have one ```json block but has {why}",
        kind="bad_output",
        hint="Leave out result_format, and read the text in `result`.",
        outputs={"result": text},
    )


def _value(text: str) -> Any:
    """Parse the text as JSON if it is: many tools return JSON as text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    shown = ", ".join(brief(name, 60) for name in found[:20]) or "none"
    return f"{shown} and {len(found) - 20} more" if len(found) > 20 else shown


KIND = Kind(
    name="mcp",
    summary="Calls one tool of an MCP server.",
    config=Mcp,
    outputs={
        "result": {},
        "content": {"type": "array", "items": {"type": "object"}},
        "is_error": {"type": "boolean"},
    },
    run=run,
    default_timeout_s=DEFAULT_S,
    ends_itself=True,
    opens_itself=("arguments",),
)
