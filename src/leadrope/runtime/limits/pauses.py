"""Time limits for answers, which stop while the run is paused. Ends nothing itself."""

from __future__ import annotations

import asyncio

LOOK_S = 0.2
"""Polling interval for a stopped clock with almost no time left."""


class Pauses:
    """The total time a run was paused, on the loop's own clock."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._since: float | None = None

    def begin(self) -> None:
        if self._since is None:
            self._since = asyncio.get_running_loop().time()

    def end(self) -> None:
        self._before_s, self._since = self.spent_s, None

    @property
    def is_on(self) -> bool:
        return self._since is not None

    @property
    def spent_s(self) -> float:
        now = asyncio.get_running_loop().time()
        return self._before_s + (now - self._since if self._since is not None else 0.0)

    def clock(self, limit_s: float | None) -> AnswerClock:
        """Return a clock that starts now; with None it never expires."""
        return AnswerClock(self, limit_s)


class AnswerClock:
    def __init__(self, pauses: Pauses, limit_s: float | None) -> None:
        self._pauses = pauses
        self._limit_s = limit_s
        self._began = asyncio.get_running_loop().time() - pauses.spent_s

    @property
    def left_s(self) -> float:
        if self._limit_s is None:
            return float("inf")
        return self._limit_s - (asyncio.get_running_loop().time() - self._pauses.spent_s - self._began)

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0 and not self._pauses.is_on

    @property
    def look_s(self) -> float | None:
        """Return how long to wait before checking again; None if the clock never expires."""
        if self._limit_s is None:
            return None
        return max(self.left_s, LOOK_S if self._pauses.is_on else 0.0)
