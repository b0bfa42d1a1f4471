"""Exports events of runs and executions as OpenTelemetry traces and metrics, with GenAI names. Off unless configured.

Prompts, answers and tool content are not exported unless the user opts in. The SDK's threads send over bounded queues:
a slow, broken or missing collector costs a run nothing but its spans.
"""

from __future__ import annotations

import logging
import threading
import time
import tomllib
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from leadrope import errors
from leadrope.core import home, installation
from leadrope.core.events import Recorded
from leadrope.core.execution_events import ExecutionRecord
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs import settings as configured
from leadrope.runs.observe.execution_spans import ExecutionSpans
from leadrope.runs.observe.spans import Spans
from leadrope.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

CONTENT_VARIABLES = ("LEADROPE_OTEL_CONTENT", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
EXPORT_S = 3.0
"""Timeout for one request to the collector, including retries."""
FLUSH_S = 3.0
"""Timeout for everything left when the process ends."""
FLUSH_BROKEN_S = 0.5
METRICS_EVERY_S = 30.0

log = logging.getLogger("leadrope.telemetry")


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    traces_url: str = ""
    metrics_url: str = ""
    headers: dict[str, str] = {}
    service: str = "leadrope"
    content: bool = False
    """Export prompts, answers, inputs and outputs with the spans, redacted."""


def load(environ: Mapping[str, str]) -> TelemetrySettings | None:
    """Read the settings from the environment and the user's own config; None means off."""
    path = home.config_file(environ)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("telemetry", {})
    except FileNotFoundError:
        table = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.BadConfig(f"{path} cannot be read: {error}") from None
    return settings(environ, table, source=str(path))


def settings(environ: Mapping[str, str], table: Any = None, *, source: str = "config.toml") -> TelemetrySettings | None:
    """Merge the settings: the standard variables override the config.

    A signal's own endpoint is used verbatim; the common one gets the signal's path appended, as specified.
    """
    given = configured.table(("telemetry",), table, configured.TelemetryTable, source)
    if _is_true(environ.get("OTEL_SDK_DISABLED", "")):
        return None
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or given.endpoint
    urls = {}
    for signal in ("traces", "metrics"):
        own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "").strip()
        urls[signal] = own or (f"{base.rstrip('/')}/v1/{signal}" if base else "")
        if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower() == "none":
            urls[signal] = ""
        if urls[signal] and not urls[signal].startswith(("http://", "https://")):
            hint = "Write http://host:4318 or https://host; leadrope speaks OTLP over HTTP."
            if base == given.endpoint and not own:
                raise configured.refused(source, ("telemetry", "endpoint"), f"is not an http address: {base!r}", hint)
            raise errors.BadConfig(f"the telemetry endpoint {urls[signal]!r} is not an http address", hint=hint)
    if not any(urls.values()):
        return None
    return TelemetrySettings(
        traces_url=urls["traces"],
        metrics_url=urls["metrics"],
        headers=_headers(environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")),
        service=environ.get("OTEL_SERVICE_NAME", "").strip() or given.service or "leadrope",
        content=given.content or any(_is_true(environ.get(name, "")) for name in CONTENT_VARIABLES),
    )


def _is_true(value: str) -> bool:
    return value.strip().lower() in ("1", "true", "yes", "on")


def _headers(text: str) -> dict[str, str]:
    """Parse `a=b,c=d`, percent-encoded."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {urllib.parse.unquote(name.strip()): urllib.parse.unquote(value.strip()) for name, _, value in pairs}


def open_(found: TelemetrySettings | None) -> Telemetry | None:
    """Open the exporter; None if telemetry is off, or if the extra is not installed, which is reported once."""
    if found is None:
        return None
    try:
        return Telemetry(found)
    except ImportError as error:
        install = installation.command_for("otel")
        log.warning("telemetry is configured, but %s is not installed. Install it with `%s`.", error.name, install)
        return None


class Telemetry:
    """Exports events: `with telemetry.open_(...) as sink: sink.add(recorded)`, for any number of runs."""

    def __init__(self, found: TelemetrySettings, *, redactor: Redactor | None = None) -> None:
        # Half a second of imports, paid only if telemetry is on.
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

        resource = Resource({"service.name": found.service, "service.version": __version__})
        self._exporters: list[SpanExporter | MetricExporter] = []
        self._traces = _traces(found, resource, self._exporters) if found.traces_url else None
        self._metrics = _metrics(found, resource, self._exporters) if found.metrics_url else None
        tracer = self._traces.get_tracer("leadrope", __version__) if self._traces else None
        meter = self._metrics.get_meter("leadrope", __version__) if self._metrics else None
        self._spans = Spans(tracer=tracer, meter=meter, content=found.content, redactor=redactor or Redactor())
        self._executions = ExecutionSpans(tracer, meter)
        self._is_broken = False
        self._complaints = _Complaints()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, recorded: Recorded, redactor: Redactor | None = None) -> None:
        """Export one event with the run's own `redactor`. Never raises: observing a run must not end it."""
        self._guarded(lambda: self._spans.add(recorded, redactor))

    def add_execution(self, record: ExecutionRecord) -> None:
        """Export one event of an execution, which was redacted when it was stored. Never raises."""
        self._guarded(lambda: self._executions.add(record))

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._is_broken:
            return
        try:
            work()
        except Exception:
            # Error boundary: whatever the SDK does, here or in a later version, the run continues.
            self._is_broken = True
            log.exception("telemetry has failed and is off from here on")

    def close(self, timeout_s: float = FLUSH_S) -> bool:
        """Send what is left within this time; False if something may not have arrived."""
        self._spans.close()
        self._executions.close()
        if self._complaints.heard:
            # It did not accept earlier data; the end of the process does not wait for it long.
            timeout_s = min(timeout_s, FLUSH_BROKEN_S)
        give_up = time.monotonic() + timeout_s
        workers = [
            threading.Thread(target=_flush, args=(provider, timeout_s), name="leadrope telemetry", daemon=True)
            for provider in (self._metrics, self._traces)
            if provider is not None
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, give_up - time.monotonic()))
        is_done = not any(worker.is_alive() for worker in workers)
        for exporter in self._exporters if not is_done else ():
            exporter.shutdown()  # the attempt in progress is the last one
        if not is_done:
            log.warning("telemetry was not all sent within %g s", timeout_s)
        self._complaints.end()
        return is_done and not self._complaints.heard


def _flush(provider: TracerProvider | MeterProvider, timeout_s: float) -> None:
    try:
        provider.force_flush(int(timeout_s * 1000))
        provider.shutdown()
    except Exception as error:  # noqa: BLE001  # as in `add`
        log.warning("telemetry cannot be sent: %s", error)


class _Complaints(logging.Handler):
    """Filters the SDK's log: it reports every failed attempt, which would flood the terminal; we report the first."""

    _lock_all = threading.Lock()
    _open = 0
    _propagate = True

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = False
        self._sdk = logging.getLogger("opentelemetry")
        with _Complaints._lock_all:
            if _Complaints._open == 0:
                _Complaints._propagate = self._sdk.propagate
                self._sdk.propagate = False
            _Complaints._open += 1
        self._sdk.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if not self.heard:
            self.heard = True
            log.warning("telemetry cannot be sent: %s", record.getMessage())

    def end(self) -> None:
        self._sdk.removeHandler(self)
        with _Complaints._lock_all:
            _Complaints._open -= 1
            if _Complaints._open == 0:
                self._sdk.propagate = _Complaints._propagate


def _traces(found: TelemetrySettings, resource: Any, opened: list[SpanExporter | MetricExporter]) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    # Not at exit: our own time limit applies there.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=found.traces_url, headers=found.headers or None, timeout=EXPORT_S)
    opened.append(exporter)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=4096, max_export_batch_size=512))
    return provider


def _metrics(found: TelemetrySettings, resource: Any, opened: list[SpanExporter | MetricExporter]) -> MeterProvider:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    exporter = OTLPMetricExporter(endpoint=found.metrics_url, headers=found.headers or None, timeout=EXPORT_S)
    opened.append(exporter)
    every = PeriodicExportingMetricReader(
        exporter, export_interval_millis=METRICS_EVERY_S * 1000, export_timeout_millis=EXPORT_S * 1000
    )
    return MeterProvider(metric_readers=[every], resource=resource, shutdown_on_exit=False)
