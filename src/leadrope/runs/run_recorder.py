"""A run on its way into the store: its events in their order, and its row beside them. Starts nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import events
from leadrope.core.cost.usage import sum_label
from leadrope.core.result import RunResult
from leadrope.core.secrets.redacted_json import clean_value
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.usage_rollup import label_of
from leadrope.runs.observe.observers import Watch
from leadrope.runs.records.masking import Masking
from leadrope.runs.records.values import Progress, RunInfo, State
from leadrope.runtime.terminal_text import describe

if TYPE_CHECKING:
    from leadrope.runs.records.protocols import RunStore
    from leadrope.runtime.run import Run

log = logging.getLogger("leadrope.runs")

Show = Callable[[events.Recorded], None]

MOST_UNWRITTEN = 20_000
"""Events that may wait for a slow or full disk; then the agent waits too."""
AGAIN_S = 0.5
"""Between two tries at a full disk."""
WAIT_S = 60.0
"""How long a run waits for a full disk; see `store_wait_s` of the settings."""

ACTION_TEXT = 4096
"""Characters of a message from which the row's last action is taken."""

_MUST_LAST = (
    events.SessionStarted,
    events.ApprovalRequested,
    events.ApprovalResolved,
    events.GrantRevoked,
    events.QuestionRequested,
    events.QuestionResolved,
    events.ToolDecided,
    events.TurnEnded,
    events.RunEnding,
    events.AgentExited,
    events.RunEnded,
)
"""On the disk before it counts as stored; the rest is with the next of these, or with the system's own time."""


class RunRecorder:
    def __init__(self, store: RunStore, run: RunInfo, *, show: Show | None = None, wait_s: float = WAIT_S) -> None:
        self._store = store
        self._run = run
        self._show = show
        self._unwritten: list[events.Recorded] = []
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._is_over = False
        self.watch: Watch | None = None
        """Who looks on beside the one who is shown it; set before `keep`."""
        self.on_limit: Callable[[float], object] | None = None
        """Told until when a usage limit holds, at the moment when the run begins to wait for its end."""
        self.on_late_end: Callable[[RunResult, int], object] | None = None
        """Told the result of a run that has ended while the store takes nothing, and how many events are not stored."""
        self._opened: Run | None = None
        self._stored = Masking(self._redactor, only_pieces=True)
        # The run's own user may see what only looks like a key; what is known to be one is for no screen and no file.
        self._seen = Masking(lambda: self._redactor().only_known())
        self.result: RunResult | None = None
        self.show_error: Exception | None = None
        """What ended the showing, and with it the run."""
        self.row = RowState(run, self._redactor)
        self.is_full = False
        """The disk is; the run is held until there is room."""
        self._wait_s = wait_s
        self._full_since = 0.0
        self._given_up = asyncio.Event()
        self._stopping: list[asyncio.Future[RunResult]] = []
        self.lost: errors.StoreError | None = None
        """Why a part of the run's record is lost."""
        self.lost_events = 0
        self._fed = 0
        self.is_by_itself = False
        """It was given up because the time was over or the store is damaged, and not because somebody said so."""

    async def keep(self, run: Run) -> None:
        """To the last event. Returns when all of them are stored."""
        self._opened = run
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write(run))
            try:
                async for batch in run.batches():
                    for recorded in self._seen.of(batch):
                        self._tell(recorded, lambda: group.create_task(run.stop("nobody sees it any more")))
                    self.feed(batch)
                    if len(self._unwritten) > MOST_UNWRITTEN:
                        self._room.clear()
                        await self._room.wait()
            finally:
                self._is_over = True
                self._news.set()
            await writing
        await asyncio.gather(*self._stopping)

    def feed(self, batch: list[events.Recorded]) -> None:
        """A batch on its way to the store; also the tap of a run whose events somebody else reads."""
        batch = self._stored.of(batch)
        for recorded in batch:
            was_parked = self.row.is_parked
            self.row.see(recorded.event)
            if self.row.is_parked and not was_parked and self.row.resets_at and self.on_limit is not None:
                self.on_limit(self.row.resets_at)
            if self.watch is not None:
                self.watch(recorded, self._redactor())
            if isinstance(recorded.event, events.RunEnded):
                self.result = recorded.event.result
                self._is_over = True
        self._unwritten += batch
        self._fed += len(batch)
        self._news.set()

    def give_up(self) -> None:
        """Wait for no room in the store, now or later: what cannot be written is lost."""
        self._given_up.set()
        self._store.hurry()

    @property
    def is_over(self) -> bool:
        """The run has told its last event; what is still to be done is to write them."""
        return self._is_over

    async def stored(self, run: Run) -> None:
        """Returns when the last event of a tapped run is stored."""
        self._opened = run
        await self._write(run)
        await asyncio.gather(*self._stopping)

    def _redactor(self) -> Redactor:
        return self._opened.redactor if self._opened is not None else Redactor()

    def _tell(self, recorded: events.Recorded, give_up: Callable[[], object]) -> None:
        if self._show is None:
            return
        try:
            self._show(recorded)
        except Exception as error:  # noqa: BLE001  # whoever watches is gone (a closed pipe); the record goes on
            self.show_error = error
            self._show = None
            give_up()

    async def _write(self, run: Run) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._unwritten:
                await self._append(run, self._unwritten[:2000])
            self._room.set()
            if self._is_over and not self._unwritten:
                return

    async def _append(self, run: Run, batch: list[events.Recorded]) -> None:
        durable = any(isinstance(recorded.event, _MUST_LAST) for recorded in batch)
        while True:
            progress = self.row.progress(run, attempt=batch[-1].attempt)
            if self.lost is not None:  # a log has no gaps
                self._lose(batch, self.lost)
                return
            try:
                await self._store.append(self._run, batch, progress, run.redactor, durable=durable)
            except (errors.WrongState, errors.StoreUnreadable) as error:
                # Another process works on it, or the file was overwritten: no waiting helps, and nothing is supervised
                # without a record. This process ends its agent.
                self._stopping.append(asyncio.ensure_future(run.stop(error.message)))
                self._lose(batch, error)
                self.is_by_itself = not isinstance(error, errors.NotOwner)
                return
            except (errors.StoreFull, errors.StoreBusy) as error:
                if not await self._is_worth_waiting(run, error):
                    self._lose(batch, error)
                    return
            else:
                self.is_full = False
                del self._unwritten[: len(batch)]
                return

    def not_stored(self, result: RunResult, error: errors.StoreError, *, is_ended: bool) -> errors.ResultNotStored:
        """What became of the record of a run that has ended; `is_ended`: its row says so."""
        name = self._run.id[:8]
        if not self.lost_events:
            told = f"all events of run {name} are stored, and its end will be as soon as there is room"
        else:
            told = f"the last {self.lost_events} of {self._fed} events of run {name} are lost"
            told += "; its result is stored" if is_ended else ", and its result is not stored"
        return errors.ResultNotStored(
            f"{error.message}: {told}", result=result, is_timed_out=self.is_by_itself, hint=error.hint
        )

    def _lose(self, batch: list[events.Recorded], error: errors.StoreError) -> None:
        self.lost = error
        self.lost_events += len(batch)
        del self._unwritten[: len(batch)]

    async def _is_worth_waiting(self, run: Run, error: errors.StoreError) -> bool:
        """Wait a moment for room; False when nobody waits for it any more."""
        now = asyncio.get_running_loop().time()
        if not self.is_full:
            self.is_full, self._full_since = True, now
            if not self._given_up.is_set():
                told = "%s. Run %s waits up to %g s for it; Ctrl-C gives up."
                log.warning(told, error.message, self._run.id[:8], self._wait_s)
        if self.result is not None and self.on_late_end is not None:
            self.on_late_end(self.result, len(self._unwritten))
            self.on_late_end = None
        if not self._given_up.is_set() and now - self._full_since >= self._wait_s:
            self.is_by_itself = True
            self._given_up.set()
            if not self._is_over:
                # Nothing is supervised without a record. Not awaited here: its last events come through here too.
                why = f"{error.message}, after {self._wait_s:g} s of waiting"
                self._stopping.append(asyncio.ensure_future(run.stop(why)))
        if self._given_up.is_set():
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._given_up.wait(), AGAIN_S)
        return True


class RowState:
    """What the row of a run says, from its events alone."""

    def __init__(self, run: RunInfo, redactor: Callable[[], Redactor] = Redactor) -> None:
        self._redactor = redactor
        self._asked: set[str] = set()
        self._has_started = False
        self._limited = False
        self.is_parked = False
        """It waits for the end of a usage limit, with its owner."""
        self.resets_at: float | None = None
        self._cwd = run.cwd
        self._model = run.model
        self._session = run.session_id
        self._tokens: dict[str, int] = {}
        self._action = run.last_action
        self._cost = run.cost_usd
        self._cost_label = run.cost_label
        self.is_paused = False

    def see(self, event: events.Event) -> None:
        match event:
            case events.SessionStarted():
                self._has_started = True
                self.is_parked = self._limited = False
                self._session, self._model = event.session_id, event.model
                self._cwd = self._cwd or event.cwd
                if event.credential is not None:
                    spent = self._cost + sum(self._tokens.values())
                    self._cost_label = sum_label([(spent, self._cost_label), (1, label_of(event.credential))])
            case events.TurnStarted():
                self._has_started = True
            case events.ApprovalRequested():
                self._asked.add(event.approval_id)
            case events.ApprovalResolved():
                self._asked.discard(event.approval_id)
            case events.QuestionRequested():
                self._asked.add(event.question_id)
            case events.QuestionResolved():
                self._asked.discard(event.question_id)
            case events.ToolRequested(call=call):
                cleaned = msgspec.structs.replace(call, input=clean_value(call.input, self._redactor().clean))
                self._action = f"{call.name}: {_short(describe(cleaned, cwd=self._cwd))}"
            case events.MessageCompleted(agent_id=None, text=text) if text:
                # Before it is cut: half a secret is not found any more.
                self._action = _short(self._redactor().clean_start(text, ACTION_TEXT))
            case events.UsageUpdated():
                self._tokens[event.message_id] = event.usage.total_tokens
            case events.LimitReached(status="rejected"):
                self._limited, self.resets_at = True, event.resets_at
            case events.RetryScheduled(by="supervisor"):
                self.is_parked = self._limited
            case events.RetryScheduled(error=error) if events.is_unreachable(error):
                self._action = _short(f"{error}; retrying, attempt {event.attempt + 1}")
            case events.RunEnded(result=result):
                self._cost = result.cost_usd
                self._cost_label = result.totals.cost_label if result.totals else self._cost_label
            case _:
                pass

    @property
    def state(self) -> State:
        if self.is_paused:
            return "paused"
        if self._asked:
            return "waiting"
        if self.is_parked:
            return "parked"
        return "running" if self._has_started else "starting"

    def progress(self, run: Run, *, attempt: int) -> Progress:
        return Progress(
            state=self.state,
            attempt=attempt,
            cost_usd=max(self._cost, run.meter.spent_usd),
            cost_label=self._cost_label,
            cwd=self._cwd,
            tokens=sum(self._tokens.values()),
            model=self._model,
            session_id=self._session,
            last_action=self._action,
        )


def _short(text: Any) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 100 else line[:99] + "…"
