"""Both ends of a broker on real sockets: a client that says what it is told, and servers that no script can play."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret
from leadrope.net import http1
from leadrope.rehearsal import ModelServer
from leadrope.runtime.broker.broker import Broker, Kind

REAL = "sk-ant-the-real-key-0000000000000000"
ASK: dict[str, Any] = {
    "model": "claude-opus-4-5",
    "max_tokens": 10,
    "stream": True,
    "messages": [{"role": "user", "content": "Hi"}],
}
BODY = json.dumps(ASK).encode()
WHOLE = json.dumps({**ASK, "stream": False}).encode()
DEAR = {"input_tokens": 100_000, "output_tokens": 0}
"""Half a dollar."""


class Answer:
    def __init__(self, head: http1.AnswerHead, body: bytes) -> None:
        self.status = head.status
        self.headers = {name.lower(): value for name, value in head.headers}
        self.body = body

    @property
    def error(self) -> dict[str, str]:
        told = json.loads(self.body)
        assert told["type"] == "error"
        return dict(told["error"])


class Caller:
    """A client on one connection, which says exactly what it is told to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(
        self,
        broker: Broker | None,
        body: bytes = BODY,
        *,
        start: str = "POST /v1/messages?beta=true HTTP/1.1",
        more: Mapping[str, str] | None = None,
        twice: tuple[tuple[str, str], ...] = (),
        **headers: str,
    ) -> None:
        """`headers`: underscores are dashes, and an empty value leaves one out."""
        given = {"host": "x", "content-type": "application/json", "content-length": str(len(body))}
        if broker is not None:
            given["x-api-key"] = broker.token
        given |= {name.replace("_", "-"): value for name, value in {**headers, **(more or {})}.items()}
        lines = [(name, value) for name, value in given.items() if value]
        self.writer.write(http1.write_head(start, (*lines, *twice)) + body)
        await self.writer.drain()

    async def head(self) -> http1.AnswerHead:
        head = await http1.read_head(self.reader)
        assert head is not None, "closed without an answer"
        return http1.parse_answer(head)

    async def hear(self) -> Answer:
        head = await self.head()
        return Answer(head, b"".join([piece async for piece in http1.pieces(self.reader, head.body)]))

    async def ask(self, broker: Broker | None, body: bytes = BODY, **how: Any) -> Answer:
        await self.say(broker, body, **how)
        return await self.hear()

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def calling(where: str | Path) -> AsyncIterator[Caller]:
    if isinstance(where, Path):
        reader, writer = await asyncio.open_unix_connection(str(where))
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(where.rpartition(":")[2]))
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def far_end(serve: Serve, **options: Any) -> AsyncIterator[str]:
    """A server of the test's own, for what no script can say."""
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError, http1.Closed):
            pass  # the test is over, or the broker has cut it
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, **options)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def take(reader: asyncio.StreamReader) -> http1.RequestHead:
    """One request, its body read and dropped."""
    head = await http1.read_head(reader)
    if head is None:
        raise http1.Closed("no more requests")
    request = http1.parse_request(head)
    async for _ in http1.pieces(reader, request.body):
        pass
    return request


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def start(message_id: str = "m", model: str = "claude-opus-4-5", **usage: Any) -> bytes:
    return event("message_start", message={"id": message_id, "model": model, "usage": usage})


def text(words: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": words})


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def brokered(
    script: Any, *, kind: Kind = "api_key", real: str = REAL, strict: bool = True, **options: Any
) -> AsyncIterator[tuple[Broker, ModelServer]]:
    async with (
        ModelServer(script, strict=strict) as model,
        Broker(model.url, Secret(real), kind, **options) as broker,
    ):
        yield broker, model


class Ends:
    """All of the above, for tests in several files."""

    brokered = staticmethod(brokered)
    calling = staticmethod(calling)
    far_end = staticmethod(far_end)
    take = staticmethod(take)
    event = staticmethod(event)
    start = staticmethod(start)
    text = staticmethod(text)
    REAL = REAL
    ASK = ASK
    BODY = BODY
    WHOLE = WHOLE
    DEAR = DEAR
    STREAM = STREAM
    Answer = Answer
    Caller = Caller
    Serve = Serve


@pytest.fixture
def ends() -> type[Ends]:
    return Ends
