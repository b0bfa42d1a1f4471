"""Just enough HTTP/1.1 for one client on loopback: requests in, answers and chunked streams out. Knows no API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

# A prompt of 3 MB is ordinary in tests of limits; beyond this something is looping.
MAX_BODY = 64 * 1024 * 1024
# asyncio's default of 64 KiB also bounds a header line; the body is read by length and not bound by it.
STREAM_LIMIT = 256 * 1024


class BadHttp(Exception):
    """The client did not speak HTTP as we understand it; the connection is closed."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def wants_close(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request of a kept connection, or None when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadHttp("the connection ended inside a request's head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise BadHttp(f"a request's head is longer than {STREAM_LIMIT} bytes") from error
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadHttp(f"not a request line: {first[:200]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadHttp(f"not a header: {line[:200]!r}")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await _read_body(reader, headers)
    except (asyncio.IncompleteReadError, ValueError) as error:
        raise BadHttp(f"the body of {words[0]} {words[1][:200]} is incomplete or malformed") from error
    target = urlsplit(words[1])
    return HttpRequest(method=words[0], path=target.path, query=target.query, headers=headers, body=body)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts: list[bytes] = []
        total = 0
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            total += size
            _refuse_large(total)
            parts.append((await reader.readexactly(size + 2))[:-2])
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass  # trailers say nothing here
        return b"".join(parts)
    size = int(headers.get("content-length", "0"))
    _refuse_large(size)
    return await reader.readexactly(size)


def _refuse_large(size: int) -> None:
    if size > MAX_BODY:
        raise BadHttp(f"a body of {size} bytes; {MAX_BODY} are allowed")


def head(status: int, headers: Mapping[str, str | int | float]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Error"  # 529 has no name of its own
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def answer(status: int, body: bytes, headers: Mapping[str, str | int | float], *, with_body: bool = True) -> bytes:
    """A whole answer; a HEAD request gets the same head without the body."""
    full = {"content-type": "application/json", **headers, "content-length": len(body)}
    return head(status, full) + (body if with_body else b"")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


async def client_gone(reader: asyncio.StreamReader) -> None:
    """Return when the client has closed its side. It owes us nothing while an answer is under way."""
    try:
        while await reader.read(4096):
            pass
    except ConnectionError:
        return
