"""Exit codes that scripts rely on."""

from __future__ import annotations

from typing import get_args

import pytest

from leadrope.cli.exits import BY_OUTCOME, Demands, exit_code, explain
from leadrope.core.result import Denial, Outcome, RunResult
from leadrope.core.tools import ToolCall


@pytest.mark.parametrize(
    ("outcome", "code", "strict"),
    [
        ("succeeded", 0, 0),
        ("degraded", 0, 1),
        ("failed", 1, 1),
        ("denied", 3, 3),
        ("over_budget", 5, 5),
        ("timed_out", 6, 6),
        ("parked", 75, 75),
        ("stopped", 130, 130),
    ],
)
def test_each_outcome_has_its_exit_code(outcome: Outcome, code: int, strict: int) -> None:
    result = RunResult(run_id="r", outcome=outcome)
    assert exit_code(result) == code
    assert exit_code(result, Demands(strict=True)) == strict


def test_no_outcome_is_forgotten() -> None:
    assert set(BY_OUTCOME) == set(get_args(Outcome))


def denied(name: str) -> tuple[Denial, ...]:
    return (Denial(call=ToolCall(id="t", name=name), reason="no"),)


@pytest.mark.parametrize(
    ("result", "demands", "code"),
    [
        (RunResult(run_id="r", outcome="succeeded", denials=denied("Bash")), Demands(), 0),
        (RunResult(run_id="r", outcome="succeeded", denials=denied("Bash")), Demands(fail_on_denied=True), 3),
        (RunResult(run_id="r", outcome="succeeded", denials=denied("Bash")), Demands(strict=True), 3),
        (RunResult(run_id="r", outcome="degraded", denials=denied("Bash")), Demands(strict=True), 3),
        (RunResult(run_id="r", outcome="degraded", denials=denied("Bash")), Demands(), 0),
        (RunResult(run_id="r", outcome="failed", denials=denied("Bash")), Demands(strict=True), 1),
        (RunResult(run_id="r", outcome="succeeded", denials=denied("AskUserQuestion")), Demands(strict=True), 0),
        (RunResult(run_id="r", outcome="degraded", output_rung="none"), Demands(schema=True), 1),
        (RunResult(run_id="r", outcome="degraded"), Demands(schema=True), 1),
        (RunResult(run_id="r", outcome="succeeded", output_rung="text"), Demands(schema=True), 0),
        (RunResult(run_id="r", outcome="degraded", output_rung="text"), Demands(schema=True), 0),
    ],
)
def test_what_is_demanded_beyond_the_outcome(result: RunResult, demands: Demands, code: int) -> None:
    assert exit_code(result, demands) == code
    assert (explain(result, demands) is None) == (exit_code(result) == code)
