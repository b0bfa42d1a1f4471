"""Patterns that people granted at a question of a run, as its events tell. The gate holds those in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from leadrope.core import events
from leadrope.runs.sqlite import Sqlite
from leadrope.runs.store import RunInfo

State = Literal["active", "revoked", "ended"]


class RunGrant(msgspec.Struct, frozen=True, kw_only=True):
    """One pattern, from the question at which it was granted to its end."""

    pattern: str
    by: str
    time: float
    attempt: int
    state: State = "active"
    """`ended`: with its run, or with the attempt that it was granted in."""
    revoked_by: str = ""


def granted(store: Sqlite, run: RunInfo) -> list[RunGrant]:
    """In the order in which they were given; a pattern that was revoked and granted again is there twice."""
    found: list[RunGrant] = []
    records = [*_all(store, run, "approval.resolved"), *_all(store, run, "grant.revoked")]
    for record in sorted(records, key=lambda record: record.seq):
        match record.event:
            case events.ApprovalResolved(approved=True, pattern=pattern, by=by) if pattern:
                found.append(RunGrant(pattern=pattern, by=by, time=record.time, attempt=record.attempt))
            case events.GrantRevoked(pattern=pattern, by=by):
                change: dict[str, Any] = {"state": "revoked", "revoked_by": by}
                found = [
                    msgspec.structs.replace(grant, **change)
                    if (grant.pattern, grant.state) == (pattern, "active")
                    else grant
                    for grant in found
                ]
    return [
        msgspec.structs.replace(grant, state="ended")
        if grant.state == "active" and (run.state == "ended" or grant.attempt < run.attempt)
        else grant
        for grant in found
    ]


def _all(store: Sqlite, run: RunInfo, type_: str) -> Iterator[events.Recorded]:
    seq = 1
    while page := store.read(run, seq, 500, type_=type_):
        yield from page
        seq = page[-1].seq + 1
