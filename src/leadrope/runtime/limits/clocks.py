"""All time limits of one run on one timer: start, idle, tool, wall, exit. Reports which one expired; ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leadrope import spelling
from leadrope.core.request import Limits
from leadrope.process.deadlines import Clocks


class RunClocks:
    def __init__(self, limits: Limits, on_expired: Callable[[str], None]) -> None:
        """`on_expired` receives `start`, `idle`, `wall`, `exit`, `unreachable`, or `tool CALL`."""
        self._limits = limits
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._clocks = Clocks()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.tools: set[str] = set()
        """Allowed calls without a result so far."""
        self._paused: tuple[str, ...] = ()

    def start(self, started_at: float) -> None:
        """Start the clocks. The wall clock covers the whole run, including the time of earlier attempts."""
        self._clocks.start("start", self._limits.start_s, self._loop.time())
        self._clocks.start("wall", self._limits.wall_s or 0, started_at)
        self._arm()

    def stop(self) -> None:
        """Stop all clocks for good: the run is ending."""
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    def heard(self) -> None:
        """Note the agent's first output."""
        self._clocks.stop("start")
        self.work_begins()

    def work_begins(self) -> None:
        self._clocks.stop("exit")
        self._clocks.start("idle", self._limits.idle_s or 0, self._loop.time())
        self._arm()

    def work_goes_on(self) -> None:
        self._clocks.stop("exit")

    def work_ends(self) -> None:
        """Stop the idle clock: the agent is waiting for us."""
        self._clocks.stop("idle")

    def leaving(self) -> None:
        """Start the exit clock: the agent is done, and its process has this long to exit."""
        self._clocks.start("exit", self._limits.exit_s, self._loop.time())
        self._arm()

    def unreachable(self, limit_s: float) -> None:
        """Limit how long the agent may try to reach its model; 0: without limit."""
        self._clocks.start("unreachable", limit_s, self._loop.time())
        self._arm()

    def reachable(self) -> None:
        self._clocks.stop("unreachable")

    def touch(self) -> None:
        self._clocks.touch("idle", self._loop.time())

    def hold(self, *, wall: bool = False) -> None:
        """Stop the idle clock: a person is asked, a tool runs or the consumer is slow. `wall`: the wall clock too."""
        self._clocks.pause("idle", self._loop.time())
        if wall:
            self._clocks.pause("wall", self._loop.time())

    def release(self, *, wall: bool = False) -> None:
        """End a `hold` that had the same `wall`."""
        self._clocks.resume("idle", self._loop.time())
        if wall:
            self._clocks.resume("wall", self._loop.time())
        self._arm()

    def pause(self) -> None:
        """Stop the idle, wall and tool clocks while a person has paused the run."""
        self._paused = ("start", "wall", "unreachable", *(f"tool {call_id}" for call_id in self.tools))
        for name in self._paused:
            self._clocks.pause(name, self._loop.time())
        self.hold()

    def unpause(self) -> None:
        for name in self._paused:
            self._clocks.resume(name, self._loop.time())
        self._paused = ()
        self.release()

    def tool_begins(self, call_id: str) -> None:
        if call_id not in self.tools:
            self.tools.add(call_id)
            self.hold()
            self._clocks.start(f"tool {call_id}", self._limits.tool_s, self._loop.time())
            self._arm()

    def tool_ends(self, call_id: str) -> None:
        if call_id in self.tools:
            self.tools.discard(call_id)
            self._clocks.stop(f"tool {call_id}")
            self.release()

    def all_tools_end(self) -> None:
        for call_id in list(self.tools):
            self.tool_ends(call_id)

    def _arm(self) -> None:
        """Set the timer. Touching a clock does not move it: when it fires, it checks all clocks and is set again."""
        due = self._clocks.next_due()
        if due is None or self._stopped:
            return
        if self._timer is not None:
            if self._loop.time() < self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        for name in self._clocks.expired(self._loop.time()):
            if self._stopped:
                return
            self._clocks.stop(name)
            self._on_expired(name)
        self._arm()


def why_expired(name: str, limits: Limits) -> str:
    """Explain what happened when a clock that ends a run has expired."""
    limit = getattr(limits, f"{name}_s")
    return {
        "start": f"the agent gave no sign of life in {limit:g} s",
        "idle": f"the agent was silent for {limit:g} s",
        "wall": f"the run took longer than {limit:g} s",
    }[name]


def how_to_raise(name: str) -> str:
    """Say where the limit of such a clock is set."""
    return f"{spelling.option(f'limits.{name}_s')}, or {name}_s in [run.limits]; 0 switches it off"
