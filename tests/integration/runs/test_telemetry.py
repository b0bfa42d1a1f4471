"""Spans and measurements arrive at a collector on loopback that reads the real protocol."""

from __future__ import annotations

import gzip
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from leadrope import errors
from leadrope.core import events, installation
from leadrope.core.cost.usage import Usage
from leadrope.core.events import Recorded
from leadrope.core.result import RunError, RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.runs.observe import telemetry

KEY = "sk-ant-api03-planted-planted-planted-0000"
START = 1_767_000_000.0


class Collector:
    """What came in, decoded. `status` is what it answers; None never answers, until it is closed."""

    def __init__(self) -> None:
        self.status: int | None = 200
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.headers.append(headers)
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(resource.resource))
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for found in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {metric.name: metric for scope in found.scope_metrics for metric in scope.metrics}
        else:
            raise AssertionError(path)

    def named(self, name: str) -> Any:
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, [span.name for span in self.spans]
        return found[0]


def attributes(of: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in of.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if found.status is None:
                found.closing.wait(60)
                return
            if found.status == 200:
                found.take(self.path, {key.lower(): value for key, value in self.headers.items()}, body)
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        found.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def add_all(sink: telemetry.Telemetry, records: list[Recorded]) -> None:
    for recorded in records:
        sink.add(recorded)


def story(run_id: str = "run-1") -> list[Recorded]:
    bash = ToolCall(id="t1", name="Bash", input={"command": f"echo {KEY} the-command"})
    sub = ToolCall(id="t2", name="mcp__db__query", input={"q": "the-query"}, agent_id="a1")
    denied = ToolCall(id="t3", name="Write", input={"file_path": "/etc/x"})
    usage = Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=1000, cache_creation_input_tokens=10)
    error = RunError(kind="api_error", message="it said the-error-message")
    result = RunResult(
        run_id=run_id, outcome="failed", text="the-answer", usage=usage, cost_usd=0.25, model="opus", error=error
    )
    found: list[events.Event] = [
        events.SessionStarted(
            session_id="s-1",
            provider="claude-code",
            model="opus",
            mode="edit",
            agent_version="2.1",
            sandbox="workspace",
        ),
        events.Notice(level="info", code="prompt", message=f"the-prompt {KEY}"),
        events.ToolRequested(call=bash),
        events.ApprovalRequested(approval_id="p1", call=bash, reason="a command", expires_s=300),
        events.ApprovalResolved(approval_id="p1", approved=True, by="user:anna"),
        events.ToolDecided(call=bash, decision="allow", by="user:anna", rule="approval"),
        events.ToolCompleted(call_id="t1", text=f"the-output {KEY}"),
        events.UsageUpdated(message_id="m1", model="opus-1", usage=usage),
        events.SubagentStarted(agent_id="a1", kind="Explore", description="the-description"),
        events.ToolDecided(call=sub, decision="allow", by="rule", rule="mode:full", layer="default"),
        events.ToolCompleted(call_id="t2", is_error=True, text="the-failure"),
        events.SubagentEnded(agent_id="a1", status="completed"),
        events.ToolDecided(call=denied, decision="deny", by="rule", rule="mode:edit"),
        events.ToolCompleted(call_id="t3", is_error=True, executed=False),
        events.MessageCompleted(text="the-answer"),
        events.RunEnded(result=result),
    ]
    return [Recorded(run_id, 1, at, START + at, "agent", event) for at, event in enumerate(found, 1)]


def opened(collector: Collector, **environ: str) -> telemetry.Telemetry:
    found = telemetry.settings({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **environ})
    assert found is not None
    return telemetry.Telemetry(found, redactor=Redactor(["a known secret"]))


def test_spans_arrive_with_the_names_of_the_conventions(collector: Collector) -> None:
    sink = opened(collector, OTEL_EXPORTER_OTLP_HEADERS="x-tenant=a%20b", OTEL_SERVICE_NAME="team")
    add_all(sink, story())
    assert sink.close(30)
    run = collector.named("invoke_agent")
    found = attributes(run)
    assert found == found | {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.agent.name": "claude-code",
        "gen_ai.agent.version": "2.1",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.request.model": "opus",
        "gen_ai.response.model": "opus",
        "gen_ai.usage.input_tokens": 1110,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 1000,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "error.type": "api_error",
        "leadrope.run.id": "run-1",
        "leadrope.outcome": "failed",
        "leadrope.cost_usd": 0.25,
        "leadrope.cost_label": "estimate",
        "leadrope.sandbox": "workspace",
    }
    assert run.status.code == run.status.STATUS_CODE_ERROR
    assert run.start_time_unix_nano == int((START + 1) * 1e9), "the events' own time"
    assert run.end_time_unix_nano == int((START + 16) * 1e9)
    assert run.parent_span_id == b""

    bash = collector.named("execute_tool Bash")
    assert bash.parent_span_id == run.span_id
    assert bash.trace_id == run.trace_id
    assert attributes(bash) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "Bash",
        "gen_ai.tool.call.id": "t1",
        "gen_ai.tool.type": "function",
        "leadrope.approval.wait_s": 1.0,
        "leadrope.decision": "allow",
        "leadrope.decision.by": "user",
        "leadrope.decision.rule": "approval",
        "leadrope.decision.layer": "",
        "leadrope.decision.edited": False,
    }
    explore = collector.named("invoke_agent Explore")
    assert explore.parent_span_id == run.span_id
    assert attributes(explore)["gen_ai.agent.id"] == "a1"
    query = collector.named("execute_tool mcp__db__query")
    assert query.parent_span_id == explore.span_id
    assert attributes(query)["error.type"] == "tool_error"
    assert attributes(query)["gen_ai.tool.type"] == "extension"
    assert attributes(collector.named("execute_tool Write"))["error.type"] == "denied"

    assert collector.resources[0]["service.name"] == "team"
    assert all(headers["x-tenant"] == "a b" for headers in collector.headers)


def test_names_are_those_of_the_published_conventions(collector: Collector) -> None:
    """Every gen_ai attribute and metric that we send is in the list that the conventions' own package holds."""
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    sink = opened(collector, LEADROPE_OTEL_CONTENT="1")
    add_all(sink, story())
    assert sink.close(30)
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    used = {key for span in collector.spans for key in attributes(span) if key.startswith("gen_ai.")}
    points = [point for metric in collector.metrics.values() for point in metric.histogram.data_points]
    used |= {key for point in points for key in attributes(point) if key.startswith("gen_ai.")}
    assert used <= known
    assert {"gen_ai.token.type", "gen_ai.tool.call.arguments", "gen_ai.output.messages"} <= used
    metrics = {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI_")}
    assert {name for name in collector.metrics if name.startswith("gen_ai.")} <= metrics


def test_measurements_arrive(collector: Collector) -> None:
    sink = opened(collector)
    add_all(sink, story())
    assert sink.close(30)
    tokens = collector.metrics["gen_ai.client.token.usage"]
    assert tokens.unit == "{token}"
    sums = {attributes(point)["gen_ai.token.type"]: point.sum for point in tokens.histogram.data_points}
    assert sums == {"input": 1110, "output": 20}
    assert attributes(tokens.histogram.data_points[0])["gen_ai.response.model"] == "opus-1"
    assert list(tokens.histogram.data_points[0].explicit_bounds)[:4] == [1, 4, 16, 64]
    durations = collector.metrics["gen_ai.client.operation.duration"].histogram.data_points
    assert {attributes(point)["gen_ai.operation.name"] for point in durations} == {"invoke_agent", "execute_tool"}
    decisions = collector.metrics["leadrope.tool.decisions"].sum.data_points
    counted = {(attributes(p)["gen_ai.tool.name"], attributes(p)["leadrope.decision"]): p.as_int for p in decisions}
    assert counted == {("Bash", "allow"): 1, ("mcp__db__query", "allow"): 1, ("Write", "deny"): 1}
    assert collector.metrics["leadrope.cost"].sum.data_points[0].as_double == 0.25


def test_nothing_that_was_said_leaves_unless_it_is_wanted(collector: Collector) -> None:
    sink = opened(collector)
    add_all(sink, story())
    assert sink.close(30)
    sent = str(collector.spans) + str(collector.metrics)
    for word in ("the-", "planted", "anna"):
        assert word not in sent


def test_content_that_is_wanted_leaves_without_keys(collector: Collector) -> None:
    sink = opened(collector, LEADROPE_OTEL_CONTENT="true")
    add_all(sink, story())
    assert sink.close(30)
    sent = str(collector.spans)
    for word in ("the-prompt", "the-command", "the-output", "the-answer"):
        assert word in sent
    assert "planted" not in sent


def test_runs_at_the_same_time_are_traces_of_their_own(collector: Collector) -> None:
    sink = opened(collector)
    for first, second in zip(story("run-1"), story("run-2"), strict=True):
        sink.add(first)
        sink.add(second)
    assert sink.close(30)
    runs = [span for span in collector.spans if span.name == "invoke_agent"]
    assert {attributes(span)["leadrope.run.id"] for span in runs} == {"run-1", "run-2"}
    assert len({span.trace_id for span in collector.spans}) == 2


def test_a_run_that_is_cut_off_is_told_as_unfinished(collector: Collector) -> None:
    sink = opened(collector)
    add_all(sink, story()[:6])
    assert sink.close(30)
    assert attributes(collector.named("invoke_agent"))["error.type"] == "unfinished"
    assert attributes(collector.named("execute_tool Bash"))["error.type"] == "unfinished"


@pytest.mark.parametrize("status", [400, 503, None])
def test_a_collector_that_fails_disturbs_nothing_and_the_end_is_bounded(
    collector: Collector, caplog: pytest.LogCaptureFixture, status: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    collector.status = status
    sink = opened(collector)
    before = time.monotonic()
    with caplog.at_level(logging.WARNING):
        for at in range(300):
            add_all(sink, story(f"run-{at}"))
        added = time.monotonic() - before
        assert not sink.close(0.5)
    took = time.monotonic() - before
    assert took < added + 20, "a bound against a hang: the SDK alone would try for minutes"
    ours = [record for record in caplog.records if record.name == "leadrope.telemetry"]
    assert 1 <= len(ours) <= 2, "told once, not once a try"
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert "Traceback" not in capfd.readouterr().err
    collector.closing.set()


def test_nobody_at_the_address_is_the_same() -> None:
    with collecting() as gone:
        pass
    sink = opened(gone)
    add_all(sink, story())
    assert not sink.close(0.5)


def test_an_event_that_cannot_be_told_ends_the_telemetry_and_not_the_run(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    sink = opened(collector)
    broken: Any = Recorded("run-1", 1, 1, "no time", "agent", events.TurnStarted(turn=1))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        sink.add(broken)
        add_all(sink, story())
    assert "off from here on" in caplog.text
    sink.close(5)


# -- when it is on ---------------------------------------------------------------------------------------------------

Given = dict[str, str]


@pytest.mark.parametrize(
    ("environ", "table", "urls"),
    [
        ({}, {}, None),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, {}, None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"},
            {},
            ("http://c:4318/v1/traces", "http://c:4318/v1/metrics"),
        ),
        ({}, {"endpoint": "http://c/x"}, ("http://c/x/v1/traces", "http://c/x/v1/metrics")),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t"}, {}, ("http://c/t", "")),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"}, {}, ("http://c/v1/traces", "")),
    ],
)
def test_it_is_off_unless_it_is_configured(environ: Given, table: Given, urls: tuple[str, str] | None) -> None:
    found = telemetry.settings(environ, table)
    assert (None if found is None else (found.traces_url, found.metrics_url)) == urls


def test_settings_that_cannot_be_used_are_told() -> None:
    with pytest.raises(errors.BadConfig, match="not an http address"):
        telemetry.settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "grpc://c:4317"})
    with pytest.raises(errors.BadConfig, match="endpont"):
        telemetry.settings({}, {"endpont": "http://c"})


def test_only_the_users_own_config_is_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leadrope.toml").write_text('[telemetry]\nendpoint = "http://evil.example"\n')
    monkeypatch.chdir(tmp_path)
    assert telemetry.load({"HOME": str(tmp_path)}) is None
    config = tmp_path / ".config/leadrope/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[telemetry]\nendpoint = "http://c"\ncontent = true\n')
    found = telemetry.load({"HOME": str(tmp_path)})
    assert found is not None
    assert found.content


def test_without_the_extra_a_run_goes_on_and_off_costs_no_import() -> None:
    script = (
        "import sys, logging; logging.basicConfig()\n"
        "from leadrope.runs.observe import telemetry\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')], 'imported although off'\n"
        "sys.modules['opentelemetry'] = None\n"
        "found = telemetry.settings({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:9'})\n"
        "assert telemetry.open_(found) is None\n"
        "assert telemetry.open_(None) is None\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "is not installed" in done.stderr
    assert installation.command_for("otel") in done.stderr
