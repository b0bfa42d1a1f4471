"""A run's own limits, and the caps of its policy."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from leadrope.core.request import Limits
from leadrope.policy.resolve import EffectivePolicy

RULE_OF = {
    "idle_s": "max_timeout_ms",
    "wall_s": "max_wall_ms",
    "approval_s": "max_approval_ms",
    "memory_mb": "max_memory_mb",
    "budget_usd": "max_budget_usd",
}
"""The limits that a policy caps, with the rule for each."""
_WORDS = {
    "idle_s": ("an idle timeout of", "no idle timeout", "s"),
    "wall_s": ("a wall clock of", "no wall clock", "s"),
    "approval_s": ("an approval timeout of", "no approval timeout", "s"),
    "memory_mb": ("a memory limit of", "no memory limit", "MiB"),
    "budget_usd": ("a budget of", "no budget", "USD"),
}
_UNIT = {"idle_s": 1000, "wall_s": 1000, "approval_s": 1000}


def asked(limits: Limits) -> dict[str, float | None]:
    """Returns the requested limits; None means explicitly no limit. Limits that were not requested are missing."""
    found = {name: getattr(limits, name) for name in RULE_OF}
    return {name: None if value in (0, "none") else float(value) for name, value in found.items() if value is not None}


def lifted(limits: Limits) -> frozenset[str]:
    """Returns the rules whose shipped value is only a default here, because the caller has requested a value."""
    return frozenset(RULE_OF[name] for name in asked(limits))


def capped(limits: Limits, rules: EffectivePolicy) -> Limits:
    """Returns the run's timeouts, memory and budget, limited to what the policy allows.

    A timeout that is off (0) or not set (None) is unlimited, so a cap applies.
    """
    caps = {name: _cap(name, rules) for name in RULE_OF}
    wanted = asked(limits)
    least = {name: min(wanted.get(name) or cap, cap) for name, cap in caps.items() if cap is not None}
    return msgspec.structs.replace(limits, **least)


def lowered(limits: Limits, rules: EffectivePolicy) -> Iterator[str]:
    """Describes each cap that lowers a requested limit: `the policy (project) allows 120 s`."""
    for name, value in asked(limits).items():
        cap = _cap(name, rules)
        if cap is not None and (value is None or value > cap):
            some, none, unit = _WORDS[name]
            wanted = none if value is None else f"{some} {value:g} {unit}"
            yield f"{wanted} was asked for; the policy ({rules.layer_of(RULE_OF[name])}) allows {cap:g} {unit}"


def _cap(name: str, rules: EffectivePolicy) -> float | None:
    cap = getattr(rules, RULE_OF[name])
    return None if cap is None else cap / _UNIT.get(name, 1)
