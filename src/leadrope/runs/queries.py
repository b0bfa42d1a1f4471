"""What a service tells of runs: lists, states, events, and the request of one that is to be done again. Starts none."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import events
from leadrope.core.request import RunRequest
from leadrope.runs.approvals import names as approval_names
from leadrope.runs.executions.reading import ExecutionReads
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import Approval, Filter, RunInfo, Texts, Truncated

if TYPE_CHECKING:
    from leadrope.runs.grants import RunGrant

FUNCTIONS = "functions"
"""In the place of a run: the names of the program's own functions that it was given."""


class Queries:
    def __init__(self, store: Sqlite) -> None:
        self.store = store

    def get(self, run_id: str) -> RunInfo:
        return self._noted([self.store.find(run_id)])[0]

    def known(self, run_id: str) -> RunInfo | None:
        """The run of exactly this id, if there is one."""
        try:
            return self.store.get(run_id)
        except errors.UnknownRun:
            return None

    def texts(self, run_id: str) -> Texts:
        return self.store.texts(self.store.find(run_id).id)

    def listing(self, wanted: Filter = Filter()) -> list[RunInfo]:  # noqa: B008  # frozen
        return self._noted(self.store.listing(wanted))

    def _noted(self, rows: list[RunInfo]) -> list[RunInfo]:
        """With what no row says: how long a run has waited for a person, and that its account is held."""
        if any(row.state == "waiting" for row in rows):
            from leadrope.runs.approvals import waiting  # noqa: PLC0415  # few runs wait

            asked: dict[str, list[Approval]] = {}
            for one in self.store.approvals(limit=5000):
                asked.setdefault(one.run_id, []).append(one)
            rows = [
                msgspec.structs.replace(row, note=waiting.in_words(asked.get(row.id, ()), time.time()))
                if row.state == "waiting"
                else row
                for row in rows
            ]
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
        return f"{ahead} {'run is' if ahead == 1 else 'runs are'} ahead of it" if ahead else "waiting for a free slot"

    def approvals(self, **wanted: Any) -> list[Approval]:
        """What people are, or were, asked; see `ApprovalReads.approvals`."""
        return self.store.approvals(**wanted)

    def approval(self, name: str) -> Approval:
        """One by its id or the beginning of it, or by the run or execution that waits for exactly one answer."""
        return approval_names.find(name, self.store, ExecutionReads(self.store))

    def grants(self, run_id: str) -> list[RunGrant]:
        """What people granted at a question of the run, patterns and exact calls, also what no longer holds."""
        from leadrope.runs import grants  # noqa: PLC0415  # of one run, for who asks

        return grants.granted(self.store, self.store.find(run_id))

    def follow(
        self, run_id: str, from_seq: int = 1, *, live: bool = True
    ) -> AsyncIterator[events.Recorded | Truncated]:
        """What is stored, then what comes: each event once, in order."""
        from leadrope.runs import feed  # noqa: PLC0415  # only who follows one

        return feed.follow(self.store, self.store.find(run_id).id, from_seq, live=live)

    def _stored_request(self, run: RunInfo, *, is_resumed: bool) -> RunRequest:
        raise NotImplementedError

    def again(self, run_id: str, *, prompt: str | None = None) -> tuple[RunInfo, RunRequest]:
        """The request of a run that has ended: the same once more, or with a prompt in its session."""
        run = self.store.find(run_id)
        if run.state != "ended":
            hint = f"`leadrope runs logs -f {run.id[:8]}` follows it, `leadrope runs stop {run.id[:8]}` ends it."
            if run.state == "waiting":
                hint = f"It resumes when it is answered: `leadrope approvals list --run {run.id[:8]}`."
            raise errors.WrongState(f"run {run.id[:8]} has not ended: it is {run.state}", hint=hint)
        if names := self.store.texts(run.id).place.get(FUNCTIONS):
            raise errors.WrongState(
                f"run {run.id[:8]} called functions of the program that started it ({', '.join(names)})",
                hint="Only that program can start it again.",
            )
        request = self._stored_request(run, is_resumed=prompt is not None)
        request = msgspec.structs.replace(request, cwd=request.cwd or run.cwd or None)
        if prompt is None:
            return run, msgspec.structs.replace(request, session_id=None)
        if run.session_id is None:
            raise errors.WrongState(
                f"run {run.id[:8]} has no session to continue", hint="`leadrope runs retry` starts it anew."
            )
        return run, msgspec.structs.replace(
            request, prompt=prompt, resume=run.session_id, fork=False, session_id=None, attachments=()
        )
