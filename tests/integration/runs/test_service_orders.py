"""What is asked of a run that is not at work yet, or waits: it is not lost, and whoever waits for the run is told."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

import msgspec
import pytest

from leadrope import Answer, Secret, errors, events
from leadrope.runs.records.values import Filter
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import Callback

CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


def configure(yard: Any, text: str) -> None:
    folder = yard.folder / ".config/leadrope"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


async def reach(service: Service, run_id: str, state: str) -> None:
    with service.store.notifier.listen() as heard:
        while (await service.get(run_id)).state != state:
            await heard.wait(5)


@pytest.fixture
def slow(yard: Any) -> dict[str, Any]:
    """A place whose set-up reads from the pipe `go`: a run that is asked for it stays at its start till then."""
    os.mkfifo(yard.folder / "go")
    configure(yard, f'[worktree]\nsetup = ["touch {yard.folder}/begun; cat {yard.folder}/go"]\n')
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (("init", "-q"), ("commit", "-qm", "first", "--allow-empty")):
        subprocess.run(["git", *who, *words], cwd=yard.ws, capture_output=True, check=True)
    return {"wanted": {"worktree": True}}


async def begun(yard: Any, service: Service, run_id: str) -> None:
    with service.store.notifier.listen() as heard:
        while not (yard.folder / "begun").exists():
            await heard.wait(0.1)
    assert (await service.get(run_id)).state == "starting"


async def test_a_run_is_stopped_while_it_is_being_started(yard: Any, slow: dict[str, Any]) -> None:
    agent = yard.agent("a", [{"text": "x"}, *CLOSE])
    async with yard.service() as owner, yard.service(kind="other") as other:
        job = await owner.start(yard.request(agent), place=slow)
        await begun(yard, other, job.id)
        await other.stop(job.id, "enough")
        result = await job.result()
        assert (result.outcome, result.error and result.error.message) == ("stopped", "enough")
        row = await other.get(job.id)
        assert (row.state, row.outcome, row.owner) == ("ended", "stopped", None)
        (last,) = [item async for item in other.follow(job.id)]
        assert isinstance(last.event, events.RunEnded)


async def test_a_pause_that_comes_before_the_agent_holds_its_first_word(yard: Any, slow: dict[str, Any]) -> None:
    agent = yard.agent("a", [{"text": "x"}, *CLOSE])
    async with yard.service() as owner, yard.service(kind="other") as other:
        job = await owner.start(yard.request(agent), place=slow)
        await begun(yard, other, job.id)
        await other.pause(job.id)
        with owner.store.notifier.listen() as heard:
            while await owner.store._rows("open_run_controls", owner=owner.lease.owner.id):
                await heard.wait(5)
        (yard.folder / "go").write_text("go\n")
        await reach(other, job.id, "paused")
        assert not [item async for item in other.follow(job.id, live=False) if _is_text(item)]
        await other.unpause(job.id)
        assert (await job.result()).outcome == "succeeded"
        assert [item for item in [item async for item in other.follow(job.id)] if _is_text(item)]


def _is_text(item: Any) -> bool:
    return isinstance(item.event, events.MessageCompleted)


@pytest.mark.parametrize("is_detached", [False, True])
async def test_a_service_that_closes_does_not_wait_for_a_start(
    yard: Any, slow: dict[str, Any], is_detached: bool
) -> None:
    """A detached run is as it was before its turn came; a terminal's is stopped."""
    agent = yard.agent("a", [{"text": "x"}, *CLOSE])
    async with yard.service() as service:
        job = await service.start(yard.request(agent), place=slow, is_detached=is_detached)
        await begun(yard, service, job.id)
    assert (await job.result()).outcome == "stopped"
    async with yard.service() as service:
        row = await service.get(job.id)
        assert (row.state, row.attempt, row.last_seq) == (("queued", 1, 0) if is_detached else ("ended", 1, 1))


async def test_whoever_waits_in_the_queue_hears_of_a_stop_from_elsewhere(yard: Any) -> None:
    configure(yard, "[service]\nrunning = 1\n")
    hangs = yard.agent("a", [{"text": "x"}, {"hang": True}])
    async with yard.service() as owner, yard.service(kind="other") as other:
        first = await owner.start(yard.request(hangs))
        await reach(owner, first.id, "running")
        second = await owner.start(yard.request(hangs))
        assert await other.waits_for(await other.get(second.id)) == "waiting for a free slot"
        await other.stop(second.id, "not needed")
        assert (await second.result()).outcome == "stopped"
        assert (await other.get(second.id)).state == "ended"
        await other.stop(first.id)
        assert (await first.result()).outcome == "stopped"


@pytest.mark.parametrize(
    ("billing", "key", "label"),
    [
        ("subscription", "sk-ant-oat01-rehearsal-0000000000", "API-equivalent estimate"),
        ("api_key", "sk-ant-api03-rehearsal-0000000000", "estimate"),
    ],
)
async def test_a_run_at_work_says_already_what_its_cost_is_called(
    yard: Any, billing: str, key: str, label: str
) -> None:
    hangs = yard.agent("a", [{"text": "x"}, {"hang": True}])
    fields = {"provider": "claude-code", "credential": Secret(key), "billing": billing}
    async with yard.service() as owner:
        run = await owner.start(yard.request(hangs, **fields))
        await reach(owner, run.id, "running")
        assert (await owner.get(run.id)).cost_label == label
        await owner.stop(run.id)
        assert (await run.result()).cost_label == label
        assert (await owner.get(run.id)).cost_label == label


def limited(yard: Any, resets_at: int) -> str:
    limit = {"status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour"}
    told = {"is_error": True, "api_error_status": 429, "result": "You have hit your limit"}
    steps = [{"line": {"type": "rate_limit_event", "rate_limit_info": limit}}, {"result": told}, {"await_eof": True}]
    return str(yard.agent("limited", steps))


async def test_a_run_that_waits_for_a_limit_holds_its_credentials_queue_and_can_be_stopped(yard: Any) -> None:
    fine = yard.agent("fine", [{"text": "x"}, *CLOSE])
    async with yard.service() as owner, yard.service(kind="other") as other:
        waits = await owner.start(yard.request(limited(yard, int(time.time()) + 3600), wait_for_limit=True))
        await reach(owner, waits.id, "parked")
        with owner.store.notifier.listen() as heard:
            while not await owner.store.holds(time.time()):
                await heard.wait(5)
        same = await owner.start(yard.request(fine))
        free = await owner.start(yard.request(fine, billing="api_key"))
        assert (await free.result()).outcome == "succeeded"
        row = await other.get(same.id)
        assert row.state == "queued"
        assert "usage limit" in await other.waits_for(row)
        assert [item.note for item in await other.listing(Filter(state="queued"))] == [row.note]
        await other.stop(same.id)
        assert (await same.result()).outcome == "stopped"
        # It has an owner that waits with it: that one ends it.
        await other.stop(waits.id)
        assert (await waits.result()).outcome == "stopped"
        assert (await other.get(waits.id)).state == "ended"


BUDGETS: dict[str, tuple[str, dict[str, Any], str]] = {
    "day": ("day_usd = 1.0", {}, "the day's budget"),
    "agent": ("agents = { reviewer = 1.0 }", {"agent": "reviewer"}, "agent reviewer"),
    "label": ('labels = { "team=blue" = 1.0 }', {"labels": {"team": "blue"}}, "team=blue"),
}


@pytest.mark.parametrize("name", BUDGETS)
async def test_a_budget_that_is_spent_holds_its_runs_and_leaves_them_their_owner(yard: Any, name: str) -> None:
    text, fields, told = BUDGETS[name]
    configure(yard, f"[budgets]\n{text}\n[agents.reviewer]\n")
    agent = yard.agent("a", [{"text": "x"}, {"result": {"total_cost_usd": 2.0}}, {"await_eof": True}])
    async with yard.service() as service, yard.service(kind="background", works=True) as background:
        limits = msgspec.structs.replace(yard.request(agent).limits, budget_usd=100.0)
        await (await service.start(yard.request(agent, limits=limits, **fields))).result()
        held = await service.start(yard.request(agent, **fields))
        with service.store.notifier.listen() as heard:
            while not (row := await service.get(held.id)).note:
                await heard.wait(5)
        assert told in await background.waits_for(row)
        # Somebody sits before it: the background must not take it up at midnight.
        assert (row.state, row.owner, row.started) == ("queued", service.lease.owner.id, None)
        await background.stop(held.id)
        assert (await held.result()).outcome == "stopped"
        if name != "day":
            assert (await (await service.start(yard.request(agent))).result()).outcome == "succeeded"


SECRET = "hunter2-of-the-database"
MARKED: dict[str, Any] = {"variables": {"DSN": SECRET}, "secret_variables": ("DSN",)}


def asks(yard: Any) -> str:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "touch it"}, "touch": str(yard.marker)}
    return str(yard.agent("a", [{"call": call}, {"text": "done"}, *CLOSE]))


async def test_an_answer_from_elsewhere_may_not_hold_what_the_run_keeps_secret(yard: Any) -> None:
    async with yard.service() as service:
        job = await service.start(yard.request(asks(yard), **MARKED))
        with service.store.notifier.listen() as heard:
            while not (waiting := await service.approvals()):
                await heard.wait(5)
        with pytest.raises(errors.BadValue, match="looks like a secret"):
            await service.answer(waiting[0].id, Answer(approved=True, edited={"command": f"psql {SECRET}"}))
        await service.answer(waiting[0].id, Answer(approved=False))
        await job.result()


async def test_a_word_to_a_run_is_sent_as_it_is_or_not_at_all(yard: Any) -> None:
    agent = yard.agent("a", [{"text": "x"}, {"hang": True}])
    async with yard.service() as service:
        job = await service.start(yard.request(agent))
        with pytest.raises(errors.BadValue, match="looks like a secret"):
            await service.send(job.id, "use sk-ant-api03-plantedplantedplanted0123456789")
        await service.stop(job.id)
        await job.result()


async def test_an_answer_at_the_run_itself_is_used_and_what_is_secret_in_it_is_not_kept(yard: Any) -> None:
    told = Answer(approved=True, edited={"command": f"psql {SECRET}"}, reason=f"with {SECRET}", by="ann")
    async with yard.service() as service:
        job = await service.start(yard.request(asks(yard), **MARKED), approver=Callback(lambda _: told))
        await job.result()
        assert yard.marker.exists()
        (row,) = await service.approvals(state="", run_id=job.id)
        assert (row.state, row.used, row.answer, row.reason) == ("approved", True, None, "with [redacted]")
    assert not [file for file in yard.home.glob("leadrope.db*") if SECRET.encode() in file.read_bytes()]


async def test_a_persons_time_to_answer_stands_still_with_a_paused_run(yard: Any) -> None:
    async with yard.service() as service:
        limits = msgspec.structs.replace(yard.request("").limits, approval_s=3, idle_s=3)
        job = await service.start(yard.request(asks(yard), limits=limits))
        with service.store.notifier.listen() as heard:
            while not (waiting := await service.approvals()):
                await heard.wait(5)
        await service.pause(job.id)
        await reach(service, job.id, "paused")
        # As long again as the whole time that there was for an answer.
        with service.store.notifier.listen() as heard:
            until = time.monotonic() + 3.5
            while time.monotonic() < until:
                await heard.wait(until - time.monotonic())
        assert await service.approvals() == waiting
        assert (await service.get(job.id)).state == "paused"
        await service.unpause(job.id)
        await service.answer(waiting[0].id, Answer(approved=True))
        assert (await job.result()).outcome == "succeeded"
        assert yard.marker.exists()
