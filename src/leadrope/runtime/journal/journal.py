"""Numbers and folds the events of one run, and delivers them to readers and to the session's log."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from leadrope.core import events
from leadrope.core.fold import Fold
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.process import lines
from leadrope.runtime.journal.outbox import Outbox
from leadrope.runtime.journal.trace_lines import without_pieces
from leadrope.runtime.journal.watcher import Watcher
from leadrope.runtime.retries import Again
from leadrope.runtime.sessions.files import SessionInfo
from leadrope.runtime.sessions.log import SessionLog
from leadrope.runtime.terminal_text import clean

log = logging.getLogger("leadrope.run")
# Otherwise Python would print the log line of a failed run in programs that have not set up logging.
log.addHandler(logging.NullHandler())
LONG_LINE = 1000
spawn_log = logging.getLogger("leadrope.spawn")


class Journal:
    """The `Recorder` of every attempt of a run."""

    def __init__(self, run_id: str, *, attempt: int = 1, earlier: Sequence[events.Recorded] = ()) -> None:
        """`earlier`: events stored by earlier attempts in another process."""
        self.run_id = run_id
        self.outbox = Outbox()
        self.fold = Fold(run_id)
        self.tally: Counter[type[events.Event]] = Counter()
        self.incoming: list[events.Event] = []
        """Events from the agent that are not numbered yet."""
        self.attempt = attempt
        self.redactor = Redactor()
        self.traces = False
        self.log: SessionLog | None = None
        self.meant: dict[str, str] = {}
        """Original texts of prompts that we extended, for the transcript."""
        self.tap: Callable[[list[events.Recorded]], None] | None = None
        """Called with every published batch, in addition to the outbox."""
        self.watcher: Watcher | None = None
        """The program's `on_event` callback."""
        self._batch: list[events.Recorded] = []
        self._logged = 0
        self._seq = earlier[-1].seq if earlier else 0
        self._now = time.time()
        self._has_ended = False
        for recorded in earlier:
            self.fold.add(recorded)

    def record(self, event: events.Event) -> None:
        """Record one of the supervisor's events, after everything that the agent said before it."""
        self._now = time.time()
        self._number_incoming()
        self._number((event,), "supervisor")

    def publish(self, weight: int = 0) -> None:
        self._now = time.time()
        self._number_incoming()
        batch, self._batch = self._batch, []
        if self.log is not None:
            self.log.take(batch[self._logged :] if self._logged else batch, weight)
            self._logged = 0
        if self.tap is not None and batch:
            self.tap(batch)
        if self.watcher is not None and batch:
            self.watcher.take(batch)
        self.outbox.put(batch, weight)

    def notify(self, notice: events.Notice | events.SandboxViolation) -> None:
        self.record(notice)
        self.publish()

    def prompted(self, text: str) -> None:
        if self.log is not None:
            # Earlier events of the agent come first.
            self._number_incoming()
            self.log.take(self._batch[self._logged :], 0)
            self._logged = len(self._batch)
            self.log.prompted(self.meant.get(text, text))

    def announce(self, planned: Again, result: RunResult, attempts: int) -> None:
        """Record that the run continues after a wait, and why."""
        self.record(
            events.RetryScheduled(
                attempt=self.attempt + 1,
                max_attempts=max(attempts, self.attempt + 1),
                delay_s=planned.delay_s,
                api_status=result.error.api_status if result.error else None,
                error=result.error.message if planned.reason == "failure" and result.error else planned.told,
                by="supervisor",
            )
        )
        self.publish()

    def end(self, result: RunResult) -> None:
        """Record the last event. It contains the fold's result, so it is not folded itself."""
        self._number_incoming()
        self._seq += 1
        ended = events.RunEnded(result=result)
        self._batch.append(events.Recorded(self.run_id, self.attempt, self._seq, time.time(), "supervisor", ended))
        self.publish()
        self.outbox.close()
        self._has_ended = True

    def suspend(self) -> None:
        """Close the log in this process; another one continues it."""
        self.publish()
        if self.log is not None:
            self.log.flush()
        self.outbox.close()
        self._has_ended = True

    def open_log(self, folder: Path, info: SessionInfo) -> None:
        """Open the session's log, once per start; a second start of the session appends to the same files."""
        if self.log is not None:
            self.log.flush()
        if self.log is None or self.log.folder != folder:
            self.log = SessionLog(folder, run_id=self.run_id, on_trouble=self._on_log_trouble)
        self.log.redactor = self.redactor
        self.log.begin(info)

    def _on_log_trouble(self, message: str) -> None:
        if self._has_ended:
            log.warning("run %s: %s", self.run_id[:8], message)
        else:
            self.notify(events.Notice(level="warning", code="session_log", message=message))

    def _number_incoming(self) -> None:
        if self.incoming:
            self._number(self.incoming, "agent")
            self.incoming.clear()

    def _number(self, batch: Sequence[events.Event], source: events.Source) -> None:
        """Number whole batches at once: this runs for every event of every run."""
        run_id, attempt, now, first = self.run_id, self.attempt, self._now, self._seq + 1
        recorded = events.Recorded
        self._batch += [recorded(run_id, attempt, seq, now, source, event) for seq, event in enumerate(batch, first)]
        self._seq += len(batch)
        self.tally.update(map(type, batch))
        self.fold.add_batch(batch, run_id=run_id, attempt=attempt, time=now)

    @property
    def is_full(self) -> bool:
        return self.outbox.is_full or (self.watcher is not None and self.watcher.is_full)

    async def room(self) -> None:
        await self.outbox.room()
        if self.watcher is not None:
            await self.watcher.room()

    def trace(self, kind: str, data: object) -> None:
        if self.traces:
            for line in lines.split(data) if isinstance(data, list) else [data]:
                text = without_pieces(bytes(line)) if isinstance(line, bytes | bytearray) else repr(line)
                self.tell(f"{kind} {text}")

    def tell_stderr(self, line: str) -> None:
        self.tell(f"stderr {line}")

    def tell_connection(self, name: str, line: str) -> None:
        """Log a line of a server's stderr; a long one was cut, and may end in the first half of a secret."""
        text = line if len(line) < LONG_LINE else line[: self.redactor.open_end(line)]
        self.tell(f"stderr of connection {name}: {text}")

    def tell(self, text: str) -> None:
        """Write a line to the trace."""
        if self.traces:
            spawn_log.info("%s %s", self.run_id[:8], self.harmless(text))

    def harmless(self, text: str) -> str:
        """Remove secrets and terminal control sequences: an agent's line could, for example, set the clipboard."""
        # Redacted twice: invisible characters may split a secret, which is complete only after they are removed.
        return self.redactor.clean(clean(self.redactor.clean(text)))

    def tell_failure(self, result: RunResult, request: RunRequest, model: str = "") -> None:
        """Log one compact line for a failed or empty run; `model` is the one it was started with."""
        if result.outcome not in ("failed", "timed_out"):
            return
        error = result.error
        log.warning(
            "run %s %s: kind=%s exit=%s model=%s mode=%s prompt=%d text=%d events=%s stderr=%s unread=%s",
            self.run_id[:8],
            result.outcome,
            error.kind if error else "-",
            error.exit_code if error else "-",
            result.model or model or request.model or "-",
            request.mode,
            len(request.prompt),
            len(result.text),
            ",".join(sorted(f"{kind.__struct_config__.tag}:{count}" for kind, count in self.tally.items())),
            self.harmless(" | ".join(error.stderr_tail[-5:]) if error else ""),
            self.harmless(" | ".join(self.fold.unread)),
        )
