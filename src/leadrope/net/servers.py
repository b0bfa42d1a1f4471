"""Ends an asyncio server without losing a connection that is just being accepted."""

from __future__ import annotations

import asyncio


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
