"""A broker meters what passes, and refuses once the budget is reached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadrope import Secret, events
from leadrope.net import http1
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.limits.budget import Meter


async def test_answers_are_metered_by_agent_whether_they_stream_or_not(ends: Any) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 200, "cache_read_input_tokens": 10_000}
    turn = {"text": "x", "usage": usage}
    script = {"turns": [turn, turn], "subagents": [[turn]]}
    meter = Meter(None)
    async with ends.brokered(script, meter=meter) as (broker, _), ends.calling(broker.url) as caller:
        await caller.ask(broker)
        await caller.ask(broker, ends.WHOLE)
        await caller.ask(broker, x_claude_code_agent_id="a1b2")
    one = (1000 * 5 + 200 * 25 + 10_000 * 0.5) / 1e6
    assert meter.by_agent == pytest.approx({None: 2 * one, "a1b2": one})
    assert meter.by_model == pytest.approx({"claude-opus-4-5": 3 * one})


async def test_once_the_budget_is_reached_everything_is_refused(ends: Any) -> None:
    over: list[str] = []
    meter = Meter(0.6, on_over=over.append)
    async with ends.brokered([{"text": "x", "usage": ends.DEAR, "repeat": 2}], meter=meter) as (broker, model):
        async with ends.calling(broker.url) as caller:
            assert [(await caller.ask(broker)).status for _ in range(2)] == [200, 200]
        for agent, path in (("", "/v1/messages"), ("sub", "/v1/messages"), ("", "/v1/messages/count_tokens")):
            async with ends.calling(broker.url) as caller:
                answer = await caller.ask(broker, start=f"POST {path} HTTP/1.1", x_claude_code_agent_id=agent)
            assert (answer.status, answer.error["type"]) == (402, "billing_error")
            assert answer.headers["x-should-retry"] == "false"
            assert answer.error["message"].startswith("leadrope: the run's budget of 0.6 USD is reached")
    assert len(model.requests) == 2
    assert len(over) == 1
    assert meter.spent_usd - 0.6 < 0.5, "at most one request too much"


async def test_the_budget_is_over_in_the_middle_of_an_answer(ends: Any) -> None:
    """The prompt is owed when the answer begins; the run is told then, and not at the end."""
    over = asyncio.Event()
    meter = Meter(0.5, on_over=lambda _: over.set())
    turn = {"text": "x", "usage": ends.DEAR, "hang": "mid_stream"}
    async with ends.brokered([turn], meter=meter) as (broker, _), ends.calling(broker.url) as caller:
        await caller.say(broker)
        await asyncio.wait_for(over.wait(), 10)


@pytest.mark.parametrize("message_id", ["", "always-the-same"])
async def test_a_gateway_whose_answers_share_an_id_is_paid_for_each(ends: Any, message_id: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await ends.take(reader)
            body = ends.start(message_id, input_tokens=200_000) + ends.event(
                "message_delta", usage={"output_tokens": 40_000}
            )
            writer.write(ends.STREAM + http1.chunk(body) + http1.LAST_CHUNK)

    meter = Meter(None)
    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker,
        ends.calling(broker.url) as caller,
    ):
        for _ in range(3):
            await caller.ask(broker)
    assert meter.spent_usd == pytest.approx(6.0)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_counts_are_found_however_the_stream_is_cut(ends: Any, size: int) -> None:
    body = (
        ends.start(input_tokens=10, cache_creation_input_tokens=1000, cache_creation={"ephemeral_1h_input_tokens": 400})
        + ends.text("event: message_delta\n\nis only text here")
        + ends.event("ping")
        + ends.event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 30})
        + ends.event("message_stop")
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(ends.STREAM)
        for at in range(0, len(body), size):
            writer.write(http1.chunk(body[at : at + size]))
            await writer.drain()
        writer.write(http1.LAST_CHUNK)
        await writer.drain()

    meter = Meter(None)
    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker,
        ends.calling(broker.url) as caller,
    ):
        assert (await caller.ask(broker)).body == body
    assert meter.spent_usd == pytest.approx((10 * 5 + 600 * 6.25 + 400 * 10 + 30 * 25) / 1e6)


async def test_what_was_written_before_a_cut_is_owed(ends: Any) -> None:
    """Else a client that hangs up before the last event would read for nothing."""
    words = "word " * 4000
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(ends.STREAM + http1.chunk(ends.start(input_tokens=100) + ends.text(words)))
        await writer.drain()
        assert await reader.read(1) == b"", "the broker has hung up too"
        gone.set()

    meter = Meter(None)
    async with ends.far_end(serve) as url, Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker:
        async with ends.calling(broker.url) as caller:
            await caller.say(broker)
            head = await caller.head()
            heard = b""
            async for piece in http1.pieces(caller.reader, head.body):
                heard += piece
                if heard.endswith(b"\n\n") and words.encode() in heard:
                    break
        await asyncio.wait_for(gone.wait(), 10)
    assert meter.spent_usd == pytest.approx((100 * 5 + 5000 * 25) / 1e6, rel=0.02)


async def test_a_compressed_answer_cannot_be_held_to_a_budget(ends: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await ends.take(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc")

    told: list[events.Notice] = []
    async with ends.far_end(serve) as url:
        async with (
            Broker(url, Secret(ends.REAL), "api_key", meter=Meter(1.0), notify=told.append) as broker,
            ends.calling(broker.url) as caller,
        ):
            answer = await caller.ask(broker)
            assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
        assert [notice.code for notice in told] == ["unmetered"]
        async with (
            Broker(url, Secret(ends.REAL), "api_key", meter=Meter(None)) as broker,
            ends.calling(broker.url) as caller,
        ):
            assert (await caller.ask(broker)).body == b"abc"
