"""Tracks the clients of an asyncio server: limits their number, and closes all of them when the server ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from leadrope.net import http1

CLOSE_S = 5.0
"""Newer Pythons wait until every connection is gone. All are aborted before that, which takes one turn of the loop; a
connection accepted at that very moment must not keep a run from ending.
"""


class Clients:
    """Concurrent connections of a server. `is_open` is False once the server is closing."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_open = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def serve(self, writer: asyncio.StreamWriter, work: Callable[[], Awaitable[None]]) -> None:
        """Serve one connection in its handler's task. It is closed after `work`, and aborted if that fails."""
        task = asyncio.current_task()
        if task is None or not self.is_open or len(self._tasks) >= self._most:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await work()
            writer.close()
        except (ConnectionError, http1.Closed, http1.BadHttp, TimeoutError):
            # If one side is cut off, cut the other off too: a truncated answer must not look complete.
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # only `close` cancels, and it waits for this task
        finally:
            self._tasks.discard(task)

    async def close(self, server: asyncio.Server, socket_path: Path | None = None) -> None:
        """Stop accepting, end every connection, and remove the socket."""
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
    """Close the listening sockets; handlers of connections accepted before have started when this returns.

    asyncio accepts a connection in one round of the loop and makes its transport in the next. A server that is closed
    between the two loses the socket, which then stays open until it is garbage-collected.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(3):  # the transport is made, the connection announced, its handler started
        await asyncio.sleep(0)
    server.close()
