"""A gate before every unit of an execution, closed while it is paused. Independent of steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

Stopped = Callable[[], contextlib.AbstractContextManager[None]]


class ExecutionGate:
    """Shared by an execution and those nested in it. While it is closed, the clocks of running units stop."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._holds = 0
        self._clocks: dict[object, tuple[Stopped, contextlib.ExitStack]] = {}

    @property
    def is_closed(self) -> bool:
        return not self._open.is_set()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        await self._open.wait()

    def pause(self) -> None:
        if not self.is_closed:
            self._open.clear()
            self._hold()

    def resume(self) -> None:
        if self.is_closed:
            self._open.set()
            self._release()

    @contextlib.contextmanager
    def clocks_stopped(self) -> Iterator[None]:
        """Stop the clocks without pausing: running work continues, and the time does not count."""
        self._hold()
        try:
            yield
        finally:
            self._release()

    @contextlib.contextmanager
    def clock(self, stopped: Stopped) -> Iterator[None]:
        """Register a running clock; `stopped` is entered while clocks are stopped."""
        name = object()
        with contextlib.ExitStack() as stack:
            self._clocks[name] = (stopped, stack)
            if self._holds:
                stack.enter_context(stopped())
            try:
                yield
            finally:
                del self._clocks[name]

    def _hold(self) -> None:
        self._holds += 1
        if self._holds == 1:
            for stopped, stack in self._clocks.values():
                stack.enter_context(stopped())

    def _release(self) -> None:
        self._holds -= 1
        if not self._holds:
            for _, stack in self._clocks.values():
                stack.close()
