"""What a broker refuses, and what it makes of the refusals of others."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from leadrope import Secret, events
from leadrope.net import http1
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.limits.budget import Meter


@pytest.mark.parametrize(
    "headers",
    [
        {"x_api_key": ""},
        {"x_api_key": "sk-ant-guess"},
        {"x_api_key": "", "authorization": "Bearer TOKEN"},
        {"x_api_key": "TOKEN "[:-2]},
        {"x_api_key": "TOKENx"},
        {"x_api_key": "tok\xe9n"},
    ],
)
async def test_without_the_token_nothing_passes(ends: Any, headers: dict[str, str]) -> None:
    async with ends.brokered([]) as (broker, model), ends.calling(broker.url) as caller:
        given = {name: value.replace("TOKEN", broker.token) for name, value in headers.items()}
        answer = await caller.ask(broker, more=given)
        assert answer.status == 401
        assert answer.headers["x-should-retry"] == "false"
        assert answer.error["type"] == "authentication_error"
        assert answer.headers["connection"] == "close"
        assert await caller.is_closed(), "nothing follows an error on the same connection"
    assert model.requests == []


async def test_two_tokens_are_none(ends: Any) -> None:
    async with ends.brokered([]) as (broker, _), ends.calling(broker.url) as caller:
        answer = await caller.ask(broker, twice=(("X-API-KEY", broker.token),))
        assert answer.status == 401


@pytest.mark.parametrize(
    "start",
    [
        "GET /v1/messages HTTP/1.1",
        "POST / HTTP/1.1",
        "POST /v1/messages/ HTTP/1.1",
        "POST /v1/messages/batches HTTP/1.1",
        "POST /v1/messages/../models HTTP/1.1",
        "POST //v1/messages HTTP/1.1",
        "POST /v1/messages%2f.. HTTP/1.1",
        "POST /V1/MESSAGES HTTP/1.1",
        "POST /v1/files HTTP/1.1",
        "DELETE /v1/messages HTTP/1.1",
        "POST http://127.0.0.1/v1/messages HTTP/1.1",
        "GET /v1/organizations/api_keys?x=/v1/messages HTTP/1.1",
    ],
)
async def test_only_the_models_own_paths_pass(ends: Any, start: str) -> None:
    async with ends.brokered([]) as (broker, model), ends.calling(broker.url) as caller:
        answer = await caller.ask(broker, start=start)
        assert (answer.status, answer.error["type"]) == (404, "not_found_error")
    assert model.requests + model.other_requests == []


async def test_counting_tokens_passes(ends: Any) -> None:
    async with ends.brokered([], meter=Meter(1.0)) as (broker, model), ends.calling(broker.url) as caller:
        answer = await caller.ask(broker, start="POST /v1/messages/count_tokens?beta=true HTTP/1.1")
        assert json.loads(answer.body)["input_tokens"] > 0
    assert len(model.other_requests) == 1


@pytest.mark.parametrize(
    ("start", "headers"),
    [
        ("POST /v1/messages HTTP/1.1", {"transfer_encoding": "chunked"}),
        ("POST /v1/messages HTTP/1.1", {"content_length": "5, 6"}),
        ("POST /v1/messages HTTP/1.1", {"content_length": "-1"}),
        ("POST /v1/messages HTTP/1.1", {"transfer_encoding": "gzip, chunked", "content_length": ""}),
        ("POST /v1/messages HTTP/1.1", {"bad name": "x"}),
        ("POST /v1/messages HTTP/1.1", {"x": "y\r\n folded"}),
        ("POST /v1/messages HTTP/1.0", {}),
        ("POST /v1/mess ages HTTP/1.1", {}),
        ("nonsense", {}),
        ("POST /v1/messages HTTP/1.1", {"x_long": "a" * http1.HEAD_LIMIT * 2}),
    ],
)
async def test_what_two_readers_could_read_in_two_ways_is_refused(
    ends: Any, start: str, headers: dict[str, str]
) -> None:
    async with ends.brokered([]) as (broker, model), ends.calling(broker.url) as caller:
        await caller.say(broker, b"12345", start=start, more=headers)
        try:
            answer = await caller.hear()
        except ConnectionError:
            return  # closed while a head that is too long was still being sent
        assert answer.status == 400
        assert await caller.is_closed()
    assert model.requests == []


async def test_a_refused_login_ends_at_once_and_a_limit_stays_as_it_is(ends: Any) -> None:
    script = [
        {"error": {"status": 401, "headers": {"x-should-retry": "true"}}},
        {"error": {"status": 429, "headers": {"retry-after": 7}}},
        {"error": {"status": 529}},
    ]
    answers = []
    async with ends.brokered(script) as (broker, _):
        for _ in range(3):
            async with ends.calling(broker.url) as caller:
                answers.append(await caller.ask(broker))
                assert await caller.is_closed(), "nothing follows an error on the same connection"
    refused, limited, busy = answers
    assert (refused.status, refused.headers["x-should-retry"]) == (401, "false")
    assert (limited.status, limited.headers["retry-after"], limited.headers.get("x-should-retry")) == (429, "7", None)
    assert (busy.status, busy.error["type"]) == (529, "overloaded_error")


async def test_a_server_that_is_not_there(ends: Any) -> None:
    told: list[events.Notice] = []
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with Broker(url, Secret(ends.REAL), "api_key", notify=told.append) as broker:
            for _ in range(3):
                async with ends.calling(broker.url) as caller:
                    answer = await caller.ask(broker)
                assert (answer.status, answer.error["type"]) == (502, "api_error")
                assert url.removeprefix("http://") in answer.error["message"]
                assert "x-should-retry" not in answer.headers, "the agent's own retries decide"
    assert [notice.code for notice in told] == ["model_unreachable"]


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", b"no http at all\r\n\r\n", b"HTTP/2 200\r\n\r\n"])
async def test_a_server_that_does_not_answer(ends: Any, said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(said)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with ends.far_end(serve) as url, Broker(url, Secret(ends.REAL), "api_key") as broker:
        for _ in range(2):
            async with ends.calling(broker.url) as caller:
                answer = await caller.ask(broker)
            assert (answer.status, answer.error["type"]) == (502, "api_error")


async def test_an_answer_without_a_length_ends_with_its_connection(ends: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + ends.start(input_tokens=200_000))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    meter = Meter(None)
    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker,
        ends.calling(broker.url) as caller,
    ):
        answer = await caller.ask(broker)
        assert answer.headers["connection"] == "close"
    assert answer.body == ends.start(input_tokens=200_000)
    assert meter.spent_usd == pytest.approx(1.0)
