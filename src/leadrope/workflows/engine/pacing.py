"""Throttles repeated updates, always delivering the newest. Independent of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pace:
    """Rate limiter for updates: `put` any number of times; the last value is delivered when due, unless dropped."""

    def __init__(self, first_s: float, every_s: float) -> None:
        """`first_s`: nothing is delivered for what ends sooner."""
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
        """Discard the pending value: the work is over, and its end is reported separately."""
        self._last.pop(name, None)
        self._tells.pop(name, None)
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def close(self) -> None:
        for name in list(self._timers):
            self.drop(name)
