"""Tricks that make two readers see different requests: whatever a client sends, the model's server understands requests
for the model's own paths alone, and every one of them is metered.

The server here reads bytes by itself, as leniently as servers do: it takes a POST without a length for an empty one,
accepts bare line feeds, takes an underscore in a name for a dash, obeys headers that name another path, and answers
whatever it takes for a request. What it understood is what counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any

import pytest

from leadrope import Secret
from leadrope.net import http1
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.limits.budget import Meter

REAL = "sk-ant-the-real-key-0000000000000000"
SMUGGLED = b"POST /v1/messages/batches HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
GOOD = json.dumps({"model": "claude-opus-4-5", "max_tokens": 10, "messages": []}).encode()
START = "POST /v1/messages HTTP/1.1"
ANSWER = json.dumps(
    {"id": "m", "model": "claude-opus-4-5", "usage": {"input_tokens": 1000, "output_tokens": 10}}
).encode()
EACH_USD = (1000 * 5 + 10 * 25) / 1e6


OVERRIDES = r"override|original-(?:ur|method)|rewrite-ur|forwarded-(?:uri|path|prefix|method)|http-method"
"""Names of headers by which some servers take another path or method than those of the request line."""


class Lenient:
    """A server that understands as much as it can, and notes each request line with the key that came along."""

    def __init__(self) -> None:
        self.understood: list[tuple[str, str]] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        data = b""
        while True:
            while (match := re.search(rb"\r?\n\r?\n", data)) is None:
                more = await reader.read(65536)
                if not more:
                    return
                data += more
            head, data = data[: match.start()], data[match.end() :]
            lines = re.split(r"\r?\n", head.decode("latin-1").lstrip("\r\n"))
            pairs = (line.partition(":") for line in lines[1:])
            headers = {name.strip().lower().replace("_", "-"): value.strip() for name, _, value in pairs}
            other = [f"{name} {value}" for name, value in headers.items() if re.search(OVERRIDES, name)]
            line = " ".join(lines[0].split(" ")[:2])
            self.understood.append((other[0] if other else line, headers.get("x-api-key", "")))
            if "chunked" in headers.get("transfer-encoding", "").lower():
                while b"0\r\n\r\n" not in data:
                    more = await reader.read(65536)
                    if not more:
                        return
                    data += more
                data = data.partition(b"0\r\n\r\n")[2]
            else:
                length = int(re.sub(r"[^0-9].*", "", headers.get("content-length", "0")) or "0")
                while len(data) < length:
                    more = await reader.read(65536)
                    if not more:
                        return
                    data += more
                data = data[length:]
            said = [f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(ANSWER)}\r\n\r\n"]
            writer.write(said[0].encode() + ANSWER)
            await writer.drain()


def post(*lines: str, body: bytes = SMUGGLED, start: str = START, length: int | None = -1) -> bytes:
    """A request with these header lines; its true length unless `length` says otherwise (None leaves it out)."""
    framing = [] if length is None else [f"Content-Length: {len(body) if length == -1 else length}"]
    return "\r\n".join([start, "Host: x", "x-api-key: TOKEN", *framing, *lines, "", ""]).encode("latin-1") + body


def chunked(*lines: str, body: bytes) -> bytes:
    return post("Transfer-Encoding: chunked", *lines, body=body, length=None)


ONE_CHUNK = http1.chunk(GOOD) + http1.LAST_CHUNK
N = len(GOOD)

NAMED = [
    *("content-length", "Content-Length", "CONTENT-LENGTH", "transfer-encoding", "host", "x-api-key", "authorization"),
    *("content-type", "accept-encoding", "expect", "date", "cookie", "content-encoding", "x-claude-code-agent-id"),
    *("close, content-length", "keep-alive,content-length", "te, transfer-encoding", "content-length ", "x-y-z"),
    *('"content-length"', "content-length;q=1", "upgrade, http2-settings, content-length", ", ,content-length", "via"),
]

TRICKS: dict[str, bytes] = {
    **{f"Connection: {name}": post(f"Connection: {name}") for name in NAMED},
    "Connection twice": post("Connection: close", "Connection: content-length"),
    "Connection in lower case": post("connection:content-length"),
    "Connection with a tab": post("Connection:\tcontent-length\t"),
    "Connection names te over chunks": chunked("Connection: transfer-encoding", body=ONE_CHUNK + SMUGGLED),
    "Proxy-Connection names the length": post("Proxy-Connection: content-length", body=GOOD) + SMUGGLED,
    "Keep-Alive names the length": post("Keep-Alive: content-length", body=GOOD) + SMUGGLED,
    # lengths
    "length and chunks": post("Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks and length": chunked(f"Content-Length: {N}", body=b"0\r\n\r\n" + SMUGGLED),
    "two lengths": post("Content-Length: 2"),
    "two lengths, the short one first": post(f"Content-Length: {len(SMUGGLED)}", length=0),
    "the same length twice": post(f"Content-Length: {len(SMUGGLED)}"),
    "a list of lengths": post("X: y", f"Content-Length: {len(SMUGGLED)}, 0", length=None),
    "a list of the same length": post(f"Content-Length: {len(SMUGGLED)}, {len(SMUGGLED)}", length=None),
    "no length": post(length=None),
    "length zero": post(length=0),
    "negative length": post("Content-Length: -1", length=None),
    "length with a sign": post(f"Content-Length: +{len(SMUGGLED)}", length=None),
    "length in hex": post("Content-Length: 0x10", length=None),
    "length with a letter": post("Content-Length: 3a", length=None),
    "length with a fraction": post("Content-Length: 3.0", length=None),
    "length with an underscore": post("Content-Length: 1_0", length=None),
    "an empty length": post("Content-Length:", length=None),
    "a huge length": post("Content-Length: 99999999999999999999", length=None),
    "a length too short by far": post(length=1),
    "length before a space": post(f"Content-Length : {len(SMUGGLED)}", length=None),
    "length after a space": post(f" Content-Length: {len(SMUGGLED)}", length=None),
    "length after a NUL": post(f"Content-Length: \x00{len(SMUGGLED)}", length=None),
    "length with a vertical tab": post(f"X: y\x0bContent-Length: {len(SMUGGLED)}", length=None),
    "length after a next-line character": post(f"X: y\x85Content-Length: {len(SMUGGLED)}", length=None),
    "underscores for dashes": post(f"Content_Length: {len(SMUGGLED)}", length=None),
    "underscores beside dashes": post("Content_Length: 0", "Transfer_Encoding: chunked", body=GOOD) + SMUGGLED,
    "length with blanks around": post(f"Content-Length: \t {len(SMUGGLED)} \t", length=None),
    "length in other digits": post("Content-Length: \xb2", length=None),
    "length zero and more": post("Content-Length: 00", length=None),
    # encodings
    **{
        f"Transfer-Encoding: {word}": post(f"Transfer-Encoding: {word}", body=b"0\r\n\r\n" + SMUGGLED, length=None)
        for word in (
            *("identity", "chunked, identity", "identity, chunked", "chunked, chunked", "gzip", "gzip, chunked", ""),
            *("xchunked", "chunked;q=1", '"chunked"', "chunked\x0b", "chun ked", "cow"),
        )
    },
    "identity and a length": post("Transfer-Encoding: identity"),
    "chunked twice": chunked("Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "chunked and identity": chunked("Transfer-Encoding: identity", body=b"0\r\n\r\n" + SMUGGLED),
    "encoding before a space": post("Transfer-Encoding : chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "encoding after a tab": post("Transfer-Encoding:\tchunked", body=b"0\r\n\r\n" + SMUGGLED),
    "encoding folded": post("Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "encoding in capitals": post("TRANSFER-ENCODING: CHUNKED", body=b"0\r\n\r\n" + SMUGGLED),
    "content-encoding": post("Content-Encoding: chunked"),
    # chunks
    "an extension": chunked(body=b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "an extension with a quoted line": chunked(body=b'%x;a="b\\"\r\n' % N + GOOD + b"\r\n0\r\n\r\n" + SMUGGLED),
    "a chunk size with blanks": chunked(body=b" %x\r\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "a chunk size with an underscore": chunked(body=b"0_%x\r\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "a chunk size with a sign": chunked(body=b"+%x\r\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "many zeros in a chunk size": chunked(body=b"0000000000%x\r\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "a last chunk of several zeros": chunked(body=http1.chunk(GOOD) + b"000\r\n\r\n" + SMUGGLED),
    "a carriage return in a chunk line": chunked(body=b"%x\r\r\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "a very long extension": chunked(body=b"%x;%b\r\n%b\r\n0\r\n\r\n" % (N, b"a" * 70_000, GOOD) + SMUGGLED),
    "very long trailers": chunked(body=http1.chunk(GOOD) + b"0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n" + SMUGGLED),
    "an extension with a line feed": chunked(body=b"%x;a\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "an extension with a quoted end": chunked(body=b'%x;a="\r\n0\r\n\r\n"\r\n%b\r\n0\r\n\r\n' % (N, GOOD) + SMUGGLED),
    "chunk lines with line feeds": chunked(body=b"%x\n%b\n0\n\n" % (N, GOOD) + SMUGGLED),
    "a chunk longer than it says": chunked(body=b"2\r\n%b\r\n0\r\n\r\n" % GOOD + SMUGGLED),
    "a chunk size in words": chunked(body=b"0x%x\r\n%b\r\n0\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "a negative chunk": chunked(body=b"-1\r\n%b\r\n0\r\n\r\n" % GOOD + SMUGGLED),
    "an endless chunk": chunked(body=b"ffffffffffffffff\r\n%b\r\n0\r\n\r\n" % GOOD + SMUGGLED),
    "trailers": chunked(body=b"%x\r\n%b\r\n0\r\nContent-Length: 9\r\nHost: y\r\n\r\n" % (N, GOOD) + SMUGGLED),
    "a trailer that is a request": chunked(body=b"%x\r\n%b\r\n0\r\n" % (N, GOOD) + SMUGGLED),
    "two bodies": chunked(body=ONE_CHUNK + ONE_CHUNK + SMUGGLED),
    "content with chunk lines": chunked(body=http1.chunk(b"0\r\n\r\n" + SMUGGLED) + http1.LAST_CHUNK),
    # heads
    "bare line feeds": post(body=GOOD).replace(b"\r\n", b"\n") + SMUGGLED,
    "one bare line feed": post("X: y\nContent-Length: 0", body=GOOD) + SMUGGLED,
    "one bare carriage return": post("X: y\rContent-Length: 0", body=GOOD) + SMUGGLED,
    "a line feed at the end of a value": post("X: y\n", body=GOOD) + SMUGGLED,
    "a folded header": post("X: y\r\n Content-Length: 0", body=GOOD) + SMUGGLED,
    "a very long head": post(f"X: {'y' * 70_000}", body=GOOD) + SMUGGLED,
    "very many headers": post(*[f"X-{n}: y" for n in range(8_000)], body=GOOD) + SMUGGLED,
    "a folded Connection": post("Connection: close,\r\n content-length", body=GOOD) + SMUGGLED,
    "Connection after a tab": post("Connection:\tCONTENT-LENGTH", body=GOOD) + SMUGGLED,
    "Connection in two lines": post("Connection: close", "CONNECTION: Content-Length", body=GOOD) + SMUGGLED,
    "Connection with a quoted name": post('Connection: "content-length"', body=GOOD) + SMUGGLED,
    "Connection with a semicolon": post("Connection: close; content-length", body=GOOD) + SMUGGLED,
    "Connection with an underscore": post("Connection: content_length", body=GOOD) + SMUGGLED,
    "Proxy-Connection names the token": post("Proxy-Connection: x-api-key", body=GOOD) + SMUGGLED,
    "a header name with an at sign": post("a@b: c", body=GOOD) + SMUGGLED,
    "a line without a colon": post("nothing", body=GOOD) + SMUGGLED,
    "a header without a name": post(": x", body=GOOD) + SMUGGLED,
    "an empty line first": b"\r\n" + post(body=GOOD) + SMUGGLED,
    # targets and methods
    **{
        f"target {target}": post(body=GOOD, start=f"POST {target} HTTP/1.1")
        for target in (
            *(
                "http://x/v1/messages",
                "https://api.anthropic.com/v1/messages/batches",
                "//v1/messages",
                "/v1//messages",
            ),
            *("/v1/messages/", "/v1/messages/../files", "/v1/messages/batches", "/v1/messages%2fbatches", "/v1/files"),
            *("/v1/messages;/batches", "/v1/messages#/batches", "/V1/messages", "/v1/messages\\batches", "*", "x:443"),
            *("/v1/messages\x00/batches", "/v1/messages\xa0", "/v1/messages\t?x", "/./v1/messages", "/v1/./messages"),
            *("/v1/%6dessages", "/v1/messages%00", "/%76%31/messages", "/v1/messages/%2e%2e/files", "/v1/messages/."),
            *(
                "/v1/../v1/messages",
                "/v1/messages//",
                "/v1/messages&x",
                "http://x/v1/messages/batches",
                "///v1/messages",
            ),
            *("/v1/messages/count_tokens/..", "/v1/messages/count_tokens/", "", "/v1/messages%3fbeta", "?/v1/messages"),
        )
    },
    **{
        f"method {method}": post(body=GOOD, start=f"{method} /v1/messages HTTP/1.1")
        for method in ("GET", "CONNECT", "PUT", "post", "POST\t", "PRI", "OPTIONS", "TRACE", "P\x00ST", "DELETE")
    },
    **{
        f"version {version}": post(body=GOOD, start=f"POST /v1/messages {version}") + SMUGGLED
        for version in ("HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1 x", "http/1.1", "HTTP/1.1\t", "", "HTTP/1.10")
    },
    "CONNECT to the server itself": b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nx-api-key: TOKEN\r\n\r\n" + SMUGGLED,
    # other ways to say another path, method, protocol or moment
    "method override": post("X-HTTP-Method-Override: GET", "X-Original-URL: /v1/files", body=GOOD),
    **{
        f"override {name}": post(f"{name}: /v1/messages/batches", body=GOOD)
        for name in ("X-Original-URI", "X_Original_URL", "X-Rewrite-URI", "X-Forwarded-Uri", "X_HTTP_Method_Override")
    },
    "another key beside the token": post("Authorization: Bearer x", "X_Api_Key: y", body=GOOD),
    "path override": post("X-Rewrite-URL: /v1/messages/batches", body=GOOD),
    "expect": post("Expect: 100-continue", body=GOOD) + SMUGGLED,
    "expect twice": post("Expect: 100-continue", "Expect: 100-continue", body=GOOD) + SMUGGLED,
    "another expectation": post("Expect: 200-ok", body=GOOD) + SMUGGLED,
    "expect without a body": post("Expect: 100-continue", body=b"", length=9000) + SMUGGLED,
    "upgrade": post("Connection: upgrade", "Upgrade: websocket", body=GOOD) + SMUGGLED,
    "upgrade to h2c": post("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AA", body=GOOD),
    "the preface of h2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED,
    "two hosts": post("Host: evil", body=GOOD),
    "two tokens": post("x-api-key: TOKEN", body=GOOD) + SMUGGLED,
    "pipelined without a token": post(body=GOOD) + SMUGGLED + SMUGGLED,
    "pipelined with a token": post(body=GOOD) + post(body=b"{}", start="POST /v1/messages/batches HTTP/1.1"),
    "pipelined behind an error": post(body=b"{}", start="GET / HTTP/1.1") + post(body=GOOD),
    "closed inside the body": post(length=9000),
    "closed inside the head": post(body=GOOD)[:60],
    "closed inside a chunk": chunked(body=b"ff\r\n" + SMUGGLED),
}


async def heard_out(reader: asyncio.StreamReader) -> None:
    """Everything that is said, until the connection is closed or waits for more."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while True:
            async with asyncio.timeout(0.4):
                if not await reader.read(65536):
                    return


def test_the_table_is_large_enough() -> None:
    assert len(TRICKS) >= 60


@pytest.mark.parametrize("trick", TRICKS)
async def test_nothing_but_metered_requests_arrives(ends: Any, trick: str) -> None:
    server = Lenient()
    meter = Meter(None)
    async with ends.far_end(server.serve) as url, Broker(url, Secret(REAL), "api_key", meter=meter) as broker:
        raw = TRICKS[trick].replace(b"TOKEN", broker.token.encode())
        honest = post(body=GOOD).replace(b"TOKEN", broker.token.encode())
        # Before and after: an honest request that could bring the smuggled one along on a connection that is kept.
        for data in (honest, raw, honest, honest):
            async with ends.calling(broker.url) as caller:
                caller.writer.write(data)
                if data is honest:
                    assert (await caller.hear()).body == ANSWER
                else:
                    await heard_out(caller.reader)
    lines = [line for line, _ in server.understood]
    assert set(lines) <= {"POST /v1/messages"}, lines
    assert {key for _, key in server.understood} == {REAL}
    assert len(lines) == broker.requests, "each request that the server understood is one that was passed on"
    answered = round(meter.spent_usd / EACH_USD, 6)
    assert answered >= 3, "the honest ones were answered"
    assert answered == len(lines), "each of them was metered"


@pytest.mark.parametrize("name", NAMED)
async def test_a_connection_header_that_names_the_message_is_refused(ends: Any, name: str) -> None:
    server = Lenient()
    async with (
        ends.far_end(server.serve) as url,
        Broker(url, Secret(REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        caller.writer.write(post(f"Connection: {name}").replace(b"TOKEN", broker.token.encode()))
        answer = await caller.hear()
        assert answer.status == 400
        assert "Connection names" in answer.error["message"]
        assert await caller.is_closed()
    assert server.understood == []


@pytest.mark.parametrize("name", ["close", "keep-alive", "Keep-Alive, TE", "te, trailer", "proxy-connection", ""])
async def test_a_connection_header_that_names_the_connection_passes(ends: Any, name: str) -> None:
    server = Lenient()
    async with (
        ends.far_end(server.serve) as url,
        Broker(url, Secret(REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        caller.writer.write(post(f"Connection: {name}", body=GOOD).replace(b"TOKEN", broker.token.encode()))
        assert (await caller.hear()).body == ANSWER
    assert len(server.understood) == 1


# -- what goes out is framed by us, and no connection is used after an error -------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 429 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 302 No\r\nContent-Length: 0\r\nLocation: /x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ],
)
async def test_a_server_connection_is_not_used_after_an_error(ends: Any, said: bytes) -> None:
    """Nor after an answer that was longer than it said: the rest would be the answer to somebody else's request."""
    requests_of_each: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests_of_each.append(0)
        while True:
            await ends.take(reader)
            requests_of_each[-1] += 1
            writer.write(said)
            await writer.drain()

    async with ends.far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker:
        for _ in range(3):
            async with ends.calling(broker.url) as caller:
                caller.writer.write(post(body=GOOD).replace(b"TOKEN", broker.token.encode()))
                with contextlib.suppress(http1.Closed, ConnectionError):
                    assert b"evil" not in (await caller.hear()).body
    assert requests_of_each == [1, 1, 1]


async def test_a_server_connection_is_not_used_after_an_early_answer(ends: Any) -> None:
    """The server has answered before it has read the whole request, so the rest may be its next one."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await http1.read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        while await reader.read(65536):
            pass

    async with ends.far_end(serve) as url, Broker(url, Secret(REAL), "api_key") as broker:
        for _ in range(2):
            async with ends.calling(broker.url) as caller:
                await caller.say(broker, b"{" + b" " * 100_000, content_length=str(6_000_000))
                assert (await caller.hear()).body == b"{}"
                assert await caller.is_closed(), "nor is the client's"
    assert connections == 2


@pytest.mark.parametrize(
    ("interim", "status"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n", 200),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 20, 200),
        (b"HTTP/1.1 102 Processing\r\n\r\n" * 5_000, 502),
    ],
)
async def test_interim_answers_are_not_passed_on_and_do_not_come_for_ever(
    ends: Any, interim: bytes, status: int
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(interim + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await reader.read()

    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        caller.writer.write(post("Connection: close", body=GOOD).replace(b"TOKEN", broker.token.encode()))
        assert (await caller.hear()).status == status


async def test_answers_are_framed_by_us(ends: Any) -> None:
    """Extensions and trailers of the server's chunks end here, and so does what its Connection header names."""
    said = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-After\r\n"
        b"Connection: X-Own, Keep-Alive\r\nX-Own: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: 2\r\n\r\n"
        b"1;name=value\r\n{\r\n1 \r\n}\r\n0\r\nX-After: 1\r\n\r\n"
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.take(reader)
        writer.write(said)
        await writer.drain()
        await reader.read()

    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(REAL), "api_key") as broker,
        ends.calling(broker.url) as caller,
    ):
        caller.writer.write(post("Connection: close", body=GOOD).replace(b"TOKEN", broker.token.encode()))
        raw = await caller.reader.read()
    head, _, body = raw.partition(b"\r\n\r\n")
    names = sorted(line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:])
    assert names == [b"connection", b"content-type", b"transfer-encoding", b"x-kept"]
    assert body == b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
