"""Reading the run store. Changes nothing."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.events import Event, Recorded, Unrecognised, decoder
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.runs.approvals.rows import ApprovalReads
from leadrope.runs.records.statements import migrations, sql
from leadrope.runs.records.values import Artifact, Filter, Owner, RunInfo, Spending, Texts
from leadrope.storage.database import Migrations
from leadrope.storage.sqlite_file import Reader

PAGE_BYTES = 4 * 1024 * 1024
"""Of bodies in one page. A follower that stalls holds a page: five hundred large tool results would be a gigabyte."""

_labels = msgspec.json.Decoder(dict[str, str])
_object = msgspec.json.Decoder(dict[str, Any])


class Reads(Reader, ApprovalReads):
    """The half of the store that a list, a page or a follower needs."""

    def _migrations(self) -> Migrations:
        return migrations()

    async def _rows(self, statement: str, /, **values: Any) -> list[Any]:
        return await self.fetch(sql(statement), values)

    def rows_now(self, statement: str, /, **values: Any) -> list[Any]:
        """For whoever reads in a thread of its own."""
        return self.fetch_now(sql(statement), values)

    async def get(self, run_id: str) -> RunInfo:
        rows = await self._rows("get_run", id=run_id)
        if not rows:
            raise errors.UnknownRun(f"there is no run {run_id}", hint="`leadrope runs list` shows the runs.")
        return _info(rows[0])

    async def find(self, prefix: str) -> RunInfo:
        """A run by its id or the beginning of it, as git does with commits."""
        found = await self.with_prefix(prefix)
        if len(found) == 1 or (found and found[0].id == prefix):
            return found[0]
        if found:
            shown = ", ".join(f"{run.id[:12]} ({run.title[:30]})" for run in found)
            raise errors.UnknownRun(f"{prefix!r} could be {shown}", hint="Write more of the id.")
        raise errors.UnknownRun(f"there is no run {prefix!r}", hint="`leadrope runs list` shows the runs.")

    async def with_prefix(self, prefix: str) -> list[RunInfo]:
        """The runs whose ids begin so: a few of them, if there are many."""
        rows = await self._rows("runs_with_prefix", low=prefix, high=prefix + "\uffff") if prefix else []
        return [await self.get(row[0]) for row in rows]

    async def listing(self, wanted: Filter = Filter()) -> list[RunInfo]:  # noqa: B008  # frozen
        key, value = wanted.label or ("", "")
        rows = await self._rows(
            "list_runs",
            before=wanted.before if wanted.before is not None else 2**62,
            state=wanted.state or "",
            outcome=wanted.outcome or "",
            is_open=int(wanted.is_open),
            cwd=wanted.cwd or "",
            agent=wanted.agent or "",
            label=key,
            value=value,
            since=wanted.since,
            limit=wanted.limit,
        )
        return [_info(row) for row in rows]

    async def texts(self, run_id: str) -> Texts:
        rows = await self._rows("run_texts", id=run_id)
        if not rows:
            raise errors.UnknownRun(f"there is no run {run_id}")
        request, policy, place, result = rows[0]
        return Texts(
            request=msgspec.json.decode(request, type=RunRequest),
            policy=_object.decode(policy),
            place=_object.decode(place),
            result=msgspec.json.decode(result, type=RunResult) if result else None,
        )

    async def read(self, run: RunInfo, seq: int, limit: int, *, type_: str | None = None) -> list[Recorded]:
        """From `seq` on, at most `limit` events, and fewer where they are large; none when there are no more."""
        return await self.patiently(lambda: self._read_now(run, seq, limit, type_=type_))

    def _read_now(self, run: RunInfo, seq: int, limit: int, *, type_: str | None = None) -> list[Recorded]:
        name = "read_events" if type_ is None else "read_type"
        values = {"run": run.n, "seq": seq, "limit": limit, "type": type_}
        found: list[Recorded] = []
        size = 0
        try:
            # Row by row: a page of large bodies must not be in memory twice, nor be larger than a page may be.
            with contextlib.closing(self.stream(sql(name), values)) as rows:
                for number, attempt, time_, source, packed, body in rows:
                    text = zlib.decompress(body) if packed else body
                    found.append(Recorded(run.id, attempt, number, time_, source, _decoded(text)))
                    size += len(text)
                    if size >= PAGE_BYTES:
                        break
        except zlib.error as error:
            raise errors.StoreUnreadable(
                f"the run store {self.path} is damaged: an event of run {run.id} cannot be unpacked ({error})",
                hint="Nothing was overwritten. Put a backup in its place.",
            ) from error
        return found

    async def events(self, run: RunInfo, seq: int, limit: int = 500) -> list[Recorded]:
        """As `read`, in a thread: a page may hold megabytes."""
        return await self.in_thread(lambda: self._read_now(run, seq, limit))

    async def owners(self) -> list[Owner]:
        return [
            Owner(id=id_, pid=pid, boot=boot, kind=kind, started=started)
            for id_, pid, boot, kind, started in await self._rows("list_owners")
        ]

    async def runs_of(self, owner: str) -> list[str]:
        return [row[0] for row in await self._rows("runs_of_owner", owner=owner)]

    async def orphans(self) -> list[str]:
        """Runs of owners that nobody knows any more."""
        return [row[0] for row in await self._rows("owners_missing")]

    async def reserved_in_vain(self) -> list[str]:
        """Runs of steps that wait for an execution which has ended, or is gone."""
        return [row[0] for row in await self._rows("reserved_in_vain")]

    async def left_over(self, now: float) -> list[str]:
        """Runs that may start and have no owner, the oldest first."""
        return [row[0] for row in await self._rows("left_over", now=now)]

    async def waiting_for(self, owner: str) -> list[str]:
        """Runs in the queue that this owner may take up, now or later."""
        return [row[0] for row in await self._rows("waiting_for", owner=owner)]

    async def executions_without_owner(self) -> list[tuple[str, str]]:
        """Workflow runs, with the owners they had, that say `running` and are not."""
        return await self._rows("executions_without_owner")

    async def ahead_of(self, run_id: str) -> int:
        return int((await self._rows("ahead_of", id=run_id))[0][0])

    async def holds(self, now: float) -> dict[str, tuple[float, str]]:
        return {account: (until, note) for account, until, note in await self._rows("list_holds", now=now)}

    async def next_due(self, now: float) -> float | None:
        """When something that waits for a time may go on."""
        times = [row[0] for name in ("next_due", "next_hold") for row in await self._rows(name, now=now) if row[0]]
        return min(times, default=None)

    async def states(self) -> dict[str, int]:
        return dict(await self._rows("count_by_state"))

    async def cost_since(self, since: float, *, agent: str = "", label: tuple[str, str] | None = None) -> float:
        key, value = label or ("", "")
        rows = await self._rows("cost_since", since=since, agent=agent, label=key, value=value)
        return float(rows[0][0])

    async def spending(self, since: float) -> list[Spending]:
        """What every run since then has cost."""
        return [
            (day, model, _labels.decode(labels), *rest)
            for day, model, labels, *rest in await self._rows("spending", since=since)
        ]

    async def artifacts(self, run: RunInfo) -> list[Artifact]:
        """What is kept of a run beside its events, without the bodies."""
        rows = await self._rows("list_artifacts", run=run.n)
        return [Artifact(name=name, kind=kind, created=created, size=size) for name, kind, created, size in rows]

    async def artifact(self, run: RunInfo, name: str) -> bytes | None:
        rows = await self._rows("get_artifact", run=run.n, name=name)
        return bytes(rows[0][1]) if rows else None


def _decoded(body: bytes) -> Event:
    """The event, or its text where a later version of the package wrote what this one does not know."""
    try:
        event = decoder().decode(body)
    except msgspec.DecodeError as error:
        return Unrecognised(reason=f"stored, and not understood: {error}", raw=body.decode(errors="replace"))
    return event


_INFO_FIELDS = RunInfo.__struct_fields__


def _info(row: Sequence[Any]) -> RunInfo:
    fields = dict(zip(_INFO_FIELDS, row, strict=True))
    fields["labels"] = _labels.decode(fields["labels"])
    return RunInfo(**fields)
