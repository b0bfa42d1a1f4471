"""A small MCP server for tests, over stdio, HTTP or SSE: one tool `touch` that makes a file. `hang` never answers."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
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


class EventHandler(Handler):
    """The older way: one stream of events for all answers, and an address for questions that it begins with."""

    answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def do_POST(self) -> None:
        reply = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if reply is not None:
            self.answers.put(reply)
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        Path(self.seen).write_text(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: endpoint\ndata: /ask\n\n")
        while True:
            self.wfile.write(f"event: message\ndata: {json.dumps(self.answers.get())}\n\n".encode())


class SilentHandler(Handler):
    def do_POST(self) -> None:
        threading.Event().wait()


def http(seen: str, handler: type[Handler] = Handler, kind: type[HTTPServer] = HTTPServer) -> None:
    handler.seen = seen
    server = kind(("127.0.0.1", 0), handler)
    print(server.server_port, flush=True)
    server.serve_forever()


KINDS: dict[str, Callable[[str], None]] = {
    "stdio": stdio,
    "http": http,
    "sse": lambda seen: http(seen, EventHandler, ThreadingHTTPServer),
    "silent": lambda seen: http(seen, SilentHandler, ThreadingHTTPServer),
}

if __name__ == "__main__":
    if sys.argv[1] == "hang":
        threading.Event().wait()
    KINDS[sys.argv[1]](sys.argv[2])
