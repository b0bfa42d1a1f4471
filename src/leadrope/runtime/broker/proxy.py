"""A forward proxy restricted to a list of hosts: the only network access of a sandboxed run.

    async with HostProxy(("*.example.com",), listen=Path("/run/…/hosts.sock"), on_refused=tell) as proxy: ...

It sees host names and ports but not content, since TLS stays end to end. It resolves names itself and connects to
exactly the address it checked, so that a name cannot resolve differently between check and use.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from leadrope import errors
from leadrope.net import addresses as public_addresses
from leadrope.net import http1, servers, unix_socket
from leadrope.net.addresses import Address, Resolver
from leadrope.net.resolver import ask_system
from leadrope.regex import regex

ANY_PORT = -1
"""`host:*`: any port."""
USUAL_PORTS = frozenset({80, 443})
CONNECT_S = 15.0
CLOSE_S = 5.0
_HEAD_S = 30.0
_MOST_CLIENTS = 256

_HOST = regex(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_](?:[a-z0-9_-]{0,62}))*")


class RefusedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that was rejected, with the reason for the user."""

    host: str
    port: int
    reason: str


Ask = Callable[[str, int], Awaitable[bool]]
USER = "leadrope"
"""The user name for the token in the agent's proxy URL."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    """A name in lower case; `.example.com` for all names below it."""
    address: Address | None = None
    port: int | None = None

    def fits(self, host: str, port: int) -> bool:
        if self.port != ANY_PORT and (port != self.port if self.port is not None else port not in USUAL_PORTS):
            return False
        return host.endswith(self.host) if self.host.startswith(".") else host == self.host


class HostProxy:
    """Serves CONNECT for TLS, and absolute URLs for plain HTTP. Listens on `url` or `socket_path`."""

    def __init__(
        self,
        allowed: Iterable[str],
        *,
        listen: Path | None = None,
        on_refused: Callable[[RefusedHost], None] | None = None,
        resolve: Resolver | None = None,
        ask: Ask | None = None,
        token: str = "",
        may_fetch: Callable[[str], bool] | None = None,
    ) -> None:
        """`allowed`: `example.com`, `*.example.com`, `example.com:8443`, `10.0.0.7:*`. Ports are 80 and 443 unless one,
        or all of them, are named. `!bad.example.com`: never that host or any name below it. A private address must be
        on the list itself, even for a listed name that resolves to it.

        `ask` decides on public hosts that are not on the list. A client with the `token` is the agent itself, and also
        reaches the public hosts that `may_fetch` allows, without asking.
        """
        self.url = ""
        self.socket_path = listen
        given = tuple(allowed)
        self._entries = tuple(_entry(text) for text in given if not text.startswith("!"))
        self._blocked = tuple(_entry(text[1:]) for text in given if text.startswith("!"))
        self._on_refused = on_refused
        self._resolve = resolve or ask_system
        self._ask = ask
        self._token = token
        self._may_fetch = may_fetch
        self._server: asyncio.Server | None = None
        self._clients = servers.Clients(_MOST_CLIENTS)

    async def __aenter__(self) -> Self:
        # A step of its own: a start that is cancelled while asyncio begins to serve would leave the socket open.
        if self.socket_path is not None:
            listening = unix_socket.bound(self.socket_path)
            server = await asyncio.start_unix_server(
                self._connected, sock=listening, limit=http1.HEAD_LIMIT, start_serving=False
            )
        else:
            server = await asyncio.start_server(
                self._connected, "127.0.0.1", 0, limit=http1.HEAD_LIMIT, start_serving=False
            )
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            await server.start_serving()
        except BaseException:
            server.close()
            raise
        self._server = server
        self._clients.is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        await self._clients.close(server, self.socket_path)

    # -- access checks ----------------------------------------------------------------------------------------------

    async def judge(self, host: str, port: int, *, is_agent: bool = False) -> list[str]:
        """Return the addresses that may be connected to for this host; raises _No with the reason."""
        host = host.lower().removesuffix(".").removeprefix("[").removesuffix("]")
        literal = _address(host)
        if any(_blocks(entry, host, literal) for entry in self._blocked):
            raise _No(f"{host} is blocked")
        if literal is not None:
            is_open = self._allows_address(literal, port) or (
                _is_public(literal) and await self._opens(str(literal), port, is_agent)
            )
            if not is_open:
                raise _No(f"{host}:{port} is not an allowed address")
            return [str(literal)]
        is_listed = any(entry.address is None and entry.fits(host, port) for entry in self._entries)
        # Checked before it is resolved: a DNS lookup already reveals the name outside this machine.
        if not _HOST.fullmatch(host) or not (is_listed or await self._opens(host, port, is_agent)):
            raise _No(f"{host}:{port} is not an allowed host")
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await self._resolve(host, port)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise _Failed(f"{host} cannot be resolved: {error}") from error
        addresses = [
            address
            for text in found
            if (address := _address(text)) is not None
            and not any(_blocks(entry, host, address) for entry in self._blocked)
        ]
        good = [str(a) for a in addresses if _is_public(a) or self._allows_address(a, port)]
        if not good:
            shown = ", ".join(map(str, addresses)) or "no address"
            raise _No(f"{host} leads to {shown}, in a private network that is not allowed by address")
        return good

    async def _opens(self, host: str, port: int, is_agent: bool) -> bool:
        """Return whether a host that is not listed is allowed by a web tool's permission or by a person."""
        if public_addresses.why_not_public(host) is not None:
            return False
        if is_agent:
            return self._may_fetch is not None and self._may_fetch(host)
        return self._ask is not None and await self._ask(host, port)

    def _is_agent(self, request: http1.RequestHead) -> bool:
        if not self._token:
            return False
        wanted = "Basic " + base64.b64encode(f"{USER}:{self._token}".encode()).decode()
        given = http1.values(request.headers, "proxy-authorization")
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), wanted.encode())

    def _allows_address(self, address: Address, port: int) -> bool:
        return any(entry.address == address and entry.fits(entry.host, port) for entry in self._entries)

    # -- one connection -----------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def answer() -> None:
            await self._serve(reader, writer)
            writer.close()
            async with asyncio.timeout(CLOSE_S):  # for a client that does not read its answer
                await writer.wait_closed()

        await self._clients.serve(writer, answer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_S):
            head = await http1.read_head(reader)
        if head is None:
            return
        try:
            request = http1.parse_request(head)
            wanted = _wanted(request)
        except http1.BadHttp as error:
            _say(writer, 400, str(error))
            return
        try:
            far_reader, far_writer = await self._reach(wanted, is_agent=self._is_agent(request))
        except _No as no:
            if self._on_refused is not None:
                self._on_refused(RefusedHost(host=wanted.host, port=wanted.port, reason=str(no)))
            _say(writer, 403, f"{no}. Hosts are allowed by the policy of this run.")
            return
        except _Failed as error:
            _say(writer, 502, str(error))
            return
        try:
            if request.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _both_ways(reader, writer, far_reader, far_writer)
            else:
                await _once(request, wanted, reader, writer, far_reader, far_writer)
        finally:
            far_writer.transport.abort()

    async def _reach(self, wanted: _Wanted, *, is_agent: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        addresses = await self.judge(wanted.host, wanted.port, is_agent=is_agent)
        problem = ""
        for address in addresses[:4]:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.open_connection(address, wanted.port, limit=http1.HEAD_LIMIT)
            except TimeoutError:
                problem = f"no answer within {CONNECT_S:g} s"
            except OSError as error:
                problem = error.strerror or str(error)
        raise _Failed(f"{wanted.host}:{wanted.port} cannot be reached: {problem}")


class _No(Exception):
    """Rejected, with the reason."""


class _Failed(Exception):
    """Allowed, but the connection failed."""


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    target: str = ""
    """The path, for plain HTTP."""
    authority: str = ""


def _wanted(request: http1.RequestHead) -> _Wanted:
    if request.method == "CONNECT":
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@]+):([0-9]{1,5})", request.target)
        if match is None or not 0 < int(match[2]) < 65536:
            raise http1.BadHttp("CONNECT needs a host and a port")
        return _Wanted(host=match[1], port=int(match[2]))
    try:
        parts = urlsplit(request.target)
        port = parts.port or 80
    except ValueError:
        raise http1.BadHttp("the address cannot be read") from None
    if parts.scheme != "http" or not parts.hostname or parts.username is not None:
        raise http1.BadHttp("this is a proxy: it needs CONNECT, or a whole http:// address")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Wanted(host=parts.hostname, port=port, target=target, authority=parts.netloc)


def _say(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"leadrope: {text}\n".encode()
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    writer.write(http1.write_head(http1.status_line(status), [*headers, ("Connection", "close")]) + body)


async def _once(
    request: http1.RequestHead,
    wanted: _Wanted,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Forward one plain request to the checked host: we set its Host header, and nothing may follow it."""
    headers = [("Host", wanted.authority), *http1.end_to_end(request.headers, "host"), ("Connection", "close")]
    if request.body.kind != "none" or http1.values(request.headers, "content-length"):
        headers += http1.framing(request.body)
    far_writer.write(http1.write_head(f"{request.method} {wanted.target} HTTP/1.1", headers))

    async def send() -> None:
        async for piece in http1.pieces(reader, request.body):
            far_writer.write(http1.chunk(piece) if request.body.kind == "chunked" else piece)
            await far_writer.drain()
        if request.body.kind == "chunked":
            far_writer.write(http1.LAST_CHUNK)

    sending = asyncio.ensure_future(send())
    try:
        await _copy(far_reader, writer)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Copy data both ways until both sides are done, or one connection breaks."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(reader, far_writer))
            group.create_task(_copy(far_reader, writer))
    except* ConnectionError:
        raise ConnectionResetError("one side is gone") from None


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(http1.PIECE):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof() and not sink.transport.is_closing():
        with contextlib.suppress(OSError):  # the other side may be gone; reading from it reports that
            sink.write_eof()


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return public_addresses.embedded(address)


def _is_public(address: Address) -> bool:
    return public_addresses.judge(address).kind == "public"


def _blocks(entry: _Entry, host: str, address: Address | None) -> bool:
    if entry.address is not None:
        return entry.address == address
    name = entry.host.removeprefix(".")
    return host.endswith(f".{name}") or host == entry.host


def _entry(text: str) -> _Entry:
    """Parse one entry of the list, or raise an error."""
    hint = "Write a host (example.com), what lies below it (*.example.com) or an address, with :PORT if not 80 or 443."
    word = text.strip().lower()
    whole = _address(word)
    host, port = (word, None) if whole is not None else _split_port(word)
    address = whole or _address(host.removeprefix("[").removesuffix("]"))
    if address is not None:
        return _Entry(host=str(address), address=address, port=port)
    name = host.removeprefix("*.").removesuffix(".")
    if not _HOST.fullmatch(name) or (port not in (None, ANY_PORT) and not 0 < port < 65536):
        raise errors.BadValue("network.allowed_hosts", f"{text!r} is not a host", hint=hint)
    return _Entry(host=f".{name}" if host.startswith("*.") else name, port=port)


def _split_port(word: str) -> tuple[str, int | None]:
    if word.endswith(":*"):
        return word[:-2], ANY_PORT
    match = re.fullmatch(r"(.+):([0-9]{1,5})", word)
    return (match[1], int(match[2])) if match else (word, None)
