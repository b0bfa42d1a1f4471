"""The scripted model over real sockets: every kind of answer, and every way of failing loudly."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from leadrope.rehearsal import BadScript, ModelServer, RehearsalError

ASK = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}


class Reply:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One kept connection. Reads chunks itself, so that a stream that ends early is seen as such."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, url: str) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port, limit=1 << 25)
        return cls(reader, writer)

    async def send(
        self, body: Any = None, *, path: str = "/v1/messages?beta=true", method: str = "POST", **headers: str
    ) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: x", f"content-length: {len(data)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        return int(first.split()[1]), dict(line.split(": ", 1) for line in lines)

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def reply(self) -> Reply:
        status, headers = await self.head()
        if "content-length" in headers:
            return Reply(status, headers, await self.reader.readexactly(int(headers["content-length"])))
        body = b""
        while data := await self.chunk():
            body += data
        return Reply(status, headers, body)

    async def ask(self, body: Any = None, **more: str) -> Reply:
        await self.send(body or ASK, **more)
        return await self.reply()

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def test_a_conversation_on_one_connection() -> None:
    script = [{"text": "one"}, {"text": "two", "headers": {"anthropic-ratelimit-unified-status": "allowed"}}]
    async with ModelServer(script) as model:
        client = await Client.connect(model.url)
        first = await client.ask(x_api_key="sk-fake")
        second = await client.ask({**ASK, "stream": True})
        await client.close()
    assert first.json()["content"] == [{"type": "text", "text": "one"}]
    assert first.json()["usage"]["input_tokens"] == 100
    assert second.headers["content-type"] == "text/event-stream"
    assert second.headers["anthropic-ratelimit-unified-status"] == "allowed"
    assert b'"text":"two"' in second.body
    assert [request.place for request in model.requests] == ["turns[0]", "turns[1]"]
    assert model.requests[0].headers["x-api-key"] == "sk-fake"
    assert model.requests[0].text == "hello"
    assert model.requests[0].model == "m"


async def test_errors_keep_status_headers_and_the_connection() -> None:
    error = {"status": 529, "message": "busy", "headers": {"retry-after": 3}}
    async with ModelServer([{"error": error, "repeat": 2}, {"text": "ok"}]) as model:
        client = await Client.connect(model.url)
        replies = [await client.ask() for _ in range(3)]
        await client.close()
    assert [reply.status for reply in replies] == [529, 529, 200]
    assert replies[0].headers["retry-after"] == "3"
    assert replies[0].json()["error"] == {"type": "overloaded_error", "message": "busy"}


async def test_tokens_can_be_counted_and_the_root_probed_without_using_a_turn() -> None:
    async with ModelServer([{"text": "one"}]) as model:
        client = await Client.connect(model.url)
        assert (await client.ask(path="/v1/messages/count_tokens")).json()["input_tokens"] > 0
        await client.send(method="HEAD", path="/api/hello")
        assert (await client.head())[0] == 200
        await client.send(method="GET", path="/")
        assert (await client.reply()).status == 200
        assert (await client.ask({**ASK, "max_tokens": 1})).status == 200
        assert model.requests == []
        assert (await client.ask()).status == 200
        await client.close()
    assert len(model.other_requests) == 4


async def test_a_wrong_path_and_a_request_too_many_fail_loudly() -> None:
    model = await ModelServer([{"text": "one"}]).__aenter__()
    client = await Client.connect(model.url)
    wrong = await client.ask(path="/v1/complete")
    bad = await client.ask(b"not json")
    await client.ask()
    more = await client.ask()
    await client.close()
    with pytest.raises(RehearsalError) as caught:
        await model.__aexit__(None, None, None)
    assert [wrong.status, bad.status, more.status] == [404, 417, 417]
    assert more.headers["x-should-retry"] == "false"
    assert "turns is over" in more.json()["error"]["message"]
    assert len(caught.value.problems) == 3
    assert caught.value.unused == ()
    assert "POST /v1/complete" in str(caught.value)


async def test_a_failure_in_mid_stream_needs_a_stream() -> None:
    """Played as a whole answer, the failure that a test is about would not happen, and nobody would notice."""
    server = ModelServer([{"text": "hi", "cut": True}], strict=False)
    async with server:
        client = await Client.connect(server.url)
        await client.send(ASK)
        assert (await client.reply()).status == 417
        client.writer.close()
    assert "did not ask for a stream" in server.problems[0]


async def test_messages_of_a_resumed_conversation_have_ids_of_their_own() -> None:
    """A session is resumed on another server; a client takes two messages of one id for one."""
    longer = [*ASK["messages"], {"role": "assistant", "content": "hi"}, {"role": "user", "content": "more"}]  # type: ignore[misc]
    ids = []
    for messages in (ASK["messages"], longer):
        async with ModelServer([{"text": "hi"}]) as server:
            client = await Client.connect(server.url)
            await client.send(ASK | {"messages": messages})
            ids.append((await client.reply()).json()["id"])
            client.writer.close()
    assert len(set(ids)) == 2


async def test_an_unmet_expectation_fails_loudly() -> None:
    model = ModelServer([{"text": "one", "expect": {"contains": "goodbye"}}], strict=False)
    async with model:
        client = await Client.connect(model.url)
        reply = await client.ask()
        await client.close()
    assert reply.status == 417
    assert "'goodbye' is nowhere" in model.problems[0]


async def test_unused_turns_fail_loudly_unless_not_strict() -> None:
    with pytest.raises(RehearsalError, match=r"turns\[0\] was not used: text 'one'"):
        async with ModelServer([{"text": "one"}]):
            pass
    async with ModelServer([{"text": "one"}], strict=False) as model:
        pass
    assert model.unused == ["turns[0] was not used: text 'one'"]


async def test_a_failing_test_keeps_its_own_error_and_is_told_the_rest() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        async with ModelServer([{"text": "one"}]):
            _ = 1 // 0
    assert "turns[0] was not used" in caught.value.__notes__[0]


async def test_a_held_turn_goes_on_when_released_and_not_before() -> None:
    async with ModelServer([{"text": "one", "wait": "go"}]) as model:
        client = await Client.connect(model.url)
        await client.send(ASK)
        await model.held("go")
        assert not client.reader._buffer  # type: ignore[attr-defined]  # nothing has come
        model.release("go")
        assert (await client.reply()).status == 200
        with pytest.raises(BadScript, match="no turn of the script waits"):
            model.release("went")
        await client.close()


@pytest.mark.parametrize("turn", [{"hang": "before_headers"}, {"text": "x", "hang": "mid_stream"}, {"text": "x"}])
async def test_a_hanging_turn_ends_with_its_client(turn: dict[str, Any]) -> None:
    async with ModelServer([{**turn, "wait": "asked"}]) as model:
        client = await Client.connect(model.url)
        await client.send({**ASK, "stream": True})
        await model.held("asked")
        (connection,) = model._connections
        if "hang" in turn:
            model.release("asked")
        await client.close()
        await asyncio.wait([connection])
        assert not model._connections


async def test_a_stream_can_hang_and_ends_when_the_server_stops() -> None:
    async with ModelServer([{"text": "some words", "hang": "mid_stream"}]) as model:
        client = await Client.connect(model.url)
        await client.send({**ASK, "stream": True})
        await client.head()
        while b"some words" not in await client.chunk():
            pass
    assert b"message_stop" not in await client.reader.read()
    await client.close()


async def test_a_cut_stream_has_no_end() -> None:
    async with ModelServer([{"text": "some words", "cut": True}]) as model:
        client = await Client.connect(model.url)
        await client.send({**ASK, "stream": True})
        await client.head()
        rest = await client.reader.read()
        await client.close()
    assert b"some words" in rest
    assert b"message_stop" not in rest
    assert not rest.endswith(b"0\r\n\r\n")


async def test_a_dripping_stream_comes_in_small_chunks_and_is_whole() -> None:
    async with ModelServer([{"text": "hi", "drip": {"chunk": 50, "every_ms": 0}}]) as model:
        client = await Client.connect(model.url)
        await client.send({**ASK, "stream": True})
        await client.head()
        chunks = []
        while data := await client.chunk():
            chunks.append(data)
        await client.close()
    assert max(map(len, chunks)) == 50
    assert b"".join(chunks).endswith(b'data: {"type":"message_stop"}\n\n')


async def test_five_megabytes_arrive() -> None:
    async with ModelServer([{"size": 5_000_000}]) as model:
        client = await Client.connect(model.url)
        reply = await client.ask({**ASK, "stream": True})
        await client.close()
    assert len(reply.body) > 5_000_000


async def test_subagents_are_told_apart_by_their_header() -> None:
    async with ModelServer({"turns": [{"text": "main"}], "subagents": [[{"text": "sub"}]]}) as model:
        client = await Client.connect(model.url)
        sub = await client.ask(x_claude_code_agent_id="a1")
        main = await client.ask()
        await client.close()
    assert [reply.json()["content"][0]["text"] for reply in (sub, main)] == ["sub", "main"]
    assert [request.agent_id for request in model.requests] == ["a1", None]


@pytest.mark.parametrize("bytes_", [b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nno header\r\n\r\n", b"POST / HT"])
async def test_what_is_no_http_is_a_problem_and_not_a_crash(bytes_: bytes) -> None:
    model = ModelServer([], strict=False)
    async with model:
        client = await Client.connect(model.url)
        client.writer.write(bytes_)
        client.writer.write_eof()
        assert await client.reader.read() == b""
        await client.close()
    assert model.problems[0].startswith("bad HTTP: ")


async def test_a_chunked_request_is_understood() -> None:
    async with ModelServer([{"text": "one"}]) as model:
        client = await Client.connect(model.url)
        data = json.dumps(ASK).encode()
        head = b"POST /v1/messages HTTP/1.1\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
        client.writer.write(head + b"5\r\n" + data[:5] + b"\r\n%x\r\n" % len(data[5:]) + data[5:] + b"\r\n0\r\n\r\n")
        assert (await client.head())[0] == 100
        assert (await client.reply()).status == 200
        await client.close()


def _ask_plainly(url: str) -> Any:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("POST", "/v1/messages", json.dumps(ASK))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_code_without_an_event_loop_has_its_own_door() -> None:
    with ModelServer.in_thread([{"text": "in {{cwd}}"}], variables={"cwd": "/w"}) as model:
        assert _ask_plainly(model.url)["content"][0]["text"] == "in /w"
        assert model.requests[0].text == "hello"
        assert [model.unused, model.problems, model.other_requests] == [[], [], []]


def test_a_held_turn_in_a_thread() -> None:
    answers: list[Any] = []
    with ModelServer.in_thread([{"text": "one", "wait": "go"}]) as model:
        asking = threading.Thread(target=lambda: answers.append(_ask_plainly(model.url)))
        asking.start()
        model.held("go")
        assert answers == []
        with pytest.raises(BadScript):
            model.release("went")
        model.release("go")
        asking.join()
    assert answers[0]["content"][0]["text"] == "one"


def test_the_thread_raises_in_the_thread_that_asked() -> None:
    with pytest.raises(RehearsalError, match="was not used"), ModelServer.in_thread([{"text": "one"}]):
        pass
    with pytest.raises(ZeroDivisionError), ModelServer.in_thread([{"text": "one"}]):
        _ = 1 // 0


def test_a_port_that_is_taken_is_told() -> None:
    with ModelServer.in_thread([]) as model:
        port = urlsplit(model.url).port or 0
        with pytest.raises(OSError, match="address already in use"), ModelServer.in_thread([], port=port):
            pass


def test_it_can_be_started_from_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("turns:\n  - text: hello {{name}}\n  - text: unused\n")
    command = [sys.executable, "-m", "leadrope.rehearsal.model", str(script), "--var", "name=you"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert _ask_plainly(url)["content"][0]["text"] == "hello you"
        os.kill(server.pid, signal.SIGTERM)
        _, told = server.communicate()
    assert server.returncode == 1
    assert "turns[1] was not used" in told


def test_a_bad_script_from_a_shell_is_exit_2(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("turns: 3\n")
    command = [sys.executable, "-m", "leadrope.rehearsal.model", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("turns: expected `array`")
