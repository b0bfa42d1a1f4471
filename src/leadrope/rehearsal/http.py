"""The HTTP server side for one client on loopback: reads requests, writes answers and chunked streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from leadrope.net import http1

# Tests of limits use prompts of 3 MB; beyond this something is looping.
MAX_BODY = 64 * 1024 * 1024


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Names are in lower case."""
    body: bytes

    @property
    def wants_close(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """Reads the next request of a connection; None if the client has closed it."""
    try:
        raw = await http1.read_head(reader)
        if raw is None:
            return None
        head = http1.parse_request(raw)
        headers = {name.lower(): value for name, value in head.headers}
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _read_body(reader, head.body)
    except http1.Closed as error:
        raise http1.BadHttp(str(error)) from error
    target = urlsplit(head.target)
    return HttpRequest(method=head.method, path=target.path, query=target.query, headers=headers, body=body)


async def _read_body(reader: asyncio.StreamReader, framing: http1.BodyFraming) -> bytes:
    _refuse_large(framing.length)
    parts: list[bytes] = []
    size = 0
    async with contextlib.aclosing(http1.pieces(reader, framing)) as pieces:
        async for piece in pieces:
            parts.append(piece)
            size += len(piece)
            _refuse_large(size)
    return b"".join(parts)


def _refuse_large(size: int) -> None:
    if size > MAX_BODY:
        raise http1.BadHttp(f"a body of {size} bytes; {MAX_BODY} are allowed")


def head(status: int, headers: Mapping[str, str | int | float]) -> bytes:
    return http1.write_head(http1.status_line(status), [(name, str(value)) for name, value in headers.items()])


def answer(status: int, body: bytes, headers: Mapping[str, str | int | float], *, with_body: bool = True) -> bytes:
    """Formats a complete answer; a HEAD request gets the same head without the body."""
    full = {"content-type": "application/json", **headers, "content-length": len(body)}
    return head(status, full) + (body if with_body else b"")


async def client_gone(reader: asyncio.StreamReader) -> None:
    """Returns when the client has closed its side; while an answer is being sent it has nothing else to send."""
    try:
        while await reader.read(4096):
            pass
    except ConnectionError:
        return
