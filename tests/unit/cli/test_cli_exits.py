"""Exit codes that scripts rely on."""

from __future__ import annotations

from typing import get_args

import pytest

from leadrope.cli.exits import BY_OUTCOME, exit_code
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
    assert exit_code(result, strict=True) == strict


def test_no_outcome_is_forgotten() -> None:
    assert set(BY_OUTCOME) == set(get_args(Outcome))


def test_a_run_that_went_on_after_a_denial_succeeded() -> None:
    denial = Denial(call=ToolCall(id="t", name="Bash"), reason="no")
    assert exit_code(RunResult(run_id="r", outcome="succeeded", denials=(denial,)), strict=True) == 0
