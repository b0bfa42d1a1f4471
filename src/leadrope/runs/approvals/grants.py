"""What people granted at a question of a run, patterns and exact calls, as its events tell. The gate enforces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadrope.core import events
from leadrope.core.fold import SUSPENDED
from leadrope.core.tools import ToolCall, grant_name, subject
from leadrope.runs.records.values import RunInfo
from leadrope.runtime.gate.approvers import read_answer

if TYPE_CHECKING:
    from leadrope.runs.records.protocols import RunStore

State = Literal["active", "revoked", "ended"]


class RunGrant(msgspec.Struct, frozen=True, kw_only=True):
    """One pattern or exact call, from the question at which it was granted to its end."""

    pattern: str
    """Or `call:ID`, by which an exact call is revoked."""
    call: ToolCall | None = None
    """The exact call."""
    by: str
    time: float
    attempt: int
    state: State = "active"
    """`ended`: with its run, or with the attempt that it was granted in. A wait for an answer ends none."""
    revoked_by: str = ""


async def granted(store: RunStore, run: RunInfo) -> list[RunGrant]:
    """In the order in which they were given; a pattern that was revoked and granted again is there twice."""
    found: list[RunGrant] = []
    records = [*await _all(store, run, "approval.resolved"), *await _all(store, run, "grant.revoked")]
    for record in sorted(records, key=lambda record: record.seq):
        match record.event:
            case events.ApprovalResolved(approved=True, pattern=pattern, by=by, call=call) if pattern:
                found.append(RunGrant(pattern=pattern, call=call, by=by, time=record.time, attempt=record.attempt))
            case events.GrantRevoked(pattern=pattern, by=by):
                change: dict[str, Any] = {"state": "revoked", "revoked_by": by}
                found = [
                    msgspec.structs.replace(grant, **change)
                    if (grant.pattern, grant.state) == (pattern, "active")
                    else grant
                    for grant in found
                ]
    carried = await _first_carried(store, run) if any(grant.attempt < run.attempt for grant in found) else run.attempt
    return [
        msgspec.structs.replace(grant, state="ended")
        if grant.state == "active" and (run.state == "ended" or grant.attempt < carried)
        else grant
        for grant in found
    ]


async def standing(store: RunStore, run: RunInfo) -> list[str]:
    """Calls that were approved for the rest of the run before it waited, and not revoked since; see `tools.subject`."""
    approved = await store.approvals(state="approved", run_id=run.id)
    rows = [row for row in approved if row.kind == "tool_call" and row.used]
    answers = [(row, read_answer(row.answer)) for row in rows if row.answer is not None]
    given = [(row, answer) for row, answer in answers if answer.scope == "run"]
    if not given:
        return []
    held = {grant.pattern for grant in await granted(store, run) if grant.state == "active"}
    found: list[str] = []
    for row, answer in given:
        call = msgspec.json.decode(row.asked, type=events.ApprovalRequested).call
        standing_call = subject(call.name, call.input if answer.edited is None else answer.edited, call.cwd)
        if row.attempt < run.attempt and grant_name(standing_call) in held:
            found.append(standing_call)
    return found


async def _first_carried(store: RunStore, run: RunInfo) -> int:
    """The first attempt whose grants still hold: a wait for a person's answer ends none, every other end does."""
    notices = await _all(store, run, "notice")
    waits = {
        record.attempt
        for record in notices
        if isinstance(record.event, events.Notice) and record.event.code == SUSPENDED
    }
    first = run.attempt
    while first - 1 in waits:
        first -= 1
    return first


async def _all(store: RunStore, run: RunInfo, type_: str) -> list[events.Recorded]:
    found: list[events.Recorded] = []
    while page := await store.read(run, found[-1].seq + 1 if found else 1, 500, type_=type_):
        found += page
    return found
