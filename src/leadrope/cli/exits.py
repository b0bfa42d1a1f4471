"""Exit codes of the terminal program; what a script may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from leadrope.core import denials
from leadrope.core.result import Outcome, RunResult

OK = 0
FAILED = 1
USAGE = 2
DENIED = 3
INTERRUPTED = 130

BY_OUTCOME: Mapping[Outcome, int] = MappingProxyType(
    {
        "succeeded": OK,
        "degraded": OK,
        "failed": FAILED,
        "denied": DENIED,
        "over_budget": 5,
        "timed_out": 6,
        # sysexits' EX_TEMPFAIL: the same command may succeed later.
        "parked": 75,
        "stopped": INTERRUPTED,
    }
)


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """What a command expects of a run beyond an answer."""

    strict: bool = False
    """A degraded run fails, and so does any denied call."""
    fail_on_denied: bool = False
    schema: bool = False
    """An answer that does not satisfy its schema is a failure."""


def exit_code(result: RunResult, demands: Demands = Demands()) -> int:  # noqa: B008  # frozen
    """A run that went on after a denial and did something is a success, unless more is demanded of it."""
    code = BY_OUTCOME[result.outcome]
    if code != OK:
        return code
    if (demands.strict or demands.fail_on_denied) and denials.counted(result.denials):
        return DENIED
    if demands.schema and result.output_rung in (None, "none"):
        return FAILED
    return FAILED if demands.strict and result.outcome == "degraded" else OK


def explain(result: RunResult, demands: Demands) -> str | None:
    """Why the exit code is not the outcome's own; None where it is."""
    code = exit_code(result, demands)
    if code == BY_OUTCOME[result.outcome]:
        return None
    if code == DENIED:
        flag = "--fail-on-denied" if demands.fail_on_denied else "--strict"
        return f"{denials.describe(denials.counted(result.denials))}; with {flag} that is exit code {code}"
    if demands.schema and result.output_rung in (None, "none"):
        return f"the answer does not satisfy the schema: {result.schema_error or 'there is none'}; exit code {code}"
    return f"the run is degraded; with --strict that is exit code {code}"
