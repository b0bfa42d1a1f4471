"""Resolves names with the system's resolver, without blocking the event loop or its shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Sequence


async def ask_system(host: str, port: int) -> Sequence[str]:
    """Return the host's addresses without duplicates; raises OSError if there are none.

    Runs in a thread of its own that nothing joins: a resolver can hang for minutes, and a closing loop waits for the
    threads of its default pool.
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is waiting any more
            loop.call_soon_threadsafe(settle, found, error)

    threading.Thread(target=ask, name=f"leadrope resolves {host}", daemon=True).start()
    return await answer
