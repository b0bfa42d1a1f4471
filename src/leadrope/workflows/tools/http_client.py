"""One HTTP/1.1 exchange with an address that was judged before: sent, and read no further than its reader wants.

    async with exchange(request, ["93.184.216.34"]) as answer:
        body = await answer.read(limit=1024)

By hand because it must connect to the very address that was judged, which no library lets one say. The environment's
proxies are not used. Knows no redirect, no policy and no retry; its caller has the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

import msgspec

from leadrope.regex import regex
from leadrope.runtime.broker import http1
from leadrope.version import __version__
from leadrope.workflows.tools.addresses import Target

T = TypeVar("T")

MOST_ADDRESSES = 4
"""Tried one after the other. A name with more of them has them for balance, not for reach."""
_MOST_INTERIM = 8
_MOST_FRAMING = 8
"""Bytes on the wire for one of content. One byte per chunk takes six; sizes with long words behind them never end."""
_RESERVED = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer"),
        *("expect", "proxy-authorization", "proxy-connection", "accept-encoding"),
    }
)
_HEADER_NAME = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_HEADER_VALUE = regex(r"[\t\x20-\x7e\x80-\xff]*")


class HttpFailed(Exception):
    """There was no answer, or none that can be read; in words for the user."""


class BodyTooLarge(Exception):
    """The body is longer than its reader takes; what came of it is gone."""


class BadHeader(Exception):
    """A header that must not be sent, and why."""


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: Target
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class HttpAnswer:
    """Its head is there; the body is on its way."""

    def __init__(self, head: http1.AnswerHead, reader: asyncio.StreamReader, *, has_body: bool) -> None:
        self.status = head.status
        self.headers: dict[str, str] = {}
        for name, value in head.headers:
            key = name.lower()
            self.headers[key] = f"{self.headers[key]}, {value}" if key in self.headers else value
        self._body = head.body if has_body else http1.NO_BODY
        self._reader = reader

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self, limit: int) -> AsyncIterator[bytes]:
        """The content as it comes; asks for one byte more than the limit at the most, and raises TooLarge for it."""
        if self._body.kind == "length" and self._body.length > limit:
            raise BodyTooLarge
        framing = http1.Framing(self._body)
        got = raw = 0
        while not framing.is_done:
            data = await _heard(self._reader.read(min(framing.wants, limit + 1 - got)))
            raw += len(data)
            if raw > _MOST_FRAMING * limit + http1.HEAD_LIMIT:
                raise HttpFailed("the answer is more framing than content")
            if not data:
                if self._body.kind == "until_close":
                    return
                raise HttpFailed("the connection ended inside the answer")
            try:
                found = framing.feed(data)
            except http1.BadHttp as error:
                raise HttpFailed(f"the answer is not HTTP: {error}") from None
            for piece in found:
                got += len(piece)
                if got > limit:
                    raise BodyTooLarge
                yield piece

    async def read(self, limit: int) -> bytes:
        """The whole body, unpacked if it came packed although nobody asked for that."""
        data = b"".join([piece async for piece in self.pieces(limit)])
        packing = self.headers.get("content-encoding", "identity").strip().lower()
        if packing == "identity" or not data:
            return data
        if packing not in ("gzip", "x-gzip", "deflate"):
            raise HttpFailed(f"the answer is packed with {packing}, which was not asked for")
        try:
            # 47: zlib or gzip, told by its first bytes. Never more than the limit comes out, whatever went in.
            unpacked = zlib.decompressobj(47).decompress(data, limit + 1)
        except zlib.error:
            raise HttpFailed(f"the answer says that it is packed with {packing}, and is not") from None
        if len(unpacked) > limit:
            raise BodyTooLarge
        return unpacked


def check_header(name: str, value: str) -> tuple[str, str]:
    """The header as it may be sent; raises BadHeader. What says where a message ends, or to whom it goes, is ours."""
    if not _HEADER_NAME.fullmatch(name):
        raise BadHeader(f"{name!r} cannot be the name of a header")
    if name.lower() in _RESERVED:
        raise BadHeader(f"{name} is set by leadrope itself")
    if not _HEADER_VALUE.fullmatch(value):
        raise BadHeader(f"the value of {name} holds a line break, a control character or one outside of latin-1")
    return name, value.strip()


@contextlib.asynccontextmanager
async def exchange(
    request: OutgoingRequest, addresses: Sequence[str], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[HttpAnswer]:
    """The answer of the first address that can be reached. `tls` replaces the system's certificates."""
    reader, writer = await _reach(request.target, addresses, tls)
    try:
        writer.write(_head(request) + (request.body or b""))
        sending = asyncio.ensure_future(_heard(writer.drain()))
        try:
            head = await _final_head(reader)
        finally:
            # An answer may come before the request is whole, and a broken sending is told by the reading.
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        yield HttpAnswer(head, reader, has_body=request.method != "HEAD")
    finally:
        # Not waited for: an end that nobody answers must not hold us.
        writer.transport.abort()


async def _reach(
    target: Target, addresses: Sequence[str], tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    secure = (tls or _system_trust()) if target.scheme == "https" else None
    problem = "it has no address"
    for address in addresses[:MOST_ADDRESSES]:
        try:
            return await asyncio.open_connection(
                address,
                target.port,
                ssl=secure,
                server_hostname=target.host if secure else None,
                limit=http1.HEAD_LIMIT,
            )
        except ssl.SSLCertVerificationError as error:
            problem = f"its certificate is not trusted: {error.verify_message}"
        except ssl.SSLError as error:
            problem = f"TLS failed: {error.reason or error}"
        except OSError as error:
            problem = error.strerror or str(error)
    raise HttpFailed(f"{target.host}:{target.port} cannot be reached: {problem}")


def _head(request: OutgoingRequest) -> bytes:
    named = {name.lower() for name, _ in request.headers}
    headers = [("Host", request.target.authority), *request.headers]
    for name, value in (("Accept", "*/*"), ("User-Agent", f"leadrope/{__version__}")):
        if name.lower() not in named:
            headers.append((name, value))
    headers += [("Accept-Encoding", "identity"), ("Connection", "close")]
    if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
        headers.append(("Content-Length", str(len(request.body or b""))))
    return http1.write_head(f"{request.method} {request.target.path} HTTP/1.1", headers)


async def _final_head(reader: asyncio.StreamReader) -> http1.AnswerHead:
    for _ in range(_MOST_INTERIM):
        try:
            raw = await _heard(http1.read_head(reader))
            if raw is None:
                raise HttpFailed("the connection was closed without an answer")
            head = http1.parse_answer(raw)
        except (http1.BadHttp, http1.Closed) as error:
            raise HttpFailed(f"the answer is not HTTP: {error}") from None
        if head.status == 101:
            raise HttpFailed("the server wants another protocol")
        if head.status >= 200:
            return head
    raise HttpFailed("the server does not come to an answer")


async def _heard(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except OSError as error:
        raise HttpFailed(f"the connection broke: {error.strerror or error}") from None


@functools.cache
def _system_trust() -> ssl.SSLContext:
    return ssl.create_default_context()
