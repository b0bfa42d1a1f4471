"""The event log of an execution: numbered by the store, in the transactions of its owner, without a gap.

    log = ExecutionLog(store, info, owner, redactor=lambda: redactor, show=print)
    log.tell(StepStarted(step="review", kind="agent"))            stored in a moment, with whatever is written next
    await executions.settle(info, outcome, redactor, log=log, told=…)  stored in the one transaction with the outcome

An event is shown once it is stored, and in the order of its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import execution_events
from leadrope.core.execution_events import ExecutionEvent, ExecutionRecord
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runs.records.redacted_rows import as_json
from leadrope.runs.records.sqlite import PACK_BYTES, Sqlite
from leadrope.runs.records.statements import sql
from leadrope.storage.writer import BATCH_EVENTS

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import ShowRecord, WatchRecord
    from leadrope.storage.db import Db

log = logging.getLogger("leadrope.runs")

AGAIN_S = 0.5
"""Between two tries at a store that is full or held."""

TimedEvent = tuple[float, ExecutionEvent]

_encode = msgspec.json.Encoder().encode


class Cleaned(msgspec.Struct, frozen=True):
    """An event without secrets, and its body as it is stored."""

    time: float
    event: ExecutionEvent
    body: bytes


class EventBatch:
    """Events that are written in one transaction."""

    def __init__(self, owner: ExecutionLog, events: Sequence[TimedEvent], kept: int) -> None:
        self._log = owner
        self.events = events
        self.kept = kept
        """How many of them are tried again if this transaction fails; the rest belongs to whoever wanted it."""
        self._cleaned = cleaned(events, owner.redactor)
        self._last = 0

    def write(self, db: Db) -> None:
        """In the writer's thread; done again where the transaction is."""
        if self._cleaned:
            self._last = extend(db, self._log.info, self._log.owner, self._cleaned)

    def then(self, error: BaseException | None) -> None:
        if error is not None:
            self._log.failed(self, error)
        elif self._cleaned:
            info, first = self._log.info, self._last - len(self._cleaned) + 1
            self._log.stored(
                [
                    ExecutionRecord(info.id, info.epoch, seq, one.time, one.event)
                    for seq, one in enumerate(self._cleaned, first)
                ]
            )


class ExecutionLog:
    """Of one claim; called workflows write to the log of the execution that called them."""

    def __init__(
        self,
        store: Sqlite,
        info: ExecutionInfo,
        owner: str,
        *,
        redactor: Callable[[], Redactor],
        show: ShowRecord | None = None,
    ) -> None:
        self._store = store
        self.info = info
        self.owner = owner
        self._redactor = redactor
        self._show = show
        self.watch: WatchRecord | None = None
        """Who looks on beside the one who is shown it."""
        self.lost: errors.LeadropeError | None = None
        """Why nothing more is written: another process has the execution."""
        self._pending: list[TimedEvent] = []
        self._is_handed_in = False
        self._is_tried_again = False

    @property
    def redactor(self) -> Redactor:
        return self._redactor()

    def tell(self, *events: ExecutionEvent) -> None:
        """Stored with what is written next, or in a moment. What cannot be stored yet is tried again."""
        now = time.time()
        self._pending += [(now, event) for event in events]
        if not self._is_handed_in and not self._is_tried_again and self.lost is None:
            self._is_handed_in = True
            asyncio.get_running_loop().call_soon(self._hand_in)

    def _hand_in(self) -> None:
        """Once for all that is told in one go of the loop."""
        self._is_handed_in = False
        if self._pending and self.lost is None:
            batch = self.taken()
            try:
                self._store.write_later(batch.write, batch.then)
            except errors.StoreError as error:
                batch.then(error)

    def taken(self, *events: ExecutionEvent) -> EventBatch:
        """All that was told and is not stored yet, and these: for a transaction of somebody else's."""
        now = time.time()
        pending, self._pending = self._pending, []
        return EventBatch(self, [*pending, *((now, event) for event in events)], len(pending))

    async def flush(self) -> None:
        """Returns when all that was told so far is stored and shown.

        The weight of a full batch: somebody waits for this, and would wait for company as well.
        """
        batch = self.taken()
        await self._store.write(batch.write, weight=BATCH_EVENTS, durable=False, then=batch.then)
        await self.shown()

    async def shown(self) -> None:
        """Returns when all that is stored is shown: whoever waits for a write goes on before its events are."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_soon(done.set_result, None)
        await done

    def stored(self, records: Sequence[ExecutionRecord]) -> None:
        for record in records:
            if self.watch is not None:
                self.watch(record, self.redactor)
            if self._show is not None:
                self._show(record)

    def failed(self, batch: EventBatch, error: BaseException) -> None:
        if isinstance(error, errors.NotOwner | errors.UnknownRun):
            self.lost = error
            return
        self._pending[:0] = batch.events[: batch.kept]
        if self._pending and not self._is_tried_again:
            log.debug("execution %s: its events cannot be stored yet: %s", self.info.id[:8], error)
            self._is_tried_again = True
            asyncio.get_running_loop().call_later(AGAIN_S, self._again)

    def _again(self) -> None:
        self._is_tried_again = False
        with contextlib.suppress(errors.StoreError):  # the store was closed meanwhile
            self._hand_in()


def cleaned(events: Sequence[TimedEvent], redactor: Redactor) -> list[Cleaned]:
    """All at once: bodies are JSON, so a line break stands between two of them and in none."""
    bodies = [_encode(event) for _, event in events]
    text = b"\n".join(bodies).decode()
    if redactor.clean(text) == text:
        return [Cleaned(at, event, body) for (at, event), body in zip(events, bodies, strict=True)]
    found = []
    for at, event in events:
        body = as_json(event, redactor).encode()
        found.append(Cleaned(at, _decoded(body), body))
    return found


def extend(db: Db, info: ExecutionInfo, owner: str, events: Sequence[Cleaned]) -> int:
    """Write events of the owner; the number of the last."""
    values = {"execution": info.n, "owner": owner, "epoch": info.epoch, "count": len(events)}
    found = db.execute(sql("extend_execution_log"), values).fetchone()
    if found is None:
        raise errors.NotOwner(f"execution {info.id[:8]} no longer belongs to {owner}")
    _insert(db, info.n, info.epoch, int(found[0]), events)
    return int(found[0])


def extend_unowned(db: Db, n: int, *events: ExecutionEvent, redactor: Redactor | None = None) -> bool:
    """Write events of an execution that nobody owns; False, and nothing, where it has an owner."""
    now = time.time()
    rows = cleaned([(now, event) for event in events], redactor or Redactor())
    found = db.execute(sql("extend_unowned_execution_log"), {"execution": n, "count": len(rows)}).fetchone()
    if found is None:
        return False
    _insert(db, n, int(found[1]), int(found[0]), rows)
    return True


def extend_new(db: Db, n: int, *events: ExecutionEvent, redactor: Redactor) -> None:
    """The first events of an execution that is made in the same transaction."""
    now = time.time()
    rows = cleaned([(now, event) for event in events], redactor)
    last = db.execute(sql("extend_new_execution_log"), {"execution": n, "count": len(rows)}).fetchone()[0]
    _insert(db, n, 0, int(last), rows)


def _insert(db: Db, n: int, epoch: int, last: int, events: Sequence[Cleaned]) -> None:
    first = last - len(events) + 1
    rows = []
    for seq, one in enumerate(events, first):
        packed = len(one.body) > PACK_BYTES
        body = zlib.compress(one.body, 1) if packed else one.body
        rows.append((n, seq, epoch, one.time, one.event.__struct_config__.tag, int(packed), body))
    db.executemany(sql("add_execution_event"), rows)


def read(row: Sequence[Any], execution_id: str) -> ExecutionRecord:
    seq, epoch, at, packed, body = row
    try:
        text = zlib.decompress(body) if packed else body
    except zlib.error as error:
        raise errors.StoreUnreadable(
            f"the run store is damaged: an event of execution {execution_id} cannot be unpacked ({error})",
            hint="Nothing was overwritten. Put a backup in its place.",
        ) from error
    return ExecutionRecord(execution_id, epoch, seq, at, _decoded(text))


def _decoded(body: bytes) -> ExecutionEvent:
    """The event, or its text where a later version of the package wrote what this one does not know."""
    try:
        event: ExecutionEvent = execution_events.decoder().decode(body)
    except msgspec.DecodeError as error:
        reason = f"stored, and not understood: {error}"
        return execution_events.UnknownEvent(reason=reason, raw=body.decode(errors="replace"))
    return event
