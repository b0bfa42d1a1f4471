"""What a run came to: a value the store, the terminal and the page share."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from leadrope import errors
from leadrope.core import typed
from leadrope.core.tools import ToolCall
from leadrope.core.usage import CostLabel, CostSource, LlmUsage, Totals, Usage

V = TypeVar("V")

Rung = Literal["structured", "text", "coerced", "none"]
"""Where a structured answer was found: handed over by the agent, read from its text, repaired without loss; or not."""
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
    "session_lost",
]


class RunError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: ErrorKind
    message: str
    code: str | None = None
    """A stable word for scripts: TIMEOUT_ERROR, APPROVAL_TIMEOUT, MALFORMED_RESULT."""
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


SCHEMA_NOT_SATISFIED = "claude_code.schema_not_satisfied"
SCHEMA_NOT_SATISFIED_AFTER_RETRIES = "claude_code.schema_not_satisfied_after_retries"
ERROR_NO_OUTPUT = "claude_code.sdk_error_no_structured_output"
ERROR_WITH_OUTPUT = "claude_code.sdk_error_with_structured_output"
SCHEMA_RESOLVED_TO_NULL = "claude_code.output_schema_resolved_to_null"
"""Kinds of warnings about structured output. The last one belongs to steps whose schema comes from a template: the
template gave null, so the step ran without a schema."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run_id: str
    outcome: Outcome
    text: str = ""
    output: Any = None
    """The structured output, when a schema was asked for and satisfied."""
    output_rung: Rung | None = None
    """Where that output was found; None when no schema was asked for."""
    corrections: int = 0
    """Corrective turns that were spent on the last answer."""
    schema_error: str | None = None
    """Why there is no output, or what is wrong beside it; the text is kept either way."""
    error: RunError | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0
    """An estimate at list prices; what is billed depends on the account."""
    llm_usage: LlmUsage | None = None
    """The attempt that gave the answer, with those that it replaced beside it."""
    totals: Totals | None = None
    """All attempts together, by model and by agent."""
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

    def output_as(self, kind: type[V]) -> V:
        """The structured output as a value of that type; raises `RunFailed` where there is none that fits.

        invoice = result.output_as(Invoice)
        """
        if self.output_rung in (None, "none") and self.output is None:
            raise errors.RunFailed(self, f"the run has no structured output: {self.schema_error or self.outcome}")
        try:
            return typed.as_type(self.output, kind)
        except ValueError as error:
            raise errors.RunFailed(self, f"the structured output is no {typed.name_of(kind)}: {error}") from None

    @property
    def ok(self) -> bool:
        return self.outcome in ("succeeded", "degraded")

    @property
    def cost_label(self) -> CostLabel:
        """What `cost_usd` is to be called, wherever it is shown."""
        return "estimate" if self.totals is None else self.totals.cost_label

    @property
    def cost_source(self) -> CostSource:
        return "computed" if self.totals is None else self.totals.cost_source

    @property
    def cost_note(self) -> str:
        """For behind the sum: its label, and that it is our own reckoning where the agent's is missing."""
        is_ours = self.totals is not None and self.totals.cost_source == "computed"
        return f"{self.cost_label}, computed" if is_ours else self.cost_label

    def raise_for_outcome(self) -> RunResult:
        """Return the result, or raise `RunFailed` with it if the run did not succeed.

        text = leadrope.run_sync(prompt="…").raise_for_outcome().text
        """
        if not self.ok:
            raise errors.RunFailed(self)
        return self


class TypedResult(RunResult, Generic[V], frozen=True, kw_only=True, omit_defaults=True):
    """The result of a run that was asked for a type.

    invoice = leadrope.run_sync(prompt="…", output_type=Invoice).value
    """

    output: V | None = None

    @property
    def value(self) -> V:
        """The output; raises `RunFailed` where the run gave none."""
        if self.output is None and self.output_rung in (None, "none"):
            raise errors.RunFailed(self, f"the run has no structured output: {self.schema_error or self.outcome}")
        return self.output  # type: ignore[return-value]  # None only where the type itself allows it


def with_type(result: RunResult, kind: type[V]) -> TypedResult[V]:
    """The same result with its output as a value of that type; degraded where the type itself refuses it."""
    fields: dict[str, Any] = {name: getattr(result, name) for name in RunResult.__struct_fields__}
    if result.output_rung not in (None, "none"):
        try:
            fields["output"] = typed.as_type(result.output, kind)
        except ValueError as error:
            # Its schema was satisfied: the type checks more than a schema can say.
            told = f"the answer fits its schema and is no {typed.name_of(kind)}: {error}"
            fields |= {
                "outcome": "degraded" if result.outcome == "succeeded" else result.outcome,
                "output": None,
                "output_rung": "none",
                "schema_error": told,
                "warnings": (*result.warnings, Warning_(kind=SCHEMA_NOT_SATISFIED, message=told)),
            }
    return TypedResult(**fields)
