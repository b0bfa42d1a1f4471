"""Events of one run, numbered, folded, and handed to whoever reads them and to the session's log. Judges nothing."""

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
# Without it Python would print the line of a failed run for programs that have not set up logging.
log.addHandler(logging.NullHandler())
LONG_LINE = 1000
spawn_log = logging.getLogger("leadrope.spawn")


class Journal:
    """The attempt's `Recorder`; one for all attempts of a run."""

    def __init__(self, run_id: str, *, attempt: int = 1, earlier: Sequence[events.Recorded] = ()) -> None:
        """`earlier`: what attempts before this one, in another process, have left in the store."""
        self.run_id = run_id
        self.outbox = Outbox()
        self.fold = Fold(run_id)
        self.tally: Counter[type[events.Event]] = Counter()
        self.incoming: list[events.Event] = []
        """What the agent said and is not numbered yet."""
        self.attempt = attempt
        self.redactor = Redactor()
        self.traces = False
        self.log: SessionLog | None = None
        self.meant: dict[str, str] = {}
        """What a prompt that we have added to was before, for the transcript."""
        self.tap: Callable[[list[events.Recorded]], None] | None = None
        """Sees every published batch, beside whoever reads the outbox."""
        self.watcher: Watcher | None = None
        """The program's `on_event`."""
        self._batch: list[events.Recorded] = []
        self._logged = 0
        self._seq = earlier[-1].seq if earlier else 0
        self._now = time.time()
        self._has_ended = False
        for recorded in earlier:
            self.fold.add(recorded)

    def record(self, event: events.Event) -> None:
        """An event of the supervisor; what the agent said before it comes first."""
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
            # What was said before it stands before it.
            self._number_incoming()
            self.log.take(self._batch[self._logged :], 0)
            self._logged = len(self._batch)
            self.log.prompted(self.meant.get(text, text))

    def announce(self, planned: Again, result: RunResult, attempts: int) -> None:
        """That the run goes on after a wait, and why."""
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
        """The last event. The result is the fold's, so it is not folded."""
        self._number_incoming()
        self._seq += 1
        ended = events.RunEnded(result=result)
        self._batch.append(events.Recorded(self.run_id, self.attempt, self._seq, time.time(), "supervisor", ended))
        self.publish()
        self.outbox.close()
        self._has_ended = True

    def suspend(self) -> None:
        """Nothing more comes from this process; another one continues the log."""
        self.publish()
        if self.log is not None:
            self.log.flush()
        self.outbox.close()
        self._has_ended = True

    def open_log(self, folder: Path, info: SessionInfo) -> None:
        """Once for each start: a second one of the same session goes on in the same files."""
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
        """Whole batches at once: this is done for every event of every run."""
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
        """A line of a server's stderr; a long one was cut, and may end in the first half of a secret."""
        text = line if len(line) < LONG_LINE else line[: self.redactor.open_end(line)]
        self.tell(f"stderr of connection {name}: {text}")

    def tell(self, text: str) -> None:
        """A line of the trace."""
        if self.traces:
            spawn_log.info("%s %s", self.run_id[:8], self.harmless(text))

    def harmless(self, text: str) -> str:
        """Without secrets, and without what a terminal would act on: an agent's line could set its clipboard."""
        # Twice: what has no width may stand within a secret, and without it the secret would be whole.
        return self.redactor.clean(clean(self.redactor.clean(text)))

    def tell_failure(self, result: RunResult, request: RunRequest, model: str = "") -> None:
        """One compact line in the log for a failed or empty run; `model`: that it was started with."""
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
