"""Running totals of an execution, per step: time, money, tokens, attempts, warnings. Makes no decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from leadrope.runs.executions.values import Remark, UnitOutcome
from leadrope.workflows import model
from leadrope.workflows.report import StepError, StepReport
from leadrope.workflows.steps.base import Caution

FROM_CACHE = Remark(kind="cache.hit", message="taken from the cache")
"""Stored with an outcome for information; it is not a warning."""


class Ledger:
    def __init__(self, carried: Iterable[str] = ()) -> None:
        """`carried` are steps that another execution has paid for."""
        self._carried = frozenset(carried)
        self._reports: dict[str, StepReport] = {}
        self._told: set[tuple[str, int, int | None]] = set()
        self.cost_usd = 0.0
        self.tokens = 0

    def spent(self, outcome: UnitOutcome) -> None:
        """Count a unit once; the overall outcome of a step has no cost of its own."""
        name = (outcome.step, outcome.iteration, outcome.item)
        if name not in self._told and outcome.step not in self._carried:
            self._told.add(name)
            self.cost_usd += outcome.cost_usd
            self.tokens += outcome.tokens

    def settled(self, step: model.Step, whole: UnitOutcome, units: Sequence[UnitOutcome]) -> StepReport:
        for one in units:
            self.spent(one)
        report = report_of(step.id, step.type, whole, units)
        self._reports[step.id] = report
        return report

    def report(self, step: str) -> StepReport | None:
        return self._reports.get(step)

    def state(self, step: str) -> str:
        report = self._reports.get(step)
        return report.state if report is not None else "not_run"


def report_of(name: str, kind: str, whole: UnitOutcome, units: Sequence[UnitOutcome]) -> StepReport:
    told = [warning for one in (whole, *units) for warning in one.warnings if warning.kind != FROM_CACHE.kind]
    return StepReport(
        id=name,
        type=kind,
        state=whole.status,
        duration_s=round(max(0.0, whole.ended - whole.started), 3),
        cost_usd=sum(one.cost_usd for one in units),
        tokens=sum(one.tokens for one in units),
        attempts=max((one.attempts for one in units), default=1),
        units=max(1, len(units)),
        warnings=tuple(dict.fromkeys(Caution(kind=one.kind, message=one.message) for one in told)),
        error=msgspec.convert(whole.error, StepError, from_attributes=True) if whole.error is not None else None,
        is_cached=bool(units) and all(map(is_cached, units)),
        run_ids=tuple(one.run_id for one in units if one.run_id is not None),
    )


def is_cached(one: UnitOutcome) -> bool:
    return any(remark.kind == FROM_CACHE.kind for remark in one.warnings)
