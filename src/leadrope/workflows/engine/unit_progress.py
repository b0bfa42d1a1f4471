"""The units of one step, keyed by (step, iteration, item): which are next and their combined outcome. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping

import msgspec

from leadrope.workflows.engine.plan import Outcome
from leadrope.workflows.model import Batch


class Key(msgspec.Struct, frozen=True, order=True):
    """Identifies one outcome in a journal. A step without loop has iteration 0, one without batch has no item."""

    step: str
    iteration: int = 0
    item: int | None = None

    def __str__(self) -> str:
        return f"{self.step}#{self.iteration}" + ("" if self.item is None else f"[{self.item}]")


class BatchProgress:
    """The state of a batch's items, updated incrementally.

        progress = BatchProgress("review", batch, 3)
        for key in progress.take(): …
        progress.settle(key, Outcome(status="succeeded"))

    Taking and settling an item takes constant time.
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
        """Return the items that start now, within the batch's concurrency, and mark them as running."""
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
        """Return the combined outcome of the items; None while some are running or waiting."""
        if self._running or (self._waiting and not self._is_over):
            return None
        failed = self._statuses["failed"]
        if failed and (self._is_over or failed == self._count):
            return Outcome(status="failed")
        return Outcome(status="degraded" if failed or self._statuses["degraded"] else "succeeded")
