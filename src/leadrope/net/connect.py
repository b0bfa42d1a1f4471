"""Connections to a server: by name or to given addresses, plain or TLS, optionally through a proxy.

This module opens the connection and does not know the protocol on top. Connection errors are described for the user.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import functools
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex
from urllib.parse import SplitResult, unquote, urlsplit

from leadrope import errors
from leadrope.net import http1
from leadrope.regex import regex

if TYPE_CHECKING:
    import ssl

MOST_ADDRESSES = 4
"""Addresses tried, one after the other. A name with more of them has them for load balancing, not for reachability."""
_NUMBERS = regex(r"\[Errno (\d+)\]")
"""Error numbers in asyncio's message for a name with several addresses that all failed."""


class Unreachable(Exception):
    """The server did not answer; the message says why."""

    is_connected = True
    """Whether a connection was established at all."""


class NotConnected(Unreachable):
    is_connected = False


class _Reader(asyncio.StreamReader):
    """Counts bytes that the server sends unprompted: a `408` on an idle connection is not the next answer."""

    is_idle = False
    is_spoilt = False
    unread = 0
    """Bytes received and not yet read."""

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


class ServerConnection:
    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.is_reused = False
        """The connection has been used before, so the server may have closed it just as we sent."""

    def abort(self) -> None:
        self.writer.transport.abort()

    @property
    def is_open(self) -> bool:
        return not (self.reader.is_spoilt or self.reader.at_eof() or self.writer.transport.is_closing())


async def connect(
    host: str,
    port: int,
    *,
    addresses: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    proxy: SplitResult | None = None,
) -> ServerConnection:
    """Connect to `host`, or only to one of `addresses` if given. Timeouts are up to the caller.

    `proxy` is an http:// proxy for a TLS server. Raises NotConnected.
    """
    try:
        if proxy is not None and tls is not None:
            return await _through(proxy, host, port, tls)
        if not addresses:
            return await _open(host, port, tls, host)
        problem: OSError | None = None
        for address in addresses[:MOST_ADDRESSES]:
            try:
                return await _open(address, port, tls, host)
            except OSError as error:
                problem = error
        raise problem if problem is not None else OSError("it has no address")
    except (OSError, UnicodeError) as error:  # ssl.SSLError is an OSError
        raise NotConnected(why(error)) from error


async def _through(proxy: SplitResult, host: str, port: int, tls: ssl.SSLContext) -> ServerConnection:
    try:
        connection = await _open(proxy.hostname or "", proxy.port or 80)
    except OSError as error:
        raise NotConnected(f"its proxy {proxy.hostname}:{proxy.port or 80}: {why(error)}") from error
    reader, writer = connection.reader, connection.writer
    try:
        target = f"{host}:{port}"
        headers = [("Host", target)]
        if proxy.username is not None:
            pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            headers.append(("Proxy-Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
        writer.write(http1.write_head(f"CONNECT {target} HTTP/1.1", headers))
        head = await http1.read_head(reader)
        answer = http1.parse_answer(head) if head else None
        if answer is None or answer.status != 200:
            raise NotConnected(f"the proxy {proxy.hostname} refuses: {answer.status if answer else 'no answer'}")
        await writer.start_tls(tls, server_hostname=host)
    except (http1.BadHttp, http1.Closed) as error:
        connection.abort()
        raise NotConnected(f"the proxy {proxy.hostname} does not answer as a proxy: {error}") from error
    except BaseException:
        connection.abort()
        raise
    return connection


async def _open(where: str, port: int, tls: ssl.SSLContext | None = None, name: str = "") -> ServerConnection:
    """Open a connection as asyncio.open_connection does, but with our own reader."""
    loop = asyncio.get_running_loop()
    reader = _Reader(limit=http1.HEAD_LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    secure: dict[str, Any] = {"ssl": tls, "server_hostname": name} if tls is not None else {}
    transport, _ = await loop.create_connection(lambda: protocol, where, port, happy_eyeballs_delay=0.25, **secure)
    return ServerConnection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


@functools.lru_cache(maxsize=8)
def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities and those in `ca_file`. Cached: loading them takes 20
    ms.
    """
    import ssl  # noqa: PLC0415  # only where the server speaks TLS

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


def read_server(field: str, url: str, schemes: tuple[str, ...] = ("http", "https")) -> SplitResult:
    """Parse the address of a server or a proxy from a setting; raises BadValue for the field."""
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
    """Return the proxy that the usual environment variables (`HTTPS_PROXY`, ...) set for this address."""
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
    """Describe an error with the system's own message: asyncio's says `Connect call failed` and repeats the address."""
    if isinstance(error, socket.gaierror):
        return "unknown host" if error.errno == socket.EAI_NONAME else (error.strerror or "name not resolved").lower()
    if _is_of_tls(error):
        told = getattr(error, "verify_message", "")
        return f"its certificate is not trusted: {told}" if told else f"TLS failed: {getattr(error, 'reason', error)}"
    number = error_number(error)
    if number is not None:
        return os.strerror(number).lower()
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def error_number(error: Exception) -> int | None:
    """Return the system's error number; if several addresses were tried, that of the last one."""
    if not isinstance(error, OSError) or _is_of_tls(error) or isinstance(error, socket.gaierror):
        return None
    numbers = [error.errno] if error.errno is not None else [int(n) for n in _NUMBERS.findall(str(error))]
    return numbers[-1] if numbers and numbers[-1] in errno.errorcode else None


def _is_of_tls(error: Exception) -> bool:
    """Return whether the error is an ssl.SSLError, an OSError whose number is not the system's."""
    return isinstance(error, OSError) and hasattr(error, "library")
