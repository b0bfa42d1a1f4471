"""A budget shared by many runs: the spending of each counts for all, and reaching it ends them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadrope.runtime.limits.budget import Meter
    from leadrope.runtime.limits.reservations import Reservations


class SharedBudget:
    """Tracks the meters of its runs and their requests in flight."""

    def __init__(self, cap_usd: float | None) -> None:
        self.cap_usd = cap_usd
        self.reason = ""
        """Why the budget is over; empty while it is not."""
        self._meters: list[Meter] = []
        self._queues: list[Reservations] = []

    @property
    def spent_usd(self) -> float:
        """Estimated cost of all runs together."""
        return sum(meter.spent_usd for meter in self._meters)

    @property
    def is_over(self) -> bool:
        """Whether the budget is reached. Stays true."""
        return bool(self.reason)

    def join(self, meter: Meter) -> None:
        """Add a run's meter."""
        self._meters.append(meter)

    def queue(self, queue: Reservations) -> None:
        """Add a run's request queue."""
        self._queues.append(queue)

    def check(self) -> None:
        """Check the total after a run has spent something."""
        # A rounding error in a sum of small numbers must not allow one more request.
        if self.cap_usd is None or self.is_over or self.spent_usd < self.cap_usd - 1e-9:
            return
        self.reason = (
            f"the budget of {self.cap_usd:g} USD for all runs is reached (about {self.spent_usd:.4g} USD spent)"
        )
        for meter in self._meters:
            meter.end(self.reason)

    def fits(self, usd: float) -> bool:
        """Return whether another request fits beside those in flight; a single one always does while budget is left."""
        held = [one for queue in self._queues for one in queue.held]
        if self.cap_usd is None or self.is_over or not held:
            return True
        return self.spent_usd + sum(one.left_usd for one in held) + usd <= self.cap_usd

    def wake(self) -> None:
        """Let the first waiting request of each run check again: something was spent, or is no longer in flight."""
        for queue in self._queues:
            queue.look_again()
