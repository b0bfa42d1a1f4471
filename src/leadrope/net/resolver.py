"""Names resolved by the system, without blocking the loop or its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Sequence


async def ask_system(host: str, port: int) -> Sequence[str]:
    """The host's addresses, each once; raises OSError when there are none.

    In a thread that nobody waits for: a resolver can be silent for minutes, and a loop that closes waits for the
    threads of its own pool.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str], error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def ask() -> None:
        found: list[str] = []
        error: Exception | None = None
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        except (OSError, UnicodeError) as wrong:
            error = wrong
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, found, error)

    threading.Thread(target=ask, name=f"leadrope resolves {host}", daemon=True).start()
    return await answer
