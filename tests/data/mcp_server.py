"""A small MCP server for tests, over stdio or HTTP: one tool `touch` that makes a file. `hang` never answers."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

TOOL = {
    "name": "touch",
    "description": "Makes an empty file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    if "id" not in message:
        return None
    result: dict[str, Any] = {}
    if message["method"] == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }
    elif message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    elif message["method"] == "tools/call":
        Path(message["params"]["arguments"]["path"]).touch()
        result = {"content": [{"type": "text", "text": "touched"}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def stdio(seen: str) -> None:
    Path(seen).write_text(os.environ.get("SERVER_TOKEN", ""))
    for line in sys.stdin:
        reply = answer(json.loads(line))
        if reply is not None:
            print(json.dumps(reply), flush=True)


class Handler(BaseHTTPRequestHandler):
    seen = ""

    def do_POST(self) -> None:
        Path(self.seen).write_text(self.headers.get("Authorization", ""))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = answer(body)
        data = json.dumps(reply).encode() if reply is not None else b""
        self.send_response(200 if reply is not None else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET  # noqa: N815  # the base class's way of naming

    def log_message(self, *_: object) -> None:
        pass


def http(seen: str) -> None:
    Handler.seen = seen
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "hang":
        threading.Event().wait()
    {"stdio": stdio, "http": http}[sys.argv[1]](sys.argv[2])
