"""What is told again and again, told now and then: always the newest of it. Knows no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pace:
    """`put` as often as you like; what was put last is told when its time has come, unless it is dropped before."""

    def __init__(self, first_s: float, every_s: float) -> None:
        """`first_s`: what is over sooner is not told at all."""
        self._first_s = first_s
        self._every_s = every_s
        self._tells: dict[str, Callable[[], None]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last: dict[str, float] = {}

    def put(self, name: str, tell: Callable[[], None]) -> None:
        self._tells[name] = tell
        if name not in self._timers:
            loop = asyncio.get_running_loop()
            now = loop.time()
            due = self._last[name] + self._every_s if name in self._last else now + self._first_s
            self._timers[name] = loop.call_at(max(due, now), self._tell, name)

    def _tell(self, name: str) -> None:
        del self._timers[name]
        self._last[name] = asyncio.get_running_loop().time()
        self._tells.pop(name)()

    def drop(self, name: str) -> None:
        """It is over, and its end is told by itself."""
        self._last.pop(name, None)
        self._tells.pop(name, None)
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def close(self) -> None:
        for name in list(self._timers):
            self.drop(name)
