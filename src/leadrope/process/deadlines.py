"""Named deadlines as plain numbers; the current time is always passed in."""

from __future__ import annotations


class _Clock:
    __slots__ = ("due", "left", "limit")

    def __init__(self, limit: float, due: float) -> None:
        self.limit = limit
        self.due = due
        self.left = limit
        """What remains while the clock is paused; otherwise `due` counts."""


class Clocks:
    """A set of named clocks. Every `now` is a monotonic time in seconds.

    Pauses belong to the name, not to one start of its clock: each pause needs its own resume, even if the clock was
    stopped or restarted in between. A clock that is started while paused waits.
    """

    def __init__(self) -> None:
        self._clocks: dict[str, _Clock] = {}
        self._pauses: dict[str, int] = {}

    def start(self, name: str, limit_s: float, now: float) -> None:
        """Starts or restarts a clock. A limit of 0 turns it off."""
        if limit_s < 0:
            raise ValueError(f"clock {name}: a limit of {limit_s} s is in the past; use 0 to turn it off")
        if limit_s == 0:
            self.stop(name)
        else:
            self._clocks[name] = _Clock(limit_s, now + limit_s)

    def stop(self, name: str) -> None:
        self._clocks.pop(name, None)

    def touch(self, name: str, now: float) -> None:
        """Gives the clock its whole limit again; does nothing for a clock that is off."""
        clock = self._clocks.get(name)
        if clock is not None:
            clock.due = now + clock.limit
            clock.left = clock.limit

    def pause(self, name: str, now: float) -> None:
        count = self._pauses.get(name, 0)
        self._pauses[name] = count + 1
        clock = self._clocks.get(name)
        if clock is not None and count == 0:
            clock.left = clock.due - now

    def resume(self, name: str, now: float) -> None:
        count = self._pauses.get(name, 0)
        if count == 0:
            raise ValueError(f"clock {name} is resumed but was not paused")
        if count > 1:
            self._pauses[name] = count - 1
            return
        del self._pauses[name]
        clock = self._clocks.get(name)
        if clock is not None:
            clock.due = now + clock.left

    def next_due(self) -> float | None:
        """When the next clock runs out; None if no clock is running."""
        return min((clock.due for name, clock in self._clocks.items() if name not in self._pauses), default=None)

    def expired(self, now: float) -> tuple[str, ...]:
        """The clocks that have run out, earliest first; they stay expired until they are stopped or touched."""
        over = [(clock.due, name) for name, clock in self._clocks.items() if name not in self._pauses]
        return tuple(name for due, name in sorted(over) if due <= now)
