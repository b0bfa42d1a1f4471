"""What a run came to: a value the store, the terminal and the page share."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from leadrope import errors
from leadrope.core.cost.usage import CostLabel, CostSource, LlmUsage, Totals, Usage
from leadrope.core.output import output_types
from leadrope.core.request_parts.field_docs import documented
from leadrope.core.tools import ToolCall

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


@documented
class RunError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run did not succeed."""

    kind: ErrorKind
    """A stable word for programs."""
    message: str
    """What happened, in a sentence."""
    code: str | None = None
    """A stable word for scripts: TIMEOUT_ERROR, APPROVAL_TIMEOUT, MALFORMED_RESULT, SERVER_FAILED."""
    clock: str | None = None
    """Which clock ran out: start, idle, tool, wall, exit, approval, unreachable."""
    api_status: int | None = None
    """The HTTP status of the model's service, if that was it."""
    exit_code: int | None = None
    """The agent's exit code."""
    stderr_tail: tuple[str, ...] = ()
    """The last lines of the agent's error output, or of the server of `connection`."""
    connection: str | None = None
    """The connection (MCP server) that could not be made when the run started."""
    hint: str | None = None
    """What to do about it."""


class Warning_(msgspec.Struct, frozen=True, kw_only=True):  # noqa: N801  # `Warning` is Python's own
    """Something that did not end the run."""

    kind: str
    message: str


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that was not allowed."""

    call: ToolCall
    reason: str


SERVER_FAILED = "SERVER_FAILED"
"""The code of an error: the program of a connection has ended, or does not speak the protocol."""
SCHEMA_NOT_SATISFIED = "claude_code.schema_not_satisfied"
SCHEMA_NOT_SATISFIED_AFTER_RETRIES = "claude_code.schema_not_satisfied_after_retries"
ERROR_NO_OUTPUT = "claude_code.sdk_error_no_structured_output"
ERROR_WITH_OUTPUT = "claude_code.sdk_error_with_structured_output"
SCHEMA_RESOLVED_TO_NULL = "claude_code.output_schema_resolved_to_null"
"""Kinds of warnings about structured output. The last one belongs to steps whose schema comes from a template: the
template gave null, so the step ran without a schema."""


@documented
class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended. A run that ends badly is such a value too; `raise_for_outcome()` makes an exception of it."""

    run_id: str
    """The id of the run, in events and in the run store."""
    outcome: Outcome
    """How it ended, in one word."""
    text: str = ""
    """What the agent said last: its answer."""
    output: Any = None
    """The structured output, when a schema was asked for and satisfied."""
    output_rung: Rung | None = None
    """Where that output was found; None when no schema was asked for."""
    corrections: int = 0
    """Corrective turns that were spent on the last answer."""
    schema_error: str | None = None
    """Why there is no output, or what is wrong beside it; the text is kept either way."""
    error: RunError | None = None
    """What went wrong, with a hint; None when nothing did."""
    usage: Usage = Usage()
    """Tokens of the whole run."""
    cost_usd: float = 0.0
    """An estimate at list prices; what is billed depends on the account."""
    llm_usage: LlmUsage | None = None
    """The attempt that gave the answer, with those that it replaced beside it."""
    totals: Totals | None = None
    """All attempts together, by model and by agent."""
    model: str = ""
    """The model that answered."""
    session_id: str | None = None
    """The session, to resume it; None when the agent never began one."""
    turns: int = 0
    """Model calls."""
    denials: tuple[Denial, ...] = ()
    """Tool calls that were not allowed, and why."""
    warnings: tuple[Warning_, ...] = ()
    """What was noticed on the way: something ignored, lowered, or failed without ending the run."""
    attempts: int = 1
    """Starts of the agent."""
    leftovers_killed: int = 0
    """Processes that the agent had left running, and that were ended with it."""
    duration_s: float = 0.0
    """From start to end, in seconds."""
    resets_at: float | None = None
    """When a parked run may continue, in seconds since the epoch."""

    def output_as(self, kind: type[V]) -> V:
        """The structured output as a value of that type; raises `RunFailed` where there is none that fits.

        invoice = result.output_as(Invoice)
        """
        if self.output_rung in (None, "none") and self.output is None:
            raise errors.RunFailed(self, self._no_output())
        try:
            return output_types.as_type(self.output, kind)
        except ValueError as error:
            raise errors.RunFailed(self, f"the structured output is no {output_types.name_of(kind)}: {error}") from None

    def _no_output(self) -> str:
        told = f"the run ended {self.outcome}: {self.error.message}" if self.error else self.outcome
        return f"the run has no structured output: {self.schema_error or told}"

    @property
    def ok(self) -> bool:
        """It succeeded, or it succeeded with something missing (`degraded`)."""
        return self.outcome in ("succeeded", "degraded")

    @property
    def cost_label(self) -> CostLabel:
        """What `cost_usd` is to be called, wherever it is shown."""
        return "estimate" if self.totals is None else self.totals.cost_label

    @property
    def cost_source(self) -> CostSource:
        """Whether the agent told the cost or leadrope computed it."""
        return "computed" if self.totals is None else self.totals.cost_source

    @property
    def cost_note(self) -> str:
        """For behind the sum: its label, and that it is our own reckoning where the agent's is missing."""
        is_ours = self.totals is not None and self.totals.cost_source == "computed"
        return f"{self.cost_label}, computed" if is_ours else self.cost_label

    def raise_for_outcome(self) -> RunResult:
        """Return the result, or raise `RunFailed` with it if the run did not succeed.

        text = leadrope.run_sync("…").raise_for_outcome().text
        """
        if not self.ok:
            raise errors.RunFailed(self)
        return self


class TypedResult(RunResult, Generic[V], frozen=True, kw_only=True, omit_defaults=True):
    """The result of a run that was asked for a type.

    invoice = leadrope.run_sync("…", output_type=Invoice).value
    """

    output: V | None = None

    @property
    def value(self) -> V:
        """The output; raises `RunFailed` where the run gave none."""
        if self.output is None and self.output_rung in (None, "none"):
            raise errors.RunFailed(self, self._no_output())
        return self.output  # type: ignore[return-value]  # None only where the type itself allows it


def with_type(result: RunResult, kind: type[V]) -> TypedResult[V]:
    """The same result with its output as a value of that type; degraded where the type itself refuses it."""
    fields: dict[str, Any] = {name: getattr(result, name) for name in RunResult.__struct_fields__}
    if result.output_rung not in (None, "none"):
        try:
            fields["output"] = output_types.as_type(result.output, kind)
        except ValueError as error:
            # Its schema was satisfied: the type checks more than a schema can say.
            told = f"the answer fits its schema and is no {output_types.name_of(kind)}: {error}"
            fields |= {
                "outcome": "degraded" if result.outcome == "succeeded" else result.outcome,
                "output": None,
                "output_rung": "none",
                "schema_error": told,
                "warnings": (*result.warnings, Warning_(kind=SCHEMA_NOT_SATISFIED, message=told)),
            }
    return TypedResult(**fields)


def not_started(error: errors.LeadropeError, *, run_id: str = "", attempts: int = 0) -> RunResult:
    """What kept a run from starting, as a result."""
    kind = error.kind if error.kind in get_args(ErrorKind) else "spawn_failed"
    problem = RunError(kind=kind, message=error.message, hint=error.hint)  # type: ignore[arg-type]  # looked up
    return RunResult(run_id=run_id, outcome="failed", error=problem, attempts=attempts)
