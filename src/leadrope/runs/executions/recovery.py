"""What becomes of executions whose owner died or ends: back into the queue, or interrupted until a person decides."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from leadrope.core import execution_events as events
from leadrope.runs.executions import log
from leadrope.runs.records.statements import sql

if TYPE_CHECKING:
    from leadrope.storage.db import Db

MOST_TAKEOVERS = 10
"""Claims in a row without a finished unit: an execution that takes its owner down each time must not do so for ever."""


def abandon(db: Db, left: Sequence[tuple[str, str]], reason: str) -> int:
    """Executions, with their owners, that nobody works on any more; how many there were.

    One that another process has claimed since is that one's. What a person has paused stays paused.
    """
    return sum(_abandon(db, execution_id, owner, reason) for execution_id, owner in left)


def _abandon(db: Db, execution_id: str, owner: str, reason: str) -> bool:
    row = db.execute(sql("execution_recover"), {"id": execution_id, "owner": owner}).fetchone()
    if row is None:
        return False
    n, state, recover, is_outermost = row
    is_recovered = recover == "resume" and is_outermost
    if is_recovered and state == "running" and _is_worn_out(db, n, execution_id):
        is_recovered = False
        reason = f"{reason}, {MOST_TAKEOVERS} times in a row without finishing a step"
    then = "queued" if is_recovered else "interrupted"
    if state == "queued" or (state == "paused" and is_outermost):
        then = state
    note = f"{reason}; it continues" if then == "queued" else reason
    values = {"id": execution_id, "owner": owner, "state": then, "note": note, "now": time.time()}
    db.execute(sql("abandon_execution"), values)
    if is_outermost and then != state:
        event: events.ExecutionEvent = events.ExecutionInterrupted(reason=reason)
        if then == "queued":
            event = events.ExecutionQueued(reason=reason)
        log.extend_unowned(db, n, event)
    return True


def _is_worn_out(db: Db, n: int, execution_id: str) -> bool:
    rows = db.execute(sql("last_resumed"), {"execution": n, "limit": MOST_TAKEOVERS}).fetchall()
    if len(rows) < MOST_TAKEOVERS:
        return False
    done = int(db.execute(sql("count_family_outcomes"), {"id": execution_id}).fetchone()[0])
    return all(msgspec.json.decode(body, type=events.ExecutionResumed).done >= done for (body,) in rows)
