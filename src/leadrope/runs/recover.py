"""What becomes of runs whose owner died: their processes are ended, their state is put right, some go on.

Done before anybody is shown anything, so that no run says `running` without a living owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadrope import errors
from leadrope.core import actors, events
from leadrope.core.request import RunRequest
from leadrope.core.result import RunError, RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.process import reaper
from leadrope.runs import leases
from leadrope.runs.records import lost_ends
from leadrope.runs.records.values import RESERVED, RunInfo, ended_event

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import ExecutionStore
    from leadrope.runs.records.protocols import RunStore

log = logging.getLogger("leadrope.runs")

Verdict = Literal["kept", "resumed", "failed"]

GO_ON = (
    "The program that supervised you was ended in the middle of your work. Look at what is done already, then "
    "continue; do not repeat what is done."
)
MOST_ATTEMPTS = 5
"""A run that takes its owner down with it each time must not do so for ever."""


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    verdict: Verdict
    killed: int
    """Processes that were still there."""


async def reconcile(store: RunStore, executions: ExecutionStore, leadrope_home: Path) -> list[Reconciled]:
    """Every run whose owner is dead, brought into a state that is true. One process does it at a time."""
    with leases.Exclusive(leadrope_home / "recover.lock") as mine:
        if not mine:
            return []
        done: list[Reconciled] = []
        for owner in await store.owners():
            if leases.is_alive(leadrope_home, owner):
                continue
            ends = lost_ends.of_owner(leadrope_home, owner.id)
            done += await _reconcile_all(store, await store.runs_of(owner.id), ends)
            await store.drop_owner(owner.id)
            leases.forget(leadrope_home, owner)
            lost_ends.forget(leadrope_home, owner.id)
        done += await _reconcile_all(store, await store.orphans(), {})
        left = await store.executions_without_owner()
        for execution_id, _ in left:
            await asyncio.to_thread(reaper.kill_tagged, execution_id)  # before anybody may go on with it
        await executions.abandon(left)
        for run_id in await store.reserved_in_vain():
            run = await store.get(run_id)
            result = stopped(run, await all_events(store, run), "its workflow has ended")
            last = ended_event(run.id, run.attempt, run.last_seq + 1, result)
            with contextlib.suppress(errors.NotOwner):
                await store.end_run(run, result, Redactor(), last=last)
        return done


async def _reconcile_all(
    store: RunStore, run_ids: Sequence[str], ends: Mapping[str, lost_ends.LostEnd]
) -> list[Reconciled]:
    done: list[Reconciled] = []
    for run_id in run_ids:
        with contextlib.suppress(errors.NotOwner):  # claimed meanwhile: it is its new owner's
            done.append(await _reconcile(store, await store.get(run_id), ends.get(run_id)))
    return done


async def _reconcile(store: RunStore, run: RunInfo, lost: lost_ends.LostEnd | None = None) -> Reconciled:
    killed = await asyncio.to_thread(reaper.kill_tagged, run.id)
    records = await all_events(store, run)
    told = finished(records)
    if told is not None:
        last = None if records and isinstance(records[-1].event, events.RunEnded) else records[-1].seq + 1
        ended = ended_event(run.id, run.attempt, last, told) if last is not None else None
        await store.end_run(run, told, Redactor(), last=ended, note="finished; its owner died afterwards")
        return Reconciled(run_id=run.id, verdict="kept", killed=killed)
    if lost is not None:
        result = lost.result(_folded(records) if records else RunResult(run_id=run.id, outcome=lost.outcome))
        last_event = ended_event(run.id, run.attempt, run.last_seq + 1, result)
        await store.end_run(run, result, Redactor(), last=last_event, note=lost_ends.REASON)
        return Reconciled(run_id=run.id, verdict="kept", killed=killed)
    place = (await store.texts(run.id)).place
    from leadrope.runs.approvals import waiting  # noqa: PLC0415  # only where an owner has died

    # A suspension for a person's answer is not a failure.
    starts = run.attempt - waiting.suspensions(records)
    then = place.get("recover", "fail")
    if then in ("resume", "execution") and starts < MOST_ATTEMPTS:
        if await waiting.can_suspend(store, run, place):
            await store.suspend(run, attempt=run.attempt)
            return Reconciled(run_id=run.id, verdict="resumed", killed=killed)
        if place.get("pending", "keep") == "deny":
            reason = "the process that asked has died"
            await store.close_approvals(run, "denied", by=actors.LEADROPE, reason=reason, attempt=run.attempt)
        # A claim that died before its first event is the same attempt still.
        attempt = run.attempt + 1 if any(record.attempt == run.attempt for record in records) else run.attempt
        owner, note = None, "its background process died; it continues in its session"
        if then == "execution":
            owner, note = reserved(place)
        await store.requeue(run, attempt=attempt, note=note, owner=owner)
        return Reconciled(run_id=run.id, verdict="resumed", killed=killed)
    result = died(run, records)
    seq = (records[-1].seq if records else 0) + 1
    await store.end_run(run, result, Redactor(), last=ended_event(run.id, run.attempt, seq, result))
    return Reconciled(run_id=run.id, verdict="failed", killed=killed)


def reserved(place: Mapping[str, Any]) -> tuple[str, str]:
    """The owner and the note of a step's run that waits for its execution to be continued."""
    execution_id = str(place.get("execution", ""))
    return RESERVED + execution_id, f"it continues with its execution {execution_id[:8]}"


async def all_events(store: RunStore, run: RunInfo) -> list[events.Recorded]:
    found: list[events.Recorded] = []
    while page := await store.read(run, found[-1].seq + 1 if found else 1, 2000):
        found += page
    return found


def _folded(records: Sequence[events.Recorded]) -> RunResult:
    from leadrope.core.fold import fold  # noqa: PLC0415  # only where an owner has died, or a run is stopped

    return fold(records)


def finished(records: Sequence[events.Recorded]) -> RunResult | None:
    """The result, if the log holds one: its own last event, or a whole answer after which only the end was missing."""
    if not records:
        return None
    last = records[-1].event
    if isinstance(last, events.RunEnded):
        return last.result
    result = _folded(records)
    # A denied run has its answer too.
    return result if result.outcome in ("succeeded", "denied") else None


def died(run: RunInfo, records: Sequence[events.Recorded]) -> RunResult:
    before = _folded(records) if records else RunResult(run_id=run.id, outcome="failed")
    session = before.session_id or run.session_id
    hint = f"Continue with `leadrope runs resume {run.id[:8]}`." if session else f"`leadrope runs retry {run.id[:8]}`."
    error = RunError(kind="agent_died", message="the leadrope process that supervised it was ended", hint=hint)
    return msgspec.structs.replace(before, run_id=run.id, outcome="failed", error=error)


def stopped(run: RunInfo, records: Sequence[events.Recorded], reason: str) -> RunResult:
    """The end of a run that had no agent when it was stopped, with what its earlier attempts came to."""
    problem = RunError(kind="stopped", message=reason)
    if not records:
        return RunResult(run_id=run.id, outcome="stopped", error=problem, attempts=run.attempt)
    return msgspec.structs.replace(_folded(records), run_id=run.id, outcome="stopped", error=problem)


def has_session(records: Sequence[events.Recorded]) -> bool:
    """Whether the next attempt continues in the session of an earlier one."""
    return _session(records) is not None


def resumed(request: RunRequest, records: Sequence[events.Recorded]) -> RunRequest:
    """The request of the next attempt: in the session, if there is one to go on with; else from the beginning."""
    session = _session(records)
    if session is not None and request.persist_session:
        return msgspec.structs.replace(
            request, resume=session, fork=False, session_id=None, prompt=GO_ON, attachments=()
        )
    return msgspec.structs.replace(request, session_id=None)


def _session(records: Sequence[events.Recorded]) -> str | None:
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
    return session if has_turn else None
