"""Shares one answer among all units that ask exactly the same: a batch asks once.

The code of a step is the author's and the same for each item; five hundred items would ask the same question five
hundred times.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable

from leadrope.runtime.gate.approvers import Answer

Ask = Callable[[], Awaitable[Answer]]


class SharedAnswers:
    """Lives as long as the outermost workflow in this process."""

    def __init__(self) -> None:
        self._known: dict[str, Answer] = {}
        self._locks: dict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)

    async def ask(self, question: str, earlier: Callable[[], Awaitable[Answer | None]], ask: Ask) -> Answer:
        """The one answer to `question`; whoever comes second waits for it.

        `earlier` returns an answer from before this process started, and raises Parked while one is pending.
        """
        async with self._locks[question]:
            if question not in self._known:
                self._known[question] = await earlier() or await ask()
            return self._known[question]
