"""A run's own limits under its policy's caps. Knows the numbers only; the clocks and the meter are runtime's."""

from __future__ import annotations

import msgspec

from leadrope.core.request import Limits
from leadrope.policy.resolve import EffectivePolicy


def capped(limits: Limits, rules: EffectivePolicy) -> Limits:
    """The run's idle clock, wall clock, memory and budget, none of them above what the policy allows.

    A clock that is off (0) or left open (None) is as long as can be, so a cap sets it.
    """
    return msgspec.structs.replace(
        limits,
        idle_s=_least(limits.idle_s, rules.max_timeout_ms, 1000),
        wall_s=_least(limits.wall_s, rules.max_wall_ms, 1000),
        memory_mb=_least(limits.memory_mb, rules.max_memory_mb),
        budget_usd=min((b for b in (limits.budget_usd, rules.max_budget_usd) if b is not None), default=None),
    )


def _least(value: float | None, cap: int | None, unit: int = 1) -> float | None:
    if cap is None:
        return value
    return min(value, cap / unit) if value else cap / unit
