"""A run's own limits under its policy's caps. Knows the numbers only; the clocks and the meter are runtime's."""

from __future__ import annotations

import msgspec

from leadrope.core.request import Limits
from leadrope.policy.resolve import EffectivePolicy


def capped(limits: Limits, rules: EffectivePolicy) -> Limits:
    """The run's idle clock, wall clock and budget, none of them above what the policy allows.

    A clock that is off (0) or left open (None) is as long as can be, so a cap sets it.
    """
    return msgspec.structs.replace(
        limits,
        idle_s=_least(limits.idle_s, rules.max_timeout_ms),
        wall_s=_least(limits.wall_s, rules.max_wall_ms),
        budget_usd=min((b for b in (limits.budget_usd, rules.max_budget_usd) if b is not None), default=None),
    )


def _least(seconds: float | None, cap_ms: int | None) -> float | None:
    if cap_ms is None:
        return seconds
    return min(seconds, cap_ms / 1000) if seconds else cap_ms / 1000
