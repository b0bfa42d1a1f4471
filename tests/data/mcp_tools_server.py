"""A server made with the official package: `stdio`, or `http`, `http-json` and `sse` on a port that it prints."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tools")


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}


@server.tool(structured_output=False)
def rows(count: int) -> str:
    return "[" + ", ".join(f'{{"n": {n}}}' for n in range(count)) + "]"


@server.tool(structured_output=False)
def greet(name: str) -> str:
    return f"hello {name}"


@server.tool()
def keep(data: dict[str, Any], rows: list[int], text: str) -> dict[str, Any]:
    return {"data": data, "rows": rows, "text": text}


@server.tool(structured_output=False)
def confess() -> str:
    return f"the token is {os.environ.get('SERVER_TOKEN', '')}"


@server.tool()
def fail() -> str:
    raise ToolError("the disk is on fire")


def serve(app: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # before anybody hears of the port
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    match sys.argv[1]:
        case "stdio":
            server.run("stdio")
        case "sse":
            serve(server.sse_app())
        case kind:
            serve(server.streamable_http_app(json_response=kind == "http-json"))
