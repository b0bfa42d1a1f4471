"""Every method of the store that writes: either it is an owner's, and refused after the next claim, or anybody's."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.events import MessageDelta, Recorded
from leadrope.core.execution_events import ExecutionPaused, StepStarted
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions.journal import Executions
from leadrope.runs.executions.log import ExecutionLog
from leadrope.runs.executions.reading import StoredExecutions
from leadrope.runs.executions.values import NewExecution, UnitOutcome
from leadrope.runs.records.reading import Reads
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import Approval, NewRun, Progress, RunInfo, RunLimits
from leadrope.storage import writer

NONE = Redactor()
LIMITS = RunLimits(running=9, starting=9, queued=9)
PROGRESS = Progress(state="running", attempt=1, cost_usd=0.0, tokens=0, model="m", session_id=None, last_action="late")
KEY = UnitOutcome(step="ask", status="succeeded")
LATE = UnitOutcome(step="late", status="succeeded")
ASKED = Approval(id="late", kind="tool_call", state="pending", fingerprint="f", requested=1.0, asked=b"{}")

OF_RUNS: dict[str, Callable[[Sqlite, RunInfo], Awaitable[Any]]] = {
    "append": lambda store, run: store.append(run, [_delta(run)], PROGRESS, NONE),
    "set_state": lambda store, run: store.set_state(run, "paused"),
    "end_run": lambda store, run: store.end_run(run, RunResult(run_id=run.id, outcome="failed"), NONE),
    "requeue": lambda store, run: store.requeue(run, attempt=9, note="late"),
    "park": lambda store, run: store.park(run, until=9e9, note="late"),
    "set_policy": lambda store, run: store.set_policy(run, {"late": True}, NONE),
    "set_place": lambda store, run: store.set_place(run, {"late": True}),
    "suspend": lambda store, run: store.suspend(run, attempt=1),
    "add_artifact": lambda store, run: store.add_artifact(run, "late", "text/plain", b"late"),
    "add_approval": lambda store, run: store.add_approval(run, ASKED),
    "close_approvals": lambda store, run: store.close_approvals(run, "denied", by="policy", reason="", attempt=9),
    "use_earlier": lambda store, run: store.use_earlier(run, 9, "tool_call", "f"),
}
OF_EXECUTIONS: dict[str, Callable[[Executions, Any], Awaitable[Any]]] = {
    "set_state": lambda executions, execution: executions.set_state(execution, "waiting"),
    "requeue": lambda executions, execution: executions.requeue(execution, note="late"),
    "end": lambda executions, execution: executions.end(execution, "failed", {}, NONE),
    "set_paused": lambda executions, execution: executions.set_paused(
        execution, None, ExecutionPaused(), is_paused=True
    ),
    "change_text": lambda executions, execution: executions.change_text(execution, "# Late", NONE),
    "begin": lambda executions, execution: executions.begin(execution, LATE),
    "settle": lambda executions, execution: executions.settle(execution, LATE, NONE),
    "settle_all": lambda executions, execution: _settle_all(executions, execution),  # noqa: PLW0108  # it is defined below
    "carry": lambda executions, execution: executions.carry(execution, execution, ["late"]),
    "ask": lambda executions, execution: _ask(executions, execution, "another"),
    "ask, the same": lambda executions, execution: _ask(executions, execution, "f"),
    "wait_for": lambda executions, execution: executions.wait_for(execution, []),
}
ANYBODYS = {
    "add_run": "makes it",
    "claim": "raises the epoch",
    "adopt": "names whom the run is reserved for",
    "wake": "of one without an owner",
    "add_event": "of one without an owner",
    "decide": "of a person; leaves `pending` once",
    "use_approval": "an answer is used once, by the process that asked it",
    "give_back": "of answers that the same process has used",
    "add_control": "of a person",
    "take_controls": "names its owner; each once",
    "hold_account": "of an account",
    "add_owner": "of a process",
    "drop_owner": "of a process",
    "shrink": "changes nothing that is kept",
    "forget_unstarted": "of one without events",
    "delete_run": "of one that has ended",
    "write": "the others are made of it",
    "write_later": "the others are made of it",
}
ANYBODYS_OF_FLOWS = {
    "add": "makes it",
    "claim": "raises the epoch",
    "claim_next": "raises the epoch",
    "wake": "of one without an owner",
    "end_unowned": "of one without an owner",
    "pause_unowned": "of one without an owner",
    "queue_paused": "of one without an owner",
    "add_control": "of a person",
    "take_controls": "names its owner; each once",
    "release": "names its owner",
    "abandon": "names the owners that are gone",
    "begin_soon": "nobody waits for it: tried below",
    "settled": "writes nothing yet: settle_all does",
    "delete": "of those that have ended",
    "prune": "of those that have ended",
    "cache_put": "of no execution",
    "cache_clear": "of no execution",
    "put_dataset": "of no execution",
    "delete_dataset": "of no execution",
}


def _delta(run: RunInfo) -> Recorded:
    return Recorded(run.id, 1, 1, 1.0, "agent", MessageDelta(text="late"))


def _ask(executions: Executions, execution: Any, fingerprint: str) -> Awaitable[Any]:
    return executions.ask(execution, KEY, "step", {}, outermost_id=execution.id, fingerprint=fingerprint, redactor=NONE)


async def _settle_all(executions: Executions, execution: Any) -> None:
    await executions.settle_all([await executions.settled(execution, LATE, NONE)])


def writers(kind: type, *reading: type) -> set[str]:
    """The public methods that write: all that are awaited and are none of a class that only reads."""
    awaited = {name for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction) if not name.startswith("_")}
    awaited |= {"write_later", "begin_soon"} & {name for name, _ in inspect.getmembers(kind)}
    return awaited - {name for each in reading for name, _ in inspect.getmembers(each)} - {"stale"}


def test_every_method_that_writes_is_in_the_table() -> None:
    assert writers(Sqlite, Reads) == set(OF_RUNS) | set(ANYBODYS)
    told = {name.partition(",")[0] for name in OF_EXECUTIONS} | set(ANYBODYS_OF_FLOWS)
    assert writers(Executions, StoredExecutions) == told


def dump(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


@pytest.mark.parametrize("name", OF_RUNS)
@pytest.mark.parametrize("next_owner", ["first", "second"])
async def test_a_write_to_a_run_by_an_earlier_claim_changes_nothing(
    store: Sqlite, path: Path, name: str, next_owner: str
) -> None:
    await store.add_run(NewRun(id="run", request=RunRequest(prompt="go"), owner=None))
    late = await store.claim("first", LIMITS)
    assert late is not None
    await store.requeue(late, attempt=1, note="taken for dead")
    assert await store.claim(next_owner, LIMITS) is not None
    before = dump(path)
    with pytest.raises(errors.NotOwner):
        await OF_RUNS[name](store, late)
    assert dump(path) == before


@pytest.mark.parametrize("name", [*OF_EXECUTIONS, "begin_soon", "log"])
@pytest.mark.parametrize("next_owner", ["first", "second"])
async def test_a_write_to_an_execution_by_an_earlier_claim_changes_nothing(
    store: Sqlite, path: Path, name: str, next_owner: str
) -> None:
    executions, later = Executions(store, lambda: "first"), Executions(store, lambda: next_owner)
    late = await executions.add(NewExecution(id="flow", text="# Flow"), NONE)
    await _ask(executions, late, "f")
    await executions.set_state(late, "interrupted")
    assert (await later.claim("flow")).epoch == late.epoch + 1
    before = dump(path)
    if name == "begin_soon":
        executions.begin_soon(late, LATE)
        await store.write(lambda db: db.execute("select 1").fetchone())
    elif name == "log":
        log = ExecutionLog(store, late, "first", redactor=lambda: NONE)
        log.tell(StepStarted(step="late", kind="shell"))
        with pytest.raises(errors.NotOwner):
            await log.flush()
    else:
        with pytest.raises(errors.NotOwner):
            await OF_EXECUTIONS[name](executions, late)
    assert dump(path) == before


async def test_whoever_waits_for_the_log_waits_for_no_other_events(
    store: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_S", 3600.0)
    executions = Executions(store, lambda: "first")
    execution = await executions.add(NewExecution(id="flow", text="# Flow"), NONE)
    log = ExecutionLog(store, execution, "first", redactor=lambda: NONE)
    log.tell(StepStarted(step="one", kind="shell"))
    async with asyncio.timeout(60):
        await log.flush()
    records = await executions.all_events(execution)
    assert [record.event for record in records] == [StepStarted(step="one", kind="shell")]
