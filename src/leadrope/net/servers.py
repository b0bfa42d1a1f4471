"""The clients of an asyncio server: as many as it takes, and none of them left when it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from leadrope.net import http1

CLOSE_S = 5.0
"""Newer Pythons wait for every connection to be gone. All were aborted before, which takes a turn of the loop; one that
came in that very moment must not keep a run from ending."""


class Clients:
    """Connections that are served at the same time. `is_open` is False from the end of the server on."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_open = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def serve(self, writer: asyncio.StreamWriter, work: Callable[[], Awaitable[None]]) -> None:
        """One connection, in the task of its handler. It is closed after `work`, and cut where that fails."""
        task = asyncio.current_task()
        if task is None or not self.is_open or len(self._tasks) >= self._most:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await work()
            writer.close()
        except (ConnectionError, http1.Closed, http1.BadHttp, TimeoutError):
            # Cut on one side, so it is cut on the other: an answer that lacks its end must not look whole.
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # only `close` cancels, and it waits for this task
        finally:
            self._tasks.discard(task)

    async def close(self, server: asyncio.Server, socket_path: Path | None = None) -> None:
        """Accept nobody any more, end every connection, and remove the socket."""
        self.is_open = False
        await stop_accepting(server)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await server.wait_closed()
        if socket_path is not None:
            socket_path.unlink(missing_ok=True)


async def stop_accepting(server: asyncio.Server) -> None:
    """Close the listening sockets; connections that were accepted before have their handlers afterwards.

    asyncio accepts a connection in one round of the loop and makes its transport in the next. A server that is closed
    between the two loses the socket, which then stays open until it is garbage-collected.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(3):  # the transport is made, the connection announced, its handler started
        await asyncio.sleep(0)
    server.close()
