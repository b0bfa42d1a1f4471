"""An MCP server over stdio that misbehaves in the way that its first argument names; needs nothing but Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tools(way: str, params: dict[str, Any]) -> dict[str, Any]:
    if way != "pages":
        return {"tools": [{"name": "search_files"}, {"name": "read_file"}]}
    page = int(params.get("cursor", 0))
    more = {"nextCursor": str(page + 1)} if page < 3 else {}
    return {"tools": [{"name": f"tool_{page}"}], **more}


def result(way: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}}
    if method == "tools/list":
        return tools(way, params)
    told = {"arguments": params["arguments"], "cwd": os.getcwd(), "env": sorted(os.environ)}  # noqa: PTH109
    return {"content": [{"type": "text", "text": json.dumps(told)}]}


def main(way: str) -> None:
    if way == "noisy":
        print("Welcome to the odd server!\n\n{not json\n[]\n7", flush=True)
    if way == "loud":
        sys.stdout.write("x" * (20 * 1024 * 1024) + "\n")
        sys.stdout.flush()
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if way == "crash" and method == "tools/call":
            print(f"cannot go on with {os.environ.get('SERVER_TOKEN')}", file=sys.stderr, flush=True)
            sys.exit(3)
        if way == f"hang:{method}":
            subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()", *sys.argv[2:]])
            threading.Event().wait()
        if way == "asks" and method == "tools/call":
            say({"method": "notifications/progress", "params": {}})
            say({"id": "own-1", "method": "ping"})
            say({"id": "own-2", "method": "sampling/createMessage", "params": {}})
            replies = [json.loads(sys.stdin.readline()) for _ in range(2)]
            if [reply["id"] for reply in replies] != ["own-1", "own-2"] or "error" not in replies[1]:
                sys.exit(9)
        if "id" not in message:
            continue
        if way == "refuses" and method == "tools/call":
            secret = os.environ.get("SERVER_TOKEN")
            say({"id": message["id"], "error": {"code": -32602, "message": f"bad arguments, says {secret}"}})
        else:
            say({"id": message["id"], "result": result(way, method, message.get("params", {}))})


if __name__ == "__main__":
    main(sys.argv[1])
