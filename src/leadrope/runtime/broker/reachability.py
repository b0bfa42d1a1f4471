"""Tracks whether the model's server can be reached, from the first failed connection on.

A broker sees every connection. Without one the agent reports only that it retries, so leadrope probes the connection
itself. `model_watch` announces problems, and ends the run if they last too long.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import SplitResult, urlsplit

import msgspec

from leadrope.core import events
from leadrope.net.connect import error_number, proxy_for, why

PROBE_S = 2.0
"""An agent waits at least half a second before it retries. A connection attempt that takes longer than this counts as
successful.
"""
ANSWERED_S = 180.0
"""Minimum time for a server that has answered before: a lost network usually comes back."""
_NEVER_CONNECTED = frozenset(
    {errno.ECONNREFUSED, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENOENT}
)


class Trouble(msgspec.Struct, frozen=True):
    address: str
    why: str

    def __str__(self) -> str:
        return f"{events.UNREACHABLE}{self.address} ({self.why})"


class Reach:
    """The state of the connection to the model, shared by all attempts; the current one listens."""

    def __init__(self) -> None:
        self.trouble: Trouble | None = None
        """None while no problem is known."""
        self.has_answered = False
        self.look: Callable[[], Awaitable[Trouble | None]] | None = None
        """How a broker probes the connection; None: there is no broker."""
        self.on_lost: Callable[[Trouble], object] | None = None
        self.on_found: Callable[[Trouble], object] | None = None

    def failed(self, trouble: Trouble) -> None:
        """Record a failed connection."""
        before, self.trouble = self.trouble, trouble
        if before is None and self.on_lost is not None:
            self.on_lost(trouble)

    def reached(self) -> None:
        """Record a successful connection."""
        before, self.trouble = self.trouble, None
        if before is not None and self.on_found is not None:
            self.on_found(before)

    def answered(self) -> None:
        self.has_answered = True
        self.reached()

    def limit_s(self, wanted_s: float) -> float:
        """Return how long the agent may retry; 0: without limit."""
        return max(wanted_s, ANSWERED_S) if self.has_answered and wanted_s else wanted_s


async def probe(url: str, environ: Mapping[str, str]) -> Trouble | None:
    """Return what keeps the agent from connecting to the model's address, or to its proxy.

    Only a refused connection, a missing route and an unknown name count; anything uncertain counts as reachable.
    """
    proxy = proxy_for(url, environ)
    parts = urlsplit(proxy or url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if not parts.hostname:
            return None
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, ValueError) as error:
        if not never_connected(error):
            return None
        return Trouble(f"{'the proxy ' if proxy else ''}{_shown(parts)}", why(error))
    writer.close()
    return None


def never_connected(error: Exception) -> bool:
    return isinstance(error, socket.gaierror) or error_number(error) in _NEVER_CONNECTED


def _shown(parts: SplitResult) -> str:
    """Format host and port, without a default port and without the password that a URL may contain."""
    usual = 443 if parts.scheme == "https" else 80
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port}" if parts.port not in (None, usual) else f"{host}"
