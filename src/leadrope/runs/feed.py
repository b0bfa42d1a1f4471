"""Following a run or an execution: what is stored, then what comes, each event once, however slow the reader is.

Every follower reads the store at its own pace. One that stalls costs nothing but its place in the log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from leadrope.core.events import Recorded
from leadrope.core.execution_events import ExecutionRecord, ExecutionStarted
from leadrope.runs.executions.values import ExecutionInfo, ExecutionTruncated
from leadrope.runs.records.values import Truncated

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import ExecutionStore
    from leadrope.runs.records.protocols import RunStore

PAGE = 500
QUIET_S = 5.0
"""How long nothing may happen before the run's own row is looked at again: an owner that died rings no bell."""


async def follow(
    store: RunStore, run_id: str, from_seq: int = 1, *, live: bool = True
) -> AsyncGenerator[Recorded | Truncated, None]:
    """Events from `from_seq` on, to the end of the run; with `live=False` to what is stored now."""
    run_id = (await store.find(run_id)).id
    seq = max(1, from_seq)
    with store.notifier.listen() as heard:
        while True:
            # The row first: an end that is read before the events is an end after all of them.
            run = await store.get(run_id)
            page = await store.events(run, seq, PAGE)
            for recorded in page:
                if recorded.seq > seq:
                    yield Truncated(run_id=run_id, first_seq=seq, last_seq=recorded.seq - 1)
                yield recorded
                seq = recorded.seq + 1
            if page:
                continue
            if run.last_seq >= seq:  # the end of the log is gone, not only its beginning
                yield Truncated(run_id=run_id, first_seq=seq, last_seq=run.last_seq)
                seq = run.last_seq + 1
            if run.state == "ended" or not live:
                return
            await heard.wait(QUIET_S)


async def follow_execution(
    store: RunStore, executions: ExecutionStore, execution_id: str, from_seq: int = 1, *, live: bool = True
) -> AsyncGenerator[ExecutionRecord | ExecutionTruncated, None]:
    """Events from `from_seq` on, until it has ended or is interrupted; with `live=False` to what is stored now.

    Of a called workflow its own events, out of the log of its caller.
    """
    wanted = await executions.find(execution_id)
    outermost = await executions.outermost(wanted)
    inside = {wanted.id}
    seq = max(1, from_seq)
    with store.notifier.listen() as heard:
        while True:
            row = await executions.get(wanted.id)
            last = (await executions.get(outermost.id)).last_seq
            page = await executions.events(outermost, seq, PAGE)
            for record in page:
                if record.seq > seq:
                    yield ExecutionTruncated(execution_id=outermost.id, first_seq=seq, last_seq=record.seq - 1)
                if _is_of(record, wanted, inside):
                    yield record
                seq = record.seq + 1
            if page:
                continue
            if last >= seq:
                yield ExecutionTruncated(execution_id=outermost.id, first_seq=seq, last_seq=last)
                seq = last + 1
            if row.state in ("ended", "interrupted") or not live:
                return
            await heard.wait(QUIET_S)


def _is_of(record: ExecutionRecord, wanted: ExecutionInfo, inside: set[str]) -> bool:
    if wanted.parent is None:
        return True
    event = record.event
    if isinstance(event, ExecutionStarted) and event.parent in inside:
        inside.add(event.execution)
    return event.execution in inside
