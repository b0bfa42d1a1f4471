"""The units of work inside one step, keyed by (step, iteration, item): which are next and what they come to. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping

import msgspec

from leadrope.workflows.engine.plan import Outcome
from leadrope.workflows.model import Batch

WHOLE = -1
"""In place of an iteration: what all units of a step with batch or loop came to together."""


class Key(msgspec.Struct, frozen=True, order=True):
    """Names one outcome in a journal. A step without loop is its iteration 0, one without batch has no item."""

    step: str
    iteration: int = 0
    item: int | None = None

    def __str__(self) -> str:
        return f"{self.step}#{self.iteration}" + ("" if self.item is None else f"[{self.item}]")


class BatchProgress:
    """The items of one batch, kept up to date: taking and settling an item costs the same however many there are.

    progress = BatchProgress("review", batch, 3)
    for key in progress.take(): …
    progress.settle(key, Outcome(status="succeeded"))
    """

    def __init__(
        self,
        step: str,
        batch: Batch,
        count: int,
        outcomes: Mapping[Key, Outcome] | None = None,
        running: Collection[Key] = (),
        *,
        iteration: int = 0,
    ) -> None:
        self._batch = batch
        self._count = count
        self._running = {key for key in running if key.step == step and key.iteration == iteration}
        self._statuses: Counter[str] = Counter()
        self._waiting: deque[Key] = deque()
        self._settled: set[Key] = set()
        for item in range(count):
            key = Key(step, iteration, item)
            if outcomes and key in outcomes:
                self._statuses[outcomes[key].status] += 1
                self._settled.add(key)
            elif key not in self._running:
                self._waiting.append(key)

    def take(self) -> tuple[Key, ...]:
        """The items that start now, never more at once than the batch allows; from now on they run."""
        if self._is_over:
            return ()
        room = min(self._batch.at_once - len(self._running), len(self._waiting))
        taken = tuple(self._waiting.popleft() for _ in range(room))
        self._running.update(taken)
        return taken

    def settle(self, key: Key, outcome: Outcome) -> None:
        if key in self._settled:
            raise ValueError(f"{key} has an outcome already")
        self._running.discard(key)
        self._settled.add(key)
        self._statuses[outcome.status] += 1

    @property
    def _is_over(self) -> bool:
        return self._batch.error_handling == "fail_fast" and self._statuses["failed"] > 0

    @property
    def outcome(self) -> Outcome | None:
        """What the items come to together; None while some run or wait."""
        if self._running or (self._waiting and not self._is_over):
            return None
        failed = self._statuses["failed"]
        if failed and (self._is_over or failed == self._count):
            return Outcome(status="failed")
        return Outcome(status="degraded" if failed or self._statuses["degraded"] else "succeeded")
