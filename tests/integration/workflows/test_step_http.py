"""The http step against real servers on loopback: what it sends, what it gives, and how long it listens."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from http_peer import CHUNKED, TOKEN, Seen, always, answer, echo, failure, serving, step
from leadrope.core.config import Config
from leadrope.workflows.steps.http import KIND, fetch
from step_place import Here

# -- what is sent, and what comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_method(tmp_path: Path, method: str) -> None:
    async with serving(echo) as server:
        done = await KIND.run(step(url=server.url("/a?b=1"), method=method), Here(tmp_path))
    assert done.outputs["status"] == 200
    assert done.outputs["json"]["method"] == method
    assert done.outputs["json"]["path"] == "/a?b=1"
    assert done.outputs["url"] == server.url("/a?b=1")
    assert json.loads(done.outputs["body"]) == done.outputs["json"]
    assert set(done.outputs) == set(KIND.outputs) - {"body_base64", "path"}
    assert (done.outputs["media_type"], done.outputs["size"]) == ("application/json", len(done.outputs["body"]))
    msgspec.json.encode(done.outputs)


async def test_a_head_has_no_body_whatever_its_length_says(tmp_path: Path) -> None:
    async with serving(always(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nX-A: 1\r\n\r\n")) as server:
        done = await fetch(step(url=server.url(), method="HEAD"), Here(tmp_path))
    assert done.outputs["body"] == ""
    assert done.outputs["headers"]["x-a"] == "1"


async def test_query_headers_json_and_form(tmp_path: Path) -> None:
    async with serving(echo) as server:
        posted = await fetch(
            step(
                url=server.url("/p?x=1"),
                method="POST",
                params={"q": "a b&c", "n": 3, "on": True, "none": None, "many": [1, "ü"]},
                headers={"X-Own": "7", "Accept": "text/x"},
                body={"a": [1, None, "ß"]},
            ),
            Here(tmp_path),
        )
        formed = await fetch(step(url=server.url(), method="POST", form={"a": "1&2", "b": ["x", "y"]}), Here(tmp_path))
        text = await fetch(step(url=server.url(), method="PUT", body="plain ü"), Here(tmp_path))
    seen = posted.outputs["json"]
    assert seen["path"] == "/p?x=1&q=a+b%26c&n=3&on=true&many=1&many=%C3%BC"
    assert json.loads(seen["body"]) == {"a": [1, None, "ß"]}
    assert seen["headers"]["content-type"] == "application/json"
    assert (seen["headers"]["x-own"], seen["headers"]["accept"]) == ("7", "text/x")
    assert seen["headers"]["accept-encoding"] == "identity"
    assert seen["headers"]["host"] == f"127.0.0.1:{server.port}"
    assert formed.outputs["json"]["body"] == "a=1%262&b=x&b=y"
    assert formed.outputs["json"]["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert text.outputs["json"]["body"] == "plain ü"


async def test_the_token_reaches_the_server_and_nothing_else(tmp_path: Path) -> None:
    here = Here(tmp_path)
    async with serving(echo) as server:
        done = await fetch(step(url=server.url(), auth=TOKEN), here)
        wrong = await failure(step(url=server.url(), auth=TOKEN, expect=[404]), here)
    assert server.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert "[redacted]" in done.outputs["json"]["headers"]["authorization"]
    for text in (str(done), str(wrong), repr(wrong.args), str(wrong.outputs), str(here.said), str(here.asked)):
        assert TOKEN not in text


async def test_a_token_out_of_a_variable_that_the_user_lets_out(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.service = SimpleNamespace(config=Config(forward_env=("API_ACCESS", "FROM_FILE", "UNSET")))
    here.environ = {"API_ACCESS": TOKEN, "OTHER": "something-else"}
    (tmp_path / ".env").write_text(f"FROM_FILE={TOKEN}\n")
    async with serving(echo) as server:
        for name in ("API_ACCESS", "FROM_FILE"):
            done = await fetch(step(url=server.url(), auth_env=name), here)
            assert server.seen[-1].headers["authorization"] == f"Bearer {TOKEN}"
            assert TOKEN not in f"{done}{here.said}{here.asked}"
        count = len(server.seen)
        for values, told in (
            ({"auth_env": "OTHER"}, "not in forward_env"),
            ({"auth_env": "UNSET"}, "UNSET is not set"),
            ({"auth_env": "API_ACCESS", "auth": "x"}, "both given"),
        ):
            wrong = await failure(step(url=server.url(), **values), here)
            assert (wrong.kind, told in wrong.message) == ("bad_input", True)
        assert len(server.seen) == count


@pytest.mark.parametrize(
    "reply",
    [
        answer('{"a": 1}', content_type="application/json"),
        answer('{"a": 1}', content_type="application/problem+json"),
        CHUNKED + b'4\r\n{"a"\r\n4;x=y\r\n: 1}\r\n0\r\nT: x\r\n\r\n',
        b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"a": 1}',
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
        + answer('{"a": 1}', content_type="application/json"),
        answer(gzip.compress(b'{"a": 1}'), content_type="application/json", content_encoding="gzip"),
    ],
    ids=["length", "problem", "chunked", "until-close", "interim", "packed"],
)
async def test_every_framing_of_an_answer(tmp_path: Path, reply: bytes) -> None:
    async with serving(always(reply)) as server:
        done = await fetch(step(url=server.url()), Here(tmp_path))
    assert done.outputs["json"] == {"a": 1}
    assert done.outputs["body"] == '{"a": 1}'


async def test_texts_and_what_is_no_json(tmp_path: Path) -> None:
    async with serving(always(answer("straße".encode("latin-1"), content_type="text/plain; charset=latin-1"))) as one:
        assert (await fetch(step(url=one.url()), Here(tmp_path))).outputs["body"] == "straße"
    async with serving(always(answer("{not", content_type="application/json"))) as two:
        done = await fetch(step(url=two.url()), Here(tmp_path))
    assert done.outputs["json"] is None
    assert done.outputs["body"] == "{not"
    assert [caution.kind for caution in done.warnings] == ["bad_json"]


# -- statuses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "can_heal"),
    [(400, False), (404, False), (408, True), (425, True), (429, True), (500, True), (503, True)],
)
async def test_a_status_that_is_no_success(tmp_path: Path, status: int, can_heal: bool) -> None:
    async with serving(always(answer("the reason", status, Retry_After="17"))) as server:
        wrong = await failure(step(url=server.url("/p?key=in-the-query")), Here(tmp_path))
    assert (wrong.kind, wrong.can_heal) == ("http_error", can_heal)
    assert str(status) in wrong.message
    assert "the reason" in wrong.message
    assert "17 s" in str(wrong.hint)
    assert "in-the-query" not in wrong.message
    assert wrong.outputs["status"] == status
    assert wrong.outputs["body"] == "the reason"


@pytest.mark.parametrize(
    ("expect", "status", "is_good"),
    [
        ([404], 404, True),
        (["4xx"], 418, True),
        (["200-204", 304], 304, True),
        (["2xx"], 302, False),
        ([200], 201, False),
    ],
)
async def test_what_counts_as_success_can_be_said(
    tmp_path: Path, expect: list[Any], status: int, is_good: bool
) -> None:
    async with serving(always(answer(b"", status))) as server:
        if is_good:
            done = await fetch(step(url=server.url(), expect=expect), Here(tmp_path))
            assert done.outputs["status"] == status
        else:
            assert (await failure(step(url=server.url(), expect=expect), Here(tmp_path))).kind == "http_error"


# -- bad input: nothing is connected to ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"url": "ftp://127.0.0.1/"},
        {"url": "file:///etc/passwd"},
        {"url": "http://me:secret-word@127.0.0.1:PORT/"},
        {"url": "http://127.0.0.1:PORT/\r\nX: y"},
        {"headers": {"X-A": "b\r\nX-Injected: 1"}},
        {"headers": {"X-A\r\nX-B": "c"}},
        {"headers": {"X A": "c"}},
        {"headers": {"Host": "other.example"}},
        {"headers": {"Content-Length": "5"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"X-A": "€"}},
        {"auth": "a\nb: c"},
        {"auth": "x", "headers": {"authorization": "y"}},
        {"body": "x", "form": {"a": "b"}},
        {"expect": ["abc"]},
        {"expect": [99]},
        {"allow_private": ["300.1.1.1"]},
    ],
)
async def test_bad_input_is_told_before_anything_is_sent(tmp_path: Path, values: dict[str, Any]) -> None:
    async with serving(echo) as server:
        values = {"url": server.url(), **values}
        values["url"] = values["url"].replace("PORT", str(server.port))
        here = Here(tmp_path)
        wrong = await failure(step(**values), here)
    assert wrong.kind == "bad_input"
    assert wrong.hint
    assert not wrong.can_heal
    assert "secret-word" not in str(wrong)
    assert (server.connections, here.asked) == (0, [])


@pytest.mark.parametrize(
    "values",
    [
        {"timeout": 0.5},
        {"timeout": 301},
        {"method": "TRACE"},
        {"max_bytes": 0},
        {"max_bytes": 60 * 1024 * 1024},
        {"headers": {"a": [1]}},
        {"urls": "x"},
    ],
)
def test_types_refuse_what_they_can(values: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        step(**{"url": "http://example.com", **values})


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked", "until-close", "packed"])
async def test_an_answer_over_the_cap_is_an_error_and_is_not_read_on(tmp_path: Path, framing: str) -> None:
    sent = 0

    async def handler(_: Seen, writer: asyncio.StreamWriter) -> bytes | None:
        nonlocal sent
        if framing == "packed":
            return answer(gzip.compress(b"\0" * 50_000_000), content_encoding="gzip")
        head = {"length": "Content-Length: 500000000", "chunked": "Transfer-Encoding: chunked", "until-close": "X: y"}
        writer.write(f"HTTP/1.1 200 OK\r\n{head[framing]}\r\n\r\n".encode())
        piece = b"x" * 65536
        for _number in range(5000):
            writer.write(b"10000\r\n" + piece + b"\r\n" if framing == "chunked" else piece)
            await writer.drain()
            sent += len(piece)
        return None

    async with serving(handler) as server:
        wrong = await failure(step(url=server.url(), max_bytes=100_000), Here(tmp_path))
        await server.closed.wait()
    assert wrong.kind == "too_large"
    assert "100000" in wrong.message
    assert sent < 20_000_000, "the server was not heard out"


@pytest.mark.parametrize("filler", [b"1;" + b"x" * 60_000 + b"\r\ny\r\n", b"0\r\n" + b"T: x\r\n" * 1_000_000])
async def test_an_answer_that_is_framing_without_end(tmp_path: Path, filler: bytes) -> None:
    async def handler(_: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        while True:
            writer.write(filler)
            await writer.drain()

    async with serving(handler) as server:
        wrong = await failure(step(url=server.url(), max_bytes=10_000), Here(tmp_path))
    assert wrong.kind == "connection_failed"
    assert "framing" in wrong.message


async def test_one_byte_per_chunk(tmp_path: Path) -> None:
    async with serving(always(CHUNKED + b"1\r\n7\r\n" * 5000 + b"0\r\n\r\n")) as server:
        done = await fetch(step(url=server.url(), max_bytes=5000), Here(tmp_path))
    assert done.outputs["body"] == "7" * 5000


async def test_an_answer_of_exactly_the_cap(tmp_path: Path) -> None:
    async with serving(always(answer("x" * 1000))) as server:
        done = await fetch(step(url=server.url(), max_bytes=1000), Here(tmp_path))
        assert len(done.outputs["body"]) == 1000
        assert (await failure(step(url=server.url(), max_bytes=999), Here(tmp_path))).kind == "too_large"


@pytest.mark.parametrize("slow", ["silent", "drips", "drips its head"])
async def test_a_slow_server_is_left_in_time(tmp_path: Path, slow: str) -> None:
    """The clock is for the whole: one byte now and then does not start it anew."""

    async def handler(_: Seen, writer: asyncio.StreamWriter) -> None:
        if slow == "silent":
            await asyncio.Event().wait()
        writer.write(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if slow == "drips" else b""))
        while True:
            writer.write(b"X: y\r\n" if slow == "drips its head" else b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(handler) as server:
        wrong = await failure(step(url=server.url("/slow"), timeout=1), Here(tmp_path))
        if slow != "silent":
            await server.closed.wait()
    assert (wrong.kind, wrong.can_heal) == ("timed_out", True)
    assert "/slow" in wrong.message


async def test_a_cancelled_request_closes_its_connection(tmp_path: Path) -> None:
    arrived = asyncio.Event()

    async def handler(_: Seen, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(handler) as server:
        task = asyncio.create_task(fetch(step(url=server.url()), Here(tmp_path)))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.closed.wait()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 100 C\r\n\r\n" * 20,
    ],
    ids=[
        "closed",
        "garbage",
        "cut",
        "two-lengths",
        "bad-chunk",
        "cut-chunk",
        "long-head",
        "upgrade",
        "unpack",
        "interim",
    ],
)
async def test_an_answer_that_is_none(tmp_path: Path, reply: bytes) -> None:
    async with serving(always(reply)) as server:
        wrong = await failure(step(url=server.url()), Here(tmp_path))
    assert (wrong.kind, wrong.can_heal) == ("connection_failed", True)


async def test_nobody_listens(tmp_path: Path) -> None:
    async with serving(echo) as server:
        url = server.url()
    wrong = await failure(step(url=url), Here(tmp_path))
    assert (wrong.kind, wrong.can_heal) == ("connection_failed", True)
    assert url.rstrip("/") in wrong.message
