"""What a broker lets pass, and what is swapped on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret
from leadrope.net import http1
from leadrope.rehearsal import ModelServer
from leadrope.runtime.broker.broker import BEHIND_SOCKET, Broker, Kind


async def test_an_answer_arrives_as_it_was_sent(ends: Any) -> None:
    turn = {"thinking": "hm", "text": "Hello. " * 2000, "tool": {"name": "Read", "input": {"file_path": "/x"}}}
    async with ModelServer([turn, turn]) as model, Broker(model.url, Secret(ends.REAL), "api_key") as broker:
        async with ends.calling(model.url) as direct:
            wanted = await direct.ask(None)
        async with ends.calling(broker.url) as caller:
            got = await caller.ask(broker)
    assert got.status == 200
    assert got.body.replace(b"001_0002", b"001_0001") == wanted.body
    assert {n: v for n, v in got.headers.items() if n != "request-id"} == {
        n: v for n, v in wanted.headers.items() if n != "request-id"
    }


async def test_nothing_waits_for_the_end_of_an_answer(ends: Any) -> None:
    """Each event is read by the client before the server sends the next one."""
    heard = asyncio.Queue[None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(ends.STREAM)
        for index in range(5):
            writer.write(http1.chunk(ends.text(f"piece {index}")))
            await heard.get()
        writer.write(http1.LAST_CHUNK)

    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        await caller.say(broker)
        head = await caller.head()
        pieces = []
        async for piece in http1.pieces(caller.reader, head.body):
            pieces.append(piece)
            heard.put_nowait(None)
    assert pieces == [ends.text(f"piece {index}") for index in range(5)]


@pytest.mark.parametrize(
    ("kind", "header", "prefix"),
    [
        ("api_key", "x-api-key", ""),
        ("oauth_token", "authorization", "Bearer "),
        ("auth_token", "authorization", "Bearer "),
    ],
)
async def test_the_credential_is_swapped_like_for_like(ends: Any, kind: Kind, header: str, prefix: str) -> None:
    async with ends.brokered([{"text": "ok"}], kind=kind) as (broker, model), ends.calling(broker.url) as caller:
        others = {"x-api-key": "child-key", "authorization": "Bearer child-token"}
        headers = {**others, header: prefix + broker.token}
        answer = await caller.ask(None, more=headers)
        assert answer.status == 200
    seen = model.requests[0].headers
    assert seen[header] == prefix + ends.REAL
    assert not {"x-api-key", "authorization"} - {header} & seen.keys(), "exactly one credential leaves"
    assert broker.token not in str(seen)


async def test_the_token_is_new_for_every_run_and_has_the_shape_of_its_kind(ends: Any) -> None:
    from leadrope.core.secrets.redaction import redact
    from leadrope.providers.claude_code.credentials import kind_of

    tokens = {Broker("http://x", Secret(ends.REAL), "oauth_token").token for _ in range(20)}
    assert len(tokens) == 20
    for token in tokens:
        assert kind_of(token) == "oauth_token"
        assert redact(f"token is {token}") == "token is [redacted]"
    assert kind_of(Broker("http://x", Secret(ends.REAL), "api_key").token) == "api_key"


async def test_headers_that_nobody_knows_pass_untouched_and_those_of_the_connection_do_not(ends: Any) -> None:
    async with (
        ends.brokered([{"text": "ok", "headers": {"x-new-answer": "yes"}}]) as (broker, model),
        ends.calling(broker.url) as caller,
    ):
        answer = await caller.ask(
            broker,
            anthropic_beta="a,b",
            x_claude_1p_request_class="main",
            connection="keep-alive, te",
            te="trailers",
            accept_encoding="gzip, br",
        )
    seen = model.requests[0].headers
    assert seen["anthropic-beta"] == "a,b"
    assert seen["x-claude-1p-request-class"] == "main"
    assert seen["accept-encoding"] == "identity"
    assert seen["host"] == model.url.removeprefix("http://")
    assert not {"te", "connection"} & seen.keys()
    assert answer.headers["x-new-answer"] == "yes"


async def test_a_gateways_own_path_is_kept(ends: Any) -> None:
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await ends.take(reader)).target)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()

    async with (
        ends.far_end(serve) as url,
        Broker(f"{url}/team/anthropic/", Secret(ends.REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        await caller.ask(broker)
    assert asked == ["/team/anthropic/v1/messages?beta=true"]


async def test_a_unix_socket_of_its_owner_only(ends: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.sock"
    async with ends.brokered([{"text": "ok"}], listen=path) as (broker, _):
        assert broker.url == BEHIND_SOCKET
        assert path.stat().st_mode & 0o777 == 0o600
        async with ends.calling(path) as caller:
            assert (await caller.ask(broker)).status == 200
    assert not path.exists()


async def test_a_client_that_asks_before_it_sends(ends: Any) -> None:
    async with ends.brokered([{"text": "ok"}]) as (broker, _), ends.calling(broker.url) as caller:
        await caller.say(broker, b"", expect="100-continue", content_length=str(len(ends.BODY)))
        assert (await caller.head()).status == 100
        caller.writer.write(ends.BODY)
        assert (await caller.hear()).status == 200


async def test_a_chunked_request(ends: Any) -> None:
    async with ends.brokered([{"text": "ok"}]) as (broker, model), ends.calling(broker.url) as caller:
        await caller.say(broker, b"", transfer_encoding="chunked", content_length="")
        for at in range(0, len(ends.BODY), 7):
            caller.writer.write(http1.chunk(ends.BODY[at : at + 7]))
        caller.writer.write(http1.LAST_CHUNK)
        assert (await caller.hear()).status == 200
    assert model.requests[0].body == ends.ASK
