"""The client's side of the Model Context Protocol, as far as calling one tool needs it. Knows no process, no network.

    client = Client(wire)
    await client.start()
    result = await client.call("search", {"query": "rope"})

Our own because the official package takes about a second to import, which a workflow would pay before its first step.
It offers a server nothing: what a server asks for on its own (a model, files, a person) is declined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from leadrope.version import __version__

PROTOCOL = "2025-06-18"
"""What we offer; a server may answer with an older one, and what is used here is the same in all of them."""
MOST_PAGES = 100
NO_SUCH_METHOD = -32601

Message = dict[str, Any]


class Lost(Exception):
    """The server is gone, or says what is no MCP; in words for the user."""


class ServerRefused(Exception):
    """The server answered with an error of its own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Wire(Protocol):
    """Carries messages to one server and back."""

    async def send(self, message: Message) -> Message | None:
        """The answer to a request, whatever else comes before it; None for a notification."""
        ...

    def agreed(self, version: str) -> None:
        """The version of the protocol, once it is known."""
        ...


class McpClient:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._last_id = 0
        self.doing = "connect"
        """What the server was asked last, for whoever ends the waiting."""

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
        """All tools that the server has: the JSON Schema of what each takes, by name."""
        schemas = {name: tool.get("inputSchema") for name, tool in (await self.descriptions()).items()}
        return {name: schema if isinstance(schema, dict) else {} for name, schema in schemas.items()}

    async def descriptions(self) -> dict[str, Message]:
        """All tools that the server has, as it describes them, by name."""
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
        """The result as the server gave it; `isError` in it is the tool's own failure."""
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
    """What is said to a request of the server's own; None for what needs no answer."""
    if "method" not in message or message.get("id") is None:
        return None
    if message["method"] == "ping":
        return {"jsonrpc": "2.0", "id": message["id"], "result": {}}
    error = {"code": NO_SUCH_METHOD, "message": f"this client has no {str(message['method'])[:100]}"}
    return {"jsonrpc": "2.0", "id": message["id"], "error": error}


def is_answer(message: Message, request: Message) -> bool:
    return "method" not in message and message.get("id") == request.get("id")
