"""Exit codes of the terminal program; what a script may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from leadrope.core.result import Outcome, RunResult

OK = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130

BY_OUTCOME: Mapping[Outcome, int] = MappingProxyType(
    {
        "succeeded": OK,
        "degraded": OK,
        "failed": FAILED,
        "denied": 3,
        "over_budget": 5,
        "timed_out": 6,
        # sysexits' EX_TEMPFAIL: the same command may succeed later.
        "parked": 75,
        "stopped": INTERRUPTED,
    }
)


def exit_code(result: RunResult, *, strict: bool = False) -> int:
    """A run that went on after a denial and finished is a success; `strict` makes a degraded one a failure."""
    if strict and result.outcome == "degraded":
        return FAILED
    return BY_OUTCOME[result.outcome]
