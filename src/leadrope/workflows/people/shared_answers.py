"""Answers that count for every unit of an execution that asks exactly the same: a batch is asked about once.

The code of a step stands in the author's file and is the same for each item; five hundred items would be five hundred
times the same question.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable

from leadrope.runtime.gate.approvers import Answer

Ask = Callable[[], Awaitable[Answer]]


class SharedAnswers:
    """Lives as long as the outermost workflow does in this process."""

    def __init__(self) -> None:
        self._known: dict[str, Answer] = {}
        self._locks: dict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)

    async def ask(self, question: str, earlier: Callable[[], Awaitable[Answer | None]], ask: Ask) -> Answer:
        """The one answer to `question`; whoever comes second waits for it.

        `earlier` gives an answer that was given before this process began, and raises Parked while one is awaited.
        """
        async with self._locks[question]:
            if question not in self._known:
                self._known[question] = await earlier() or await ask()
            return self._known[question]
