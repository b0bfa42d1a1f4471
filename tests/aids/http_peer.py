"""An HTTP server on loopback for the http step: what it was asked, and whatever answer a test wants; no client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from leadrope.workflows.steps.base import StepFailed
from leadrope.workflows.steps.http import Http, fetch
from step_place import Here

TOKEN = "token-of-the-request-4711"
LOOPBACK = ["127.0.0.1"]
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Handler = Callable[[Seen, asyncio.StreamWriter], Awaitable[bytes | None]]


class Server:
    """What was asked of it, and how often anybody so much as connected."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.seen: list[Seen] = []
        self.connections = 0
        self.closed = asyncio.Event()
        self.port = 0
        self.tasks: list[Any] = []
        self.writers: list[asyncio.StreamWriter] = []

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        self.tasks.append(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = first.split(" ")
            found = Seen(method=method, path=path, headers=headers, body=body)
            self.seen.append(found)
            answer = await self._handler(found, writer)
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.closed.set()


@contextlib.asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    found = Server(handler)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    # Closing a server waits for its connections since Python 3.12, so these are ended first.
    async with server:
        try:
            yield found
        finally:
            for task in found.tasks:
                task.cancel()
            await asyncio.gather(*found.tasks, return_exceptions=True)
            for writer in found.writers:
                writer.transport.abort()
            await asyncio.sleep(0)  # one round of the loop, in which they close


def answer(body: bytes | str = b"", status: int = 200, **headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def always(reply: bytes) -> Handler:
    async def handler(_: Seen, __: asyncio.StreamWriter) -> bytes:
        return reply

    return handler


async def echo(seen: Seen, _: asyncio.StreamWriter) -> bytes:
    told = {"method": seen.method, "path": seen.path, "headers": seen.headers, "body": seen.body.decode()}
    return answer(json.dumps(told), content_type="application/json; charset=utf-8")


def step(**values: Any) -> Http:
    return msgspec.convert({"allow_private": LOOPBACK, **values}, Http, strict=False)


async def failure(config: Http, here: Here, **seams: Any) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        await fetch(config, here, **seams)
    assert caught.value.message
    return caught.value
