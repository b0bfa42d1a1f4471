"""What every store must do, whatever database it is: the semantics of the protocols, tried on each of them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.core import events
from leadrope.core import execution_events as told
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs import stores
from leadrope.runs.executions import protocols as of_executions
from leadrope.runs.executions.protocols import ExecutionStore
from leadrope.runs.executions.values import ExecutionFilter, ExecutionInfo, NewExecution, UnitOutcome
from leadrope.runs.records import protocols as of_runs
from leadrope.runs.records.protocols import RunStore
from leadrope.runs.records.values import Approval, Filter, NewRun, Owner, Progress, RunInfo, RunLimits
from leadrope.runs.stores import Stores

NONE = Redactor()
LIMITS = RunLimits(running=9, starting=9, queued=9)
PROGRESS = Progress(state="running", attempt=1, cost_usd=0.5, tokens=7, model="m", session_id="s", last_action="looks")
ASKED = Approval(id="ask", kind="tool_call", state="pending", fingerprint="f", requested=1.0, asked=b"{}")
FAR = 9e9


class Kept:
    """One store, as several owners have it."""

    def __init__(self, make: Callable[[Callable[[], str]], Stores], away: Callable[[], Stores]) -> None:
        self._owner = "me"
        self.runs, self.executions = make(lambda: self._owner)
        self.away = away
        """A store of the same kind that cannot be reached."""

    def is_now(self, owner: str) -> None:
        """The next writes to executions are this owner's."""
        self._owner = owner

    async def run(self, run_id: str = "run", **fields: Any) -> RunInfo:
        given: dict[str, Any] = {"request": RunRequest(prompt="go"), **fields}
        return await self.runs.add_run(NewRun(id=run_id, **given))

    async def claimed(self, run_id: str = "run", **fields: Any) -> RunInfo:
        await self.run(run_id, **fields)
        run = await self.runs.claim("me", LIMITS, only=[run_id])
        assert run is not None
        return run

    async def execution(self, execution_id: str = "flow", **fields: Any) -> ExecutionInfo:
        return await self.executions.add(NewExecution(id=execution_id, text="# Flow", **fields), NONE)


def sqlite(folder: Path) -> Kept:
    home = folder / "home"
    home.mkdir()
    return Kept(lambda owner: stores.of(home, owner), lambda: stores.of(folder / "nothing"))


@pytest.fixture(params=[sqlite])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    found: Kept = request.param(tmp_path)
    found.runs.start()
    yield found
    found.runs.close()


def delta(run: RunInfo, seq: int, text: str = "x") -> events.Recorded:
    return events.Recorded(run.id, run.attempt, seq, float(seq), "agent", events.MessageDelta(text=text))


def failed(run: RunInfo) -> RunResult:
    return RunResult(run_id=run.id, outcome="failed")


# -- the protocols ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [of_runs.RunStore, of_executions.ExecutionStore])
def test_a_store_has_every_method_as_the_protocol_says(kept: Kept, protocol: type) -> None:
    store = kept.runs if protocol is of_runs.RunStore else kept.executions
    for name, wanted in inspect.getmembers(protocol, inspect.isfunction):
        if not name.startswith("_"):
            method = getattr(type(store), name)
            assert list(inspect.signature(method).parameters) == list(inspect.signature(wanted).parameters), name
            assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(wanted), name


@pytest.mark.parametrize("protocol", [of_runs.RunReads, of_executions.ExecutionReads, of_runs.Owners])
def test_every_read_is_awaited(protocol: type) -> None:
    for name, method in inspect.getmembers(protocol, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.iscoroutinefunction(method), name


READS: dict[str, Callable[[RunStore, ExecutionStore], Awaitable[Any]]] = {
    "get": lambda runs, _: runs.get("run"),
    "find": lambda runs, _: runs.find("run"),
    "with_prefix": lambda runs, _: runs.with_prefix("run"),
    "listing": lambda runs, _: runs.listing(),
    "states": lambda runs, _: runs.states(),
    "owners": lambda runs, _: runs.owners(),
    "holds": lambda runs, _: runs.holds(0.0),
    "approval": lambda runs, _: runs.approval("ask"),
    "approvals": lambda runs, _: runs.approvals(),
    "of an execution": lambda _, executions: executions.get("flow"),
    "of executions": lambda _, executions: executions.listing(),
    "last_of": lambda _, executions: executions.last_of(name="flow"),
    "cache_get": lambda _, executions: executions.cache_get("key"),
    "dataset": lambda _, executions: executions.dataset("data"),
    "datasets": lambda _, executions: executions.datasets(),
}


@pytest.mark.parametrize("name", READS)
async def test_a_store_that_is_not_there_is_never_taken_for_one_without_rows(kept: Kept, name: str) -> None:
    runs, executions = kept.away()
    with pytest.raises(errors.StoreError) as caught:
        await READS[name](runs, executions)
    assert not isinstance(caught.value, errors.UnknownRun)
    runs.close()


# -- runs -------------------------------------------------------------------------------------------------------------


async def test_a_run_is_found_by_its_id_and_the_beginning_of_it(kept: Kept) -> None:
    await kept.run("aaaa", title="One")
    await kept.run("aabb")
    assert (await kept.runs.get("aaaa")).title == "One"
    assert (await kept.runs.find("aaa")).id == "aaaa"
    assert {run.id for run in await kept.runs.with_prefix("aa")} == {"aaaa", "aabb"}
    assert await kept.runs.with_prefix("") == []
    for name in ("aa", "b", ""):
        with pytest.raises(errors.UnknownRun):
            await kept.runs.find(name)
    with pytest.raises(errors.UnknownRun):
        await kept.runs.get("aaa")


async def test_runs_are_listed_newest_first_and_by_what_is_wanted(kept: Kept) -> None:
    one = await kept.run("one", request=RunRequest(prompt="go", cwd="/a", labels={"team": "red"}))
    await kept.claimed("two")
    runs = kept.runs
    assert [run.id for run in await runs.listing()] == ["two", "one"]
    assert [run.id for run in await runs.listing(Filter(state="queued"))] == ["one"]
    assert [run.id for run in await runs.listing(Filter(label=("team", "red")))] == ["one"]
    assert [run.id for run in await runs.listing(Filter(cwd="/a"))] == ["one"]
    assert [run.id for run in await runs.listing(Filter(before=one.n + 1))] == ["one"]
    assert [run.id for run in await runs.listing(Filter(limit=1))] == ["two"]
    assert await runs.states() == {"queued": 1, "starting": 1}


async def test_events_are_kept_once_in_order_and_without_a_gap(kept: Kept) -> None:
    run = await kept.claimed()
    runs = kept.runs
    await runs.append(run, [delta(run, 1), delta(run, 2)], PROGRESS, NONE, durable=True)
    await runs.append(run, [delta(run, 2, "other"), delta(run, 3)], PROGRESS, NONE)
    with pytest.raises(errors.StoreError, match="one is missing"):
        await runs.append(run, [delta(run, 5)], PROGRESS, NONE)
    stored = await runs.read(run, 1, 10)
    assert [(record.seq, record.event) for record in stored] == [
        (seq, events.MessageDelta(text="x")) for seq in (1, 2, 3)
    ]
    assert await runs.events(run, 2, 1) == stored[1:2]
    assert await runs.read(run, 4, 10) == []
    assert await runs.read(run, 1, 10, type_="turn.ended") == []
    row = await runs.get(run.id)
    assert (row.last_seq, row.state, row.cost_usd, row.tokens, row.session_id) == (3, "running", 0.5, 7, "s")
    assert await runs.cost_since(0) == 0.5


async def test_a_run_ends_once(kept: Kept) -> None:
    run = await kept.claimed()
    runs = kept.runs
    await runs.add_approval(run, ASKED)
    assert await runs.end_run(run, failed(run), NONE)
    assert not await runs.end_run(run, failed(run), NONE)
    row = await runs.get(run.id)
    assert (row.state, row.outcome, row.owner) == ("ended", "failed", None)
    assert (await runs.texts(run.id)).result == failed(run)
    assert (await runs.approval("ask")).state == "withdrawn"
    with pytest.raises(errors.StoreError):
        await runs.append(run, [delta(run, 1)], PROGRESS, NONE)
    assert await runs.delete_run(run.id)
    assert not await runs.delete_run(run.id)
    assert await runs.listing() == []


async def test_what_is_kept_beside_a_run(kept: Kept) -> None:
    run = await kept.claimed(place={"waits": True})
    runs = kept.runs
    await runs.set_place(run, {"worktree": "there"})
    await runs.set_policy(run, {"mode": "plan"}, NONE)
    await runs.add_artifact(run, "changes", "text/x-diff", b"+1")
    texts = await runs.texts(run.id)
    assert (texts.request.prompt, texts.place, texts.policy) == ("go", {"worktree": "there"}, {"mode": "plan"})
    assert [(one.name, one.size) for one in await runs.artifacts(run)] == [("changes", 2)]
    assert await runs.artifact(run, "changes") == b"+1"
    assert await runs.artifact(run, "none") is None


# -- the queue --------------------------------------------------------------------------------------------------------


async def test_runs_are_claimed_in_their_turn_and_each_claim_has_a_number(kept: Kept) -> None:
    for name, priority in (("low", 0), ("high", 5), ("next", 0)):
        await kept.run(name, priority=priority)
    runs = kept.runs
    assert await runs.ahead_of("next") == 2
    taken = [await runs.claim("me", LIMITS) for _ in range(4)]
    assert [run.id if run else None for run in taken] == ["high", "low", "next", None]
    first = taken[0]
    assert first is not None
    assert (first.state, first.owner, first.epoch) == ("starting", "me", 1)
    await runs.requeue(first, attempt=2, note="once more")
    assert await runs.left_over(0) == ["high"]
    again = await runs.claim("other", LIMITS)
    assert again is not None
    assert (again.id, again.owner, again.epoch, again.attempt) == ("high", "other", 2, 2)


async def test_limits_hold_for_all_owners_together(kept: Kept) -> None:
    narrow = RunLimits(running=1, starting=1, queued=2)
    runs = kept.runs
    for name in ("a", "b"):
        await runs.add_run(NewRun(id=name, request=RunRequest(prompt="go")), narrow)
    with pytest.raises(errors.QueueFull):
        await runs.add_run(NewRun(id="c", request=RunRequest(prompt="go")), narrow)
    assert await runs.claim("me", narrow) is not None
    assert await runs.claim("other", narrow) is None


async def test_a_run_waits_for_its_owner_its_time_and_its_account(kept: Kept) -> None:
    runs = kept.runs
    await kept.run("mine", owner="me")
    await kept.run("later", not_before=FAR)
    await kept.run("held", account="paid")
    await runs.hold_account("paid", FAR, "a limit")
    assert await runs.claim("other", LIMITS) is None
    assert await runs.holds(0) == {"paid": (FAR, "a limit")}
    assert await runs.next_due(0) == FAR
    assert set(await runs.waiting_for("other")) == {"later", "held"}
    assert await runs.wake(await runs.get("later"))
    taken = [await runs.claim("other", LIMITS), await runs.claim("me", LIMITS)]
    assert [run.id for run in taken if run] == ["later", "mine"]
    assert not await runs.wake(await runs.get("later")), "it has an owner now"


async def test_a_run_of_a_step_waits_for_its_execution(kept: Kept) -> None:
    run = await kept.claimed()
    runs = kept.runs
    await runs.requeue(run, attempt=1, note="", owner="execution:flow")
    assert await runs.claim("other", LIMITS) is None
    assert not await runs.adopt(run, "another", "other")
    assert await runs.adopt(run, "flow", "other")
    assert (await runs.get(run.id)).owner == "other"
    assert await runs.forget_unstarted(run.id)


async def test_controls_reach_the_owner_once(kept: Kept) -> None:
    run = await kept.claimed()
    await kept.runs.add_control(run, "send", {"text": "and now?"})
    assert await kept.runs.take_controls("other") == []
    (control,) = await kept.runs.take_controls("me")
    assert (control.run_id, control.kind, control.body) == (run.id, "send", {"text": "and now?"})
    assert await kept.runs.take_controls("me") == []


async def test_what_dead_owners_have_left(kept: Kept) -> None:
    runs = kept.runs
    owner = Owner(id="me", pid=1, boot="b", kind="terminal", started=1.0)
    await runs.add_owner(owner)
    run = await kept.claimed()
    assert await runs.owners() == [owner]
    assert (await runs.runs_of("me"), await runs.orphans()) == ([run.id], [])
    await runs.drop_owner("me")
    assert (await runs.owners(), await runs.orphans()) == ([], [run.id])


async def test_a_change_is_heard(kept: Kept) -> None:
    with kept.runs.notifier.listen() as heard:
        await kept.run()
        assert await heard.wait(10)


# -- approvals --------------------------------------------------------------------------------------------------------


async def test_the_first_answer_counts_and_is_used_once(kept: Kept) -> None:
    run = await kept.claimed()
    runs = kept.runs
    assert await runs.add_approval(run, ASKED) == "ask"
    assert [one.id for one in await runs.approvals()] == ["ask"]
    assert not await runs.decide("ask", "approved", by="ann", fingerprint="another")
    assert await runs.decide("ask", "approved", by="ann", answer=b'{"approved":true}', fingerprint="f")
    assert not await runs.decide("ask", "denied", by="bob")
    found = await runs.approval("ask")
    assert (found.state, found.by, found.run_id, found.used) == ("approved", "user:ann", run.id, False)
    assert await runs.approvals() == []
    assert [one.id for one in await runs.approvals(state="", run_id=run.id)] == ["ask"]
    assert await runs.use_approval("ask")
    assert not await runs.use_approval("ask")
    await runs.give_back(["ask"])
    assert await runs.use_approval("ask")
    assert [one.id for one in await runs.approvals_beginning("as")] == ["ask"]


async def test_an_answer_queues_the_run_that_nobody_owns(kept: Kept) -> None:
    run = await kept.claimed()
    runs = kept.runs
    await runs.add_approval(run, ASKED)
    assert await runs.suspend(run, attempt=1)
    assert (await runs.get(run.id)).state == "waiting"
    assert await runs.decide("ask", "approved", by="ann", answer=b'{"approved":true}')
    assert (await runs.get(run.id)).state == "queued"
    later = await runs.claim("other", LIMITS)
    assert later is not None
    assert [one.id for one in await runs.unused_answers(later)] == ["ask"]
    assert await runs.use_earlier(later, later.attempt, "tool_call", "another") is None
    assert await runs.use_earlier(later, later.attempt, "tool_call", "f") == b'{"approved":true}'
    assert await runs.use_earlier(later, later.attempt, "tool_call", "f") is None


# -- fencing ----------------------------------------------------------------------------------------------------------

OF_A_RUN: dict[str, Callable[[RunStore, RunInfo], Awaitable[Any]]] = {
    "append": lambda runs, run: runs.append(run, [delta(run, 1)], PROGRESS, NONE),
    "set_state": lambda runs, run: runs.set_state(run, "paused"),
    "end_run": lambda runs, run: runs.end_run(run, failed(run), NONE),
    "requeue": lambda runs, run: runs.requeue(run, attempt=9, note="late"),
    "set_policy": lambda runs, run: runs.set_policy(run, {"late": True}, NONE),
    "set_place": lambda runs, run: runs.set_place(run, {"late": True}),
    "suspend": lambda runs, run: runs.suspend(run, attempt=1),
    "add_artifact": lambda runs, run: runs.add_artifact(run, "late", "text/plain", b"late"),
    "add_approval": lambda runs, run: runs.add_approval(run, ASKED),
    "close_approvals": lambda runs, run: runs.close_approvals(run, "denied", by="policy", reason="", attempt=9),
    "use_earlier": lambda runs, run: runs.use_earlier(run, 9, "tool_call", "f"),
}


@pytest.mark.parametrize("next_owner", ["other", "me"])
@pytest.mark.parametrize("name", OF_A_RUN)
async def test_a_write_to_a_run_by_an_earlier_claim_is_refused(kept: Kept, name: str, next_owner: str) -> None:
    """Also where the next claim is by the same owner: what counts is the claim."""
    late = await kept.claimed()
    runs = kept.runs
    await runs.requeue(late, attempt=1, note="")
    now = await runs.claim(next_owner, LIMITS)
    assert now is not None
    before = await runs.texts(late.id)
    with pytest.raises(errors.NotOwner):
        await OF_A_RUN[name](runs, late)
    assert await runs.get(late.id) == now
    assert await runs.texts(late.id) == before
    assert (await runs.artifacts(now), await runs.approvals(), await runs.read(now, 1, 9)) == ([], [], [])


LATE = UnitOutcome(step="late", status="succeeded")


def ask(executions: ExecutionStore, execution: ExecutionInfo, fingerprint: str = "f") -> Awaitable[Approval]:
    return executions.ask(
        execution, LATE, "step", {}, outermost_id=execution.id, fingerprint=fingerprint, redactor=NONE
    )


OF_AN_EXECUTION: dict[str, Callable[[ExecutionStore, ExecutionInfo], Awaitable[Any]]] = {
    "set_state": lambda executions, one: executions.set_state(one, "waiting"),
    "requeue": lambda executions, one: executions.requeue(one, note="late"),
    "end": lambda executions, one: executions.end(one, "failed", {}, NONE),
    "set_paused": lambda executions, one: executions.set_paused(one, None, told.ExecutionPaused(), is_paused=True),
    "change_text": lambda executions, one: executions.change_text(one, "# Late", NONE),
    "begin": lambda executions, one: executions.begin(one, LATE),
    "settle": lambda executions, one: executions.settle(one, LATE, NONE),
    "carry": lambda executions, one: executions.carry(one, one, ["late"]),
    "ask": ask,
    "wait_for": lambda executions, one: executions.wait_for(one, []),
}


@pytest.mark.parametrize("next_owner", ["other", "me"])
@pytest.mark.parametrize("name", OF_AN_EXECUTION)
async def test_a_write_to_an_execution_by_an_earlier_claim_is_refused(kept: Kept, name: str, next_owner: str) -> None:
    executions = kept.executions
    late = await kept.execution()
    await executions.set_state(late, "interrupted")
    kept.is_now(next_owner)
    now = await executions.claim(late.id)
    assert now.epoch == late.epoch + 1
    kept.is_now("me")
    with pytest.raises(errors.NotOwner):
        await OF_AN_EXECUTION[name](executions, late)
    assert await executions.get(late.id) == now
    assert (await executions.outcomes(late.id), await kept.runs.approvals()) == ([], [])
    assert await executions.text(late.id) == "# Flow"


# -- executions -------------------------------------------------------------------------------------------------------


async def test_an_execution_is_found_and_listed(kept: Kept) -> None:
    executions = kept.executions
    outer = await kept.execution("outer", name="release", file="/f", inputs={"pr": 7}, labels={"team": "red"})
    inner = await kept.execution("inner", parent=outer.id, parent_key="call#0")
    assert (await executions.find("out")).id == "outer"
    assert await executions.ids_beginning("in") == ["inner"]
    assert await executions.outermost(inner) == outer
    assert await executions.children(outer.id) == [inner]
    assert [one.id for one in await executions.listing()] == ["inner", "outer"]
    assert [one.id for one in await executions.listing(ExecutionFilter(is_top=True))] == ["outer"]
    last = await executions.last_of(name="release")
    assert last == outer == await executions.last_of(file="/f")
    assert await executions.last_of(name="none") is None
    assert await executions.inputs(outer.id) == {"pr": 7}
    assert await executions.result(outer.id) is None
    with pytest.raises(errors.UnknownRun):
        await executions.get("none")


async def test_a_unit_has_one_outcome(kept: Kept) -> None:
    executions = kept.executions
    execution = await kept.execution()
    await executions.begin(execution, LATE)
    assert [one.step for one in await executions.begun(execution.id)] == ["late"]
    given = msgspec.structs.replace(LATE, outputs={"n": 1}, cost_usd=0.5, tokens=3)
    assert not await executions.settle(execution, given, NONE)
    with pytest.raises(errors.WrongState):
        await executions.settle(execution, given, NONE)
    with pytest.raises(errors.WrongState):
        await executions.begin(execution, LATE)
    (outcome,) = await executions.outcomes(execution.id)
    assert (outcome.step, outcome.outputs) == ("late", {"n": 1})
    assert await executions.outcomes(execution.id, after=outcome.n) == []
    assert (await executions.unit(execution.id, "late")).outputs == {"n": 1}
    assert await executions.begun(execution.id) == []
    row = await executions.get(execution.id)
    assert (row.cost_usd, row.tokens, await executions.done_units(execution.id)) == (0.5, 3, 1)
    other = await kept.execution("other")
    assert await executions.carry(execution, other, ["late"]) == 1
    assert (await executions.get("other")).cost_usd == 0.0


async def test_several_outcomes_are_stored_together_or_not_at_all(kept: Kept) -> None:
    executions = kept.executions
    execution = await kept.execution()
    await executions.settle(execution, UnitOutcome(step="a", status="succeeded"), NONE)
    both = [await executions.settled(execution, UnitOutcome(step=step, status="succeeded"), NONE) for step in "ba"]
    with pytest.raises(errors.WrongState):
        await executions.settle_all(both)
    assert [one.step for one in await executions.outcomes(execution.id)] == ["a"]


async def test_executions_are_taken_from_the_queue_in_their_turn(kept: Kept) -> None:
    executions = kept.executions
    await kept.execution("low", state="queued")
    await kept.execution("high", state="queued", priority=5)
    await kept.execution("later", state="queued", not_before=FAR)
    assert await executions.left_over(0) == ["high", "low"]
    assert await executions.queued_for("me", 1.0) == ["high", "low"]
    assert await executions.next_due(0) == FAR
    first = await executions.claim_next(1, recover="resume")
    assert first is not None
    assert (first.id, first.owner, first.epoch, first.recover) == ("high", "me", 1, "resume")
    assert await executions.claim_next(1, recover="resume") is None
    assert await executions.wake(await executions.get("later"))
    with pytest.raises(errors.WrongState, match="already running"):
        await executions.claim("high")


async def test_an_answer_queues_the_execution_that_waits_for_it(kept: Kept) -> None:
    executions, runs = kept.executions, kept.runs
    execution = await kept.execution()
    one = await ask(executions, execution)
    assert (await ask(executions, execution)).id == one.id
    assert await runs.pending_ids(execution.id) == {one.id}
    waiting = await executions.wait_for(execution, [one.id])
    assert (waiting.state, waiting.owner) == ("waiting", None)
    assert await runs.decide(one.id, "approved", by="ann", answer=b'{"approved":true}')
    assert (await executions.get(execution.id)).state == "queued"
    recorded = await executions.all_events(await executions.get(execution.id))
    assert [type(one.event) for one in recorded] == [told.StepAnswered, told.ExecutionQueued]


async def test_what_an_owner_leaves(kept: Kept) -> None:
    executions = kept.executions
    await kept.execution("fails")
    await kept.execution("goes-on", recover="resume")
    assert await executions.release() == 2
    assert (await executions.get("fails")).state == "interrupted"
    assert (await executions.get("goes-on")).state == "queued"
    assert await executions.abandon([("fails", "me")]) == 0, "it is nobody's any more"


async def test_an_execution_ends_and_can_be_deleted_then(kept: Kept) -> None:
    executions = kept.executions
    execution = await kept.execution()
    with pytest.raises(errors.WrongState):
        await executions.delete([execution.id])
    ended = await executions.end(execution, "succeeded", {"outputs": {}}, NONE)
    assert (ended.state, ended.outcome, ended.owner) == ("ended", "succeeded", None)
    assert await executions.result(execution.id) == {"outputs": {}}
    assert await executions.stale(keep_s=0, keep_executions=0) == [execution.id]
    assert await executions.stale(keep_s=0, keep_executions=1) == []
    assert await executions.delete([execution.id]) == 1
    assert await executions.listing() == []


async def test_controls_of_executions(kept: Kept) -> None:
    executions = kept.executions
    execution = await kept.execution()
    assert not await executions.end_unowned(execution, told.ExecutionEnded(outcome="stopped"))
    await executions.add_control(execution, "stop", {"reason": "enough"})
    (control,) = await executions.take_controls([execution.id])
    assert (control.execution_id, control.kind, control.body) == (execution.id, "stop", {"reason": "enough"})
    assert await executions.take_controls([execution.id]) == []
    await executions.requeue(execution, note="")
    queued = await executions.get(execution.id)
    assert await executions.pause_unowned(queued, told.ExecutionPaused(by="ann"))
    assert (await executions.get(execution.id)).state == "paused"
    assert await executions.queue_paused(queued, told.ExecutionUnpaused(by="ann"))
    assert await executions.end_unowned(queued, told.ExecutionEnded(outcome="stopped"))
    assert (await executions.get(execution.id)).outcome == "stopped"


async def test_the_log_of_an_execution_is_numbered_and_shown_when_it_is_stored(kept: Kept) -> None:
    executions = kept.executions
    execution = await kept.execution()
    shown: list[told.ExecutionRecord] = []
    log = executions.log_of(execution, redactor=lambda: NONE, show=shown.append)
    log.tell(told.StepStarted(step="a", kind="shell"))
    await executions.settle(execution, LATE, NONE, log=log, told=lambda _: [told.StepStarted(step="b", kind="shell")])
    log.tell(told.StepStarted(step="c", kind="shell"))
    await log.flush()
    stored = await executions.all_events(execution)
    assert [(one.seq, getattr(one.event, "step", "")) for one in stored] == [(1, "a"), (2, "b"), (3, "c")]
    assert shown == stored
    assert await executions.events(execution, 2, 1) == stored[1:2]
    assert await executions.read_events(execution, 1, 9, type_="step.ended") == []


# -- beyond one execution ---------------------------------------------------------------------------------------------


async def test_cached_outputs(kept: Kept) -> None:
    executions = kept.executions
    assert await executions.cache_get("key") is None
    assert await executions.cache_put("key", "llm", {"text": "x"}, NONE)
    found = await executions.cache_get("key")
    assert found is not None
    assert (found.type, found.outputs, await executions.cached("llm"), await executions.cached("http")) == (
        "llm",
        {"text": "x"},
        1,
        0,
    )
    assert await executions.cache_clear("http") == 0
    assert await executions.cache_clear() == 1


async def test_datasets(kept: Kept) -> None:
    executions = kept.executions
    await executions.put_dataset("data", [{"id": 1, "v": "a"}], NONE)
    await executions.put_dataset("data", [{"id": 1, "v": "b"}, {"id": 2}], NONE, is_added=True, key="id")
    found = await executions.dataset("data")
    assert (found.columns, found.rows) == (("id", "v"), [{"id": 1, "v": "b"}, {"id": 2}])
    assert [(one.name, one.count) for one in await executions.datasets()] == [("data", 2)]
    await executions.delete_dataset("data")
    with pytest.raises(errors.UnknownRun):
        await executions.dataset("data")
