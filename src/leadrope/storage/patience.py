"""Waiting for a store that is full, locked or away: whoever is patient tries its write again until it is taken.

Patience belongs to a task and to those that it starts: everything that an execution writes waits, and the rest of the
process does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from leadrope import errors

log = logging.getLogger("leadrope.runs")

AGAIN_S = 0.5
"""Between two tries."""
Hold = Callable[[], contextlib.AbstractContextManager[None]]

_current: ContextVar[Patience | None] = ContextVar("patience", default=None)


def current() -> Patience | None:
    return _current.get()


def is_of_the_store(error: BaseException) -> bool:
    """The store cannot be used as it is, or belongs to another owner now: nothing that a step has done or failed to."""
    kinds = (errors.StoreFull, errors.StoreBusy, errors.StoreUnreadable, errors.NotOwner)
    return isinstance(error, kinds) or type(error) is errors.StoreError


class Patience:
    def __init__(self, name: str, wait_s: float, given_up: asyncio.Event, hold: Hold = contextlib.nullcontext) -> None:
        """`hold` is entered while the store is waited for: clocks stand still."""
        self._name = name
        self._wait_s = wait_s
        self._given_up = given_up
        self._hold = hold
        self._since: float | None = None

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def holding(self) -> contextlib.AbstractContextManager[None]:
        return self._hold()

    async def is_worth_waiting(self, error: errors.StoreError) -> bool:
        """Waits a moment; False when nobody waits for the store any more."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
            how_long = "waits for it" if math.isinf(self._wait_s) else f"waits up to {self._wait_s:g} s for it"
            log.warning("%s. Execution %s %s.", error.message, self._name, how_long)
        if self._given_up.is_set() or now - self._since >= self._wait_s:
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._given_up.wait(), AGAIN_S)
        return True

    def over(self) -> None:
        """The store has taken a write."""
        self._since = None
