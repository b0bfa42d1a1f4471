"""What becomes of runs whose owner died: their processes are ended, their state is put right, some go on.

Done before anybody is shown anything, so that no run says `running` without a living owner.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from leadrope import errors
from leadrope.core import events
from leadrope.core.fold import fold
from leadrope.core.redaction import Redactor
from leadrope.core.request import RunRequest
from leadrope.core.result import ErrorKind, RunError, RunResult
from leadrope.process import reaper
from leadrope.runs import flows, leases
from leadrope.runs.sqlite import Sqlite, ended_event
from leadrope.runs.store import Filter, RunInfo

log = logging.getLogger("leadrope.runs")

KINDS = frozenset(get_args(ErrorKind))
Verdict = Literal["kept", "resumed", "failed"]

GO_ON = (
    "The program that supervised you was ended in the middle of your work. Look at what is done already, then go on; "
    "do not repeat what is done."
)
MOST_ATTEMPTS = 5
"""A run that takes its owner down with it each time must not do so for ever."""


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    verdict: Verdict
    killed: int
    """Processes that were still there."""


async def reconcile(store: Sqlite, leadrope_home: Path) -> list[Reconciled]:
    """Every run whose owner is dead, brought into a state that is true. One process does it at a time."""
    with leases.Exclusive(leadrope_home / "recover.lock") as mine:
        if not mine:
            return []
        done: list[Reconciled] = []
        for owner in store.owners():
            if leases.is_alive(leadrope_home, owner):
                continue
            done += [await _reconcile(store, store.get(run_id)) for run_id in store.runs_of(owner.id)]
            await store.drop_owner(owner.id)
            leases.forget(leadrope_home, owner)
        done += [await _reconcile(store, store.get(run_id)) for run_id in store.orphans()]
        left = store.flows_without_owner()
        for flow_id, _ in left:
            await asyncio.to_thread(reaper.kill_tagged, flow_id)  # before anybody may go on with it
        await flows.interrupt(store, left)
        return done


async def _reconcile(store: Sqlite, run: RunInfo) -> Reconciled:
    killed = await asyncio.to_thread(reaper.kill_tagged, run.id)
    records = all_events(store, run)
    told = finished(records)
    if told is not None:
        last = None if records and isinstance(records[-1].event, events.RunEnded) else records[-1].seq + 1
        ended = ended_event(run.id, run.attempt, last, told) if last is not None else None
        await store.end_run(run, told, Redactor(), last=ended, note="finished; its owner died afterwards")
        return Reconciled(run_id=run.id, verdict="kept", killed=killed)
    place = store.texts(run.id).place
    if place.get("recover", "fail") == "resume" and run.attempt < MOST_ATTEMPTS:
        if place.get("pending", "keep") == "deny":
            reason = "the process that asked has died"
            await store.close_approvals(run, "denied", by="recovery", reason=reason, attempt=run.attempt)
        # A claim that died before its first event is the same attempt still.
        attempt = run.attempt + 1 if any(record.attempt == run.attempt for record in records) else run.attempt
        await store.requeue(run, attempt=attempt, note="its owner died; it goes on in its session")
        return Reconciled(run_id=run.id, verdict="resumed", killed=killed)
    result = died(run, records)
    seq = (records[-1].seq if records else 0) + 1
    await store.end_run(run, result, Redactor(), last=ended_event(run.id, run.attempt, seq, result))
    return Reconciled(run_id=run.id, verdict="failed", killed=killed)


def all_events(store: Sqlite, run: RunInfo) -> list[events.Recorded]:
    found: list[events.Recorded] = []
    while page := store.read(run, found[-1].seq + 1 if found else 1, 2000):
        found += page
    return found


def finished(records: Sequence[events.Recorded]) -> RunResult | None:
    """The result, if the log holds one: its own last event, or a whole answer after which only the end was missing."""
    if not records:
        return None
    last = records[-1].event
    if isinstance(last, events.RunEnded):
        return last.result
    result = fold(records)
    return result if result.outcome == "succeeded" else None


def died(run: RunInfo, records: Sequence[events.Recorded]) -> RunResult:
    before = fold(records) if records else RunResult(run_id=run.id, outcome="failed")
    session = before.session_id or run.session_id
    hint = f"Go on with `leadrope runs resume {run.id[:8]}`." if session else f"`leadrope runs retry {run.id[:8]}`."
    error = RunError(kind="agent_died", message="the leadrope process that supervised it was ended", hint=hint)
    return msgspec.structs.replace(before, run_id=run.id, outcome="failed", error=error)


def not_started(error: errors.LeadropeError, *, run_id: str = "", attempts: int = 0) -> RunResult:
    """What kept a run from starting, as a result."""
    kind = error.kind if error.kind in KINDS else "spawn_failed"
    problem = RunError(kind=kind, message=error.message, hint=error.hint)  # type: ignore[arg-type]  # looked up
    return RunResult(run_id=run_id, outcome="failed", error=problem, attempts=attempts)


def resumed(request: RunRequest, records: Sequence[events.Recorded]) -> RunRequest:
    """The request of the next attempt: in the session, if there is one to go on with; else from the beginning."""
    session = None
    has_turn = False
    for record in records:
        match record.event:
            case events.SessionStarted():
                session = record.event.session_id
            case events.TurnStarted() | events.ToolRequested() | events.MessageCompleted():
                has_turn = True
            case _:
                pass
    if session is not None and has_turn and request.persist_session:
        return msgspec.structs.replace(request, resume=session, fork=False, session_id=None, prompt=GO_ON)
    return msgspec.structs.replace(request, session_id=None)


def stale(store: Sqlite, *, keep_s: float, keep_runs: int) -> list[RunInfo]:
    """Ended runs that are older than `keep_s`, beyond the newest `keep_runs`."""
    before = time.time() - keep_s
    found: list[RunInfo] = []
    cursor: int | None = None
    seen = 0
    while page := store.listing(Filter(state="ended", before=cursor, limit=500)):
        cursor = page[-1].n
        for run in page:
            seen += 1
            if seen > keep_runs and (run.ended or run.created) < before:
                found.append(run)
    return found
