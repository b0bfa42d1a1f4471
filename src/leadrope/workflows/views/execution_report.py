"""The report of one execution, step by step, from its journal; also for running, waiting and interrupted ones. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from leadrope.core.cost.usage import Replaced
from leadrope.runs.executions.values import STEP_TOTAL, ExecutionInfo, UnitOutcome
from leadrope.workflows import model
from leadrope.workflows.engine import batch_results
from leadrope.workflows.engine.ledger import is_cached, report_of
from leadrope.workflows.engine.plan import Outcome, Plan, plan
from leadrope.workflows.links import links_of
from leadrope.workflows.report import ExecutionResult, PendingApproval, StepReport
from leadrope.workflows.steps.base import Caution


class ChildReport(msgspec.Struct, frozen=True, kw_only=True):
    """The called workflow, or the steps of a group, that a step has run."""

    step: str
    id: str
    outcome: str
    unit: str = ""
    """Which of several it is: `turn 2`, `item 5`, `turn 2, item 5`."""

    @property
    def name(self) -> str:
        return f"{self.step} ({self.unit})" if self.unit else self.step


def child_of(info: ExecutionInfo, outcome: str) -> ChildReport:
    step, _, unit = info.parent_key.partition("#")
    turn, _, item = unit.partition("[")
    words = [f"turn {int(turn) + 1}"] if turn.isdecimal() and turn != "0" else []
    words += [f"item {item.rstrip(']')}"] if item else []
    return ChildReport(step=step, id=info.id, outcome=outcome, unit=", ".join(words))


class StepAccount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`report` with additional data from the journal."""

    report: StepReport
    state: str
    """As in the report; `running` or `unfinished` if it has begun and has no outcome."""
    done_before: bool = False
    """Taken over from an earlier execution."""
    retries: int = 0
    """Attempts beyond the first, of all units together, and of the agents' runs in them."""
    corrections: int = 0
    """Additional turns in which an agent was asked to follow its schema."""
    cached: int = 0
    """Units whose outputs came from the cache."""
    outputs: dict[str, Any] = {}
    failed_units: tuple[UnitOutcome, ...] = ()
    word: str = ""
    """The name of its units, if it has several: items, turns."""


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    info: ExecutionInfo
    title: str
    steps: tuple[StepAccount, ...]
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    missing_outputs: tuple[str, ...] = ()
    missing_reasons: dict[str, str] = {}
    notices: tuple[Caution, ...] = ()
    """Reports of the sandbox, in addition to the warnings of steps."""
    approvals: tuple[PendingApproval, ...] = ()
    children: tuple[ChildReport, ...] = ()
    reason: str = ""

    @property
    def outcome(self) -> str:
        return self.info.outcome or self.info.state

    @property
    def took_s(self) -> float | None:
        return None if self.info.ended is None else max(0.0, self.info.ended - self.info.created)

    @property
    def failed(self) -> tuple[StepAccount, ...]:
        """The failed steps, except those whose error was handled."""
        return tuple(step for step in self.steps if step.state == "failed" and not step.report.is_handled)


def account(
    info: ExecutionInfo,
    workflow: model.Workflow,
    outcomes: Sequence[UnitOutcome],
    *,
    inputs: Mapping[str, Any] | None = None,
    approvals: Sequence[PendingApproval] = (),
    children: Sequence[ChildReport] = (),
    begun: Collection[str] = (),
    result: Any = None,
) -> Account:
    """Builds the report. `result` is the journal's final entry, None before the end; `begun` are the started steps."""
    ended = _result(result)
    by_step: dict[str, list[UnitOutcome]] = {step.id: [] for step in workflow.steps}
    for one in outcomes:
        by_step.setdefault(one.step, []).append(one)
    wholes = {name: whole for name, mine in by_step.items() if (whole := _whole(workflow, name, mine)) is not None}
    known = {name: Outcome(status=whole.status, branch=whole.branch) for name, whole in wholes.items()}
    links = links_of(workflow)
    expected = plan(links, {name: one for name, one in known.items() if name in links.into})
    kinds = {step.id: step for step in workflow.steps}
    waiting = {one.step for one in approvals if one.execution_id == info.id} | {
        child.step for child in children if child.outcome == "waiting"
    }
    said = {step.id: step.state for step in ended.steps} if ended is not None else {}
    steps = []
    for name, mine in by_step.items():
        if name in wholes:
            settled = _settled(kinds.get(name), name, wholes[name], mine, info)
            if name in expected.handled:
                settled = msgspec.structs.replace(
                    settled, report=msgspec.structs.replace(settled.report, is_handled=True)
                )
            steps.append(settled)
        else:
            state = said.get(name) or _unsettled(name, mine, expected, waiting, info)
            if state == "not_run" and name in begun:
                state = "unfinished"
            steps.append(_open(kinds[name], state, mine))
    steps = _with_results(workflow, steps, by_step, inputs or {})
    return Account(
        info=info,
        title=workflow.title or info.title or info.name,
        steps=tuple(steps),
        inputs=dict(inputs or {}),
        outputs=ended.outputs if ended is not None else {},
        missing_outputs=ended.missing_outputs if ended is not None else (),
        missing_reasons=ended.missing_reasons if ended is not None else {},
        notices=ended.notices if ended is not None else (),
        approvals=tuple(approvals),
        children=tuple(children),
        reason=ended.reason if ended is not None else "",
    )


def _with_results(
    workflow: model.Workflow,
    steps: Sequence[StepAccount],
    units: Mapping[str, Sequence[UnitOutcome]],
    inputs: Mapping[str, Any],
) -> list[StepAccount]:
    """Adds the results of batches, which the journal stores item by item."""
    found = {one.report.id: one for one in steps}
    scope: dict[str, Any] = {**inputs, **{name: one.outputs for name, one in found.items()}}
    kinds = {step.id: step for step in workflow.steps}
    for name in links_of(workflow).sorted:
        step, outputs = kinds[name], scope[name]
        if step.batch is None or "count" not in outputs or "results" in outputs:
            continue
        count = outputs["count"]
        items = batch_results.items_again(step, scope, count)
        mine = [one for one in units[name] if one.iteration != STEP_TOTAL]
        results = batch_results.results(count, mine, items=items, dialect=workflow.dialect)
        scope[name] = {**outputs, "results": results}
        found[name] = msgspec.structs.replace(found[name], outputs=scope[name])
    return list(found.values())


def _result(kept: Any) -> ExecutionResult | None:
    if kept is None:
        return None
    try:
        return msgspec.convert(kept, ExecutionResult)
    except msgspec.ValidationError:
        return None  # from another version; the journal's outcomes have the rest


def _whole(workflow: model.Workflow, name: str, mine: Sequence[UnitOutcome]) -> UnitOutcome | None:
    """Returns the outcome of the whole step, if there is one."""
    whole = next((one for one in mine if one.iteration == STEP_TOTAL), None)
    if whole is not None:
        return whole
    step = next((step for step in workflow.steps if step.id == name), None)
    repeats = step is not None and (step.batch is not None or step.loop is not None)
    return next((one for one in mine if not repeats or one.status == "skipped"), None)


def _settled(
    step: model.Step | None, name: str, whole: UnitOutcome, mine: Sequence[UnitOutcome], info: ExecutionInfo
) -> StepAccount:
    units = [one for one in mine if one.iteration != STEP_TOTAL] or [whole]
    outputs = dict(whole.outputs)
    return StepAccount(
        report=report_of(name, step.type if step is not None else "?", whole, units),
        state=whole.status,
        done_before=all(one.is_sum for one in units) if units != [whole] else whole.ended < info.created,
        retries=_retries(units),
        corrections=_replaced(units, "correction"),
        cached=sum(map(is_cached, units)),
        outputs=outputs,
        failed_units=tuple(one for one in _in_order(units) if one.status == "failed" and len(units) > 1),
        word=_word(step),
    )


def _open(step: model.Step, state: str, mine: Sequence[UnitOutcome]) -> StepAccount:
    """Reports a step without an outcome; if it repeats, its finished units still count."""
    report = StepReport(
        id=step.id,
        type=step.type,
        state="waiting" if state == "waiting" else "not_run",
        cost_usd=sum(one.cost_usd for one in mine),
        tokens=sum(one.tokens for one in mine),
        units=max(1, len(mine)),
        run_ids=tuple(one.run_id for one in mine if one.run_id is not None),
    )
    return StepAccount(
        report=report,
        state=state,
        retries=_retries(mine),
        corrections=_replaced(mine, "correction"),
        cached=sum(map(is_cached, mine)),
        failed_units=tuple(one for one in _in_order(mine) if one.status == "failed"),
        word=f"{_word(step)} so far" if mine else "",
    )


def _unsettled(name: str, mine: Sequence[UnitOutcome], expected: Plan, waiting: set[str], info: ExecutionInfo) -> str:
    if name in waiting:
        return "waiting"
    if name in expected.blocked:
        return "blocked"
    if name in expected.left_out:
        return "left_out"
    if info.state == "running" and name in expected.ready:
        return "running"
    return "unfinished" if mine else "not_run"


def _in_order(units: Sequence[UnitOutcome]) -> list[UnitOutcome]:
    return sorted(units, key=lambda one: (one.iteration, -1 if one.item is None else one.item))


def _retries(units: Sequence[UnitOutcome]) -> int:
    return sum(one.attempts - 1 for one in units) + _replaced(units, "restart")


def _replaced(units: Sequence[UnitOutcome], reason: Replaced) -> int:
    """Counts attempts of agents that were replaced for this reason; those from the cache were another execution's."""
    found = 0
    for one in units:
        usage = one.outputs.get("llm_usage")
        retries = usage.get("retries") if isinstance(usage, dict) and not is_cached(one) else None
        if isinstance(retries, list):
            found += sum(isinstance(entry, dict) and entry.get("reason") == reason for entry in retries)
    return found


def _word(step: model.Step | None) -> str:
    if step is None or (step.batch is None and step.loop is None):
        return ""
    return "items" if step.loop is None else "turns" if step.batch is None else "items in turns"
