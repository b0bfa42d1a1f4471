"""A broker under load: connections are kept, nothing is held back, nothing is held in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret
from leadrope.net import http1
from leadrope.runtime.broker import broker_connection
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.limits.budget import Meter


async def test_connections_are_kept_on_both_sides(ends: Any) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await ends.take(reader)
            writer.write(ends.STREAM + http1.chunk(ends.text("x")) + http1.LAST_CHUNK)

    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        for _ in range(10):
            assert (await caller.ask(broker)).body == ends.text("x")
    assert connections == 1


async def test_an_idle_connection_that_the_server_has_closed_costs_no_request(ends: Any) -> None:
    """The second request finds the kept connection closed, at the latest in the moment of sending."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await ends.take(reader)
        writer.write(ends.STREAM + http1.chunk(ends.text("x")) + http1.LAST_CHUNK)
        await writer.drain()
        if connections == 1:
            await reader.read(1)  # the next request is on its way: cut it without a word
            writer.transport.abort()
        else:
            writer.close()
            await writer.wait_closed()

    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        for _ in range(4):
            assert (await caller.ask(broker)).status == 200
    assert connections == 4


async def test_what_a_server_says_unasked_is_not_an_answer(ends: Any, until: Callable[..., Awaitable[None]]) -> None:
    """A balancer tells an idle connection `408` before it closes it; the next request must not get that."""
    said = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(ends.STREAM + http1.chunk(ends.text("x")) + http1.LAST_CHUNK)
        await writer.drain()
        await said.wait()
        writer.write(b"HTTP/1.1 408 Too Slow\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        assert (await caller.ask(broker)).status == 200
        (idle,) = broker.upstream._idle
        said.set()
        await until(lambda: idle.reader.is_spoilt)
        assert (await caller.ask(broker)).status == 200


async def test_fifty_at_once(ends: Any) -> None:
    meter = Meter(None)
    async with ends.brokered([{"text": "ok " * 500, "repeat": "forever"}], meter=meter) as (broker, model):

        async def one() -> bytes:
            async with ends.calling(broker.url) as caller:
                return bytes((await caller.ask(broker)).body)

        bodies = await asyncio.gather(*(one() for _ in range(50)))
    assert len(model.requests) == 50
    assert all(body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n') for body in bodies)
    assert meter.spent_usd == pytest.approx(50 * (100 * 5 + 10 * 25) / 1e6)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_fifty_megabytes_pass_without_being_held(ends: Any) -> None:
    size, piece = 50 * 1024 * 1024, bytes(256 * 1024)
    received = 0
    most = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received, most
        head = await http1.read_head(reader)
        assert head is not None
        async for part in http1.pieces(reader, http1.parse_request(head).body):
            received += len(part)
            most = max(most, resident())
        # One event of fifty megabytes: nothing in it is worth keeping.
        writer.write(ends.STREAM + http1.chunk(b"event: ping\ndata: "))
        for _ in range(size // len(piece)):
            writer.write(http1.chunk(piece))
            await writer.drain()
        writer.write(http1.chunk(b"\n\n") + http1.chunk(ends.start(input_tokens=200_000)) + http1.LAST_CHUNK)
        await writer.drain()

    meter = Meter(None)
    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker,
        ends.calling(broker.url) as caller,
    ):
        before = resident()
        await caller.say(broker, b"", content_length=str(size))
        for _ in range(size // len(piece)):
            caller.writer.write(piece)
            await caller.writer.drain()
        heard = 0
        head = await caller.head()
        async for part in http1.pieces(caller.reader, head.body):
            heard += len(part)
            most = max(most, resident())
    assert (received, heard > size) == (size, True)
    assert most - before < 16 * 1024 * 1024
    assert meter.spent_usd == pytest.approx(1.0), "counted behind the flood"


async def test_a_body_that_is_too_large_for_the_server_gets_its_answer(ends: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await http1.read_head(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
        await reader.read(-1)  # whatever else comes

    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        await caller.say(broker, bytes(64 * 1024), content_length=str(broker_connection._HELD_BODY * 2))
        assert (await caller.hear()).status == 413
