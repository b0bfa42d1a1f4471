"""The run store: its writes, all through one thread. Starts nothing, decides nothing."""

from __future__ import annotations

import time
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from leadrope import errors
from leadrope.core import actors
from leadrope.core.events import Event, Recorded
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor, redact
from leadrope.runs.approvals.rows import ApprovalWrites
from leadrope.runs.records import claims
from leadrope.runs.records.reading import Reads
from leadrope.runs.records.redacted_rows import as_json
from leadrope.runs.records.statements import sql
from leadrope.runs.records.values import LIVE, RESERVED, NewRun, Owner, Progress, RunControl, RunInfo, RunLimits, State
from leadrope.storage.sqlite_file import SqliteFile
from leadrope.storage.writer import BATCH_EVENTS

if TYPE_CHECKING:
    from leadrope.storage.db import Db

T = TypeVar("T")
PACK_BYTES = 4096
"""Bodies above this are deflated: tool output and whole files, which shrink to a third or less."""

_encode = msgspec.json.Encoder().encode
_object = msgspec.json.Decoder(dict[str, Any])
_SHAPES = Redactor()


class Sqlite(SqliteFile, ApprovalWrites, Reads):
    """`with Sqlite(path) as store`."""

    async def add_run(
        self, new: NewRun, limits: RunLimits | None = None, *, redactor: Redactor | None = None
    ) -> RunInfo:
        """`redactor`: of somebody who knows more secrets than the request itself holds."""
        request = msgspec.structs.replace(new.request, credential=None)
        redactor = redactor or redactor_of(new.request)
        values = {
            "id": new.id,
            "created": time.time(),
            "state": new.state,
            "owner": new.owner,
            "epoch": int(new.state in LIVE),
            "attempt": 1,
            "priority": new.priority,
            "lane": redactor.clean(new.lane),
            "account": new.account,
            "not_before": new.not_before,
            "note": redactor.clean(new.note),
            "title": redactor.clean(new.title) or _title(redactor.clean(request.prompt)),
            "cwd": request.cwd or "",
            "provider": request.provider,
            "agent": request.agent or "",
            "model": request.model or "",
            "session_id": request.session_id or (request.resume if not request.fork else None),
            "parent": new.parent,
            "labels": as_json(request.labels, redactor),
        }
        texts = {
            "request": as_json(request, redactor),
            "policy": as_json(new.policy, redactor),
            "place": as_json(new.place, redactor),
        }

        def work(db: Db) -> None:
            if limits is not None:
                waiting = db.execute(sql("queue_length")).fetchone()[0]
                if waiting >= limits.queued:
                    raise errors.QueueFull(
                        f"{waiting} runs wait already, and no more than {limits.queued} may",
                        hint="Wait for some to end (`leadrope runs list`), or raise `queued` in [service].",
                    )
            n = db.execute(sql("add_run"), values).fetchone()[0]
            db.execute(sql("add_texts"), {"run": n, **texts})

        await self.write(work)
        return await self.get(new.id)

    async def append(
        self,
        run: RunInfo,
        records: Sequence[Recorded],
        progress: Progress,
        redactor: Redactor,
        *,
        durable: bool = False,
    ) -> None:
        """Events in their order, each once: what is there already is passed over, a gap is refused."""
        last = records[-1].seq if records else 0
        values = {
            **claims.claimed(run),
            "state": progress.state,
            "last_seq": last,
            "attempt": progress.attempt,
            "cost_usd": progress.cost_usd,
            "cost_label": progress.cost_label,
            "cwd": progress.cwd,
            "tokens": progress.tokens,
            "model": progress.model,
            "session_id": progress.session_id,
            "last_action": redactor.clean(progress.last_action),
            "started": time.time(),
        }

        def work(db: Db) -> None:
            have, state, attempt = _place(db, run)
            if state != "ended":
                claims.check(db, run)
            if attempt > progress.attempt or state == "queued":
                raise errors.NotOwner(f"run {run.id} is another owner's now: it is {state}, at attempt {attempt}")
            new = [record for record in records if record.seq > have]
            if new:
                if state == "ended":
                    raise errors.WrongState(f"run {run.id} has ended, and event {new[0].seq} came after that")
                if new[0].seq != have + 1:
                    raise errors.StoreError(f"run {run.id}: event {new[0].seq} came after {have}; one is missing")
                db.executemany(sql("add_event"), _event_rows(run.n, new, redactor))
            values["last_seq"] = max(have, last)
            db.execute(sql("set_progress"), values)

        await self.write(work, weight=len(records), durable=durable)

    async def add_event(self, run: RunInfo, event: Event, redactor: Redactor) -> bool:
        """An event of a run that waits without an owner, after all that it has; False when it has one, or has ended."""

        def work(db: Db) -> bool:
            have, state, attempt = _place(db, run)
            row = {"n": run.n, "last_seq": have + 1}
            if state not in ("waiting", "queued") or not db.execute(sql("extend_unowned"), row).rowcount:
                return False
            added = Recorded(run.id, attempt, have + 1, time.time(), "supervisor", event)
            db.executemany(sql("add_event"), _event_rows(run.n, [added], redactor))
            return True

        return await self.write(work)

    async def set_state(self, run: RunInfo, state: str, note: str = "") -> None:
        await self._write_claimed(run, "set_state", {"state": state, "note": redact(note)})

    async def end_run(
        self,
        run: RunInfo,
        result: RunResult,
        redactor: Redactor,
        *,
        last: Recorded | None = None,
        note: str = "",
        only: Sequence[State] = (),
        unowned: bool = False,
    ) -> bool:
        """The outcome, and its event where it is not stored yet; False when the run had ended before.

        `only`: False, too, when the run is in no state of these any more; `unowned`: or when it has an owner.
        """
        text = as_json(result, redactor)
        values = {
            **claims.claimed(run),
            "outcome": result.outcome,
            "ended": time.time(),
            "note": redact(note),
            "error_kind": result.error.kind if result.error else None,
            "cost_usd": result.cost_usd,
            "cost_label": result.totals.cost_label if result.totals else None,
            "tokens": result.usage.total_tokens,
            "session_id": result.session_id,
        }

        def work(db: Db) -> bool:
            have, state, _ = _place(db, run)
            if state == "ended" or (only and state not in only):
                return False
            if unowned and db.execute("select owner from runs where n = ?", (run.n,)).fetchone()[0] is not None:
                return False
            claims.check(db, run)
            values["last_seq"] = have
            if last is not None and db.execute(sql("last_type"), {"run": run.n}).fetchone() != ("run.ended",):
                # Numbered here: what its owner still wrote may have come between.
                values["last_seq"] = have + 1
                db.executemany(
                    sql("add_event"), _event_rows(run.n, [msgspec.structs.replace(last, seq=have + 1)], redactor)
                )
            db.execute(sql("end_run"), values)
            db.execute(sql("set_result"), {"n": run.n, "result": text})
            now = {"run": run.n, "state": "withdrawn", "decided": time.time(), "by": actors.LEADROPE, "attempt": 2**31}
            db.execute(sql("close_approvals"), {**now, "reason": "the run has ended"})
            db.execute(sql("drop_run_controls"), {"run": run.n})
            if result.session_id:
                session = {"id": result.session_id, "run": run.id, "cwd": run.cwd, "used": time.time()}
                db.execute(sql("remember_session"), session)
            return True

        return await self.write(work)

    async def requeue(
        self, run: RunInfo, *, attempt: int, note: str, not_before: float = 0.0, owner: str | None = None
    ) -> None:
        """`owner`: the only one who may take it up again."""
        values = {"attempt": attempt, "note": redact(note), "not_before": not_before, "next": owner}
        await self._write_claimed(run, "requeue", values)

    async def adopt(self, run: RunInfo, execution_id: str, owner: str) -> bool:
        """Give a run that is reserved for an execution to the owner of that; False when it is not so any more."""
        values = {"n": run.n, "next": owner, "reserved": RESERVED + execution_id}
        return await self.write(lambda db: db.execute(sql("adopt_run"), values).rowcount == 1)

    async def wake(self, run: RunInfo) -> bool:
        """Let a run that waits for a time, and for no owner, start at once; False when it does not wait like that."""
        return await self.write(lambda db: db.execute(sql("wake"), {"n": run.n}).rowcount == 1)

    async def park(self, run: RunInfo, *, until: float, note: str) -> None:
        await self._write_claimed(run, "park", {"not_before": until, "note": redact(note)})

    async def set_policy(self, run: RunInfo, policy: Any, redactor: Redactor) -> None:
        """The rules that hold for it, when all layers have spoken; before its start it has the request's own."""
        await self._write_claimed(run, "set_policy", {"policy": as_json(policy, redactor)}, durable=False)

    async def set_place(self, run: RunInfo, place: dict[str, Any]) -> None:
        await self._write_claimed(run, "set_place", {"place": as_json(place, _SHAPES)})

    async def _write_claimed(
        self, run: RunInfo, statement: str, values: Mapping[str, Any], *, durable: bool = True
    ) -> None:
        """What only whoever has the run may write: the row has the owner and the epoch that `run` says."""

        def work(db: Db) -> None:
            claims.check(db, run)
            db.execute(sql(statement), {**claims.claimed(run), **values})

        await self.write(work, durable=durable)

    async def claim(self, owner: str, limits: RunLimits, *, only: Iterable[str] | None = None) -> RunInfo | None:
        """The next run whose turn it is, now this owner's; None when none may start. `only` these, if given.

        A run that was queued with an owner waits for that one. Runs that are not for the asker keep their turn: the
        asker gets one of its own where there is room for it behind all that come first.
        """
        wanted = None if only is None else frozenset(only)
        if not await self._rows("waiting_now", now=time.time()):
            return None  # without the write lock: this is asked after every change

        def work(db: Db) -> str | None:
            now = time.time()
            db.execute(sql("due_parked"), {"now": now})
            lanes: Counter[str] = Counter()
            starting = 0
            for lane, count, starts in db.execute(sql("running_by_lane")):
                lanes[lane] = count
                starting += starts
            room = min(limits.running - lanes.total(), limits.starting - starting)
            if room <= 0:
                return None
            for n, run_id, is_for in islice(turns(db.execute(sql("queued"), {"now": now}), lanes), room):
                if is_for in (None, owner) and (wanted is None or run_id in wanted):
                    db.execute(sql("claim"), {"n": n, "owner": owner, "now": now})
                    return run_id
            return None

        taken = await self.write(work)
        return await self.get(taken) if taken else None

    async def hold_account(self, account: str, until: float, note: str) -> None:
        values = {"account": account, "until": until, "note": redact(note)}
        await self.write(lambda db: db.execute(sql("hold_account"), values))

    async def add_owner(self, owner: Owner) -> None:
        """Not forced to the disk, nor is its end: no owner outlives the machine, and what it claims is written later.

        The weight of a full batch: it waits for no company.
        """
        row = msgspec.structs.asdict(owner)
        await self.write(lambda db: db.execute(sql("add_owner"), row), weight=BATCH_EVENTS, durable=False)

    async def drop_owner(self, owner_id: str) -> None:
        await self.write(lambda db: db.execute(sql("drop_owner"), {"id": owner_id}), weight=BATCH_EVENTS, durable=False)

    async def suspend(self, run: RunInfo, *, attempt: int) -> bool:
        """Without an owner until all that it has asked is answered; False when that is so already, and it is queued."""

        def work(db: Db) -> bool:
            claims.check(db, run)
            if db.execute(sql("suspend"), claims.claimed(run)).rowcount:
                return True
            note = {"note": "it was answered", "not_before": 0.0, "next": None}
            db.execute(sql("requeue"), {**claims.claimed(run), "attempt": attempt + 1, **note})
            return False

        return await self.write(work)

    async def add_control(self, run: RunInfo, kind: str, body: dict[str, Any]) -> None:
        values = {"run": run.n, "kind": kind, "body": as_json(body, _SHAPES), "created": time.time()}
        await self.write(lambda db: db.execute(sql("add_run_control"), values))

    async def take_controls(self, owner: str) -> list[RunControl]:
        """What others want of this owner's runs, each once."""
        if not await self._rows("open_run_controls", owner=owner):
            return []

        def work(db: Db) -> list[RunControl]:
            rows = db.execute(sql("open_run_controls"), {"owner": owner}).fetchall()
            return [
                RunControl(n=n, run_id=run_id, kind=kind, body=_object.decode(body))
                for n, run_id, kind, body in rows
                if db.execute(sql("take_run_control"), {"n": n}).rowcount
            ]

        return await self.write(work)

    async def add_artifact(self, run: RunInfo, name: str, kind: str, body: bytes) -> None:
        values = {"name": name, "kind": kind, "created": time.time(), "body": body}
        await self._write_claimed(run, "add_artifact", values)

    async def shrink(self) -> None:
        """Give the room of what was deleted back to the disk."""
        await self.write(lambda db: db.execute("pragma incremental_vacuum"))
        await self.write(lambda db: db.execute("pragma optimize"))

    async def forget_unstarted(self, run_id: str) -> bool:
        """Delete a run that never came to its first event."""
        return await self.write(lambda db: db.execute(sql("forget_unstarted"), {"id": run_id}).rowcount == 1)

    async def delete_run(self, run_id: str) -> bool:
        return await self.write(lambda db: db.execute(sql("delete_run"), {"id": run_id}).rowcount == 1)


def _event_rows(n: int, records: Sequence[Recorded], redactor: Redactor) -> list[tuple[Any, ...]]:
    """Cleaned all at once: bodies are JSON, so a line break stands between two of them and in none."""
    bodies = [_encode(record.event) for record in records]
    text = b"\n".join(bodies).decode()
    if redactor.clean(text) != text:
        bodies = [as_json(record.event, redactor).encode() for record in records]
    # By position, in the order of the columns of `add_event`.
    return [
        (
            n,
            record.seq,
            record.attempt,
            record.time,
            record.source,
            record.event.__struct_config__.tag,
            packed := int(len(body) > PACK_BYTES),
            zlib.compress(body, 1) if packed else body,
        )
        for record, body in zip(records, bodies, strict=True)
    ]


def turns(
    waiting: Iterable[tuple[int, str, str, int, str | None]], running: Mapping[str, int]
) -> Iterator[tuple[int, str, str | None]]:
    """Waiting runs in the order in which they would start: by priority, then from the lane with the fewest."""
    lanes: dict[tuple[int, str], deque[tuple[int, str, str | None]]] = {}
    for n, run_id, lane, priority, owner in waiting:
        lanes.setdefault((-priority, lane), deque()).append((n, run_id, owner))
    counts = Counter(running)
    while lanes:
        first = min(lanes, key=lambda key: (key[0], counts[key[1]], lanes[key][0][0]))
        yield lanes[first].popleft()
        counts[first[1]] += 1
        if not lanes[first]:
            del lanes[first]


def _place(db: Db, run: RunInfo) -> tuple[int, str, int]:
    """How far its log goes, its state, and its attempt."""
    row = db.execute(sql("place_of"), {"run": run.n}).fetchone()
    if row is None:
        raise errors.UnknownRun(f"run {run.id} was deleted")
    return int(row[0]), str(row[1]), int(row[2])


def _title(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= 80 else line[:79] + "…"
