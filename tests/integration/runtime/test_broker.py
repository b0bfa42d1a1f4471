"""The broker between real sockets: what passes, what is swapped, what is refused, what it costs, and how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret, events
from leadrope.rehearsal import ModelServer
from leadrope.runtime import exchange, http1
from leadrope.runtime.broker import BEHIND_SOCKET, Broker, Kind
from leadrope.runtime.budget import Meter
from leadrope.runtime.proxy import HostProxy
from leadrope.runtime.upstream import proxy_for

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


# -- what passes ----------------------------------------------------------------------------------------------------


async def test_an_answer_arrives_as_it_was_sent() -> None:
    turn = {"thinking": "hm", "text": "Hello. " * 2000, "tool": {"name": "Read", "input": {"file_path": "/x"}}}
    async with ModelServer([turn, turn]) as model, Broker(model.url, Secret(REAL), "api_key") as broker:
        async with calling(model.url) as direct:
            wanted = await direct.ask(None)
        async with calling(broker.url) as caller:
            got = await caller.ask(broker)
    assert got.status == 200
    assert got.body.replace(b"001_0002", b"001_0001") == wanted.body
    assert {n: v for n, v in got.headers.items() if n != "request-id"} == {
        n: v for n, v in wanted.headers.items() if n != "request-id"
    }


async def test_nothing_waits_for_the_end_of_an_answer() -> None:
    """Each event is read by the client before the server sends the next one."""
    heard = asyncio.Queue[None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader)
        writer.write(STREAM)
        for index in range(5):
            writer.write(http1.chunk(text(f"piece {index}")))
            await heard.get()
        writer.write(http1.LAST_CHUNK)

    async with far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker, calling(broker.url) as caller:
        await caller.say(broker)
        head = await caller.head()
        pieces = []
        async for piece in http1.pieces(caller.reader, head.body):
            pieces.append(piece)
            heard.put_nowait(None)
    assert pieces == [text(f"piece {index}") for index in range(5)]


@pytest.mark.parametrize(
    ("kind", "header", "prefix"),
    [
        ("api_key", "x-api-key", ""),
        ("oauth_token", "authorization", "Bearer "),
        ("auth_token", "authorization", "Bearer "),
    ],
)
async def test_the_credential_is_swapped_like_for_like(kind: Kind, header: str, prefix: str) -> None:
    async with brokered([{"text": "ok"}], kind=kind) as (broker, model), calling(broker.url) as caller:
        others = {"x-api-key": "child-key", "authorization": "Bearer child-token"}
        headers = {**others, header: prefix + broker.token}
        answer = await caller.ask(None, more=headers)
        assert answer.status == 200
    seen = model.requests[0].headers
    assert seen[header] == prefix + REAL
    assert not {"x-api-key", "authorization"} - {header} & seen.keys(), "exactly one credential leaves"
    assert broker.token not in str(seen)


async def test_the_token_is_new_for_every_run_and_has_the_shape_of_its_kind() -> None:
    from leadrope.core.redaction import redact
    from leadrope.providers.claude_code.credentials import kind_of

    tokens = {Broker("http://x", Secret(REAL), "oauth_token").token for _ in range(20)}
    assert len(tokens) == 20
    for token in tokens:
        assert kind_of(token) == "oauth_token"
        assert redact(f"token is {token}") == "token is [redacted]"
    assert kind_of(Broker("http://x", Secret(REAL), "api_key").token) == "api_key"


async def test_headers_that_nobody_knows_pass_untouched_and_those_of_the_connection_do_not() -> None:
    async with (
        brokered([{"text": "ok", "headers": {"x-new-answer": "yes"}}]) as (broker, model),
        calling(broker.url) as caller,
    ):
        answer = await caller.ask(
            broker,
            anthropic_beta="a,b",
            x_claude_1p_request_class="main",
            x_hop="1",
            connection="keep-alive, x-hop",
            te="trailers",
            accept_encoding="gzip, br",
        )
    seen = model.requests[0].headers
    assert seen["anthropic-beta"] == "a,b"
    assert seen["x-claude-1p-request-class"] == "main"
    assert seen["accept-encoding"] == "identity"
    assert seen["host"] == model.url.removeprefix("http://")
    assert not {"x-hop", "te", "connection"} & seen.keys()
    assert answer.headers["x-new-answer"] == "yes"


async def test_a_gateways_own_path_is_kept() -> None:
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await take(reader)).target)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()

    async with (
        far_end(serve) as url,
        Broker(f"{url}/team/anthropic/", Secret(REAL), "api_key") as broker,
        calling(broker.url) as caller,
    ):
        await caller.ask(broker)
    assert asked == ["/team/anthropic/v1/messages?beta=true"]


async def test_a_unix_socket_of_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "model.sock"
    async with brokered([{"text": "ok"}], listen=path) as (broker, _):
        assert broker.url == BEHIND_SOCKET
        assert path.stat().st_mode & 0o777 == 0o600
        async with calling(path) as caller:
            assert (await caller.ask(broker)).status == 200
    assert not path.exists()


async def test_a_client_that_asks_before_it_sends() -> None:
    async with brokered([{"text": "ok"}]) as (broker, _), calling(broker.url) as caller:
        await caller.say(broker, b"", expect="100-continue", content_length=str(len(BODY)))
        assert (await caller.head()).status == 100
        caller.writer.write(BODY)
        assert (await caller.hear()).status == 200


async def test_a_chunked_request() -> None:
    async with brokered([{"text": "ok"}]) as (broker, model), calling(broker.url) as caller:
        await caller.say(broker, b"", transfer_encoding="chunked", content_length="")
        for at in range(0, len(BODY), 7):
            caller.writer.write(http1.chunk(BODY[at : at + 7]))
        caller.writer.write(http1.LAST_CHUNK)
        assert (await caller.hear()).status == 200
    assert model.requests[0].body == ASK


# -- what does not --------------------------------------------------------------------------------------------------


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
async def test_without_the_token_nothing_passes(headers: dict[str, str]) -> None:
    async with brokered([]) as (broker, model), calling(broker.url) as caller:
        given = {name: value.replace("TOKEN", broker.token) for name, value in headers.items()}
        for _ in range(2):
            answer = await caller.ask(broker, more=given)
            assert answer.status == 401
            assert answer.headers["x-should-retry"] == "false"
            assert answer.error["type"] == "authentication_error"
    assert model.requests == []


async def test_two_tokens_are_none() -> None:
    async with brokered([]) as (broker, _), calling(broker.url) as caller:
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
async def test_only_the_models_own_paths_pass(start: str) -> None:
    async with brokered([]) as (broker, model), calling(broker.url) as caller:
        answer = await caller.ask(broker, start=start)
        assert (answer.status, answer.error["type"]) == (404, "not_found_error")
    assert model.requests + model.other_requests == []


async def test_counting_tokens_passes() -> None:
    async with brokered([], meter=Meter(1.0)) as (broker, model), calling(broker.url) as caller:
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
async def test_what_two_readers_could_read_in_two_ways_is_refused(start: str, headers: dict[str, str]) -> None:
    async with brokered([]) as (broker, model), calling(broker.url) as caller:
        await caller.say(broker, b"12345", start=start, more=headers)
        try:
            answer = await caller.hear()
        except ConnectionError:
            return  # closed while a head that is too long was still being sent
        assert answer.status == 400
        assert await caller.is_closed()
    assert model.requests == []


# -- what upstream says ---------------------------------------------------------------------------------------------


async def test_a_refused_login_ends_at_once_and_a_limit_stays_as_it_is() -> None:
    script = [
        {"error": {"status": 401, "headers": {"x-should-retry": "true"}}},
        {"error": {"status": 429, "headers": {"retry-after": 7}}},
        {"error": {"status": 529}},
    ]
    async with brokered(script) as (broker, _), calling(broker.url) as caller:
        refused, limited, busy = [await caller.ask(broker) for _ in range(3)]
    assert (refused.status, refused.headers["x-should-retry"]) == (401, "false")
    assert (limited.status, limited.headers["retry-after"], limited.headers.get("x-should-retry")) == (429, "7", None)
    assert (busy.status, busy.error["type"]) == (529, "overloaded_error")


async def test_a_server_that_is_not_there() -> None:
    told: list[events.Notice] = []
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with Broker(url, Secret(REAL), "api_key", notify=told.append) as broker, calling(broker.url) as caller:
            for _ in range(3):
                answer = await caller.ask(broker)
                assert (answer.status, answer.error["type"]) == (502, "api_error")
                assert url.removeprefix("http://") in answer.error["message"]
                assert "x-should-retry" not in answer.headers, "the agent's own retries decide"
    assert [notice.code for notice in told] == ["model_unreachable"]


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", b"no http at all\r\n\r\n", b"HTTP/2 200\r\n\r\n"])
async def test_a_server_that_does_not_answer(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader)
        writer.write(said)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker, calling(broker.url) as caller:
        for _ in range(2):
            answer = await caller.ask(broker)
            assert (answer.status, answer.error["type"]) == (502, "api_error")


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + start(input_tokens=200_000))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    meter = Meter(None)
    async with (
        far_end(serve) as url,
        Broker(url, Secret(REAL), "api_key", meter=meter) as broker,
        calling(broker.url) as caller,
    ):
        answer = await caller.ask(broker)
        assert answer.headers["connection"] == "close"
    assert answer.body == start(input_tokens=200_000)
    assert meter.spent_usd == pytest.approx(1.0)


# -- connections ----------------------------------------------------------------------------------------------------


async def test_connections_are_kept_on_both_sides() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await take(reader)
            writer.write(STREAM + http1.chunk(text("x")) + http1.LAST_CHUNK)

    async with far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker, calling(broker.url) as caller:
        for _ in range(10):
            assert (await caller.ask(broker)).body == text("x")
    assert connections == 1


async def test_an_idle_connection_that_the_server_has_closed_costs_no_request() -> None:
    """The second request finds the kept connection closed, at the latest in the moment of sending."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await take(reader)
        writer.write(STREAM + http1.chunk(text("x")) + http1.LAST_CHUNK)
        await writer.drain()
        if connections == 1:
            await reader.read(1)  # the next request is on its way: cut it without a word
            writer.transport.abort()
        else:
            writer.close()
            await writer.wait_closed()

    async with far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker, calling(broker.url) as caller:
        for _ in range(4):
            assert (await caller.ask(broker)).status == 200
    assert connections == 4


async def test_what_a_server_says_unasked_is_not_an_answer(until: Callable[..., Awaitable[None]]) -> None:
    """A balancer tells an idle connection `408` before it closes it; the next request must not get that."""
    said = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader)
        writer.write(STREAM + http1.chunk(text("x")) + http1.LAST_CHUNK)
        await writer.drain()
        await said.wait()
        writer.write(b"HTTP/1.1 408 Too Slow\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker, calling(broker.url) as caller:
        assert (await caller.ask(broker)).status == 200
        (idle,) = broker.upstream._idle
        said.set()
        await until(lambda: idle.reader.is_spoilt)
        assert (await caller.ask(broker)).status == 200


async def test_fifty_at_once() -> None:
    meter = Meter(None)
    async with brokered([{"text": "ok " * 500, "repeat": "forever"}], meter=meter) as (broker, model):

        async def one() -> bytes:
            async with calling(broker.url) as caller:
                return (await caller.ask(broker)).body

        bodies = await asyncio.gather(*(one() for _ in range(50)))
    assert len(model.requests) == 50
    assert all(body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n') for body in bodies)
    assert meter.spent_usd == pytest.approx(50 * (100 * 5 + 10 * 25) / 1e6)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_fifty_megabytes_pass_without_being_held() -> None:
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
        writer.write(STREAM + http1.chunk(b"event: ping\ndata: "))
        for _ in range(size // len(piece)):
            writer.write(http1.chunk(piece))
            await writer.drain()
        writer.write(http1.chunk(b"\n\n") + http1.chunk(start(input_tokens=200_000)) + http1.LAST_CHUNK)
        await writer.drain()

    meter = Meter(None)
    async with (
        far_end(serve) as url,
        Broker(url, Secret(REAL), "api_key", meter=meter) as broker,
        calling(broker.url) as caller,
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


async def test_a_body_that_is_too_large_for_the_server_gets_its_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await http1.read_head(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
        await reader.read(-1)  # whatever else comes

    async with far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker, calling(broker.url) as caller:
        await caller.say(broker, bytes(64 * 1024), content_length=str(exchange._HELD_BODY * 2))
        assert (await caller.hear()).status == 413


# -- money ----------------------------------------------------------------------------------------------------------


async def test_answers_are_metered_by_agent_whether_they_stream_or_not() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 200, "cache_read_input_tokens": 10_000}
    turn = {"text": "x", "usage": usage}
    script = {"turns": [turn, turn], "subagents": [[turn]]}
    meter = Meter(None)
    async with brokered(script, meter=meter) as (broker, _), calling(broker.url) as caller:
        await caller.ask(broker)
        await caller.ask(broker, WHOLE)
        await caller.ask(broker, x_claude_code_agent_id="a1b2")
    one = (1000 * 5 + 200 * 25 + 10_000 * 0.5) / 1e6
    assert meter.by_agent == pytest.approx({None: 2 * one, "a1b2": one})
    assert meter.by_model == pytest.approx({"claude-opus-4-5": 3 * one})


async def test_once_the_budget_is_reached_everything_is_refused() -> None:
    over: list[str] = []
    meter = Meter(0.6, on_over=over.append)
    async with (
        brokered([{"text": "x", "usage": DEAR, "repeat": 2}], meter=meter) as (broker, model),
        calling(broker.url) as caller,
    ):
        assert [(await caller.ask(broker)).status for _ in range(2)] == [200, 200]
        for agent, path in (("", "/v1/messages"), ("sub", "/v1/messages"), ("", "/v1/messages/count_tokens")):
            answer = await caller.ask(broker, start=f"POST {path} HTTP/1.1", x_claude_code_agent_id=agent)
            assert (answer.status, answer.error["type"]) == (402, "billing_error")
            assert answer.headers["x-should-retry"] == "false"
            assert answer.error["message"].startswith("leadrope: the run's budget of 0.6 USD is reached")
    assert len(model.requests) == 2
    assert len(over) == 1
    assert meter.spent_usd - 0.6 < 0.5, "at most one request too much"


async def test_the_budget_is_over_in_the_middle_of_an_answer() -> None:
    """The prompt is owed when the answer begins; the run is told then, and not at the end."""
    over = asyncio.Event()
    meter = Meter(0.5, on_over=lambda _: over.set())
    turn = {"text": "x", "usage": DEAR, "hang": "mid_stream"}
    async with brokered([turn], meter=meter) as (broker, _), calling(broker.url) as caller:
        await caller.say(broker)
        await asyncio.wait_for(over.wait(), 10)


@pytest.mark.parametrize("message_id", ["", "always-the-same"])
async def test_a_gateway_whose_answers_share_an_id_is_paid_for_each(message_id: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await take(reader)
            body = start(message_id, input_tokens=200_000) + event("message_delta", usage={"output_tokens": 40_000})
            writer.write(STREAM + http1.chunk(body) + http1.LAST_CHUNK)

    meter = Meter(None)
    async with (
        far_end(serve) as url,
        Broker(url, Secret(REAL), "api_key", meter=meter) as broker,
        calling(broker.url) as caller,
    ):
        for _ in range(3):
            await caller.ask(broker)
    assert meter.spent_usd == pytest.approx(6.0)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_counts_are_found_however_the_stream_is_cut(size: int) -> None:
    body = (
        start(input_tokens=10, cache_creation_input_tokens=1000, cache_creation={"ephemeral_1h_input_tokens": 400})
        + text("event: message_delta\n\nis only text here")
        + event("ping")
        + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 30})
        + event("message_stop")
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader)
        writer.write(STREAM)
        for at in range(0, len(body), size):
            writer.write(http1.chunk(body[at : at + size]))
            await writer.drain()
        writer.write(http1.LAST_CHUNK)
        await writer.drain()

    meter = Meter(None)
    async with (
        far_end(serve) as url,
        Broker(url, Secret(REAL), "api_key", meter=meter) as broker,
        calling(broker.url) as caller,
    ):
        assert (await caller.ask(broker)).body == body
    assert meter.spent_usd == pytest.approx((10 * 5 + 600 * 6.25 + 400 * 10 + 30 * 25) / 1e6)


async def test_what_was_written_before_a_cut_is_owed() -> None:
    """Else a client that hangs up before the last event would read for nothing."""
    words = "word " * 4000
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader)
        writer.write(STREAM + http1.chunk(start(input_tokens=100) + text(words)))
        await writer.drain()
        assert await reader.read(1) == b"", "the broker has hung up too"
        gone.set()

    meter = Meter(None)
    async with far_end(serve) as url, Broker(url, Secret(REAL), "api_key", meter=meter) as broker:
        async with calling(broker.url) as caller:
            await caller.say(broker)
            head = await caller.head()
            heard = b""
            async for piece in http1.pieces(caller.reader, head.body):
                heard += piece
                if heard.endswith(b"\n\n") and words.encode() in heard:
                    break
        await asyncio.wait_for(gone.wait(), 10)
    assert meter.spent_usd == pytest.approx((100 * 5 + 5000 * 25) / 1e6, rel=0.02)


async def test_a_compressed_answer_cannot_be_held_to_a_budget() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await take(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc")

    told: list[events.Notice] = []
    async with far_end(serve) as url:
        async with (
            Broker(url, Secret(REAL), "api_key", meter=Meter(1.0), notify=told.append) as broker,
            calling(broker.url) as caller,
        ):
            answer = await caller.ask(broker)
            assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
        assert [notice.code for notice in told] == ["unmetered"]
        async with Broker(url, Secret(REAL), "api_key", meter=Meter(None)) as broker, calling(broker.url) as caller:
            assert (await caller.ask(broker)).body == b"abc"


# -- endings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["cut", "bad_sse"])
async def test_an_answer_that_was_cut_does_not_look_whole(fault: str) -> None:
    meter = Meter(None)
    async with brokered([{"text": "half of", fault: True}], meter=meter) as (broker, _), calling(broker.url) as direct:
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
async def test_closing_ends_what_hangs(turn: dict[str, Any], until: Callable[..., Awaitable[None]]) -> None:
    before = asyncio.all_tasks()
    async with (
        ModelServer([turn], strict=False) as model,
        Broker(model.url, Secret(REAL), "api_key") as broker,
        calling(broker.url) as caller,
    ):
        await caller.say(broker)
        await until(lambda: bool(model.requests))
        await asyncio.wait_for(broker.close(), 5)
        with pytest.raises((http1.Closed, ConnectionError, AssertionError)):
            await caller.hear()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", int(broker.url.rpartition(":")[2]))
    assert asyncio.all_tasks() == before


async def test_closing_before_anyone_came() -> None:
    async with Broker("https://example.invalid", Secret(REAL), "api_key") as broker:
        await broker.close()
    await broker.close()


@pytest.mark.fault
async def test_clients_that_hang_up_at_any_moment(fault_count: int) -> None:
    """The server's side is cut each time, nothing is left, and the next client is served."""
    before = asyncio.all_tasks()
    meter = Meter(None)
    script = [{"size": 200_000, "usage": DEAR, "repeat": "forever"}]
    async with brokered(script, meter=meter, strict=False) as (broker, _):
        for index in range(fault_count * 4):
            async with calling(broker.url) as caller:
                if index % 4 == 0:
                    caller.writer.write(b"POST /v1/messages HTTP/1.1\r\nx-api-key: " + broker.token.encode())
                    await caller.writer.drain()
                elif index % 4 == 1:
                    await caller.say(broker, BODY[:10], content_length=str(len(BODY)))
                else:
                    await caller.say(broker)
                    await caller.reader.read((index % 4 - 2) * 30_000 + 1)
        async with calling(broker.url) as caller:
            assert len((await caller.ask(broker)).body) > 200_000
        await broker.close()
        assert not broker._clients
    assert asyncio.all_tasks() == before


async def test_nothing_is_written_about_credentials_or_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with brokered([{"text": "secret words"}, {"error": {"status": 500}}]) as (broker, _):
        async with calling(broker.url) as caller:
            await caller.ask(broker)
            await caller.ask(broker)
        for text_ in (caplog.text, repr(broker), repr(vars(broker))):
            assert REAL not in text_
            assert "secret words" not in text_


# -- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing, and makes the certificate of this test")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    return key, cert


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])
    return context


async def _hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        request = await take(reader)
        assert http1.first(request.headers, "x-api-key") == REAL
        writer.write(STREAM + http1.chunk(text("over TLS")) + http1.LAST_CHUNK)


@pytest.mark.parametrize("is_proxied", [False, True])
async def test_a_server_behind_tls(tls: ssl.SSLContext, certificate: tuple[Path, Path], is_proxied: bool) -> None:
    async with far_end(_hello, ssl=tls) as url:
        port = url.rpartition(":")[2]

        async def resolve(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with HostProxy([f"localhost:{port}", f"127.0.0.1:{port}"], resolve=resolve) as proxy:
            broker = Broker(
                f"https://localhost:{port}",
                Secret(REAL),
                "api_key",
                ca_file=str(certificate[1]),
                proxy=proxy.url if is_proxied else None,
            )
            async with broker, calling(broker.url) as caller:
                for _ in range(3):
                    assert (await caller.ask(broker)).body == text("over TLS")


async def test_a_server_that_nobody_vouches_for(tls: ssl.SSLContext) -> None:
    async with far_end(_hello, ssl=tls) as url:
        port = url.rpartition(":")[2]
        async with (
            Broker(f"https://localhost:{port}", Secret(REAL), "api_key") as broker,
            calling(broker.url) as caller,
        ):
            answer = await caller.ask(broker)
    assert answer.status == 502
    assert "certificate" in answer.error["message"].lower()


async def test_a_proxy_that_refuses_is_named() -> None:
    async with HostProxy(["example.com"]) as proxy:
        broker = Broker("https://model.example", Secret(REAL), "api_key", proxy=proxy.url)
        async with broker, calling(broker.url) as caller:
            answer = await caller.ask(broker)
    assert answer.status == 502
    assert "proxy 127.0.0.1 refuses: 403" in answer.error["message"]


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "http://low:1", "HTTPS_PROXY": "http://p:3128"}, "http://low:1"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "example.org, .anthropic.com"}, None),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "*"}, None),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "pic.com,opic.com"}, "http://p:3128"),
    ],
)
def test_the_networks_own_proxy_variables(environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_for("https://api.anthropic.com", environ) == proxy
    assert proxy_for("http://127.0.0.1:1", environ) is None


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "api.anthropic.com", "http://", "http://x/?a=b", "http://a b", "http://x:0"]
)
def test_an_address_that_is_none(url: str) -> None:
    from leadrope import errors

    with pytest.raises(errors.BadValue, match="base_url"):
        Broker(url, Secret(REAL), "api_key")
