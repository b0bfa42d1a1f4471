"""Connections to the model's server: plain or TLS, through a proxy where one is needed, kept for the next request.

Knows where, not what: the credential and the requests are the broker's.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import functools
import os
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex
from urllib.parse import SplitResult, unquote, urlsplit

from leadrope import errors
from leadrope.regex import regex
from leadrope.runtime.broker import http1

if TYPE_CHECKING:
    import ssl

CONNECT_S = 15.0
"""Name, connection and TLS together. The agent tries again by itself; a longer wait only hides what is wrong."""
_MOST_IDLE = 8
_NUMBERS = regex(r"\[Errno (\d+)\]")
"""In asyncio's words for a name with several addresses, none of which could be connected to."""


class Unreachable(Exception):
    """No answer of the model's server, and why."""

    is_connected = True
    """There was a connection; else not even that."""


class NotConnected(Unreachable):
    is_connected = False


class _Reader(asyncio.StreamReader):
    """Notices what a server says without having been asked: a `408` on an idle connection is not the next answer."""

    is_idle = False
    is_spoilt = False
    unread = 0
    """Bytes that have come and that nobody has taken."""

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        came = bytes(data)
        self.is_spoilt = self.is_spoilt or self.is_idle
        self.unread += len(came)
        super().feed_data(came)

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.unread -= len(data)
        return data

    async def readuntil(self, separator: bytes = b"\n") -> bytes:  # type: ignore[override]  # a tuple, since Python 3.13
        data = await super().readuntil(separator)
        self.unread -= len(data)
        return data


class UpstreamConnection:
    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_reused = False
        """It has served before, so the server may have closed it in the moment of sending."""

    def abort(self) -> None:
        self.writer.transport.abort()

    @property
    def is_open(self) -> bool:
        return not (self.reader.is_spoilt or self.reader.at_eof() or self.writer.transport.is_closing())


class Upstream:
    """One server. `take` a connection, `give` it back if it can serve again, `close` them all."""

    def __init__(self, url: str, *, proxy: str | None = None, ca_file: str | None = None) -> None:
        """`proxy` is an http:// proxy for a TLS server; `ca_file` adds a network's own authority to the usual ones."""
        self._url = _checked("base_url", url, ("http", "https"))
        self._is_tls = self._url.scheme == "https"
        self._proxy = _checked("proxy", proxy, ("http",)) if proxy and self._is_tls else None
        self._ca_file = ca_file
        self._idle: list[UpstreamConnection] = []
        self._context: asyncio.Future[ssl.SSLContext] | None = None
        self.host = self._url.hostname or ""
        self.port = self._url.port or (443 if self._is_tls else 80)
        self.base_path = self._url.path.rstrip("/")
        usual = 443 if self._is_tls else 80
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = name if self.port == usual else f"{name}:{self.port}"
        """For the Host header, and for people."""

    def start(self) -> None:
        """Read the authorities' certificates while the agent is starting: 30 ms that no request should wait for."""
        if self._is_tls and self._context is None:
            self._context = asyncio.ensure_future(asyncio.to_thread(_tls_context, self._ca_file))

    async def take(self, *, fresh: bool = False) -> UpstreamConnection:
        while self._idle and not fresh:
            connection = self._idle.pop()
            connection.reader.is_idle = False
            if connection.is_open:
                connection.is_reused = True
                return connection
            connection.abort()
        try:
            async with asyncio.timeout(CONNECT_S):
                return await self._connect()
        except TimeoutError:
            raise NotConnected(f"no answer within {CONNECT_S:g} s") from None
        except (OSError, UnicodeError) as error:  # ssl.SSLError is an OSError
            raise NotConnected(why(error)) from error

    def give(self, connection: UpstreamConnection) -> None:
        """Only after a clean exchange. What the server said beyond its answer would be taken for the next one."""
        if connection.is_open and not connection.reader.unread and len(self._idle) < _MOST_IDLE:
            connection.reader.is_idle = True
            self._idle.append(connection)
        else:
            connection.abort()

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()
        if self._context is not None:
            self._context.cancel()
            await asyncio.gather(self._context, return_exceptions=True)

    async def _connect(self) -> UpstreamConnection:
        self.start()
        context = await asyncio.shield(self._context) if self._context is not None else None
        if self._proxy is not None and context is not None:
            return await self._connect_through(self._proxy, context)
        return await _open(self.host, self.port, ssl=context, server_hostname=self.host if context else None)

    async def _connect_through(self, proxy: SplitResult, context: ssl.SSLContext) -> UpstreamConnection:
        try:
            connection = await _open(proxy.hostname or "", proxy.port or 80)
        except OSError as error:
            raise NotConnected(f"its proxy {proxy.hostname}:{proxy.port or 80}: {why(error)}") from error
        reader, writer = connection.reader, connection.writer
        try:
            target = f"{self.host}:{self.port}"
            headers = [("Host", target)]
            if proxy.username is not None:
                pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
                headers.append(("Proxy-Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
            writer.write(http1.write_head(f"CONNECT {target} HTTP/1.1", headers))
            head = await http1.read_head(reader)
            answer = http1.parse_answer(head) if head else None
            if answer is None or answer.status != 200:
                raise NotConnected(f"the proxy {proxy.hostname} refuses: {answer.status if answer else 'no answer'}")
            await writer.start_tls(context, server_hostname=self.host)
        except (http1.BadHttp, http1.Closed) as error:
            connection.abort()
            raise NotConnected(f"the proxy {proxy.hostname} does not answer as a proxy: {error}") from error
        except BaseException:
            connection.abort()
            raise
        return connection


async def _open(host: str, port: int, **tls: Any) -> UpstreamConnection:
    """As asyncio.open_connection does it, with a reader of our own."""
    loop = asyncio.get_running_loop()
    reader = _Reader(limit=http1.HEAD_LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.create_connection(lambda: protocol, host, port, happy_eyeballs_delay=0.25, **tls)
    return UpstreamConnection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


@functools.lru_cache(maxsize=8)
def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Kept: loading the system's certificates takes 20 ms, and every run of a process trusts the same ones."""
    import ssl  # noqa: PLC0415  # only where the server speaks TLS

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


def _checked(field: str, url: str, schemes: tuple[str, ...]) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise errors.BadValue(field, f"is not an address that starts with {' or '.join(f'{s}://' for s in schemes)}")
    if any(ord(c) <= 32 or ord(c) >= 127 for c in url) or (field == "base_url" and (parts.query or parts.fragment)):
        raise errors.BadValue(field, "holds characters, a query or a fragment that an address of a server cannot have")
    return parts


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that a corporate network's variables name for this address, as other programs read them."""
    parts = urlsplit(url)
    if parts.scheme != "https":
        return None
    host = (parts.hostname or "").lower()
    for entry in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").lower().split(","):
        name = entry.strip().rpartition(":")[0] if entry.count(":") == 1 else entry.strip()
        name = name.removeprefix("*").removeprefix(".")
        if entry.strip() == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return None
    return environ.get("https_proxy") or environ.get("HTTPS_PROXY") or None


def why(error: Exception) -> str:
    """In the system's own words: asyncio's say `Connect call failed` and repeat the address."""
    if isinstance(error, socket.gaierror):
        return "unknown host" if error.errno == socket.EAI_NONAME else (error.strerror or "name not resolved").lower()
    number = error_number(error)
    if number is not None:
        return os.strerror(number).lower()
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def error_number(error: Exception) -> int | None:
    """The system's number of an error; of several addresses that were tried, that of the last one."""
    is_of_tls = hasattr(error, "library")  # ssl.SSLError: an OSError whose number is not the system's
    if not isinstance(error, OSError) or is_of_tls or isinstance(error, socket.gaierror):
        return None
    numbers = [error.errno] if error.errno is not None else [int(n) for n in _NUMBERS.findall(str(error))]
    return numbers[-1] if numbers and numbers[-1] in errno.errorcode else None
