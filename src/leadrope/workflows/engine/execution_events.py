"""Builds the events of one execution; its log stores and shows them. Makes no decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from leadrope.core import execution_events as events
from leadrope.core.execution_events import ExecutionEvent
from leadrope.runs.executions.values import ExecutionInfo, UnitOutcome
from leadrope.workflows import model
from leadrope.workflows.engine.ledger import report_of
from leadrope.workflows.engine.pacing import Pace
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.report import ExecutionResult

FIRST_S = 0.3
"""A step that ends sooner reports no progress."""
EVERY_S = 0.5
COST_EVERY_S = 1.0
LONG_S = 1.0
"""A unit that took longer than this, in a step with many, gets an event of its own."""
COST = "cost"


class _Count:
    """Unit counts of a running step."""

    __slots__ = ("count", "done", "failed")

    def __init__(self, count: int | None, done: int) -> None:
        self.count = count
        self.done = done
        self.failed = 0


class Teller:
    def __init__(
        self,
        workflow: model.Workflow,
        info: ExecutionInfo,
        tell: Callable[..., None],
        cut: Callable[[str], str],
        live_usd: Callable[[str], float],
    ) -> None:
        """`cut` shortens a text without leaving half of a secret; `live_usd` returns what the running units of a step
        cost.
        """
        self._workflow = workflow
        self._info = info
        self._tell = tell
        self._cut = cut
        self._live_usd = live_usd
        self.execution = info.id if info.parent is not None else ""
        """The id as used in events: empty for the execution that owns the log."""
        self._pace = Pace(FIRST_S, EVERY_S)
        self._costs = Pace(COST_EVERY_S, COST_EVERY_S)
        self._counts: dict[str, _Count] = {}
        self._paid: dict[str, float] = {}
        """Per step, the cost of its finished units."""

    def close(self) -> None:
        self._pace.close()
        self._costs.close()

    # -- the execution -------------------------------------------------------------------------------------------------

    def is_resumed(self, told: Collection[tuple[str, str]]) -> bool:
        """`told` is what the log has already."""
        return (self.execution, "") in told and self._info.parent is None

    def started(self, told: Collection[tuple[str, str]], owner: str, done: int) -> None:
        """`done`: how many outcomes the journal of one that is resumed has."""
        if (self.execution, "") not in told:
            steps = tuple(events.StepName(id=step.id, kind=step.type) for step in self._workflow.steps)
            self._tell(
                events.ExecutionStarted(
                    execution=self.execution,
                    title=self._workflow.title or self._info.name,
                    name=self._info.name,
                    file=self._info.file,
                    steps=steps,
                    parent=self._info.parent,
                    parent_key=self._info.parent_key,
                )
            )
        elif self.is_resumed(told):
            self._tell(events.ExecutionResumed(owner=owner, done=done))

    def interrupted(self) -> ExecutionEvent:
        return events.ExecutionInterrupted(execution=self.execution, reason="its process ended")

    def ended(self, result: ExecutionResult) -> ExecutionEvent:
        if result.outcome == "waiting":
            ids = tuple(one.id for one in result.approvals)
            return events.ExecutionWaiting(execution=self.execution, approvals=ids)
        outputs = result.outputs if result.ok else {}
        size = len(msgspec.json.encode(outputs))
        return events.ExecutionEnded(
            execution=self.execution,
            outcome=result.outcome,
            reason=result.reason,
            outputs=outputs if size <= events.MOST_OUTPUTS else {},
            outputs_bytes=size if outputs else 0,
            missing_outputs=result.missing_outputs,
            cost_usd=result.cost_usd,
            tokens=result.tokens,
            duration_s=result.duration_s,
        )

    def cost(self, cost_usd: float, tokens: int) -> None:
        self._costs.put(COST, lambda: self._tell(events.CostUpdated(cost_usd=cost_usd, tokens=tokens)))

    # -- its steps ----------------------------------------------------------------------------------------------------

    def step_started(self, step: model.Step, count: int | None, done: int) -> None:
        self._counts[step.id] = _Count(count, done)
        self._tell(events.StepStarted(execution=self.execution, step=step.id, kind=step.type, count=count, done=done))

    def counted(self, outcome: UnitOutcome) -> None:
        """Count a finished unit of a step with many."""
        if (count := self._counts.get(outcome.step)) is not None:
            count.done += 1
            count.failed += outcome.status == "failed"
        self.acts(Key(outcome.step, outcome.iteration, outcome.item), "")

    def paid(self, step: str, cost_usd: float) -> None:
        self._paid[step] = self._paid.get(step, 0.0) + cost_usd

    def acts(self, key: Key, action: str) -> None:
        def tell() -> None:
            count = self._counts.get(key.step) or _Count(None, 0)
            self._tell(
                events.StepProgress(
                    execution=self.execution,
                    step=key.step,
                    iteration=key.iteration,
                    item=key.item,
                    action=self._cut(action),
                    count=count.count,
                    done=count.done,
                    failed=count.failed,
                    cost_usd=self._paid.get(key.step, 0.0) + self._live_usd(key.step),
                )
            )

        self._pace.put(key.step, tell)

    def retried(self, key: Key, attempt: int, wait_s: float, reason: str) -> None:
        self._tell(
            events.StepRetried(
                execution=self.execution,
                step=key.step,
                iteration=key.iteration,
                item=key.item,
                attempt=attempt,
                wait_s=wait_s,
                reason=self._cut(reason),
            )
        )

    def unit_ended(self, outcome: UnitOutcome, size: int) -> list[ExecutionEvent]:
        """Return the events of a finished unit; none for a plain success, since a batch may have a hundred thousand."""
        duration_s = round(max(0.0, outcome.ended - outcome.started), 3)
        is_plain = outcome.status == "succeeded" and outcome.attempts == 1 and duration_s < LONG_S
        if is_plain and not (outcome.cost_usd or outcome.tokens or outcome.run_id):
            return []
        return [
            events.UnitEnded(
                execution=self.execution,
                step=outcome.step,
                iteration=outcome.iteration,
                item=outcome.item,
                status=outcome.status,
                duration_s=duration_s,
                cost_usd=outcome.cost_usd,
                tokens=outcome.tokens,
                attempts=outcome.attempts,
                run_id=outcome.run_id,
                failure=self._failure(outcome),
                outputs_bytes=size,
            )
        ]

    def step_ended(
        self,
        step: model.Step,
        whole: UnitOutcome,
        mine: Sequence[UnitOutcome],
        *,
        size: int = 0,
        is_known: bool = False,
    ) -> list[ExecutionEvent]:
        self._pace.drop(step.id)
        report = report_of(step.id, step.type, whole, mine)
        warnings: list[ExecutionEvent] = [
            events.StepWarning(execution=self.execution, step=step.id, kind=one.kind, message=self._cut(one.message))
            for one in report.warnings
        ]
        ended = events.StepEnded(
            execution=self.execution,
            step=step.id,
            status=whole.status,
            branch=whole.branch,
            duration_s=report.duration_s,
            cost_usd=report.cost_usd,
            tokens=report.tokens,
            attempts=report.attempts,
            units=report.units,
            run_id=whole.run_id,
            failure=self._failure(whole),
            is_known=is_known,
            is_cached=report.is_cached,
            outputs_bytes=size,
        )
        return [*warnings, ended]

    def _failure(self, outcome: UnitOutcome) -> events.Failure | None:
        error = outcome.error
        if outcome.status != "failed" or error is None:
            return None
        return events.Failure(kind=error.kind, message=self._cut(error.message), hint=error.hint)
