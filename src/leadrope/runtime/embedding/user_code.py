"""Functions of the program that uses leadrope: async ones are awaited, sync ones run in a thread of their own.

A sync function that waits for a person or a server must not stop the run's clocks, its reading and all other runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any


def is_async(function: Callable[..., Any]) -> bool:
    """Also for a `functools.partial` of an async function, and for an object with an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call(function: Callable[..., Any], *args: Any, name: str) -> Any:
    """What the function gives, awaited where it gives something to await. `name` is that of its thread."""
    work = functools.partial(function, *args)
    got = work() if is_async(function) else await in_thread(work, name)
    return await got if inspect.isawaitable(got) else got


async def in_thread(work: Callable[[], Any], name: str) -> Any:
    """Like `asyncio.to_thread`, with a thread that nobody waits for.

    A function that does not return holds neither the end of its run nor that of the program; an executor's thread would
    hold both. Nothing can end the thread itself: it is gone when the function returns.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():
            return  # nobody waits any more
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = context.run(work)
        except Exception as error:  # noqa: BLE001  # the program's own code; whoever awaits it is told
            failure = RuntimeError(f"it raised {error!r}") if isinstance(error, StopIteration) else error
        except BaseException as error:  # noqa: BLE001  # an exit in a thread must not look like one of the loop
            failure = RuntimeError(f"it raised {error!r}")
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run has ended long ago
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=f"leadrope {name}", daemon=True).start()
    return await done
