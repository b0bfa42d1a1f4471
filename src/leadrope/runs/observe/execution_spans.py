"""Converts the events of executions to spans and metrics. Independent of collector and configuration.

Each execution has one `invoke_workflow` span, with one `workflow_step` span below it per step; the spans of a called
workflow are below the step that called it. A process reports only its own work: an execution that another process
continues has spans from both, with the same `leadrope.execution.id`. Agent runs are traces of their own; the step has
their id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadrope.core import execution_events as events
from leadrope.core.execution_events import ExecutionRecord

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Meter
    from opentelemetry.trace import Span, Tracer

MOST_OPEN = 1000
"""Maximum executions at once; one whose end is never seen must not be kept forever."""


class _Execution:
    """The open spans of one execution, including called workflows."""

    def __init__(self, began: float) -> None:
        self.roots: dict[str, Span] = {}
        """By execution; the key is empty for the outermost."""
        self.steps: dict[tuple[str, str], Span] = {}
        self.last = began


class ExecutionSpans:
    def __init__(self, tracer: Tracer | None, meter: Meter | None) -> None:
        self._tracer = tracer
        self._open: dict[str, _Execution] = {}
        self._count: Counter | None = None
        if meter is not None:
            self._count = meter.create_counter("leadrope.executions", description="Executions that have ended.")

    def add(self, record: ExecutionRecord) -> None:
        found = self._open.get(record.execution_id)
        if found is None:
            if isinstance(record.event, events.ExecutionEnded):
                return  # nothing of it was seen
            found = self._open[record.execution_id] = _Execution(record.time)
            found.roots[""] = self._start("invoke_workflow", record.time, None, _ids(record, ""))
            self._make_room()
        found.last = max(found.last, record.time)
        self._take(found, record)

    def close(self) -> None:
        """End open spans: a span that never ends is never sent."""
        for execution_id in list(self._open):
            self._end_all(execution_id, "unfinished")

    def _take(self, found: _Execution, record: ExecutionRecord) -> None:
        event, time = record.event, record.time
        match event:
            case events.ExecutionStarted(execution=""):
                found.roots[""].update_name(f"invoke_workflow {event.name}".strip())
                found.roots[""].set_attribute("gen_ai.workflow.name", event.name)
            case events.ExecutionStarted():
                step = event.parent_key.partition("#")[0]
                outer = "" if event.parent == record.execution_id else event.parent or ""
                below = found.steps.get((outer, step)) or found.roots.get(outer) or found.roots[""]
                more = {"gen_ai.workflow.name": event.name}
                name = f"invoke_workflow {event.name}".strip()
                found.roots[event.execution] = self._start(name, time, below, _ids(record, event.execution) | more)
            case events.StepStarted():
                if (event.execution, event.step) not in found.steps:
                    self._start_step(found, record, event.execution, event.step, event.kind)
            case events.StepEnded(is_known=False):
                self._end_step(found, record, event)
            case events.ExecutionEnded(execution="") | events.ExecutionWaiting(execution=""):
                outcome = event.outcome if isinstance(event, events.ExecutionEnded) else "waiting"
                self._end_outermost(record, found, event, outcome)
            case events.ExecutionInterrupted(execution="") | events.ExecutionQueued(execution=""):
                self._end_all(record.execution_id, "interrupted")
            case events.ExecutionEnded() | events.ExecutionWaiting() | events.ExecutionInterrupted():
                if (root := found.roots.pop(event.execution, None)) is not None:
                    outcome = event.outcome if isinstance(event, events.ExecutionEnded) else "waiting"
                    root.set_attribute("leadrope.outcome", outcome)
                    _finish(root, time, None if outcome in ("succeeded", "degraded", "waiting") else outcome)
            case _:
                pass

    def _start_step(self, found: _Execution, record: ExecutionRecord, execution: str, step: str, kind: str) -> Span:
        root = found.roots.get(execution) or found.roots[""]
        given = _ids(record, execution) | {"leadrope.step.id": step, "leadrope.step.kind": kind}
        span = found.steps[execution, step] = self._start(f"workflow_step {step}", record.time, root, given)
        return span

    def _end_step(self, found: _Execution, record: ExecutionRecord, event: events.StepEnded) -> None:
        span = found.steps.pop((event.execution, event.step), None)
        if span is None:  # a skipped step has not started
            span = self._start_step(found, record, event.execution, event.step, "")
            del found.steps[event.execution, event.step]
        more: dict[str, Any] = {
            "leadrope.step.status": event.status,
            "leadrope.step.units": event.units,
            "leadrope.attempts": event.attempts,
            "leadrope.cost_usd": event.cost_usd,
        }
        if event.run_id is not None:
            more["leadrope.run.id"] = event.run_id
        span.set_attributes(more)
        # Only the kind: a message may contain what was said.
        _finish(span, record.time, event.failure.kind if event.failure is not None else None)

    def _end_outermost(
        self,
        record: ExecutionRecord,
        found: _Execution,
        event: events.ExecutionEnded | events.ExecutionWaiting,
        outcome: str,
    ) -> None:
        root = found.roots[""]
        root.set_attribute("leadrope.outcome", outcome)
        if isinstance(event, events.ExecutionEnded):
            root.set_attribute("leadrope.cost_usd", event.cost_usd)
            if self._count is not None:
                self._count.add(1, {"leadrope.outcome": outcome})
        self._end_all(record.execution_id, None if outcome in ("succeeded", "degraded", "waiting") else outcome)

    def _end_all(self, execution_id: str, error: str | None) -> None:
        found = self._open.pop(execution_id)
        outermost = found.roots.pop("")
        for span in (*found.steps.values(), *reversed(found.roots.values())):
            _finish(span, found.last, "unfinished")
        _finish(outermost, found.last, error)

    def _start(self, name: str, time: float, parent: Span | None, attributes: Mapping[str, Any]) -> Span:
        from opentelemetry import trace  # noqa: PLC0415  # with the extra only

        if self._tracer is None:
            return trace.INVALID_SPAN
        # Never a child of the host program's current span: an execution is a trace of its own.
        context = trace.set_span_in_context(parent if parent is not None else trace.INVALID_SPAN)
        return self._tracer.start_span(
            name, context=context, kind=trace.SpanKind.INTERNAL, attributes=dict(attributes), start_time=int(time * 1e9)
        )

    def _make_room(self) -> None:
        while len(self._open) > MOST_OPEN:
            self._end_all(next(iter(self._open)), "unfinished")


def _ids(record: ExecutionRecord, execution: str) -> dict[str, Any]:
    found: dict[str, Any] = {"gen_ai.operation.name": "invoke_workflow", "leadrope.execution.id": record.execution_id}
    if execution:
        found["leadrope.execution.inner_id"] = execution
    return found


def _finish(span: Span, time: float, error: str | None) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415  # with the extra only

    if error is not None:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(end_time=int(time * 1e9))
