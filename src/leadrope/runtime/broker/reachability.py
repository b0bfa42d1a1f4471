"""Whether the model's server can be reached at all: known at the first connection that fails, with its address.

A broker sees every connection. Without one the agent says only that it tries again, so leadrope connects for a moment
itself. Judges nothing: `model_watch` announces it, and ends the run when it has lasted too long.
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
"""An agent waits at least half a second before it tries again. A connection that takes longer counts as one that can be
made."""
ANSWERED_S = 180.0
"""The least time that a server gets which has answered before: a network that goes away mostly comes back."""
_NEVER_CONNECTED = frozenset(
    {errno.ECONNREFUSED, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENOENT}
)


class Trouble(msgspec.Struct, frozen=True):
    address: str
    why: str

    def __str__(self) -> str:
        return f"{events.UNREACHABLE}{self.address} ({self.why})"


class Reach:
    """What is known of the way to the model. One for the whole run; the attempt that lives listens."""

    def __init__(self) -> None:
        self.trouble: Trouble | None = None
        """None while nothing is known to be wrong."""
        self.has_answered = False
        self.look: Callable[[], Awaitable[Trouble | None]] | None = None
        """How a broker tries the connection; None: there is no broker."""
        self.on_lost: Callable[[Trouble], object] | None = None
        self.on_found: Callable[[Trouble], object] | None = None

    def failed(self, trouble: Trouble) -> None:
        """A connection could not be made."""
        before, self.trouble = self.trouble, trouble
        if before is None and self.on_lost is not None:
            self.on_lost(trouble)

    def reached(self) -> None:
        """A connection was made."""
        before, self.trouble = self.trouble, None
        if before is not None and self.on_found is not None:
            self.on_found(before)

    def answered(self) -> None:
        self.has_answered = True
        self.reached()

    def limit_s(self, wanted_s: float) -> float:
        """How long the agent may try; 0: for as long as it likes."""
        return max(wanted_s, ANSWERED_S) if self.has_answered and wanted_s else wanted_s


async def probe(url: str, environ: Mapping[str, str]) -> Trouble | None:
    """What keeps the agent from connecting to the model's address, or to the proxy before it.

    Only a refusal, a missing route and an unknown name do. What is not known counts as reachable.
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
    """The host, and the port where it is not the usual one. Never a password that an address may hold."""
    usual = 443 if parts.scheme == "https" else 80
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port}" if parts.port not in (None, usual) else f"{host}"
