"""What a run came to: a value the store, the terminal and the page share."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from leadrope import errors
from leadrope.core.tools import ToolCall
from leadrope.core.usage import Usage

Outcome = Literal["succeeded", "degraded", "failed", "denied", "timed_out", "over_budget", "stopped", "parked"]

ErrorKind = Literal[
    "cli_not_found",
    "spawn_failed",
    "not_authenticated",
    "rate_limited",
    "overloaded",
    "api_error",
    "bad_request",
    "prompt_too_long",
    "empty_prompt",
    "empty_output",
    "malformed_output",
    "agent_died",
    "timed_out",
    "out_of_memory",
    "gate_unsupported",
    "gate_bypassed",
    "sandbox_unavailable",
    "connection_failed",
    "over_budget",
    "denied",
    "stopped",
    "usage_limit",
]


class RunError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: ErrorKind
    message: str
    code: str | None = None
    """A stable word for scripts: TIMEOUT_ERROR, APPROVAL_TIMEOUT."""
    clock: str | None = None
    """Which clock ran out: start, idle, tool, wall, exit, approval."""
    api_status: int | None = None
    exit_code: int | None = None
    stderr_tail: tuple[str, ...] = ()
    hint: str | None = None


class Warning_(msgspec.Struct, frozen=True, kw_only=True):  # noqa: N801  # `Warning` is Python's own
    kind: str
    message: str


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    call: ToolCall
    reason: str


class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run_id: str
    outcome: Outcome
    text: str = ""
    output: Any = None
    """The structured output, when a schema was asked for and satisfied."""
    error: RunError | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0
    """An estimate at list prices; what is billed depends on the account."""
    model: str = ""
    session_id: str | None = None
    turns: int = 0
    denials: tuple[Denial, ...] = ()
    warnings: tuple[Warning_, ...] = ()
    attempts: int = 1
    leftovers_killed: int = 0
    duration_s: float = 0.0
    resets_at: float | None = None
    """When a parked run may go on, in seconds since the epoch."""

    @property
    def ok(self) -> bool:
        return self.outcome in ("succeeded", "degraded")

    def raise_for_outcome(self) -> RunResult:
        """Return the result, or raise `RunFailed` with it if the run did not succeed.

        text = leadrope.run_sync(prompt="…").raise_for_outcome().text
        """
        if not self.ok:
            raise errors.RunFailed(self)
        return self
