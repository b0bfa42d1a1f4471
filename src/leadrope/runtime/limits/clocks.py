"""The clocks of one run on one timer: start, idle, tool, wall, exit. Says which has run out; ends nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leadrope import spelling
from leadrope.core.request import Limits
from leadrope.process.deadlines import Clocks


class RunClocks:
    def __init__(self, limits: Limits, on_expired: Callable[[str], None]) -> None:
        """`on_expired` gets `start`, `idle`, `wall`, `exit`, `unreachable`, or `tool CALL`."""
        self._limits = limits
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._clocks = Clocks()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.tools: set[str] = set()
        """Calls that were allowed and have no result yet."""
        self._paused: tuple[str, ...] = ()

    def start(self, started_at: float) -> None:
        """The wall clock covers the run, not the attempt: what earlier attempts took is gone."""
        self._clocks.start("start", self._limits.start_s, self._loop.time())
        self._clocks.start("wall", self._limits.wall_s or 0, started_at)
        self._arm()

    def stop(self) -> None:
        """For good: the run is ending, and no clock has a say any more."""
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    def heard(self) -> None:
        """The first sign of life."""
        self._clocks.stop("start")
        self.work_begins()

    def work_begins(self) -> None:
        self._clocks.stop("exit")
        self._clocks.start("idle", self._limits.idle_s or 0, self._loop.time())
        self._arm()

    def work_goes_on(self) -> None:
        self._clocks.stop("exit")

    def work_ends(self) -> None:
        """The agent waits for us: its silence means nothing."""
        self._clocks.stop("idle")

    def leaving(self) -> None:
        """All is said; from here on the process has the exit clock's time to go."""
        self._clocks.start("exit", self._limits.exit_s, self._loop.time())
        self._arm()

    def unreachable(self, limit_s: float) -> None:
        """From here on the agent may try this long to reach its model; 0: for as long as it likes."""
        self._clocks.start("unreachable", limit_s, self._loop.time())
        self._arm()

    def reachable(self) -> None:
        self._clocks.stop("unreachable")

    def touch(self) -> None:
        self._clocks.touch("idle", self._loop.time())

    def hold(self, *, wall: bool = False) -> None:
        """Idle time does not count: a person is asked, a tool runs, or the consumer is slow. `wall`: nor does any."""
        self._clocks.pause("idle", self._loop.time())
        if wall:
            self._clocks.pause("wall", self._loop.time())

    def release(self, *, wall: bool = False) -> None:
        """The end of a `hold`, which had the same `wall`."""
        self._clocks.resume("idle", self._loop.time())
        if wall:
            self._clocks.resume("wall", self._loop.time())
        self._arm()

    def pause(self) -> None:
        """A person has paused the run: neither its silence nor its length counts, nor what a tool takes meanwhile."""
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
        """The timer is not moved when a clock is touched: it fires, looks, and is set again."""
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
    """What has happened, in words, when one of the clocks that end a run has run out."""
    limit = getattr(limits, f"{name}_s")
    return {
        "start": f"the agent gave no sign of life in {limit:g} s",
        "idle": f"the agent was silent for {limit:g} s",
        "wall": f"the run took longer than {limit:g} s",
    }[name]


def how_to_raise(name: str) -> str:
    """Where the limit of such a clock is set."""
    return f"{spelling.option(f'limits.{name}_s')}, or {name}_s in [run.limits]; 0 switches it off"
