"""What an ending means, in words: a turn's, a process's, and that of an answer which had to fit a schema. Pure."""

from __future__ import annotations

import msgspec

from leadrope.core import events
from leadrope.core.result import (
    ERROR_NO_OUTPUT,
    ERROR_WITH_OUTPUT,
    SCHEMA_NOT_SATISFIED,
    SCHEMA_NOT_SATISFIED_AFTER_RETRIES,
)

_ERRORS_TOLD = 5


def is_schema_miss(turn: events.TurnEnded) -> bool:
    """The agent gave up on the schema by itself, which is not a failure of the agent."""
    return turn.problem is not None and turn.problem.kind == SCHEMA_NOT_SATISFIED_AFTER_RETRIES


def is_local(turn: events.TurnEnded) -> bool:
    """A command of the agent program itself, `/compact` for instance: no model was asked, nothing was answered."""
    return turn.steps == 0 and not turn.text and not turn.is_error and turn.output is msgspec.UNSET


def by_signal(exit_code: int | None) -> bool:
    return exit_code is not None and (exit_code < 0 or exit_code in (130, 137, 143))


def how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "ended"
    if not by_signal(exit_code):
        return f"exited with code {exit_code}"
    number = -exit_code if exit_code < 0 else exit_code - 128
    note = ", perhaps for want of memory" if number == 9 else ""
    return f"was killed by signal {number}{note}"


def nothing_said(turn: events.TurnEnded) -> str:
    return (
        f"the agent ended its turn with {turn.reason} and said nothing "
        f"(steps: {turn.steps}, stop reason: {turn.stop_reason or 'none'}, "
        f"terminal reason: {turn.terminal_reason or 'none'}, output tokens: {turn.usage.output_tokens})"
    )


def schema_kind(checked: events.OutputChecked, turn: events.TurnEnded | None, error_beside: str) -> str:
    """The kind of the warning about an answer that is not what was asked for."""
    if checked.valid:
        return ERROR_WITH_OUTPUT
    if error_beside:
        return ERROR_NO_OUTPUT
    if checked.correction > 0 or (turn is not None and is_schema_miss(turn)):
        return SCHEMA_NOT_SATISFIED_AFTER_RETRIES
    return SCHEMA_NOT_SATISFIED


def schema_error(checked: events.OutputChecked, error_beside: str) -> str | None:
    if checked.valid:
        return f"the agent reported an error beside its output: {error_beside}" if error_beside else None
    told = "; ".join(checked.errors[:_ERRORS_TOLD]) or "the answer holds no structured output"
    return f"{told} (and the agent reported an error: {error_beside})" if error_beside else told
