"""One budget for many runs: what each of them spends counts for all, and reaching it ends them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadrope.runtime.limits.budget import Meter
    from leadrope.runtime.limits.reservations import Reservations


class SharedBudget:
    """Knows the meters of its runs, and the requests that they have in flight."""

    def __init__(self, cap_usd: float | None) -> None:
        self.cap_usd = cap_usd
        self.reason = ""
        """Why it is over; empty while it is not."""
        self._meters: list[Meter] = []
        self._queues: list[Reservations] = []

    @property
    def spent_usd(self) -> float:
        """Of all runs together, an estimate."""
        return sum(meter.spent_usd for meter in self._meters)

    @property
    def is_over(self) -> bool:
        """Stays true."""
        return bool(self.reason)

    def join(self, meter: Meter) -> None:
        """Another run spends from here."""
        self._meters.append(meter)

    def queue(self, queue: Reservations) -> None:
        """Requests of another run wait here, too."""
        self._queues.append(queue)

    def check(self) -> None:
        """A run has spent something."""
        # A rounding error of a sum of small numbers must not let one more request pass.
        if self.cap_usd is None or self.is_over or self.spent_usd < self.cap_usd - 1e-9:
            return
        self.reason = (
            f"the budget of {self.cap_usd:g} USD for all runs is reached (about {self.spent_usd:.4g} USD spent)"
        )
        for meter in self._meters:
            meter.end(self.reason)

    def fits(self, usd: float) -> bool:
        """Whether another request may go beside those in flight; one alone always may, while there is money left."""
        held = [one for queue in self._queues for one in queue.held]
        if self.cap_usd is None or self.is_over or not held:
            return True
        return self.spent_usd + sum(one.left_usd for one in held) + usd <= self.cap_usd

    def wake(self) -> None:
        """Something was spent, or is no longer in flight: the first in each line looks again."""
        for queue in self._queues:
            queue.look_again()
