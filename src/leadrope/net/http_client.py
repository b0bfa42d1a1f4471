"""A small HTTP/1.1 client: one request and its answer, which is streamed and read only as far as the caller wants.

    request = OutgoingRequest(method="POST", target=read_url("https://example.com/v1"), headers=headers, body=body)
    async with exchange(request, proxy=proxy_for(url, environ), idle_s=120) as answer:
        if answer.status != 200:
            body = await answer.read(64 * 1024)
        async for piece in answer.pieces(limit):
            ...

All of leadrope's own requests go through here: http steps, MCP over HTTP, webhooks, providers over HTTP. It can connect
to exactly the addresses that were checked, which no library offers. It sends one request per connection, with no
redirects, cookies or retries, and uses no proxy except the one it is given. The caller sets the timeout for the whole
exchange; `idle_s` limits how long the server may be silent, including the time it takes to receive the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from leadrope.net import connect, http1
from leadrope.net.urls import Target
from leadrope.regex import regex
from leadrope.version import __version__

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_MOST_INTERIM = 8
_MOST_FRAMING = 8
"""Maximum bytes on the wire per byte of content. One byte per chunk takes six; chunk sizes with long extensions never
end.
"""
_RESERVED = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer"),
        *("expect", "proxy-authorization", "proxy-connection", "accept-encoding"),
    }
)
_HEADER_NAME = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_HEADER_VALUE = regex(r"[\t\x20-\x7e\x80-\xff]*")


class HttpFailed(Exception):
    """There was no answer, or none that can be parsed; the message is for the user."""


class BodyTooLarge(Exception):
    """The body is longer than the caller's limit; what was received is discarded."""


class BadHeader(Exception):
    """A header that must not be sent; the message says why."""


class OutgoingRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: Target
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class HttpAnswer:
    """An answer whose head has arrived and whose body can be streamed."""

    def __init__(self, head: http1.AnswerHead, heard: _Listener, *, has_body: bool) -> None:
        self.status = head.status
        self.headers: dict[str, str] = {}
        for name, value in head.headers:
            key = name.lower()
            self.headers[key] = f"{self.headers[key]}, {value}" if key in self.headers else value
        self._body = head.body if has_body else http1.NO_BODY
        self._heard = heard

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self, limit: int) -> AsyncIterator[bytes]:
        """Yield the content as it arrives; reads at most one byte beyond the limit, and then raises BodyTooLarge."""
        if self._body.kind == "length" and self._body.length > limit:
            raise BodyTooLarge
        framing = http1.Framing(self._body)
        got = raw = 0
        while not framing.is_done:
            data = await self._heard.read(min(framing.wants, limit + 1 - got))
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
        """Read the whole body, decompressing it if the server compressed it unasked."""
        data = b"".join([piece async for piece in self.pieces(limit)])
        packing = self.headers.get("content-encoding", "identity").strip().lower()
        if packing == "identity" or not data:
            return data
        if packing not in ("gzip", "x-gzip", "deflate"):
            raise HttpFailed(f"the answer is packed with {packing}, which was not asked for")
        try:
            # 47 detects zlib or gzip from the first bytes. The output never exceeds the limit, whatever the input.
            unpacked = zlib.decompressobj(47).decompress(data, limit + 1)
        except zlib.error:
            raise HttpFailed(f"the answer says that it is packed with {packing}, and is not") from None
        if len(unpacked) > limit:
            raise BodyTooLarge
        return unpacked


def check_header(name: str, value: str) -> tuple[str, str]:
    """Return the header if it may be sent; raises BadHeader. Headers for framing and for the host are set here only."""
    if not _HEADER_NAME.fullmatch(name):
        raise BadHeader(f"{name!r} cannot be the name of a header")
    if name.lower() in _RESERVED:
        raise BadHeader(f"{name} is set by leadrope itself")
    if not _HEADER_VALUE.fullmatch(value):
        raise BadHeader(f"the value of {name} holds a line break, a control character or one outside of latin-1")
    return name, value.strip()


class _Listener:
    """Reads from a server, limiting how long it may be silent."""

    def __init__(self, reader: asyncio.StreamReader, idle_s: float | None) -> None:
        self._reader = reader
        self._idle_s = idle_s

    async def read(self, most: int) -> bytes:
        return await self.until(self._reader.read(most))

    async def head(self) -> http1.AnswerHead:
        """Read the final answer's head, skipping interim ones."""
        for _ in range(_MOST_INTERIM):
            try:
                raw = await self.until(http1.read_head(self._reader))
                if raw is None:
                    raise HttpFailed("the connection was closed without an answer")
                head = http1.parse_answer(raw)
            except (http1.BadHttp, http1.Closed) as error:
                raise HttpFailed(f"the answer is not HTTP: {error}") from None
            if head.status >= 200:
                return head
        raise HttpFailed("the server does not come to an answer")

    async def until(self, reading: Awaitable[T]) -> T:
        silence = asyncio.timeout(self._idle_s)
        try:
            async with silence:
                return await reading
        except OSError as error:  # TimeoutError is one
            if silence.expired():
                raise HttpFailed(f"the server was silent for {self._idle_s:g} s") from None
            raise HttpFailed(f"the connection broke: {connect.why(error)}") from None


@contextlib.asynccontextmanager
async def exchange(
    request: OutgoingRequest,
    *,
    addresses: Sequence[str] = (),
    proxy: str | None = None,
    ca_file: str | None = None,
    tls: ssl.SSLContext | None = None,
    idle_s: float | None = None,
) -> AsyncIterator[HttpAnswer]:
    """Send `request` and yield its answer; raises HttpFailed. Leaving the block closes the connection, even if data is
    unread.

    Connects only to `addresses` if given, to the first that can be reached; otherwise the system resolves the name.
    `ca_file` adds an authority to the system's; `tls` replaces them all.
    """
    target = request.target
    if target.scheme == "https" and tls is None:
        tls = await asyncio.to_thread(connect.tls_context, ca_file)
    try:
        connection = await connect.connect(
            target.host,
            target.port,
            addresses=addresses,
            tls=tls if target.scheme == "https" else None,
            proxy=connect.read_server("proxy", proxy, ("http",)) if proxy else None,
        )
    except connect.NotConnected as error:
        raise HttpFailed(f"{target.host}:{target.port} cannot be reached: {error}") from None
    heard = _Listener(connection.reader, idle_s)
    try:
        connection.writer.write(_head(request) + (request.body or b""))
        sending = asyncio.ensure_future(heard.until(connection.writer.drain()))
        try:
            head = await heard.head()
        finally:
            # An answer may arrive before the request is sent completely; reading reports a failure to send.
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        yield HttpAnswer(head, heard, has_body=request.method != "HEAD")
    finally:
        # Not awaited: a shutdown that the server never answers must not block us.
        connection.abort()


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
