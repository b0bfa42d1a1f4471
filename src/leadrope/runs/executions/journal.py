"""The journal of workflows in the run store: each unit's outcome once, who owns a flow, what it asks of people.

    execution = await executions.add(NewExecution(id=…, text=source, inputs={"pr": 7}), redactor)
    await executions.begin(execution, key)
    await executions.settle(execution, UnitOutcome(step="review", status="succeeded"), redactor)
    await executions.end(execution, "succeeded", {"outputs": {}}, redactor)

Only its owner writes to a flow. What returns is in the file: kill -9 of this process takes nothing of it away. What
people say, what they are asked, and ends are on the disk itself. Knows no step type, and decides nothing.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadrope import errors
from leadrope.core.execution_events import ExecutionEvent, ExecutionQueued
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.approvals.rows import ANSWERED
from leadrope.runs.executions import bodies, recovery
from leadrope.runs.executions import log as execution_log
from leadrope.runs.executions.datasets import StoredDatasets
from leadrope.runs.executions.log import ExecutionLog, extend_unowned
from leadrope.runs.executions.reading import UnitBody
from leadrope.runs.executions.values import (
    DIED,
    STEP_TOTAL,
    ExecutionControl,
    ExecutionInfo,
    ExecutionOutcome,
    NewExecution,
    Recover,
    Settled,
    UnitKey,
    UnitOutcome,
)
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.statements import sql
from leadrope.runs.records.values import Approval, ApprovalKind
from leadrope.storage.writer import BATCH_EVENTS

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import EventLog, ShowRecord
    from leadrope.storage.db import Db

PAGE = 500
_SHAPES = Redactor()


class Executions(StoredDatasets):
    def __init__(self, store: Sqlite, owner: Callable[[], str]) -> None:
        """`owner`: the id of the lease that this process holds while it writes."""
        super().__init__(store)
        self._owner = owner
        self._asked: dict[str, int] = {}
        """The last number of an approval, by what their ids begin with: those that are being written included."""

    def log_of(
        self, execution: ExecutionInfo, *, redactor: Callable[[], Redactor], show: ShowRecord | None = None
    ) -> ExecutionLog:
        """The log of an execution that this owner has claimed. `show` gets each event once it is stored."""
        return ExecutionLog(self._store, execution, self._owner(), redactor=redactor, show=show)

    # -- a flow's life ------------------------------------------------------------------------------------------------

    async def add(
        self,
        new: NewExecution,
        redactor: Redactor,
        *,
        is_mine: bool = False,
        most: int | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """A flow that runs, here; or one that is queued, for any owner or, `is_mine`, for this one.

        `most`: of all that may be queued; QueueFull beyond. `told` are its first events, of one that is queued.
        """
        values = {
            "id": new.id,
            "name": redactor.clean(new.name),
            "file": new.file,
            "title": redactor.clean(new.title),
            "digest": digest_of(new.text),
            "cwd": new.cwd,
            "state": new.state,
            "owner": self._owner() if is_mine or new.state == "running" else None,
            "epoch": 1 if new.state == "running" else 0,
            "recover": new.recover,
            "priority": new.priority,
            "not_before": new.not_before,
            "note": redactor.clean(new.note),
            "created": (now := time.time()),
            "started": now if new.state == "running" else None,
            "parent": new.parent,
            "parent_key": new.parent_key,
            "labels": bodies.text_of(new.labels, redactor, "labels"),
        }
        texts = [
            {"name": name, **(await bodies.made(value, redactor, name)).columns}
            for name, value in (
                ("text", new.text),
                ("inputs", new.inputs),
                ("settings", new.settings),
                *([("called", new.called)] if new.called else []),
            )
        ]

        def work(db: Db) -> None:
            if most is not None and (waiting := db.execute(sql("count_queued_executions")).fetchone()[0]) >= most:
                raise errors.QueueFull(
                    f"{waiting} executions wait already, and no more than {most} may",
                    hint="Wait for some to end (`leadrope flow history --open`), or raise `queued` in [service].",
                )
            n = db.execute(sql("add_execution"), values).fetchone()[0]
            for text in texts:
                db.execute(sql("put_execution_text"), {"execution": n, **text})
            if told:
                execution_log.extend_new(db, n, *told, redactor=redactor)

        if new.state == "queued":
            await self._store.write(work)  # on the disk: whoever has handed it over leaves
        else:
            await self._write_soon(work)
        return await self.get(new.id)

    async def set_state(
        self,
        execution: ExecutionInfo,
        state: Literal["waiting", "interrupted", "queued", "paused"],
        note: str = "",
        *,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """This owner leaves it, for whoever claims it next."""
        now = time.time() if state == "interrupted" else None
        values = {**self._claimed(execution), "state": state, "ended": now, "note": _SHAPES.clean(note)}

        def work(db: Db) -> None:
            if not db.execute(sql("leave_execution"), values).rowcount:
                raise self._not_mine(db, execution)

        await self._write_logged(work, log, told, durable=True)
        return await self.get(execution.id)

    async def claim(self, execution_id: str) -> ExecutionInfo:
        """Take over a flow that is queued, waits, was interrupted or was stopped. Of several that try, one gets it.

        From then on whoever had it, or a flow inside it, can write nothing more: each claim has a number of its own.
        """
        execution = await self.find(execution_id)
        values = {"id": execution.id, "owner": self._owner(), "now": time.time()}

        def work(db: Db) -> bool:
            before = db.execute(sql("execution_place"), {"execution": execution.n}).fetchone()
            if not db.execute(sql("claim_execution"), values).rowcount:
                return False
            if before[0] != "ended":  # one that was stopped asks again
                db.execute(sql("give_back_unfinished"), values)
            db.execute(sql("leave_inner_executions"), values)
            db.execute(sql("drop_execution_text"), {"execution": execution.n, "name": "result"})
            return True

        if not await self._store.write(work):
            raise await self._not_free(execution.id)
        return await self.get(execution.id)

    async def claim_next(self, most: int, *, recover: Recover) -> ExecutionInfo | None:
        """The next execution of the queue, now this owner's; None where none may start. `most` are carried at once.

        Whoever started it has left: `recover` says what becomes of it if this owner dies.
        """
        owner = self._owner()
        if not await self._rows("next_queued_execution", now=time.time(), owner=owner):
            return None  # without the write lock: this is asked after every change

        def work(db: Db) -> str | None:
            now = time.time()
            if db.execute(sql("count_carried_executions")).fetchone()[0] >= most:
                return None
            row = db.execute(sql("next_queued_execution"), {"now": now, "owner": owner}).fetchone()
            if row is None:
                return None
            values = {"id": row[0], "owner": owner, "now": now, "recover": recover}
            db.execute(sql("claim_execution"), values)
            db.execute(sql("give_back_unfinished"), values)
            db.execute(sql("leave_inner_executions"), values)
            db.execute(sql("set_execution_recover"), values)
            return str(row[0])

        taken = await self._store.write(work)
        return await self.get(taken) if taken else None

    async def requeue(
        self,
        execution: ExecutionInfo,
        *,
        note: str,
        not_before: float = 0.0,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> None:
        """This owner leaves it to the next one, which does not begin before that time."""
        values = {**self._claimed(execution), "note": _SHAPES.clean(note), "not_before": not_before}

        def work(db: Db) -> None:
            if not db.execute(sql("requeue_execution"), values).rowcount:
                raise self._not_mine(db, execution)

        await self._write_logged(work, log, told, durable=True)

    async def wake(self, execution: ExecutionInfo) -> bool:
        """Let an execution that waits in the queue for a time start at once; False when it does not wait like that."""
        return await self._store.write(
            lambda db: db.execute(sql("wake_execution"), {"execution": execution.n}).rowcount == 1
        )

    async def end(
        self,
        execution: ExecutionInfo,
        outcome: ExecutionOutcome,
        result: Any,
        redactor: Redactor,
        *,
        cost_usd: float = 0.0,
        tokens: int = 0,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """`result` as JSON, for later. Cost and tokens count where they are more than those of the units."""
        body = await bodies.made(result, redactor, "result")
        now = time.time()
        values = {**self._claimed(execution), "outcome": outcome, "ended": now, "cost_usd": cost_usd, "tokens": tokens}

        def work(db: Db) -> None:
            if not db.execute(sql("end_execution"), values).rowcount:
                raise self._not_mine(db, execution)
            db.execute(sql("put_execution_text"), {"execution": execution.n, "name": "result", **body.columns})
            db.execute(
                sql("withdraw_approvals"), {"execution": execution.n, "now": now, "reason": "the workflow has ended"}
            )
            db.execute(sql("drop_execution_controls"), {"execution": execution.n})

        await self._write_logged(work, log, told, durable=True)
        return await self.get(execution.id)

    # -- controls -----------------------------------------------------------------------------------------------------

    async def set_paused(
        self, execution: ExecutionInfo, log: EventLog | None, told: ExecutionEvent, *, is_paused: bool
    ) -> None:
        """Its owner has paused it, or lets it continue."""
        state, note = ("paused", "paused by a person") if is_paused else ("running", "")
        values = {**self._claimed(execution), "state": state, "note": note}

        def work(db: Db) -> None:
            if not db.execute(sql("set_execution_paused"), values).rowcount:
                raise self._not_mine(db, execution)

        await self._write_logged(work, log, [told], durable=True)

    async def end_unowned(self, execution: ExecutionInfo, told: ExecutionEvent) -> bool:
        """Stop an execution that nobody works on; False where somebody does."""
        now = time.time()
        result = {
            "execution_id": execution.id,
            "name": execution.name,
            "outcome": "stopped",
            "reason": getattr(told, "reason", ""),
        }
        body = await bodies.made(result, _SHAPES, "result")

        def work(db: Db) -> bool:
            if not self._changed_unowned(db, execution, "end_unowned_execution", told):
                return False
            db.execute(sql("put_execution_text"), {"execution": execution.n, "name": "result", **body.columns})
            reason = "the workflow was stopped"
            db.execute(sql("withdraw_execution_approvals"), {"id": execution.id, "now": now, "reason": reason})
            return True

        return await self._store.write(work)

    async def pause_unowned(self, execution: ExecutionInfo, told: ExecutionEvent) -> bool:
        """Pause an execution that waits, in the queue or for a person; False where somebody works on it."""
        return await self._store.write(lambda db: self._changed_unowned(db, execution, "pause_unowned_execution", told))

    async def queue_paused(self, execution: ExecutionInfo, told: ExecutionEvent) -> bool:
        """Let a paused execution without an owner continue; False where it has one."""
        return await self._store.write(lambda db: self._changed_unowned(db, execution, "queue_paused_execution", told))

    def _changed_unowned(self, db: Db, execution: ExecutionInfo, statement: str, told: ExecutionEvent) -> bool:
        if not db.execute(sql(statement), {"execution": execution.n, "now": time.time()}).rowcount:
            return False
        execution_log.extend_unowned(db, execution.n, told)
        db.execute(sql("drop_execution_controls"), {"execution": execution.n})
        return True

    async def add_control(self, execution: ExecutionInfo, kind: str, body: Mapping[str, str]) -> None:
        text = bodies.text_of(body, _SHAPES, "control")
        values = {"execution": execution.n, "kind": kind, "body": text, "created": time.time()}
        await self._store.write(lambda db: db.execute(sql("add_execution_control"), values))

    async def take_controls(self, execution_ids: Collection[str]) -> list[ExecutionControl]:
        """What others want of these executions of this owner, each once."""
        owner = self._owner()
        if not any(row[1] in execution_ids for row in await self._rows("open_execution_controls", owner=owner)):
            return []

        def work(db: Db) -> list[ExecutionControl]:
            rows = db.execute(sql("open_execution_controls"), {"owner": owner}).fetchall()
            return [
                ExecutionControl(
                    n=n, execution_id=execution_id, kind=kind, body=msgspec.json.decode(body, type=dict[str, Any])
                )
                for n, execution_id, kind, body in rows
                if execution_id in execution_ids and db.execute(sql("take_execution_control"), {"n": n}).rowcount
            ]

        return await self._store.write(work)

    async def change_text(
        self, execution: ExecutionInfo, text: str, redactor: Redactor, *, title: str | None = None
    ) -> ExecutionInfo:
        """It goes on as another text than it was started with; somebody has said so."""
        body = await bodies.made(text, redactor, "text")
        values = {**self._claimed(execution), "digest": digest_of(text)}
        values["title"] = execution.title if title is None else redactor.clean(title)

        def work(db: Db) -> None:
            if not db.execute(sql("change_execution"), values).rowcount:
                raise self._not_mine(db, execution)
            db.execute(sql("put_execution_text"), {"execution": execution.n, "name": "text", **body.columns})

        await self._store.write(work)
        return await self.get(execution.id)

    async def release(self) -> int:
        """Every flow that this owner has left unfinished is interrupted or queued: it ends, and says so itself."""
        left = await self._rows("executions_of_owner", owner=self._owner())
        return await self.abandon(left, "its owner was ended")

    async def abandon(self, left: Sequence[tuple[str, str]], reason: str = DIED) -> int:
        """Executions, with their owners, that nobody works on any more are queued or interrupted; how many."""
        if not left:
            return 0
        return await self._store.write(lambda db: recovery.abandon(db, left, reason))

    async def _write_logged(
        self,
        work: Callable[[Db], None],
        log: EventLog | None,
        told: Sequence[ExecutionEvent],
        *,
        durable: bool = False,
    ) -> None:
        """The work and these events, or neither; with them all events that are not stored yet."""
        weight = 0 if durable else BATCH_EVENTS
        if log is None:
            await self._store.write(work, weight=weight, durable=durable)
            return
        if not isinstance(log, ExecutionLog):
            raise TypeError(f"a log of another store: {log!r}")
        batch = log.taken(*told)

        def both(db: Db) -> None:
            batch.write(db)  # before the work, after which this owner may have left it
            work(db)

        await self._store.write(both, weight=weight, durable=durable, then=batch.then)

    # -- its units ----------------------------------------------------------------------------------------------------

    def begin_soon(self, execution: ExecutionInfo, key: UnitKey, inputs: bodies.Excerpt | None = None) -> None:
        """A unit starts now. Written with the next outcome, or in a moment: it tells of what was cut off, and no more.

        `inputs`: its parameters as they were resolved, for whoever looks. What keeps it from being written keeps the
        outcome from it too, and is told there.
        """
        given = inputs or bodies.Excerpt(body=b"", size=0)
        value = {**self._claimed(execution), "now": time.time(), **_key(key)}
        value |= {"inputs": given.body or None, "inputs_bytes": given.size}
        self._store.write_later(lambda db: db.execute(sql("begin_unit"), value))

    async def begin(self, execution: ExecutionInfo, *keys: UnitKey) -> None:
        """These units start now. Refused for one that has an outcome: it would be done twice."""
        none = {"inputs": None, "inputs_bytes": 0}
        values = [{**self._claimed(execution), "now": time.time(), **_key(key), **none} for key in keys]

        def work(db: Db) -> None:
            for value, key in zip(values, keys, strict=True):
                if not db.execute(sql("begin_unit"), value).rowcount:
                    raise self._settled(db, execution, key)

        await self._write_soon(work)

    async def settle(
        self,
        execution: ExecutionInfo,
        outcome: UnitOutcome,
        redactor: Redactor,
        *,
        log: EventLog | None = None,
        told: Callable[[int], Sequence[ExecutionEvent]] = lambda _: (),
    ) -> bool:
        """The one outcome of a unit; WrongState for a second. True when a secret was taken out of what is kept.

        `told` gives the events that are stored with it in one transaction; it gets the size of the outputs. TooLarge
        and BadValue (outputs that are no JSON) are raised before anything is written.
        """
        settled = await self.settled(execution, outcome, redactor, told=told)
        await self.settle_all([settled], log=log)
        return settled.is_redacted

    async def settle_all(self, settled: Sequence[Settled], *, log: EventLog | None = None) -> None:
        """Several outcomes in one transaction: all of them, or none."""

        def work(db: Db) -> None:
            for one in settled:
                one.write(db)

        await self._write_logged(work, log, [event for one in settled for event in one.told])

    async def settled(
        self,
        execution: ExecutionInfo,
        outcome: UnitOutcome,
        redactor: Redactor,
        *,
        told: Callable[[int], Sequence[ExecutionEvent]] = lambda _: (),
    ) -> Settled:
        """The outcome of a unit for `settle_all`; nothing is written yet."""
        name = str(outcome.step)
        content = UnitBody(outputs=outcome.outputs, warnings=outcome.warnings, error=outcome.error)
        body = await bodies.made(content, redactor, f"outputs of {name}")
        branch = redactor.clean(outcome.branch) if outcome.branch is not None else None
        is_redacted = body.redacted or branch != outcome.branch
        is_sum = outcome.is_sum or outcome.iteration == STEP_TOTAL
        now = time.time()
        values = {
            **self._claimed(execution),
            **_key(outcome),
            "status": outcome.status,
            "branch": branch,
            "cost_usd": outcome.cost_usd,
            "tokens": outcome.tokens,
            "run": outcome.run_id,
            "attempts": outcome.attempts,
            "started": outcome.started or now,
            "ended": outcome.ended or now,
            "sum": int(is_sum),
            **body.columns,
            "redacted": int(is_redacted),
        }

        def work(db: Db) -> None:
            if not db.execute(sql("settle_unit"), values).rowcount:
                raise self._settled(db, execution, outcome)
            if not is_sum and (outcome.cost_usd or outcome.tokens):
                db.execute(sql("add_execution_cost"), values)

        return Settled(work, told(body.size), is_redacted)

    async def carry(self, source: ExecutionInfo, execution: ExecutionInfo, steps: Iterable[str]) -> int:
        """The outcomes that these steps have in another flow are this one's too. Their cost is not counted again."""
        values = {**self._claimed(execution), "source": source.n}
        names = list(steps)

        def work(db: Db) -> int:
            self._check_mine(db, execution)
            return sum(db.execute(sql("carry_outcomes"), {**values, "step": name}).rowcount for name in names)

        return int(await self._write_soon(work))

    # -- what people are asked ----------------------------------------------------------------------------------------

    async def ask(
        self,
        execution: ExecutionInfo,
        key: UnitKey,
        kind: ApprovalKind,
        asked: Any,
        *,
        outermost_id: str,
        fingerprint: str,
        redactor: Redactor,
        log: EventLog | None = None,
        told: Callable[[str], ExecutionEvent] | None = None,
    ) -> Approval:
        """A question of a unit; the one that is there already, with its answer, where the same was asked before.

        `outermost_id`: the outermost execution, which continues after the answer. `told` makes the event of a new
        question, which is stored together with it.
        """
        now = time.time()
        values = {**self._claimed(execution), **_key(key), "fingerprint": fingerprint, "now": now, "requested": now}
        # Only its owner, this process, asks for a unit: between this look and the write nobody else does.
        if rows := await self._rows("same_approval", **values):

            def withdraw(db: Db) -> None:
                if db.execute(sql("execution_place"), values).fetchone()[1:] != (values["owner"], values["epoch"]):
                    raise self._not_mine(db, execution)
                db.execute(sql("withdraw_other_approvals"), values)

            await self._store.write(withdraw)
            return await self._store.approval(rows[0][0])
        values["asked"] = bodies.text_of(asked, redactor, "asked")
        values |= {"id": await self._next_id(outermost_id), "kind": kind, "outermost": outermost_id}

        def work(db: Db) -> None:
            db.execute(sql("withdraw_other_approvals"), values)
            if not db.execute(sql("add_step_approval"), values).rowcount:
                raise self._not_mine(db, execution)

        events = [told(values["id"])] if told is not None else []
        await self._write_logged(work, log, events, durable=True)
        return await self._store.approval(values["id"])

    async def _next_id(self, outermost_id: str) -> str:
        """Begins with the id of the execution, as an approval of a run begins with that of the run."""
        low = f"{outermost_id[:12]}-step-"
        stored = (await self._rows("count_step_approvals", low=low, high=low + "\uffff"))[0][0]
        self._asked[low] = max(stored, self._asked.get(low, 0)) + 1
        return f"{low}{self._asked[low]}"

    async def wait_for(
        self,
        execution: ExecutionInfo,
        approval_ids: Sequence[str],
        *,
        log: EventLog | None = None,
        told: Sequence[ExecutionEvent] = (),
    ) -> ExecutionInfo:
        """This owner leaves it until one of these is answered; it is queued at once if one was answered meanwhile."""
        values = {**self._claimed(execution), "asked": bodies.json_of(list(approval_ids), "asked").decode()}

        def work(db: Db) -> None:
            row = db.execute(sql("leave_waiting"), values).fetchone()
            if row is None:
                raise self._not_mine(db, execution)
            if row[0] == "queued":
                extend_unowned(db, execution.n, ExecutionQueued(reason=ANSWERED))

        await self._write_logged(work, log, told, durable=True)
        return await self.get(execution.id)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    async def delete(self, execution_ids: Iterable[str]) -> int:
        """With everything that belongs to them, also the executions inside. One that runs or waits is refused."""
        deleted = 0
        for execution_id in execution_ids:
            execution = await self.find(execution_id)
            inside = [execution, *await self._descendants(execution)]
            if alive := [one for one in inside if one.state not in ("ended", "interrupted")]:
                raise errors.WrongState(
                    f"execution {alive[0].id[:8]} is {alive[0].state}", hint="Stop it first, or answer it."
                )
            deleted += await self._delete(execution)
        return deleted

    async def _delete(self, execution: ExecutionInfo) -> int:
        return await self._store.write(lambda db: db.execute(sql("delete_execution"), {"id": execution.id}).rowcount)

    async def stale(self, *, keep_s: float, keep_executions: int) -> list[str]:
        """Ended and interrupted executions that are older than `keep_s`, beyond the newest `keep_executions`."""
        before = time.time() - keep_s
        found: list[str] = []
        cursor, seen = 2**62, 0
        while page := await self._rows("stale_executions", before=cursor, limit=PAGE):
            cursor = page[-1][0]
            for _, execution_id, _, ended in page:
                seen += 1
                if seen > keep_executions and ended < before:
                    found.append(execution_id)
        return found

    async def prune(self, *, keep_s: float, keep_executions: int) -> int:
        return await self.delete(await self.stale(keep_s=keep_s, keep_executions=keep_executions))

    async def _descendants(self, execution: ExecutionInfo) -> list[ExecutionInfo]:
        found: list[ExecutionInfo] = []
        todo = [execution]
        while todo:
            inside = await self.children(todo.pop().id)
            found += inside
            todo += inside
        return found

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _claimed(self, execution: ExecutionInfo) -> dict[str, Any]:
        """Which flow, and by which claim of it: every write of an owner names both."""
        return {"execution": execution.n, "owner": self._owner(), "epoch": execution.epoch}

    def _check_mine(self, db: Db, execution: ExecutionInfo) -> None:
        if db.execute(sql("execution_place"), {"execution": execution.n}).fetchone() != (
            "running",
            self._owner(),
            execution.epoch,
        ):
            raise self._not_mine(db, execution)

    def _settled(self, db: Db, execution: ExecutionInfo, key: UnitKey) -> errors.StoreError:
        row = db.execute(sql("outcome_status"), {"execution": execution.n, **_key(key)}).fetchone()
        if row is None:
            return self._not_mine(db, execution)
        unit = key.step if key.item is None else f"{key.step}[{key.item}]"
        return errors.WrongState(f"{unit} of execution {execution.id[:8]} has an outcome already: {row[0]}")

    def _not_mine(self, db: Db, execution: ExecutionInfo) -> errors.StoreError:
        row = db.execute(sql("execution_place"), {"execution": execution.n}).fetchone()
        if row is None:
            return errors.UnknownRun(f"execution {execution.id[:8]} was deleted")
        state, owner, _ = row
        if owner is not None:
            return errors.NotOwner(f"execution {execution.id[:8]} belongs to another owner: {owner}")
        return errors.NotOwner(
            f"execution {execution.id[:8]} is not running: it is {state}",
            hint=None if state == "ended" else f"`leadrope flow resume {execution.id[:8]}` continues it.",
        )

    async def _not_free(self, execution_id: str) -> errors.StoreError:
        execution = await self.get(execution_id)
        if execution.owner is not None:
            return errors.WrongState(
                f"execution {execution.id[:8]} is already {execution.state} (owner {execution.owner})",
                hint="Look at it there, or stop it first.",
            )
        failed = _first_failed(await self.result(execution.id))
        again = f"leadrope flow run {shlex.quote(execution.file or execution.name)}"
        from_there = f" or, from the step that failed: `{again} --from {failed}`" if failed else ""
        return errors.WrongState(
            f"execution {execution.id[:8]} has ended: {execution.outcome}",
            hint=f"Start it anew: `{again}`{from_there}.",
        )


def _first_failed(result: Any) -> str | None:
    """The first step that failed and that nothing took over from."""
    steps = result.get("steps", ()) if isinstance(result, dict) else ()
    return next((one["id"] for one in steps if one.get("state") == "failed" and not one.get("is_handled")), None)


def digest_of(text: str) -> str:
    from hashlib import sha256  # noqa: PLC0415  # not needed to list runs

    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _key(key: UnitKey) -> dict[str, Any]:
    return {"step": key.step, "iteration": key.iteration, "item": -1 if key.item is None else key.item}
