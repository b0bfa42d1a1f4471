"""What a service tells of runs: lists, states, events, and the request of one that is to be done again. Starts none."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core import events
from leadrope.core.request import RunRequest
from leadrope.runs import feed, grants
from leadrope.runs.sqlite import Sqlite
from leadrope.runs.store import Approval, Filter, RunInfo, Texts, Truncated
from leadrope.runs.stored_requests import whole


class Looks:
    def __init__(self, store: Sqlite) -> None:
        self.store = store

    def get(self, run_id: str) -> RunInfo:
        return self._noted([self.store.find(run_id)])[0]

    def texts(self, run_id: str) -> Texts:
        return self.store.texts(self.store.find(run_id).id)

    def listing(self, wanted: Filter = Filter()) -> list[RunInfo]:  # noqa: B008  # frozen
        return self._noted(self.store.listing(wanted))

    def _noted(self, rows: list[RunInfo]) -> list[RunInfo]:
        """With the word on an account that is held, for those that wait because of it: it stands in no row."""
        if not any(row.state == "queued" and not row.note for row in rows):
            return rows
        holds = self.store.holds(time.time())
        return [
            msgspec.structs.replace(row, note=holds[row.account][1])
            if row.state == "queued" and not row.note and row.account in holds
            else row
            for row in rows
        ]

    def waits_for(self, run: RunInfo) -> str:
        """Why a run is not at work, in words; empty for one that is."""
        if run.state != "queued" or run.note:
            return run.note
        ahead = self.store.ahead_of(run.id)
        return f"{ahead} {'run is' if ahead == 1 else 'runs are'} ahead of it" if ahead else "it waits for a place"

    def approvals(self, **wanted: Any) -> list[Approval]:
        return self.store.approvals(**wanted)

    def grants(self, run_id: str) -> list[grants.RunGrant]:
        """Patterns that people granted at a question of the run, those included that no longer hold."""
        return grants.granted(self.store, self.store.find(run_id))

    def follow(
        self, run_id: str, from_seq: int = 1, *, live: bool = True
    ) -> AsyncIterator[events.Recorded | Truncated]:
        """What is stored, then what comes: each event once, in order."""
        return feed.follow(self.store, self.store.find(run_id).id, from_seq, live=live)

    def again(self, run_id: str, *, prompt: str | None = None) -> tuple[RunInfo, RunRequest]:
        """The request of a run that has ended: the same once more, or with a prompt in its session."""
        run = self.store.find(run_id)
        if run.state != "ended":
            raise errors.WrongState(f"run {run.id[:8]} has not ended", hint="Stop it first, or wait.")
        request = whole(self.store.texts(run.id).request)
        request = msgspec.structs.replace(request, cwd=request.cwd or run.cwd or None)
        if prompt is None:
            return run, msgspec.structs.replace(request, session_id=None)
        if run.session_id is None:
            raise errors.WrongState(
                f"run {run.id[:8]} has no session to go on with", hint="`leadrope runs retry` starts it anew."
            )
        return run, msgspec.structs.replace(
            request, prompt=prompt, resume=run.session_id, fork=False, session_id=None, attachments=()
        )
