"""The one client, against a server that streams, falls silent, or is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from leadrope.net.http_client import BodyTooLarge, HttpFailed, OutgoingRequest, exchange
from leadrope.net.sse import EventStream, EventTooLarge, ServerEvent
from leadrope.net.urls import read_url

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[OutgoingRequest]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST /v1 HTTP/1.1\r\nHost: 127.0.0.1:")
        assert await reader.readexactly(2) == b"{}"
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield OutgoingRequest(method="POST", target=read_url(f"http://127.0.0.1:{port}/v1"), body=b"{}")


async def test_events_are_read_as_they_come() -> None:
    read = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"9\r\ndata: a\n\n\r\n")
        await read.wait()  # the second comes only when the first was read
        writer.write(b"13\r\nevent: e\ndata: b\n\n\n\r\n0\r\n\r\n")
        await writer.drain()

    found: list[ServerEvent] = []
    stream = EventStream(1024)
    async with serving(serve) as request, exchange(request, idle_s=30) as answer:
        assert (answer.status, answer.media_type) == (200, "text/event-stream")
        async for piece in answer.pieces(1 << 20):
            found += stream.feed(piece)
            read.set()
    assert found == [("message", "a"), ("e", "b")]


@pytest.mark.parametrize("said", [b"", STREAM, STREAM + b"3\r\nabc\r\n"], ids=["nothing", "head", "half"])
async def test_a_server_that_falls_silent_is_given_up(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()  # until the client has gone

    async with serving(serve) as request:
        with pytest.raises(HttpFailed, match=r"silent for 0\.1 s"):
            async with exchange(request, idle_s=0.1) as answer:
                await answer.read(1024)


async def test_what_is_too_long_is_refused() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"64\r\n" + b"a" * 100 + b"\r\n0\r\n\r\n")

    async with serving(serve) as request, exchange(request) as answer:
        with pytest.raises(BodyTooLarge):
            await answer.read(99)
    with pytest.raises(EventTooLarge):
        EventStream(99).feed(b"data: " + b"a" * 100)


async def test_only_the_given_addresses_are_connected_to() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with serving(serve) as request:
        with pytest.raises(HttpFailed, match="cannot be reached: connection refused"):
            async with exchange(request, addresses=["127.0.0.2"]):
                pass
        async with exchange(request, addresses=["127.0.0.2", "127.0.0.1"]) as answer:
            assert answer.status == 204
