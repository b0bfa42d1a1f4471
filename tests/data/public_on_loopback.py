"""A run of the real agent in a network of its own, in which a public address is this machine's: nothing leaves it.

Started by `unshare --net`. Arguments: the agent's program, a folder. Prints what the gate said and who was reached.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from leadrope import Answer, RunRequest, Secret, events, open_run
from leadrope.rehearsal import ModelServer
from leadrope.runtime.gate.approvers import Callback

PUBLIC, OTHER = "93.184.216.34", "93.184.216.35"
_SIOCSIFADDR, _SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8916, 0x8914, 0x41


def own_network() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
        for number, address in enumerate((PUBLIC, OTHER)):
            packed = struct.pack("16sHH4s8x", f"lo:{number}".encode(), socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(handle, _SIOCSIFADDR, packed)


def bash(line: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": line, "description": "try"}}}


async def main(claude: str, folder: Path) -> None:
    reached: list[str] = []
    asked: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = writer.get_extra_info("sockname")[:2]
        reached.append(f"{address}:{port}")
        await reader.read(1)  # the agent speaks TLS, and is not answered
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()

    async def person(request: events.ApprovalRequested) -> Answer:
        asked.append(request.call.input)
        return Answer(approved=request.call.input.get("host") == OTHER)

    curl = "curl -sS -m 20 -o {} http://{}/ || true"
    turns: list[dict[str, Any]] = [
        {"tool": {"name": "WebFetch", "input": {"url": f"https://{PUBLIC}/", "prompt": "read"}}},
        bash(curl.format("first", PUBLIC) + "; env | grep -ci leadrope: > tokens"),
        bash(curl.format("second", OTHER)),
        {"text": "done"},
    ]
    workspace, home = folder / "ws", folder / "home"
    for path in (workspace, home):
        path.mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LEADROPE_HOME": str(home / "leadrope"),
        "LEADROPE_CLAUDE_BIN": claude,
    }
    servers = [await asyncio.start_server(serve, address, port) for address in (PUBLIC, OTHER) for port in (80, 443)]
    async with ModelServer(turns) as model:
        key = Secret("sk-ant-rehearsal-0000000000000000")
        request = RunRequest(
            prompt="go", cwd=str(workspace), credential=key, attempts=1, base_url=model.url, mode="sandboxed"
        )
        async with open_run(request, approver=Callback(person), environ=environ) as run:
            found = [recorded.event async for recorded in run]
            result = await run.result()
    for server in servers:
        server.close()
    decided = [(e.call.name, e.decision) for e in found if isinstance(e, events.ToolDecided)]
    print(json.dumps({"outcome": result.outcome, "decided": decided, "asked": asked, "reached": reached}))


own_network()
asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
