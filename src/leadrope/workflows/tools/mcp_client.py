"""A minimal Model Context Protocol client: enough to call a tool. The transport is passed in.

    client = Client(wire)
    await client.start()
    result = await client.call("search", {"query": "rope"})

It is our own because the official package takes about a second to import, which would delay a workflow's first step. It
offers no client features: a server's requests for a model, files or a person are declined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from leadrope.version import __version__

PROTOCOL = "2025-06-18"
"""The version we offer. A server may answer with an older one; what is used here is the same in all of them."""
MOST_PAGES = 100
NO_SUCH_METHOD = -32601

Message = dict[str, Any]


class Lost(Exception):
    """The server is gone, or does not speak MCP; the message is for the user."""


class ServerRefused(Exception):
    """The server answered with a protocol error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Wire(Protocol):
    """Carries messages to one server and back."""

    async def send(self, message: Message) -> Message | None:
        """Send a message and return the answer to a request, skipping others; None for a notification."""
        ...

    def agreed(self, version: str) -> None:
        """Called with the protocol version once it is negotiated."""
        ...


class McpClient:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._last_id = 0
        self.doing = "connect"
        """The request in progress, for error messages about a time-out."""

    async def start(self) -> None:
        told = await self._ask(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "leadrope", "version": __version__},
            },
        )
        version = told.get("protocolVersion")
        self._wire.agreed(version if isinstance(version, str) else PROTOCOL)
        await self._wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def tools(self) -> dict[str, Mapping[str, Any]]:
        """Return the input schemas of all tools of the server, by name."""
        schemas = {name: tool.get("inputSchema") for name, tool in (await self.descriptions()).items()}
        return {name: schema if isinstance(schema, dict) else {} for name, schema in schemas.items()}

    async def descriptions(self) -> dict[str, Message]:
        """Return all tools of the server as it describes them, by name."""
        found: dict[str, Message] = {}
        cursor: Any = None
        for _ in range(MOST_PAGES):
            page = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            listed = page.get("tools")
            if not isinstance(listed, list):
                raise Lost("its list of tools is not a list")
            for tool in listed:
                if isinstance(tool, dict) and "name" in tool:
                    found[str(tool["name"])] = tool
            cursor = page.get("nextCursor")
            if not cursor:
                return found
        raise Lost(f"its list of tools has more than {MOST_PAGES} pages")

    async def call(self, name: str, arguments: Message) -> Message:
        """Call a tool and return the server's result; `isError` in it means that the tool failed."""
        return await self._ask("tools/call", {"name": name, "arguments": arguments})

    async def _ask(self, method: str, params: Message) -> Message:
        self._last_id += 1
        self.doing = method
        answer = await self._wire.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        if answer is None:
            raise Lost(f"it gave no answer to {method}")
        error = answer.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            raise ServerRefused(code if isinstance(code, int) else 0, str(error.get("message", "no reason given")))
        result = answer.get("result")
        if not isinstance(result, dict):
            raise Lost(f"its answer to {method} has no result")
        return result


def reply_to(message: Message) -> Message | None:
    """Return the reply to a server's own request; None if none is needed."""
    if "method" not in message or message.get("id") is None:
        return None
    if message["method"] == "ping":
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}
    error = {"code": NO_SUCH_METHOD, "message": f"this client does not support {str(message['method'])[:100]}"}
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}


def is_answer(message: Message, request: Message) -> bool:
    return "method" not in message and message.get("id") == request.get("id")
