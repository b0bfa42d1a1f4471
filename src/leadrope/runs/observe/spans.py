"""Converts events to spans and metrics, named by the GenAI conventions. Independent of collector and configuration.

Each run has one `invoke_agent` span, one below it per subagent, and one `execute_tool` span per call. Times are those
of the events, so a stored run gives the same spans as a live one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope.core import actors, events
from leadrope.core.events import Recorded
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Span, Tracer

MAX_RUNS = 1000
"""Maximum open runs. One whose end is never seen must not be kept forever."""
MAX_CONTENT = 20_000
"""Maximum length of one text; collectors reject spans that are too large, and the whole batch with them."""
# As recommended by the conventions: buckets grow by four for tokens, by two for seconds.
TOKEN_STEPS = tuple(float(4**power) for power in range(14))
SECOND_STEPS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 327.68, 1310.72)
VENDORS = {"claude-code": "anthropic", "openai": "openai", "perplexity": "perplexity"}

log = logging.getLogger("leadrope.telemetry")


class _Run:
    """The open spans of one run."""

    def __init__(self, began: float, redactor: Redactor) -> None:
        self.began = began
        self.redactor = redactor
        self.root: Span | None = None
        self.agents: dict[str, Span] = {}
        self.tools: dict[str, Span] = {}
        self.names: dict[str, str] = {}
        self.tool_began: dict[str, float] = {}
        self.asked: dict[str, tuple[str, float]] = {}
        self.provider = ""
        self.model = ""
        self.answer = ""
        self.prompt = ""
        self.session: events.SessionStarted | None = None
        self.last = began


class Spans:
    def __init__(self, *, tracer: Tracer | None, meter: Meter | None, content: bool, redactor: Redactor) -> None:
        self._tracer = tracer
        self._content = content
        self._redactor = redactor
        self._runs: dict[str, _Run] = {}
        self._meters = _Meters(meter) if meter is not None else None

    def add(self, recorded: Recorded, redactor: Redactor | None = None) -> None:
        run = self._runs.get(recorded.run_id)
        if run is None:
            if isinstance(recorded.event, events.RunEnded):
                return  # it has ended already, or nothing of it was seen
            run = self._runs[recorded.run_id] = _Run(recorded.time, redactor or self._redactor)
            self._make_room()
            run.root = self._start("invoke_agent", recorded.time, None, {"leadrope.run.id": recorded.run_id})
        if redactor is not None:
            run.redactor = redactor  # a later attempt may know more secrets
        run.last = max(run.last, recorded.time)
        self._take(run, recorded)

    def close(self) -> None:
        """End open spans: a span that never ends is never sent."""
        for run_id in list(self._runs):
            self._end_run(run_id, None)

    # -- events -----------------------------------------------------------------------------------------------------

    def _take(self, run: _Run, recorded: Recorded) -> None:
        time, event = recorded.time, recorded.event
        match event:
            case events.SessionStarted():
                self._session(run, event)
            case events.Notice(code="prompt"):
                run.prompt = run.prompt or event.message
            case events.MessageCompleted(agent_id=None, is_error=False):
                run.answer = event.text
            case events.ToolRequested():
                self._tool(run, event.call, time)
            case events.ToolDecided():
                self._decided(run, event, time)
            case events.ApprovalRequested():
                self._tool(run, event.call, time)
                run.asked[event.approval_id] = (event.call.id, time)
            case events.ApprovalResolved():
                self._answered(run, event, time)
            case events.ToolCompleted():
                self._completed(run, event, time)
            case events.SubagentStarted():
                name = f"invoke_agent {event.kind}".strip()
                found = {"gen_ai.agent.id": event.agent_id, "gen_ai.agent.name": event.kind}
                run.agents[event.agent_id] = self._start(
                    name, time, run.root, self._common(run, "invoke_agent") | found
                )
            case events.SubagentEnded():
                span = run.agents.pop(event.agent_id, None)
                if span is not None:
                    span.set_attribute("leadrope.subagent.status", event.status)
                    _end(span, time)
            case events.UsageUpdated():
                self._usage(run, event)
            case events.RunEnded():
                self._end_run(recorded.run_id, event.result)
            case _:
                pass

    def _session(self, run: _Run, event: events.SessionStarted) -> None:
        run.session = event
        run.provider = VENDORS.get(event.provider, event.provider)
        run.model = event.model
        if run.root is not None:
            run.root.set_attributes(
                self._common(run, "invoke_agent")
                | {
                    "gen_ai.conversation.id": event.session_id,
                    "gen_ai.agent.version": event.agent_version,
                    "leadrope.mode": event.mode,
                    "leadrope.sandbox": event.sandbox or "none",
                }
            )

    def _tool(self, run: _Run, call: ToolCall, time: float) -> Span:
        span = run.tools.get(call.id)
        if span is None:
            name = _clean(run, call.name, 100)
            parent = run.agents.get(call.agent_id or "", run.root)
            found: dict[str, Any] = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call.id,
                "gen_ai.tool.type": "extension" if name.startswith("mcp__") else "function",
            }
            if self._content:
                found["gen_ai.tool.call.arguments"] = _clean(run, msgspec.json.encode(call.input).decode())
            span = run.tools[call.id] = self._start(f"execute_tool {name}", time, parent, found)
            run.names[call.id] = name
            run.tool_began[call.id] = time
        return span

    def _decided(self, run: _Run, event: events.ToolDecided, time: float) -> None:
        span = self._tool(run, event.call, time)
        found: dict[str, str | bool] = {
            "leadrope.decision": event.decision,
            "leadrope.decision.by": actors.kind_of(event.by),  # people's names are not exported
            "leadrope.decision.rule": _clean(run, event.rule, 200),
            "leadrope.decision.layer": _clean(run, event.layer, 200),
            "leadrope.decision.edited": event.edited is not None,
        }
        span.set_attributes(found)
        if event.decision == "deny":
            span.set_attribute("error.type", "denied")
        if self._meters is not None:
            keys = ("leadrope.decision", "leadrope.decision.by")
            name = run.names[event.call.id]
            self._meters.decisions.add(1, {"gen_ai.tool.name": name} | {key: str(found[key]) for key in keys})

    def _answered(self, run: _Run, event: events.ApprovalResolved, time: float) -> None:
        call_id, asked = run.asked.pop(event.approval_id, ("", 0.0))
        span = run.tools.get(call_id)
        if span is not None:
            span.set_attribute("leadrope.approval.wait_s", round(max(0.0, time - asked), 3))
        if call_id and self._meters is not None:
            self._meters.waits.record(max(0.0, time - asked), {"leadrope.approved": event.approved})

    def _completed(self, run: _Run, event: events.ToolCompleted, time: float) -> None:
        span = run.tools.pop(event.call_id, None)
        began = run.tool_began.pop(event.call_id, time)
        name = run.names.pop(event.call_id, "")
        if span is None:
            return
        is_denied = not event.executed
        if event.is_error:
            span.set_attribute("error.type", "denied" if is_denied else "tool_error")
            _fail(span, "denied" if is_denied else "tool_error")
        if self._content:
            span.set_attribute("gen_ai.tool.call.result", _clean(run, event.text))
        _end(span, time)
        if self._meters is not None and event.executed:
            found = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            if event.is_error:
                found["error.type"] = "tool_error"
            self._meters.durations.record(max(0.0, time - began), self._common(run, "execute_tool") | found)

    def _usage(self, run: _Run, event: events.UsageUpdated) -> None:
        if self._meters is None:
            return
        found = self._common(run, "chat") | {"gen_ai.response.model": event.model}
        for kind, tokens in (("input", event.usage.prompt_tokens), ("output", event.usage.output_tokens)):
            self._meters.tokens.record(tokens, found | {"gen_ai.token.type": kind})

    def _end_run(self, run_id: str, result: RunResult | None) -> None:
        run = self._runs.pop(run_id)
        for span in (*run.tools.values(), *run.agents.values()):
            span.set_attribute("error.type", "unfinished")
            _end(span, run.last)
        if run.root is not None:
            run.root.set_attributes(self._outcome(run, result))
            kind = result.error.kind if result is not None and result.error else None
            if result is None or not result.ok:
                # Only the kind: a message may contain what was said.
                run.root.set_attribute("error.type", kind or (result.outcome if result else "unfinished"))
                _fail(run.root, kind or (result.outcome if result else "unfinished"))
            _end(run.root, run.last)
        if self._meters is not None and result is not None:
            found = self._common(run, "invoke_agent")
            if result.error is not None:
                found["error.type"] = result.error.kind
            self._meters.durations.record(max(0.0, run.last - run.began), found)
            self._meters.runs.add(1, {"leadrope.outcome": result.outcome, "gen_ai.request.model": run.model})
            paid = {"gen_ai.request.model": run.model, "leadrope.cost_label": result.cost_label}
            self._meters.cost.add(max(0.0, result.cost_usd), paid)

    def _outcome(self, run: _Run, result: RunResult | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if result is not None:
            usage = result.usage
            found = {
                "gen_ai.response.model": result.model or run.model,
                # The conventions count tokens served from the cache as input too.
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
                "leadrope.outcome": result.outcome,
                "leadrope.cost_usd": result.cost_usd,
                "leadrope.cost_label": result.cost_label,
                "leadrope.turns": result.turns,
                "leadrope.attempts": result.attempts,
                "leadrope.denials": len(result.denials),
            }
        if self._content:
            answer = result.text if result is not None else run.answer
            found["gen_ai.input.messages"] = _message(run, "user", run.prompt)
            found["gen_ai.output.messages"] = _message(run, "assistant", answer)
        return found

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _common(self, run: _Run, operation: str) -> dict[str, str]:
        found = {"gen_ai.operation.name": operation}
        if run.provider:
            found |= {
                "gen_ai.provider.name": run.provider,
                "gen_ai.agent.name": run.session.provider if run.session else "",
            }
        if run.model:
            found["gen_ai.request.model"] = run.model
        return found

    def _start(self, name: str, time: float, parent: Span | None, attributes: dict[str, Any]) -> Span:
        from opentelemetry import trace  # noqa: PLC0415  # with the extra only

        if self._tracer is None:
            return trace.INVALID_SPAN
        # Never a child of the host program's current span: a run is a trace of its own.
        context = trace.set_span_in_context(parent if parent is not None else trace.INVALID_SPAN)
        return self._tracer.start_span(
            name, context=context, kind=trace.SpanKind.INTERNAL, attributes=attributes, start_time=_ns(time)
        )

    def _make_room(self) -> None:
        while len(self._runs) > MAX_RUNS:
            oldest = next(iter(self._runs))
            log.info("run %s has no end yet and is told as unfinished", oldest)
            self._end_run(oldest, None)


class _Meters:
    def __init__(self, meter: Meter) -> None:
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of one model call.",
            explicit_bucket_boundaries_advisory=TOKEN_STEPS,
        )
        self.durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Runs and tool calls.",
            explicit_bucket_boundaries_advisory=SECOND_STEPS,
        )
        self.waits = meter.create_histogram("leadrope.approval.wait", unit="s", description="Until a person answered.")
        self.decisions = meter.create_counter("leadrope.tool.decisions", description="Calls allowed and denied.")
        self.runs = meter.create_counter("leadrope.runs", description="Runs that have ended.")
        self.cost = meter.create_counter("leadrope.cost", unit="USD", description="Estimated at list prices.")


def _message(run: _Run, role: str, text: str) -> str:
    part = {"type": "text", "content": _clean(run, text)}
    return msgspec.json.encode([{"role": role, "parts": [part]}]).decode()


def _clean(run: _Run, text: str, limit: int = MAX_CONTENT) -> str:
    cleaned = run.redactor.clean(text)
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


def _fail(span: Span, kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415  # with the extra only

    span.set_status(Status(StatusCode.ERROR, kind))


def _end(span: Span, time: float) -> None:
    span.end(end_time=_ns(time))


def _ns(time: float) -> int:
    return int(time * 1e9)
