"""Maps the result of a unit to what the journal stores, and from there to what the plan needs. Pure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from leadrope import errors
from leadrope.runs.executions.values import STEP_TOTAL, ExecutionTexts, Remark, UnitOutcome, UnitProblem, UnitStatus
from leadrope.workflows import model
from leadrope.workflows.engine.ledger import FROM_CACHE
from leadrope.workflows.engine.plan import Outcome
from leadrope.workflows.engine.step_attempt import StepFailure, UnitResult
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.report import ExecutionResult
from leadrope.workflows.steps.base import Caution, Parked, StepDone, StepFailed


def recordable(key: Key, tried: UnitResult, began: float) -> UnitOutcome:
    done, failed = tried.done, tried.failed
    warnings = done.warnings if done is not None else ()
    outputs: dict[str, Any] = done.outputs if done is not None else failed.outputs if failed is not None else {}
    status: UnitStatus = "failed" if failed is not None else "degraded" if warnings else "succeeded"
    remarks = [Remark(kind=warning.kind, message=warning.message) for warning in warnings]
    if done is not None and done.is_cached:
        remarks.append(FROM_CACHE)
    return UnitOutcome(
        step=key.step,
        iteration=key.iteration,
        item=key.item,
        status=status,
        branch=done.branch if done is not None else None,
        outputs=outputs,
        warnings=tuple(remarks),
        error=UnitProblem(kind=failed.kind, message=failed.message, hint=failed.hint, code=failed.code)
        if failed
        else None,
        cost_usd=tried.cost_usd,
        tokens=tried.tokens,
        run_id=tried.run_id,
        attempts=tried.attempts,
        started=began,
        ended=time.time(),
    )


def failure(key: Key, error: errors.LeadropeError, began: float) -> UnitOutcome:
    """Return the outcome for an error raised before a unit began: in a condition, or in the items of a batch."""
    failed = StepFailure(kind=error.kind, message=f"{key.step}: {error.message}", hint=error.hint)
    return recordable(key, UnitResult(failed=failed), began)


def wholes(workflow: model.Workflow, units: Iterable[UnitOutcome]) -> dict[str, UnitOutcome]:
    """Return the finished steps, each with its overall outcome, in the order of the file."""
    by_key = {(one.step, one.iteration, one.item): one for one in units}
    found: dict[str, UnitOutcome] = {}
    for step in workflow.steps:
        only = by_key.get((step.id, 0, None))
        if step.batch is not None or step.loop is not None:
            # Counts only if its `when` was false; otherwise the first turn is not the end of the step.
            only = by_key.get(
                (step.id, STEP_TOTAL, None), only if only is not None and only.status == "skipped" else None
            )
        if only is not None:
            found[step.id] = only
    return found


def lost_secret(key: Key, source: str) -> UnitResult:
    return UnitResult(
        failed=StepFailure(
            kind="redacted_value",
            message=f"{key.step} uses {source}, whose outputs held a secret, and secrets are not kept",
            hint=f"Run it with `--from {source}`.",
        )
    )


def for_plan(whole: UnitOutcome) -> Outcome:
    return Outcome(status=whole.status, branch=whole.branch)


def kept_result(key: Key, name: str, texts: ExecutionTexts) -> ExecutionResult:
    """Return the stored result of a nested workflow that had ended when the outer one was cut off."""
    if "result" in texts.redacted:
        raise StepFailed(
            f"{key.step}: {name} had ended, and its result held a secret, which is not kept",
            kind="redacted_value",
            hint=f"Run it with `--from {key.step}`.",
        )
    return msgspec.convert(texts.result, ExecutionResult)


def as_done(key: Key, name: str, result: ExecutionResult) -> StepDone:
    """Convert the result of a nested workflow into the result of the step that called it."""
    if result.outcome == "waiting":
        raise Parked(result.approvals[0].id if result.approvals else "")
    if result.outcome == "stopped":
        raise asyncio.CancelledError(result.reason)
    if result.outcome == "failed":
        first = next(iter(result.failures), None)
        why = first.error.message if first is not None and first.error is not None else "a step failed"
        raise StepFailed(
            f"{key.step}: the workflow {name} failed: {why}",
            kind=_kind_of(result),
            hint=f"See `leadrope flow report {result.execution_id[:8]}`.",
            outputs=result.outputs,
            cost_usd=result.cost_usd,
            tokens=result.tokens,
            code=result.code,
        )
    told = [warning for warnings in result.warnings.values() for warning in warnings]
    told += [
        Caution(kind="output.missing", message=f"the output {output!r} of {name} has no value: {why}")
        for output, why in result.missing_reasons.items()
    ]
    warnings = tuple(told) or (Caution(kind="workflow.degraded", message=f"the workflow {name} is degraded"),)
    return StepDone(
        outputs=result.outputs,
        warnings=warnings if result.outcome == "degraded" else (),
        cost_usd=result.cost_usd,
        tokens=result.tokens,
    )


def group_done(key: Key, result: ExecutionResult, values: Mapping[str, Any]) -> StepDone:
    """Convert the result of a group's steps into the group's own. `values` are the outputs of each step by name."""
    if result.outcome == "waiting":
        raise Parked(result.approvals[0].id if result.approvals else "")
    if result.outcome == "stopped":
        raise asyncio.CancelledError(result.reason)
    if result.outcome == "failed":
        failed = [step for step in result.failures if step.error is not None]
        kinds = {step.error.kind for step in failed if step.error is not None}
        first = failed[0] if failed else None
        why = f"{first.id}: {first.error.message}" if first is not None and first.error is not None else "a step failed"
        raise StepFailed(
            f"{key.step}: {why}",
            kind=kinds.pop() if len(kinds) == 1 else "group_failed",
            hint=first.error.hint if first is not None and first.error is not None else None,
            outputs=values,
            cost_usd=result.cost_usd,
            tokens=result.tokens,
            code=result.code,
        )
    told = [
        Caution(kind=warning.kind, message=f"{step}: {warning.message}")
        for step, warnings in result.warnings.items()
        for warning in warnings
    ]
    handled = [
        Caution(kind="group.handled", message=f"{step.id} failed, and its on-error took over: {step.error.message}")
        for step in result.steps
        if step.is_handled and step.error is not None
    ]
    return StepDone(
        outputs=dict(values),
        warnings=tuple(dict.fromkeys((*told, *handled))) if result.outcome == "degraded" else (),
        cost_usd=result.cost_usd,
        tokens=result.tokens,
    )


def _kind_of(result: ExecutionResult) -> str:
    """Return the error kind. Kinds with an exit code of their own keep it at any depth, for example a denial."""
    kinds = {step.error.kind for step in result.failures if step.error is not None}
    return kinds.pop() if len(kinds) == 1 and kinds <= {"denied", "over_budget", "timed_out"} else "workflow_failed"
