"""The journal of workflows: each outcome once, one owner at a time, nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import sys
import uuid
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import database_file
from leadrope import errors
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions import bodies
from leadrope.runs.executions.journal import Executions
from leadrope.runs.executions.values import (
    STEP_TOTAL,
    ExecutionFilter,
    ExecutionInfo,
    NewExecution,
    Remark,
    UnitOutcome,
    UnitProblem,
)
from leadrope.runs.records import statements
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import Approval
from leadrope.runtime.gate.approvers import Answer
from leadrope.storage import database

PROGRAM = Path(__file__).parents[2] / "data" / "flow_process.py"
NONE = Redactor()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "leadrope.db"


@pytest.fixture
def store(path: Path) -> Iterator[Sqlite]:
    with Sqlite(path) as store:
        yield store


@pytest.fixture
def executions(store: Sqlite) -> Executions:
    return Executions(store, lambda: "me")


@pytest.fixture
def other(store: Sqlite) -> Executions:
    return Executions(store, lambda: "other")


async def added(executions: Executions, **fields: Any) -> ExecutionInfo:
    given: dict[str, Any] = {"id": uuid.uuid4().hex, "text": "# A workflow\n"}
    return await executions.add(NewExecution(**(given | fields)), NONE)


def unit(step: str = "one", iteration: int = 0, item: int | None = None, **fields: Any) -> UnitOutcome:
    given: dict[str, Any] = {"status": "succeeded"}
    return UnitOutcome(step=step, iteration=iteration, item=item, **(given | fields))


# -- a flow's life ----------------------------------------------------------------------------------------------------


async def test_what_is_added_is_what_is_read(executions: Executions) -> None:
    text = "# Überprüfung\n" + "words " * 2000
    execution = await added(
        executions,
        name="review",
        file="/ws/review.flow.md",
        title="Überprüfung",
        text=text,
        cwd="/ws",
        inputs={"pr": 7, "list": [1, None, "x"]},
        settings={"only": "one"},
        labels={"team": "a"},
    )
    assert (execution.state, execution.outcome, execution.owner, execution.ended) == ("running", None, "me", None)
    assert (execution.name, execution.file, execution.cwd, execution.labels) == (
        "review",
        "/ws/review.flow.md",
        "/ws",
        {"team": "a"},
    )
    texts = await executions.texts(execution.id)
    assert (texts.text, texts.inputs, texts.settings) == (text, {"pr": 7, "list": [1, None, "x"]}, {"only": "one"})
    assert texts.redacted == frozenset()
    assert (
        await executions.text(execution.id),
        await executions.inputs(execution.id),
        await executions.result(execution.id),
    ) == (
        text,
        texts.inputs,
        None,
    )
    assert await executions.find(execution.id[:6]) == execution


async def test_a_flow_ends_once_with_its_result(executions: Executions, other: Executions) -> None:
    execution = await added(executions)
    with pytest.raises(errors.WrongState, match="belongs to another owner: me"):
        await other.end(execution, "failed", None, NONE)
    ended = await executions.end(execution, "degraded", {"outputs": {"a": [1]}}, NONE, cost_usd=0.25, tokens=9)
    assert (ended.state, ended.outcome, ended.owner, ended.cost_usd, ended.tokens) == (
        "ended",
        "degraded",
        None,
        0.25,
        9,
    )
    assert ended.ended is not None
    assert await executions.result(execution.id) == {"outputs": {"a": [1]}}
    with pytest.raises(errors.WrongState, match="is not running: it is ended"):
        await executions.end(execution, "succeeded", None, NONE)
    assert (await executions.get(execution.id)).outcome == "degraded"


@pytest.mark.parametrize("state", ["waiting", "interrupted"])
async def test_a_flow_that_is_left_has_no_owner_and_is_claimed_by_one(
    executions: Executions, other: Executions, state: Any
) -> None:
    execution = await added(executions)
    with pytest.raises(errors.WrongState, match="belongs to another owner"):
        await other.set_state(execution, state)
    with pytest.raises(errors.WrongState, match=r"is already running \(owner me"):
        await other.claim(execution.id)
    left = await executions.set_state(execution, state)
    assert (left.state, left.owner, left.ended is not None) == (state, None, state == "interrupted")
    for late in (
        executions.settle(execution, unit(), NONE),
        executions.begin(execution, unit()),
        executions.end(execution, "failed", None, NONE),
        executions.set_state(execution, "interrupted"),
        executions.carry(execution, execution, ["one"]),
        executions.change_text(execution, "# B", NONE),
        ask(executions, execution, unit()),
    ):
        with pytest.raises(errors.WrongState, match=f"is not running: it is {state}"):
            await late
    taken = await other.claim(execution.id[:8])
    assert (taken.state, taken.owner, taken.ended) == ("running", "other", None)
    with pytest.raises(errors.WrongState, match=r"is already running \(owner other"):
        await executions.claim(execution.id)
    with pytest.raises(errors.WrongState, match="belongs to another owner: other"):
        await executions.settle(execution, unit(), NONE)
    assert await executions.outcomes(execution.id) == []


async def test_a_stopped_flow_goes_on_and_a_finished_one_does_not(executions: Executions) -> None:
    execution = await added(executions)
    await executions.end(execution, "stopped", {"why": "a person"}, NONE)
    taken = await executions.claim(execution.id)
    assert taken.outcome is None
    assert await executions.result(execution.id) is None
    await executions.end(taken, "failed", {}, NONE)
    with pytest.raises(errors.WrongState, match="has ended: failed"):
        await executions.claim(execution.id)


async def test_a_changed_text_has_its_own_digest(executions: Executions) -> None:
    execution = await added(executions, title="A")
    changed = await executions.change_text(execution, "# B", NONE, title="B")
    assert changed.digest != execution.digest
    assert (changed.title, await executions.text(execution.id)) == ("B", "# B")


async def test_listing_is_filtered_and_paged(executions: Executions) -> None:
    made = [await added(executions, name=f"n{number % 2}", file=f"/f{number % 3}", cwd="/ws") for number in range(6)]
    child = await added(executions, parent=made[0].id, parent_key="sub#0", labels={"k": "v"})
    await executions.end(made[1], "failed", None, NONE)

    async def ids(**wanted: Any) -> list[int]:
        numbers = {execution.id: number for number, execution in enumerate([*made, child])}
        return [numbers[execution.id] for execution in await executions.listing(ExecutionFilter(**wanted))]

    assert await ids() == [6, 5, 4, 3, 2, 1, 0]
    assert await ids(is_top=True, limit=2) == [5, 4]
    assert await ids(is_top=True, limit=2, before=made[4].n) == [3, 2]
    assert (await ids(state="ended"), await ids(outcome="failed"), await ids(label=("k", "v"))) == ([1], [1], [6])
    assert await ids(is_open=True, name="n1") == [5, 3]
    assert await ids(file="/f0", cwd="/ws") == [3, 0]
    assert await executions.last_of(name="n1") == await executions.get(made[5].id)
    assert await executions.last_of(file="/f0") == made[3]
    assert await executions.last_of(file="/nowhere") is None
    assert [one.id for one in await executions.children(made[0].id, "sub#0")] == [child.id]
    assert await executions.children(made[0].id, "sub#1") == []


@pytest.mark.parametrize("wanted", ["", "nothing", "zz"])
async def test_a_flow_that_is_not_there(executions: Executions, wanted: str) -> None:
    with pytest.raises(errors.UnknownRun, match="no execution"):
        await executions.find(wanted)
    for look in (
        executions.get,
        executions.texts,
        executions.text,
        executions.result,
        executions.outcomes,
        executions.begun,
    ):
        with pytest.raises(errors.UnknownRun):
            await look(wanted)


async def test_an_id_must_name_one_flow(executions: Executions) -> None:
    await added(executions, id="ab1")
    await added(executions, id="ab2")
    with pytest.raises(errors.UnknownRun, match="several executions begin with ab"):
        await executions.find("ab")
    assert (await executions.find("ab1")).id == "ab1"


# -- units ------------------------------------------------------------------------------------------------------------


async def test_each_unit_has_one_outcome_as_it_was_told(executions: Executions) -> None:
    execution = await added(executions)
    told = [
        unit(outputs={"stdout": "x" * 10_000, "n": [1.5, None, {"deep": True}]}, started=1.0, ended=2.0),
        unit("two", status="degraded", branch="left", warnings=(Remark(kind="schema", message="no"),), ended=3.0),
        unit(
            "three",
            0,
            0,
            status="failed",
            error=UnitProblem(kind="exit", message="1", hint="look"),
            attempts=3,
            ended=4.0,
        ),
        unit("three", 0, 1, run_id="run-1", cost_usd=0.5, tokens=10, ended=5.0),
        unit("three", STEP_TOTAL, status="degraded", cost_usd=0.5, tokens=10, ended=6.0),
        unit("four", 1, 0, cost_usd=0.25, tokens=1, ended=7.0),
        unit("four", 1, cost_usd=0.25, tokens=1, is_sum=True, ended=8.0),
        unit("five", status="skipped", ended=9.0),
    ]
    for one in told:
        assert await executions.settle(execution, one, NONE) is False
    found = await executions.outcomes(execution.id)
    assert [one.key for one in found] == [one.key for one in told]
    for mine, stored in zip(told, found, strict=True):
        is_sum = mine.is_sum or mine.is_whole
        assert msgspec.structs.replace(stored, n=0, started=mine.started) == msgspec.structs.replace(
            mine, is_sum=is_sum
        )
    assert [one.item for one in await executions.outcomes(execution.id, step="three")] == [0, 1, None]
    assert await executions.outcomes(execution.id, after=found[5].n) == found[6:]
    row = await executions.get(execution.id)
    assert (row.cost_usd, row.tokens) == (0.75, 11), "a sum is not counted once more"


async def test_a_second_outcome_is_refused_and_takes_no_other_with_it(executions: Executions, store: Sqlite) -> None:
    execution = await added(executions)
    await executions.settle(execution, unit(outputs={"v": 1}), NONE)
    several = [unit(outputs={"v": 2}, status="failed"), *(unit("many", 0, item) for item in range(20))]
    said = await asyncio.gather(*(executions.settle(execution, one, NONE) for one in several), return_exceptions=True)
    assert isinstance(said[0], errors.WrongState)
    assert "one of execution" in said[0].message
    assert "has an outcome already: succeeded" in said[0].message
    assert said[1:] == [False] * 20
    found = await executions.outcomes(execution.id)
    assert len(found) == 21
    assert (found[0].status, found[0].outputs) == ("succeeded", {"v": 1})
    with pytest.raises(errors.WrongState, match=r"many\[3\] of"):
        await executions.begin(execution, unit("many", 0, 3))


async def test_settles_that_come_together_share_commits(executions: Executions, store: Sqlite) -> None:
    execution = await added(executions)
    before = store._writer.commits
    await asyncio.gather(*(executions.settle(execution, unit("many", 0, item), NONE) for item in range(100)))
    assert store._writer.commits - before < 10
    assert len(await executions.outcomes(execution.id)) == 100


async def test_a_unit_that_was_begun_and_not_settled_is_known(executions: Executions) -> None:
    execution = await added(executions)
    await executions.begin(execution, unit("a"), unit("b", 0, 0), unit("b", 0, 1))
    await executions.settle(execution, unit("b", 0, 0), NONE)
    await executions.begin(execution, unit("a"))
    assert [(one.step, one.item, one.times) for one in await executions.begun(execution.id)] == [
        ("a", None, 2),
        ("b", 1, 1),
    ]
    assert len(await executions.begun(execution.id, is_all=True)) == 3


@pytest.mark.parametrize(("iteration", "item"), [(STEP_TOTAL, 0), (-2, None), (0, -2)])
async def test_a_key_that_cannot_be(executions: Executions, iteration: int, item: int | None) -> None:
    execution = await added(executions)
    with pytest.raises(errors.StoreError, match="CHECK"):
        await executions.settle(execution, unit("a", iteration, item), NONE)


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, "\ud800"])
async def test_outputs_that_are_no_json(executions: Executions, value: Any) -> None:
    execution = await added(executions)
    with pytest.raises(errors.BadValue, match="outputs of one: is not JSON"):
        await executions.settle(execution, unit(outputs={"v": value}), NONE)
    await executions.settle(execution, unit(), NONE)


async def test_outputs_are_bounded(executions: Executions, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = await added(executions)
    large = unit(outputs={"v": "x" * bodies.MOST_BYTES})
    with pytest.raises(errors.TooLarge, match=r"outputs of one: 16,7.* bytes of JSON are more than the 16,777,216"):
        await executions.settle(execution, large, NONE)
    with pytest.raises(errors.TooLarge, match="result"):
        await executions.end(execution, "succeeded", large.outputs, NONE)
    assert await executions.outcomes(execution.id) == []
    whole = unit(outputs={"v": "y" * 1_000_000})
    await executions.settle(execution, whole, NONE)
    assert (await executions.outcomes(execution.id))[0].outputs == whole.outputs


async def test_outcomes_of_another_flow_are_carried_over_and_not_paid_again(executions: Executions) -> None:
    first, second = await added(executions), await added(executions)
    for one in (unit("a", cost_usd=1.0), unit("b", 0, 0), unit("b", 0, 1), unit("c")):
        await executions.settle(first, msgspec.structs.replace(one, outputs={"from": one.step}), NONE)
    assert await executions.carry(first, second, ["a", "b"]) == 3
    assert [one.key for one in await executions.outcomes(second.id)] == [("a", 0, None), ("b", 0, 0), ("b", 0, 1)]
    assert (await executions.outcomes(second.id))[0].outputs == {"from": "a"}
    assert (await executions.get(second.id)).cost_usd == 0
    with pytest.raises(errors.WrongState):
        await executions.settle(second, unit("a"), NONE)


# -- what people are asked --------------------------------------------------------------------------------------------


async def ask(
    executions: Executions, execution: ExecutionInfo, key: UnitOutcome, title: str = "?", mark: str = "f", **more: Any
) -> Approval:
    asked = {"kind": "step", "title": title, **more}
    return await executions.ask(
        execution, key, "step", asked, outermost_id=execution.id, fingerprint=mark, redactor=NONE
    )


async def test_an_answer_is_used_once(executions: Executions, other: Executions, store: Sqlite) -> None:
    execution = await added(executions, title="Release", cwd="/ws")
    found = await ask(executions, execution, unit("gate"), "Ship it?", choices=["now", "later"])
    assert found.id == f"{execution.id[:12]}-step-1"
    assert (found.kind, found.state, found.step, found.item, found.title, found.cwd) == (
        "step",
        "pending",
        "gate",
        None,
        "Release",
        "/ws",
    )
    assert (found.execution_id, found.execution_id, found.run_id) == (execution.id, execution.id, "")
    assert (
        await store.approvals()
        == [found]
        == await store.approvals(outermost_id=execution.id)
        == await store.approvals(outermost_id=execution.id)
    )
    assert not await store.use_approval(found.id), "nobody has answered"
    await executions.wait_for(execution, [found.id])
    assert await store.decide(found.id, "approved", by="ann", reason="busy", answer=b'{"approved":true}')
    assert not await store.decide(found.id, "denied", by="bob")
    decided = await store.approval(found.id)
    assert (decided.state, decided.by, decided.reason) == ("approved", "user:ann", "busy")
    assert await store.approvals() == []
    assert await store.approvals(state="approved") == [decided] == await store.approvals(state="")
    taken = await other.claim(execution.id)
    again = await ask(other, taken, unit("gate"), "Ship it?", choices=["now", "later"])
    assert again.id == found.id, "the same question has its answer already"
    assert [await store.use_approval(found.id) for _ in range(2)] == [True, False]
    third = await ask(other, taken, unit("gate"), "Ship it?", choices=["now", "later"])
    assert (third.id, third.state) == (f"{execution.id[:12]}-step-2", "pending"), "an answer counts once"


async def test_a_question_that_is_no_longer_asked_is_withdrawn(executions: Executions, store: Sqlite) -> None:
    execution = await added(executions)
    first = await ask(executions, execution, unit("gate"), "A", "a")
    second = await ask(executions, execution, unit("gate"), "B", "b")
    elsewhere = await ask(executions, execution, unit("gate", 0, 1), "A", "a")
    assert (await store.approval(first.id)).state == "withdrawn"
    assert [one.id for one in await store.approvals()] == [second.id, elsewhere.id]
    await executions.end(execution, "stopped", None, NONE)
    assert not await store.decide(second.id, "approved", by="ann")
    assert ((await store.approval(second.id)).state, (await store.approval(second.id)).by) == ("withdrawn", "leadrope")


@pytest.mark.parametrize("parent", [None, "outer"])
async def test_an_answer_queues_the_execution_that_nobody_owns(
    executions: Executions, store: Sqlite, parent: str | None
) -> None:
    """Also where a workflow inside it has asked, and also where it comes before its owner has left it."""
    outer = await added(executions, id="outer" + "0" * 27)
    asking = await added(executions, id="inner", parent=outer.id, parent_key="call#0") if parent else outer
    asked = {"kind": "step", "title": "?"}
    options: Any = {"outermost_id": outer.id, "redactor": NONE}
    one = await executions.ask(asking, unit("gate"), "step", asked, fingerprint="a", **options)
    two = await executions.ask(asking, unit("other"), "step", asked, fingerprint="b", **options)
    if parent:
        await executions.wait_for(asking, [one.id, two.id])
    await executions.wait_for(outer, [one.id, two.id])
    assert (await executions.get(outer.id)).state == "waiting"
    await store.decide(one.id, "approved", by="ann")
    assert ((await executions.get(outer.id)).state, (await executions.get(outer.id)).owner) == ("queued", None), (
        "one answer is enough"
    )
    taken = await executions.claim(outer.id)
    await store.decide(two.id, "denied", by="ann")
    assert (await executions.get(outer.id)).state == "running", "its owner hears of it"
    assert (await executions.wait_for(taken, [two.id])).state == "queued", "the answer came before it was left"


async def test_answers_that_a_dead_process_had_taken_are_found_again(
    executions: Executions, other: Executions, store: Sqlite
) -> None:
    execution = await added(executions)
    done, cut = (
        await ask(executions, execution, unit("done"), mark="d"),
        await ask(executions, execution, unit("cut"), mark="c"),
    )
    for one in (done, cut):
        await store.decide(one.id, "approved", by="ann", answer=b'{"approved":true}')
        assert await store.use_approval(one.id)
    await executions.settle(execution, unit("done"), NONE)
    later = await ask(executions, execution, unit("cut"), mark="c")
    assert later.state == "pending", "in the same process an answer is for one attempt"
    await executions.set_state(execution, "interrupted")
    taken = await other.claim(execution.id)
    assert ((await store.approval(done.id)).used, (await store.approval(cut.id)).used) == (True, False)
    assert (await ask(other, taken, unit("cut"), mark="c")).id == cut.id, "in the order in which it asked before"
    assert await store.use_approval(cut.id)
    assert (await ask(other, taken, unit("cut"), mark="c")).id == later.id


async def test_one_that_was_stopped_asks_again(executions: Executions, store: Sqlite) -> None:
    execution = await added(executions)
    asked = await ask(executions, execution, unit("cut"))
    await store.decide(asked.id, "approved", by="ann", answer=b'{"approved":true}')
    assert await store.use_approval(asked.id)
    await executions.end(execution, "stopped", None, NONE)
    assert (await ask(executions, await executions.claim(execution.id), unit("cut"))).id != asked.id


# -- forgetting -------------------------------------------------------------------------------------------------------


def counts(path: Path) -> dict[str, int]:
    with database_file.opened(path) as db:
        names = [
            row[0]
            for row in db.execute(
                "select name from sqlite_schema where type = 'table' and (name like 'execution%' or name like 'unit%'"
                " or name in ('approvals', 'step_cache'))"
            )
        ]
        return {name: db.execute(f"select count(*) from {name}").fetchone()[0] for name in names}


async def test_a_deleted_flow_leaves_nothing_and_one_that_lives_is_refused(executions: Executions, path: Path) -> None:
    execution = await added(executions)
    child = await added(executions, parent=execution.id, parent_key="sub#0")
    for one in (execution, child):
        await executions.begin(one, unit())
        await executions.settle(one, unit(), NONE)
        await ask(executions, one, unit("gate"))
    with pytest.raises(errors.WrongState, match="is running"):
        await executions.delete([execution.id])
    await executions.end(execution, "succeeded", {}, NONE)
    await executions.set_state(child, "waiting")
    with pytest.raises(errors.WrongState, match=f"{child.id[:8]} is waiting"):
        await executions.delete([execution.id])
    await executions.set_state(await executions.claim(child.id), "interrupted")
    assert await executions.delete([execution.id[:8]]) == 1
    assert set(counts(path).values()) == {0}


async def test_prune_keeps_the_newest_and_whatever_lives(executions: Executions, store: Sqlite) -> None:
    made = [await added(executions) for _ in range(6)]
    await added(executions, parent=made[0].id)
    await executions.set_state(made[1], "waiting")
    await executions.set_state(made[2], "interrupted")
    for execution in (made[0], made[3], made[5]):
        await executions.end(execution, "succeeded", {}, NONE)
    await store.write(lambda db: db.execute("update executions set created = 1, ended = iif(ended is null, null, 2)"))
    await executions.release()
    await executions.claim(made[4].id)
    assert await executions.prune(keep_s=100, keep_executions=10) == 0
    assert await executions.prune(keep_s=1e12, keep_executions=0) == 0
    inside = await executions.children(made[0].id)
    assert [one.state for one in inside] == ["interrupted"], "goes with its parent, and is not counted itself"
    assert await executions.prune(keep_s=100, keep_executions=1) == 3
    assert [execution.id for execution in await executions.listing()] == [made[5].id, made[4].id, made[1].id]


# -- cached outputs and datasets --------------------------------------------------------------------------------------


async def test_cached_outputs_are_found_by_their_key(executions: Executions) -> None:
    assert await executions.cache_get("k") is None
    assert await executions.cache_put("k", "http", {"body": "x" * 9000}, NONE)
    found = await executions.cache_get("k")
    assert found is not None
    assert (found.type, found.outputs) == ("http", {"body": "x" * 9000})
    assert await executions.cache_put("k", "http", {"body": "new"}, NONE)
    assert (await executions.cache_get("k")).outputs == {"body": "new"}  # type: ignore[union-attr]  # it is there
    assert not await executions.cache_put("s", "http", {"body": "the-secret"}, Redactor(["the-secret"]))
    assert not await executions.cache_put("l", "http", {"body": "x" * 5_000_000}, NONE)
    assert await executions.cache_get("s") is None is await executions.cache_get("l")
    assert await executions.cache_clear("shell") == 0
    assert await executions.cache_clear() == 1


async def test_the_cache_is_bounded(executions: Executions, store: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadrope.runs.executions.datasets.MOST_CACHED", 5)
    for number in range(8):
        await executions.cache_put(str(number), "t", {"n": number}, NONE)
    assert [await executions.cache_get(str(number)) is not None for number in range(8)] == [False] * 3 + [True] * 5
    monkeypatch.setattr("leadrope.runs.executions.datasets.MOST_CACHED_BYTES", 25_000)
    for number in range(8, 12):
        await executions.cache_put(str(number), "t", {"n": "x" * 10_000}, NONE)
    assert [await executions.cache_get(str(number)) is not None for number in range(7, 12)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    await store.write(lambda db: db.execute("update step_cache set created = 5 where key = '10'"))
    assert await executions.cache_get("10") is None, "too old"
    await executions.cache_put("12", "t", {}, NONE)
    assert await executions.cache_clear() == 2, "the old one was dropped with the write"


async def test_a_dataset_is_put_added_to_read_listed_and_deleted(executions: Executions) -> None:
    rows: list[dict[str, Any]] = [{"name": "Tom", "age": 3}, {"name": "Ann", "town": None}]
    info = await executions.put_dataset("cats", rows, NONE, execution_id="f")
    assert (info.columns, info.count, info.execution_id, info.is_redacted) == (("name", "age", "town"), 2, "f", False)
    await executions.put_dataset("cats", [{"name": "Eve", "tail": 1}], NONE, is_added=True)
    found = await executions.dataset("cats")
    assert (found.rows, found.columns) == ([*rows, {"name": "Eve", "tail": 1}], ("name", "age", "town", "tail"))
    await executions.put_dataset("cats", [], NONE, columns=["a", "b"])
    assert [(one.name, one.count, one.columns) for one in await executions.datasets()] == [("cats", 0, ("a", "b"))]
    await executions.delete_dataset("cats")
    with pytest.raises(errors.UnknownRun, match="no dataset 'cats'"):
        await executions.dataset("cats")
    with pytest.raises(errors.UnknownRun, match="no dataset 'cats'"):
        await executions.delete_dataset("cats")


async def test_rows_that_are_added_at_the_same_time_are_all_there(executions: Executions) -> None:
    await asyncio.gather(*(executions.put_dataset("d", [{"n": n}], NONE, is_added=True) for n in range(20)))
    assert sorted(row["n"] for row in (await executions.dataset("d")).rows) == list(range(20))


async def test_a_dataset_has_limits(executions: Executions) -> None:
    await executions.put_dataset("d", [{"n": n} for n in range(5000)], NONE)
    with pytest.raises(errors.TooLarge, match="'d' would have 5,001 rows, and 5,000 are kept at most"):
        await executions.put_dataset("d", [{"n": 1}], NONE, is_added=True)
    with pytest.raises(errors.TooLarge, match="5,001 rows"):
        await executions.put_dataset("d", [{"n": n} for n in range(5001)], NONE)
    with pytest.raises(errors.TooLarge, match="bytes, and 2,097,152 are kept"):
        await executions.put_dataset("d", [{"n": "x" * 1000} for _ in range(2100)], NONE)
    assert (await executions.dataset("d")).count == 5000, "what was refused has changed nothing"
    for name in ("", " ", "a\nb", "x" * 201):
        with pytest.raises(errors.BadValue, match="cannot be the name of a dataset"):
            await executions.put_dataset(name, [], NONE)
    with pytest.raises(errors.BadValue, match="is not JSON"):
        await executions.put_dataset("d", [{"n": object()}], NONE)


# -- other processes --------------------------------------------------------------------------------------------------


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def said(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            return (await self.process.stdout.readline()).decode().rstrip("\n")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    async def kill(self) -> list[str]:
        """What it had still said."""
        if self.process.returncode is None:
            self.process.kill()
        out, err = await self.process.communicate()
        assert b"Traceback" not in err, err.decode()
        return [line for line in out.decode().splitlines(keepends=True) if line.endswith("\n")]


Start = Callable[..., Coroutine[Any, Any, Child]]


@pytest.fixture
async def start(yard: Any) -> AsyncIterator[Start]:
    children: list[Child] = []

    async def start(what: str, *arguments: object) -> Child:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, str(PROGRAM), what, str(yard.home), *map(str, arguments)]
        child = Child(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe))
        children.append(child)
        assert await child.said() == "ready"
        return child

    yield start
    for child in children:
        if child.process.returncode is None:
            await child.kill()


@pytest.mark.fault
@pytest.mark.timeout(600)
async def test_kill_9_between_settles_loses_nothing_that_was_acknowledged(
    yard: Any, start: Start, fault_count: int
) -> None:
    chance = random.Random(20261117)  # the points must be the same each time
    for trial in range(fault_count):
        execution_id = uuid.uuid4().hex
        child = await start("work", execution_id, chance.choice([1, 8]))
        acked = [int((await child.said()).split()[1]) for _ in range(chance.randint(0, 60))]
        acked += [int(line.split()[1]) for line in await child.kill()]
        async with yard.service() as service:
            executions = service.executions
            execution = await executions.get(execution_id)
            assert (execution.state, execution.owner) == ("interrupted", None), "before anything says ready"
            kept = await executions.outcomes(execution_id)
            numbers = [one.outputs["number"] for one in kept]
            assert len(set(numbers)) == len(numbers)
            assert set(acked) <= set(numbers)
            for one in kept:
                number = one.outputs["number"]
                assert one.key == (f"step-{number // 8}", 0, number % 8), "values belong to their own unit"
            assert (execution.cost_usd, execution.tokens) == (0.5 * len(kept), 3 * len(kept))
            cut_off = {(one.step, one.iteration, one.item) for one in await executions.begun(execution_id)}
            assert not cut_off & {one.key for one in kept}
            taken = await executions.claim(execution_id)
            for step, _, item in cut_off:
                await executions.begin(taken, unit(step, 0, item))
                await executions.settle(taken, unit(step, 0, item), NONE)
            for one in kept[:3]:
                with pytest.raises(errors.WrongState):
                    await executions.settle(taken, one, NONE)
            assert await executions.begun(execution_id) == []
            await executions.end(taken, "succeeded", {"trial": trial}, NONE)
        database_file.check_sound(yard.home / "leadrope.db")


async def test_a_flow_whose_owner_dies_while_others_look_is_interrupted(yard: Any, start: Start, until: Any) -> None:
    child = await start("hold", "held")
    waits = await start("hold", "ends-well")
    async with yard.service() as service:
        assert ((await service.executions.get("held")).state, (await service.executions.get("ends-well")).state) == (
            "running",
            "running",
        )
        with pytest.raises(errors.WrongState, match=r"is already running \(owner terminal-"):
            await service.executions.claim("held")
        await child.kill()
        with service.listen() as heard:
            while (await service.executions.get("held")).state != "interrupted":
                await heard.wait(1)
        assert (await service.executions.get("ends-well")).state == "running", "its owner lives"
        waits.go()
        assert await waits.process.wait() == 0
        assert (await service.executions.get("ends-well")).state == "interrupted", "an owner that ends says so itself"


async def test_a_flow_that_waits_for_a_person_outlives_every_owner(yard: Any) -> None:
    async with yard.service() as service:
        execution = await added(service.executions)
        asked = await ask(service.executions, execution, unit("gate"))
        await service.executions.wait_for(execution, [asked.id])
    async with yard.service() as service:
        assert (await service.executions.get(execution.id)).state == "waiting"
        await service.answer(asked.id, Answer(approved=True))
    async with yard.service() as service:
        taken = await service.executions.claim(execution.id)
        assert taken.owner == service.lease.owner.id
        assert (await ask(service.executions, taken, unit("gate"))).state == "approved"


@pytest.mark.parametrize("state", ["waiting", "interrupted"])
async def test_of_several_processes_that_resume_a_flow_one_gets_it(yard: Any, start: Start, state: Any) -> None:
    async with yard.service() as service:
        execution = await added(service.executions)
        await service.executions.set_state(execution, state)
    children = await asyncio.gather(*(start("claim", execution.id) for _ in range(3)))
    for child in children:
        child.go()
    said = [await child.said() for child in children]
    assert sorted(line.split()[0] for line in said) == ["lost", "lost", "won"]
    [winner] = [line.split()[1] for line in said if line.startswith("won")]
    assert all(f"is already running (owner {winner}" in line for line in said if line.startswith("lost"))
    for child in children:
        child.go()
        assert await child.process.wait() == 0


@pytest.mark.parametrize("is_same_owner", [False, True])
async def test_a_process_that_lost_a_flow_can_write_nothing_more_to_it(
    yard: Any, start: Start, is_same_owner: bool
) -> None:
    """Also where the next claim is by the same owner: what counts is the claim."""
    zombie = await start("zombie", "held", "inside")
    async with yard.service() as service:
        owner = (await service.executions.get("held")).owner
        await service.executions.abandon([("held", owner)])
        mine = Executions(service.store, lambda: owner) if is_same_owner else service.executions
        taken = await mine.claim("held")
        assert (taken.epoch, (await service.executions.get("inside")).state) == (2, "interrupted")
        zombie.go()
        said = [await zombie.said() for _ in range(13)]
        assert {line.split()[1] for line in said} == {"NotOwner"}, said
        found = await service.executions.get("held")
        assert (found.state, found.owner, found.title, found.last_seq) == ("running", taken.owner, "", taken.last_seq)
        assert await service.executions.outcomes("held") == await service.executions.outcomes("inside") == []
        assert await service.executions.begun("held", is_all=True) == []
        assert await service.approvals() == []
        await mine.settle(taken, unit(), NONE)


# -- the file ---------------------------------------------------------------------------------------------------------


RENAMED = {
    "flows": "executions",
    "flow_texts": "execution_documents",
    "flow_begins": "unit_begins",
    "flow_outcomes": "unit_outcomes",
    "flow_cache": "step_cache",
    "orders": "run_controls",
    "texts": "run_documents",
}
"""Tables that version 8 renamed."""


@pytest.mark.parametrize("packed", [0, 1])
async def test_results_of_before_name_their_execution(path: Path, packed: int) -> None:
    result = b'{"flow_id":"a","name":"n","outputs":{"x":"flow_id"}}'
    with contextlib.closing(database.open_(path, statements.migrations()[:7])) as db:
        db.execute(
            "insert into flows (n, id, digest, state, outcome, created, labels)"
            " values (1, 'a', 'd', 'ended', 'failed', 1, '{}')"
        )
        body = zlib.compress(result) if packed else result
        text = msgspec.json.encode(result.decode())
        db.execute("insert into flow_texts values (1, 'text', 0, 0, ?), (1, 'result', 0, ?, ?)", (text, packed, body))
    with Sqlite(path) as store:
        executions = Executions(store, lambda: "me")
        assert await executions.result("a") == {"name": "n", "outputs": {"x": "flow_id"}, "execution_id": "a"}
        assert await executions.text("a") == result.decode(), "only results are changed"


async def test_a_file_of_the_fourth_version_keeps_its_flows_with_all_that_belongs_to_them(path: Path) -> None:
    with contextlib.closing(database.open_(path, statements.migrations()[:4])) as db:
        for number, (execution, parent, state, owner) in enumerate(
            [("a", None, "running", "gone"), ("b", "a", "waiting", None), ("c", None, "interrupted", None)], 1
        ):
            db.execute(
                "insert into flows (n, id, digest, state, owner, created, parent, labels)"
                " values (?, ?, 'd', ?, ?, 1, ?, '{}')",
                (number, execution, state, owner, parent),
            )
            db.execute("insert into flow_texts values (?, 'text', 0, 0, ?)", (number, b'"# T"'))
            db.execute("insert into flow_begins values (?, 'one', 0, -1, 1, 1.0, 1.0)", (number,))
        db.execute(
            "insert into flow_outcomes values"
            " (1, 1, 'one', 0, -1, 'succeeded', null, 0, 0, null, 1, 1.0, 1.0, 0, 0, 0, x'7b7d')"
        )
        db.execute(
            "insert into flow_waits (token, flow, step, iteration, item, asked, fingerprint, state, requested)"
            " values ('t', 2, 'gate', 0, -1, '{}', 'f', 'pending', 1.0)"
        )
        before = {RENAMED.get(name, name): n for name, n in counts(path).items() if name != "flow_waits"}
        before |= {"approvals": 1}
    with Sqlite(path) as store:
        executions = Executions(store, lambda: "me")
        assert [execution.id for execution in await executions.listing()] == ["c", "b", "a"]
        assert [child.id for child in await executions.children("a")] == ["b"]
        assert (await executions.get("a")).epoch == 0
        assert [one.step for one in await executions.outcomes("a")] == ["one"]
        assert await executions.text("c") == "# T"
        after = counts(path)
        assert {name: after[name] for name in before} == before
        assert (await executions.claim("b")).epoch == 1
        await executions.abandon([("a", "gone"), ("b", "me")])
        assert await executions.delete(["a"]) == 1
        assert [execution.id for execution in await executions.listing()] == ["c"], "those inside are deleted along"
    database_file.check_sound(path)


async def test_a_file_of_the_first_version_is_backed_up_and_gets_flows(path: Path) -> None:
    with contextlib.closing(database.open_(path, statements.migrations()[:1])) as db:
        db.execute("insert into runs (id, created, state, title, labels) values ('old', 1, 'ended', 't', '{}')")
    with Sqlite(path) as store:
        assert [run.id for run in await store.listing()] == ["old"]
        executions = Executions(store, lambda: "me")
        execution = await added(executions)
        await executions.settle(execution, unit(), NONE)
        assert len(await executions.outcomes(execution.id)) == 1
    with database_file.opened(path.with_name("leadrope.db.v1.bak")) as db:
        assert db.execute("pragma user_version").fetchone() == (1,)
        assert db.execute("select id from runs").fetchall() == [("old",)]
        assert not db.execute("select 1 from sqlite_schema where name = 'flows'").fetchall()
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


async def test_a_file_of_a_newer_version_is_refused_and_stays(path: Path) -> None:
    with Sqlite(path) as store:
        await added(Executions(store, lambda: "me"), id="kept")
    newer = statements.migrations()[-1][0] + 1
    with database_file.opened(path) as db:
        db.execute(f"pragma user_version = {newer}")
    before = path.read_bytes()
    with pytest.raises(errors.StoreUnreadable, match=f"newer leadrope .schema {newer}"), Sqlite(path):
        pass
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.bak"))


async def test_a_damaged_body_is_told(executions: Executions, store: Sqlite) -> None:
    execution = await added(executions)
    await executions.settle(execution, unit(outputs={"v": "x" * 9000}), NONE)
    await store.write(lambda db: db.execute("update unit_outcomes set body = x'0102'"))
    with pytest.raises(errors.StoreUnreadable, match="the outcome of one cannot be unpacked"):
        await executions.outcomes(execution.id)


def test_rows_are_read_by_position() -> None:
    for name in ("get_execution", "list_executions"):
        columns = statements.sql(name).partition("from executions")[0].removeprefix("select ").split(",")
        assert [column.strip() for column in columns] == [field.name for field in msgspec.structs.fields(ExecutionInfo)]


def test_no_statement_reads_every_flow_or_outcome(path: Path) -> None:
    text = (Path(statements.__file__).parent / "sql" / "executions.sql").read_text()
    with contextlib.closing(database.open_(path, statements.migrations())) as db:
        for name, statement in statements.parse(text).items():
            names: Any = dict.fromkeys(re.findall(r":(\w+)", statement), 1) or (1,) * statement.count("?")
            steps = [row[3] for row in db.execute(f"explain query plan {statement}", names)]
            whole = [
                step
                for step in steps
                if re.fullmatch(r"SCAN (execution\w*|unit_\w+|step_cache|approvals|f|o|b|w|t)", step)
            ]
            # Asked for by a person, as a history; the limit bounds what is shown.
            assert not whole or name in ("list_waits", "clear_cached", "count_cached"), (name, steps)
