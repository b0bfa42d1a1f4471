"""The journal of workflows in the run store: each unit's outcome once, who owns a flow, what it asks of people.

    flow = await flows.add(NewFlow(id=…, text=source, inputs={"pr": 7}), redactor)
    await flows.begin(flow, key)
    await flows.settle(flow, UnitOutcome(step="review", status="succeeded", outputs={"result": "fine"}), redactor)
    await flows.end(flow, "succeeded", {"outputs": {}}, redactor)

Only its owner writes to a flow. What returns is in the file: kill -9 of this process takes nothing of it away. What
people say, what they are asked, and ends are on the disk itself. Knows no step type, and decides nothing.
"""

from __future__ import annotations

import base64
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from leadrope import errors
from leadrope.core.redaction import Redactor
from leadrope.runs import flow_bodies
from leadrope.runs.flow_data import FlowData
from leadrope.runs.flow_reading import UnitBody
from leadrope.runs.flow_values import (
    WHOLE,
    Begun,
    Cached,
    Dataset,
    DatasetInfo,
    FlowFilter,
    FlowInfo,
    FlowOutcome,
    FlowState,
    FlowTexts,
    NewFlow,
    Problem,
    Remark,
    UnitKey,
    UnitOutcome,
    UnitStatus,
    Wait,
    WaitState,
)
from leadrope.runs.sqlite import Sqlite
from leadrope.runs.statements import sql

__all__ = [
    "WHOLE",
    "Begun",
    "Cached",
    "Dataset",
    "DatasetInfo",
    "FlowFilter",
    "FlowInfo",
    "FlowOutcome",
    "FlowState",
    "FlowTexts",
    "Flows",
    "NewFlow",
    "Problem",
    "Remark",
    "UnitKey",
    "UnitOutcome",
    "UnitStatus",
    "Wait",
    "WaitState",
]

PAGE = 500
_SHAPES = Redactor()


class Flows(FlowData):
    def __init__(self, store: Sqlite, owner: Callable[[], str]) -> None:
        """`owner`: the id of the lease that this process holds while it writes."""
        super().__init__(store)
        self._owner = owner

    # -- a flow's life ------------------------------------------------------------------------------------------------

    async def add(self, new: NewFlow, redactor: Redactor) -> FlowInfo:
        """A flow that runs, here."""
        values = {
            "id": new.id,
            "name": redactor.clean(new.name),
            "file": new.file,
            "title": redactor.clean(new.title),
            "digest": digest_of(new.text),
            "cwd": new.cwd,
            "owner": self._owner(),
            "created": time.time(),
            "parent": new.parent,
            "parent_key": new.parent_key,
            "labels": flow_bodies.text_of(new.labels, redactor, "labels"),
        }
        texts = [
            {"name": name, **(await flow_bodies.made(value, redactor, name)).columns}
            for name, value in (("text", new.text), ("inputs", new.inputs), ("settings", new.settings))
        ]

        def work(db: sqlite3.Connection) -> None:
            n = db.execute(sql("add_flow"), values).fetchone()[0]
            for text in texts:
                db.execute(sql("put_flow_text"), {"flow": n, **text})

        await self._write_soon(work)
        return self.get(new.id)

    async def set_state(self, flow: FlowInfo, state: Literal["waiting", "interrupted"]) -> FlowInfo:
        """This owner leaves it, for whoever claims it next."""
        now = time.time() if state == "interrupted" else None
        values = {"flow": flow.n, "state": state, "ended": now, "owner": self._owner()}

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(sql("leave_flow"), values).rowcount:
                raise self._not_mine(db, flow)

        await self._store.write(work)
        return self.get(flow.id)

    async def claim(self, flow_id: str) -> FlowInfo:
        """Take over a flow that waits, was interrupted or was stopped. Of several that try, one gets it."""
        flow = self.find(flow_id)
        values = {"id": flow.id, "owner": self._owner()}

        def work(db: sqlite3.Connection) -> bool:
            if not db.execute(sql("claim_flow"), values).rowcount:
                return False
            db.execute(sql("drop_flow_text"), {"flow": flow.n, "name": "result"})
            return True

        if not await self._store.write(work):
            raise self._not_free(flow.id)
        return self.get(flow.id)

    async def end(
        self,
        flow: FlowInfo,
        outcome: FlowOutcome,
        result: Any,
        redactor: Redactor,
        *,
        cost_usd: float = 0.0,
        tokens: int = 0,
    ) -> FlowInfo:
        """`result` as JSON, for later. Cost and tokens count where they are more than those of the units."""
        body = await flow_bodies.made(result, redactor, "result")
        now = time.time()
        values = {"flow": flow.n, "outcome": outcome, "ended": now, "owner": self._owner()}
        values |= {"cost_usd": cost_usd, "tokens": tokens}

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(sql("end_flow"), values).rowcount:
                raise self._not_mine(db, flow)
            db.execute(sql("put_flow_text"), {"flow": flow.n, "name": "result", **body.columns})
            db.execute(sql("withdraw_waits"), {"flow": flow.n, "now": now, "reason": "the workflow has ended"})

        await self._store.write(work)
        return self.get(flow.id)

    async def change_text(self, flow: FlowInfo, text: str, redactor: Redactor, *, title: str | None = None) -> FlowInfo:
        """It goes on as another text than it was started with; somebody has said so."""
        body = await flow_bodies.made(text, redactor, "text")
        values = {"flow": flow.n, "digest": digest_of(text), "owner": self._owner()}
        values["title"] = flow.title if title is None else redactor.clean(title)

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(sql("change_flow"), values).rowcount:
                raise self._not_mine(db, flow)
            db.execute(sql("put_flow_text"), {"flow": flow.n, "name": "text", **body.columns})

        await self._store.write(work)
        return self.get(flow.id)

    async def release(self) -> int:
        """Every flow that this owner has left unfinished is interrupted: it ends, and says so itself."""
        return await interrupt(self._store, self._rows("flows_of_owner", owner=self._owner()))

    # -- its units ----------------------------------------------------------------------------------------------------

    def begin_soon(self, flow: FlowInfo, key: UnitKey) -> None:
        """A unit starts now. Written with the next outcome, or in a moment: it tells of what was cut off, and no more.

        What keeps it from being written keeps the outcome from it too, and is told there.
        """
        value = {"flow": flow.n, "owner": self._owner(), "now": time.time(), **_key(key)}
        self._store.write_later(lambda db: db.execute(sql("begin_unit"), value))

    async def begin(self, flow: FlowInfo, *keys: UnitKey) -> None:
        """These units start now. Refused for one that has an outcome: it would be done twice."""
        values = [{"flow": flow.n, "owner": self._owner(), "now": time.time(), **_key(key)} for key in keys]

        def work(db: sqlite3.Connection) -> None:
            for value, key in zip(values, keys, strict=True):
                if not db.execute(sql("begin_unit"), value).rowcount:
                    raise self._settled(db, flow, key)

        await self._write_soon(work)

    async def settle(self, flow: FlowInfo, outcome: UnitOutcome, redactor: Redactor) -> bool:
        """The one outcome of a unit; WrongState for a second. True when a secret was taken out of what is kept.

        TooLarge and BadValue (outputs that are no JSON) are raised before anything is written.
        """
        name = str(outcome.step)
        content = UnitBody(outputs=outcome.outputs, warnings=outcome.warnings, error=outcome.error)
        body = await flow_bodies.made(content, redactor, f"outputs of {name}")
        branch = redactor.clean(outcome.branch) if outcome.branch is not None else None
        is_redacted = body.redacted or branch != outcome.branch
        is_sum = outcome.is_sum or outcome.iteration == WHOLE
        now = time.time()
        values = {
            "flow": flow.n,
            "owner": self._owner(),
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

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(sql("settle_unit"), values).rowcount:
                raise self._settled(db, flow, outcome)
            if not is_sum and (outcome.cost_usd or outcome.tokens):
                db.execute(sql("add_flow_cost"), values)

        await self._write_soon(work)
        return is_redacted

    async def carry(self, source: FlowInfo, flow: FlowInfo, steps: Iterable[str]) -> int:
        """The outcomes that these steps have in another flow are this one's too. Their cost is not counted again."""
        values = {"flow": flow.n, "source": source.n, "owner": self._owner()}
        names = list(steps)

        def work(db: sqlite3.Connection) -> int:
            self._check_mine(db, flow)
            return sum(db.execute(sql("carry_outcomes"), {**values, "step": name}).rowcount for name in names)

        return int(await self._write_soon(work))

    # -- what people are asked ----------------------------------------------------------------------------------------

    async def add_wait(
        self, flow: FlowInfo, key: UnitKey, asked: Mapping[str, Any], fingerprint: str, redactor: Redactor
    ) -> Wait:
        """A question of a unit; the one that is there already, with its answer, where the same was asked before."""
        now = time.time()
        values = {
            "token": base64.b32encode(secrets.token_bytes(10)).decode().lower(),
            "flow": flow.n,
            "owner": self._owner(),
            **_key(key),
            "asked": flow_bodies.text_of(asked, redactor, "asked"),
            "fingerprint": fingerprint,
            "requested": now,
            "now": now,
        }

        def work(db: sqlite3.Connection) -> str:
            db.execute(sql("withdraw_other_waits"), values)
            if row := db.execute(sql("same_wait"), values).fetchone():
                return str(row[0])
            if not db.execute(sql("add_wait"), values).rowcount:
                raise self._not_mine(db, flow)
            return str(values["token"])

        return self.wait(await self._store.write(work))

    async def decide_wait(
        self,
        token: str,
        state: Literal["approved", "denied"],
        *,
        choice: str = "",
        reason: str = "",
        by: str = "person",
        redactor: Redactor = _SHAPES,
    ) -> Wait:
        """The first answer counts; a later one is refused, and so is a choice that was not offered."""
        found = self.wait(token)
        token = found.token
        choices = found.asked.get("choices") or ()
        if state == "approved" and (choices or choice) and choice not in choices:
            offered = f"Choose one of: {', '.join(map(str, choices))}." if choices else "It is a yes or a no."
            raise errors.BadValue("choice", f"{choice!r} is not offered", hint=offered)
        values = {
            "token": token,
            "state": state,
            "choice": redactor.clean(choice),
            "reason": redactor.clean(reason),
            "by": redactor.clean(by),
            "now": time.time(),
        }
        if not await self._store.write(lambda db: db.execute(sql("decide_wait"), values).rowcount):
            now = self.wait(token)
            raise errors.WrongState(
                f"{token} is no longer open: {now.state} by {now.by or 'somebody'}", hint="The first answer counts."
            )
        return self.wait(token)

    async def use_wait(self, token: str) -> bool:
        """True once for an answer: whoever gets it goes on with it, and nobody does again."""
        return await self._store.write(lambda db: db.execute(sql("use_wait"), {"token": token}).rowcount == 1)

    async def give_back(self, tokens: Sequence[str]) -> None:
        """Answers that were taken, and led to nothing yet: the same question finds them again."""
        if tokens:
            names = list(tokens)
            await self._store.write(lambda db: [db.execute(sql("give_back_wait"), {"token": name}) for name in names])

    # -- forgetting ---------------------------------------------------------------------------------------------------

    async def delete(self, flow_ids: Iterable[str]) -> int:
        """With all that belongs to them, also the flows inside. One that runs or waits is refused."""
        deleted = 0
        for flow_id in flow_ids:
            flow = self.find(flow_id)
            inside = [flow, *self._descendants(flow)]
            if alive := [one for one in inside if one.state in ("running", "waiting")]:
                raise errors.WrongState(
                    f"workflow run {alive[0].id[:8]} is {alive[0].state}", hint="Stop it first, or answer it."
                )
            deleted += await self._delete(flow)
        return deleted

    async def _delete(self, flow: FlowInfo) -> int:
        return await self._store.write(lambda db: db.execute(sql("delete_flow"), {"id": flow.id}).rowcount)

    def stale(self, *, keep_s: float, keep_flows: int) -> list[str]:
        """Ended and interrupted flows that are older than `keep_s`, beyond the newest `keep_flows`."""
        before = time.time() - keep_s
        found: list[str] = []
        cursor, seen = 2**62, 0
        while page := self._rows("stale_flows", before=cursor, limit=PAGE):
            cursor = page[-1][0]
            for _, flow_id, _, ended in page:
                seen += 1
                if seen > keep_flows and ended < before:
                    found.append(flow_id)
        return found

    async def prune(self, *, keep_s: float, keep_flows: int) -> int:
        return await self.delete(self.stale(keep_s=keep_s, keep_flows=keep_flows))

    def _descendants(self, flow: FlowInfo) -> list[FlowInfo]:
        found: list[FlowInfo] = []
        todo = [flow]
        while todo:
            inside = self.children(todo.pop().id)
            found += inside
            todo += inside
        return found

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _check_mine(self, db: sqlite3.Connection, flow: FlowInfo) -> None:
        if db.execute(sql("flow_place"), {"flow": flow.n}).fetchone() != ("running", self._owner()):
            raise self._not_mine(db, flow)

    def _settled(self, db: sqlite3.Connection, flow: FlowInfo, key: UnitKey) -> errors.StoreError:
        row = db.execute(sql("outcome_status"), {"flow": flow.n, **_key(key)}).fetchone()
        if row is None:
            return self._not_mine(db, flow)
        unit = key.step if key.item is None else f"{key.step}[{key.item}]"
        return errors.WrongState(f"{unit} of workflow run {flow.id[:8]} has an outcome already: {row[0]}")

    def _not_mine(self, db: sqlite3.Connection, flow: FlowInfo) -> errors.StoreError:
        row = db.execute(sql("flow_place"), {"flow": flow.n}).fetchone()
        if row is None:
            return errors.UnknownRun(f"workflow run {flow.id[:8]} was deleted")
        state, owner = row
        if state == "running":
            return errors.WrongState(f"workflow run {flow.id[:8]} is another owner's: {owner}")
        return errors.WrongState(
            f"workflow run {flow.id[:8]} does not run: it is {state}",
            hint=None if state == "ended" else f"`leadrope flow resume {flow.id[:8]}` goes on with it.",
        )

    def _not_free(self, flow_id: str) -> errors.StoreError:
        flow = self.get(flow_id)
        if flow.state == "running":
            return errors.WrongState(
                f"workflow run {flow.id[:8]} runs already, in {flow.owner}", hint="Look at it there, or stop it first."
            )
        return errors.WrongState(
            f"workflow run {flow.id[:8]} has ended: {flow.outcome}",
            hint="Start the workflow anew, or a part of it: `leadrope flow run FILE --from STEP`.",
        )


async def interrupt(store: Sqlite, left: Sequence[tuple[str, str]]) -> int:
    """Flows, with their owners, that nobody works on any more say so."""
    if not left:
        return 0
    rows = [{"id": flow_id, "owner": owner, "ended": time.time()} for flow_id, owner in left]

    def work(db: sqlite3.Connection) -> int:
        return sum(db.execute(sql("interrupt_flow"), row).rowcount for row in rows)

    return await store.write(work)


def digest_of(text: str) -> str:
    from hashlib import sha256  # noqa: PLC0415  # not needed to list runs

    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _key(key: UnitKey) -> dict[str, Any]:
    return {"step": key.step, "iteration": key.iteration, "item": -1 if key.item is None else key.item}
