"""How a broker ends, and what it writes about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leadrope import Secret
from leadrope.net import http1
from leadrope.rehearsal import ModelServer
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.limits.budget import Meter


@pytest.mark.parametrize("fault", ["cut", "bad_sse"])
async def test_an_answer_that_was_cut_does_not_look_whole(ends: Any, fault: str) -> None:
    meter = Meter(None)
    async with (
        ends.brokered([{"text": "half of", fault: True}], meter=meter) as (broker, _),
        ends.calling(broker.url) as direct,
    ):
        await direct.say(broker)
        head = await direct.head()
        if fault == "cut":
            with pytest.raises((http1.Closed, ConnectionError)):
                async for _ in http1.pieces(direct.reader, head.body):
                    pass
        else:
            body = b"".join([piece async for piece in http1.pieces(direct.reader, head.body)])
            assert b"content_block_start" in body
    assert meter.spent_usd >= 100 * 5 / 1e6


@pytest.mark.parametrize(
    "turn", [{"hang": "before_headers"}, {"text": "x", "hang": "mid_stream"}, {"text": "x", "wait": "w"}]
)
async def test_closing_ends_what_hangs(ends: Any, turn: dict[str, Any], until: Callable[..., Awaitable[None]]) -> None:
    before = asyncio.all_tasks()
    async with (
        ModelServer([turn], strict=False) as model,
        Broker(model.url, Secret(ends.REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        await caller.say(broker)
        await until(lambda: bool(model.requests))
        await asyncio.wait_for(broker.close(), 5)
        with pytest.raises((http1.Closed, ConnectionError, AssertionError)):
            await caller.hear()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", int(broker.url.rpartition(":")[2]))
    assert asyncio.all_tasks() == before


async def test_closing_before_anyone_came(ends: Any) -> None:
    async with Broker("https://example.invalid", Secret(ends.REAL), "api_key") as broker:
        await broker.close()
    await broker.close()


@pytest.mark.fault
async def test_clients_that_hang_up_at_any_moment(ends: Any, fault_count: int) -> None:
    """The server's side is cut each time, nothing is left, and the next client is served."""
    before = asyncio.all_tasks()
    meter = Meter(None)
    script = [{"size": 200_000, "usage": ends.DEAR, "repeat": "forever"}]
    async with ends.brokered(script, meter=meter, strict=False) as (broker, _):
        for index in range(fault_count * 4):
            async with ends.calling(broker.url) as caller:
                if index % 4 == 0:
                    caller.writer.write(b"POST /v1/messages HTTP/1.1\r\nx-api-key: " + broker.token.encode())
                    await caller.writer.drain()
                elif index % 4 == 1:
                    await caller.say(broker, ends.BODY[:10], content_length=str(len(ends.BODY)))
                else:
                    await caller.say(broker)
                    await caller.reader.read((index % 4 - 2) * 30_000 + 1)
        async with ends.calling(broker.url) as caller:
            assert len((await caller.ask(broker)).body) > 200_000
        await broker.close()
        assert not broker._clients
    assert asyncio.all_tasks() == before


async def test_nothing_is_written_about_credentials_or_words(ends: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with ends.brokered([{"text": "secret words"}, {"error": {"status": 500}}]) as (broker, _):
        async with ends.calling(broker.url) as caller:
            await caller.ask(broker)
            await caller.ask(broker)
        for text_ in (caplog.text, repr(broker), repr(vars(broker))):
            assert ends.REAL not in text_
            assert "secret words" not in text_
