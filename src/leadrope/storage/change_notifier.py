"""Who waits for something new in the store: rung by this process's own commits, looked for by the others'."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Self

LOOK_S = 0.1
"""Between two looks for what other processes have written; one look costs about 20 microseconds."""


class ChangeNotifier:
    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def ring(self) -> None:
        """From any thread."""
        with self._lock:
            for loop, event in self._waiting:
                if event.is_set():
                    continue  # it was rung for before, and whoever listens has yet to look
                # A loop may be closed at this moment, with its listeners still here: nobody waits there any more.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)

    def listen(self) -> Listener:
        return Listener(self)

    def add(self, entry: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with self._lock:
            self._waiting.add(entry)

    def remove(self, entry: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with self._lock:
            self._waiting.discard(entry)

    def version(self) -> int:
        return self._version()


class Listener:
    """`with bell.listen() as heard: look(); await heard.wait(5)`: what comes between the look and the wait is heard."""

    def __init__(self, notifier: ChangeNotifier) -> None:
        self._notifier = notifier
        self._event = asyncio.Event()
        self._entry = (asyncio.get_running_loop(), self._event)
        self._seen = -1

    def __enter__(self) -> Self:
        self._notifier.add(self._entry)
        self._seen = self._notifier.version()
        return self

    def __exit__(self, *_: object) -> None:
        self._notifier.remove(self._entry)

    async def wait(self, timeout_s: float) -> bool:
        """True when something was written since the last call; False when the time is over."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + timeout_s
        while not self._event.is_set():
            left = give_up - loop.time()
            if left <= 0:
                return False
            try:
                async with asyncio.timeout(min(LOOK_S, left)):
                    await self._event.wait()
            except TimeoutError:
                version = self._notifier.version()
                if version != self._seen:
                    self._seen = version
                    return True
        self._event.clear()
        self._seen = self._notifier.version()
        return True
