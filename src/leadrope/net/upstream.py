"""Keeps connections to one server for reuse. Credentials and requests are handled by the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leadrope.net.connect import NotConnected, ServerConnection, connect, read_server, tls_context

if TYPE_CHECKING:
    import ssl

CONNECT_S = 15.0
"""Timeout for resolving, connecting and TLS together. The agent retries by itself; a longer wait only hides the
problem.
"""
_MOST_IDLE = 8


class Upstream:
    """Connection pool for one server: `take` a connection, `give` it back if it can be reused, `close` them all."""

    def __init__(self, url: str, *, proxy: str | None = None, ca_file: str | None = None) -> None:
        """`proxy` is an http:// proxy for a TLS server; `ca_file` adds a network's own authority to the usual ones."""
        parts = read_server("base_url", url)
        self._is_tls = parts.scheme == "https"
        self._proxy = read_server("proxy", proxy, ("http",)) if proxy and self._is_tls else None
        self._ca_file = ca_file
        self._idle: list[ServerConnection] = []
        self._context: asyncio.Future[ssl.SSLContext] | None = None
        self.host = parts.hostname or ""
        usual = 443 if self._is_tls else 80
        self.port = parts.port or usual
        self.base_path = parts.path.rstrip("/")
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = name if self.port == usual else f"{name}:{self.port}"
        """For the Host header and for messages."""

    def start(self) -> None:
        """Load the authorities' certificates while the agent is starting: 30 ms that no request should wait for."""
        if self._is_tls and self._context is None:
            self._context = asyncio.ensure_future(asyncio.to_thread(tls_context, self._ca_file))

    async def take(self, *, fresh: bool = False) -> ServerConnection:
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

    def give(self, connection: ServerConnection) -> None:
        """Put a connection back, only after a clean exchange: leftover data would be read as the next answer."""
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

    async def _connect(self) -> ServerConnection:
        self.start()
        try:
            context = await asyncio.shield(self._context) if self._context is not None else None
        except OSError as error:
            raise NotConnected(f"the certificates of {self._ca_file} cannot be read: {error}") from error
        return await connect(self.host, self.port, tls=context, proxy=self._proxy)
