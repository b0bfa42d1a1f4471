"""Runs through the service: real processes, a real database, several owners of one store."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec
import pytest

import database_file
from leadrope import Answer, errors, events, open_conversation
from leadrope.core.fold import fold
from leadrope.runs import recover
from leadrope.runs.records.values import Filter
from leadrope.runs.service import Service

CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


def call(yard: Any, command: str = "touch it", tool_id: str = "t1") -> dict[str, Any]:
    return {"call": {"tool": "Bash", "id": tool_id, "input": {"command": command}, "touch": str(yard.marker)}}


async def seen(service: Service, run_id: str) -> list[Any]:
    return [item async for item in service.follow(run_id)]


async def test_a_run_is_stored_whole_and_its_log_folds_to_its_result(yard: Any) -> None:
    agent = yard.agent("a", [{"text": "Hello."}, *CLOSE])
    async with yard.service() as service:
        shown: list[Any] = []
        job = await service.start(yard.request(agent, labels={"team": "blue"}), show=shown.append)
        result = await job.result()
        assert result.outcome == "succeeded"
        row = await service.get(job.id)
        assert (row.state, row.outcome, row.owner, row.labels) == ("ended", "succeeded", None, {"team": "blue"})
        stored = await seen(service, job.id)
        assert stored == shown
        assert [item.seq for item in stored] == list(range(1, len(stored) + 1))
        assert fold(stored) == result == (await service.texts(job.id)).result


class _Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise BrokenPipeError(record.msg)


async def test_whoever_waits_is_told_even_if_a_failure_cannot_be_logged(yard: Any) -> None:
    handler, logger = _Broken(), logging.getLogger("leadrope.runs")
    logger.addHandler(handler)
    try:
        async with yard.service() as service, asyncio.timeout(60):
            job = await service.start(yard.request(yard.agent("a", CLOSE)))
            job.options = {"nonsense": True}
            with pytest.raises(errors.LeadropeError, match="leadrope itself failed: BrokenPipeError"):
                await job.result()
            assert service.is_idle
    finally:
        logger.removeHandler(handler)


async def test_an_approval_is_answered_from_another_process_and_only_once(yard: Any) -> None:
    agent = yard.agent("a", [call(yard), {"text": "done"}, *CLOSE])
    async with yard.service() as owner, yard.service(kind="other") as other:
        job = await owner.start(yard.request(agent))
        with other.store.notifier.listen() as heard:
            while not (waiting := await other.approvals()):
                await heard.wait(5)
        asked = msgspec.json.decode(waiting[0].asked, type=events.ApprovalRequested)
        assert asked.call.input == {"command": "touch it"}
        assert not yard.marker.exists()
        assert (await other.get(job.id)).state in ("running", "waiting")
        both: Any = await asyncio.gather(
            other.answer(waiting[0].id, Answer(approved=True, by="ann")),
            owner.answer(waiting[0].id, Answer(approved=False, by="bob")),
            return_exceptions=True,
        )
        refused = [answer for answer in both if isinstance(answer, errors.WrongState)]
        assert len(refused) == 1
        result = await job.result()
        decided = await other.store.approval(waiting[0].id)
        assert (decided.state == "approved") == yard.marker.exists()
        assert decided.used
        assert result.outcome == ("succeeded" if decided.state == "approved" else "denied")
        with pytest.raises(errors.WrongState, match="no longer open"):
            await other.answer(waiting[0].id, Answer(approved=True))


async def test_an_answer_to_what_has_changed_is_refused_and_the_approval_stays_open(yard: Any) -> None:
    """Compared before it counts, also by the write itself; and the fingerprint of today is taken."""
    agent = yard.agent("a", [call(yard), {"text": "done"}, *CLOSE])
    async with yard.service() as owner, yard.service(kind="other") as other:
        job = await owner.start(yard.request(agent))
        with other.store.notifier.listen() as heard:
            while not (waiting := await other.approvals()):
                await heard.wait(5)
        shown = waiting[0].fingerprint
        await other.store.write(lambda db: db.execute("update approvals set fingerprint = 'another'"))
        with pytest.raises(errors.StaleAnswer, match="has changed since it was shown"):
            await other.answer(waiting[0].id, Answer(approved=True, fingerprint=shown))
        assert not await other.store.decide(waiting[0].id, "approved", by="user:ann", fingerprint=shown)
        assert [row.state for row in await other.approvals()] == ["pending"]
        assert not yard.marker.exists()
        await other.store.write(lambda db: db.execute("update approvals set fingerprint = ?", (shown,)))
        await other.answer(waiting[0].id, Answer(approved=True, fingerprint=shown))
        assert (await job.result()).outcome == "succeeded"
    assert yard.marker.exists()


async def test_an_approval_that_nobody_answers_expires_and_is_refused_afterwards(yard: Any) -> None:
    agent = yard.agent("a", [call(yard), {"text": "done"}, *CLOSE])
    async with yard.service() as service:
        limits = msgspec.structs.replace(yard.request(agent).limits, approval_s=0.5)
        job = await service.start(yard.request(agent, limits=limits))
        result = await job.result()
        assert not yard.marker.exists()
        assert "APPROVAL_TIMEOUT" in result.denials[0].reason
        (row,) = await service.approvals(state="", run_id=job.id)
        assert row.state == "expired"
        with pytest.raises(errors.WrongState):
            await service.answer(row.id, Answer(approved=True))


async def test_a_run_is_stopped_from_another_process(yard: Any) -> None:
    agent = yard.agent("a", [{"text": "working"}, {"hang": True}])
    async with yard.service() as owner, yard.service(kind="other") as other:
        job = await owner.start(yard.request(agent))
        async for item in other.follow(job.id):
            if isinstance(item.event, events.MessageCompleted):
                break
        await other.stop(job.id[:10], "enough")
        result = await job.result()
        assert result.outcome == "stopped"
        assert (await other.get(job.id)).state == "ended"


async def test_a_paused_run_decides_nothing_until_it_goes_on(yard: Any) -> None:
    agent = yard.agent("a", [{"text": "first"}, {"await_file": str(yard.folder / "go")}, call(yard), *CLOSE])
    async with yard.service() as service:
        job = await service.start(yard.request(agent, mode="full"))
        async for item in service.follow(job.id):
            if isinstance(item.event, events.MessageCompleted):
                break
        await service.pause(job.id)
        with service.store.notifier.listen() as heard:
            while (await service.get(job.id)).state != "paused":
                await heard.wait(5)
        (yard.folder / "go").touch()
        async for item in service.follow(job.id):
            if isinstance(item.event, events.ToolRequested):
                break
        assert not yard.marker.exists()
        assert not any(
            isinstance(e.event, events.ToolDecided) for e in await recover.all_events(service.store, job.info)
        )
        await service.unpause(job.id)
        assert (await job.result()).outcome == "succeeded"
        assert yard.marker.exists()


async def test_the_rules_that_held_for_a_run_are_kept_with_it(yard: Any) -> None:
    """Those of all layers, not only the request's own: files change, and nobody could tell afterwards."""
    (yard.folder / ".config/leadrope").mkdir(parents=True)
    file = yard.folder / ".config/leadrope/config.toml"
    file.write_text('[policy]\nblocked_commands = ["curl *"]\n')
    agent = yard.agent("a", [{"text": "x"}, *CLOSE])
    async with yard.service() as service:
        job = await service.start(yard.request(agent, policy={"max_tool_calls": 3}))
        await job.result()
        file.write_text("")
        kept = (await service.texts(job.id)).policy
        assert kept["max_tool_calls"] == 3
        assert "curl *" in kept["blocked_commands"]
        assert kept["origin"]["blocked_commands"], "and whose word it was"


async def test_what_keeps_a_run_from_starting_is_raised_and_stored_if_nobody_sits_before_it(yard: Any) -> None:
    async with yard.service() as service:
        job = await service.start(yard.request(str(yard.folder / "nothing")))
        with pytest.raises(errors.CliNotFound):
            await job.result()
        assert await service.listing() == []
        job = await service.start(yard.request(str(yard.folder / "nothing")), is_detached=True)
        with pytest.raises(errors.CliNotFound):
            await job.result()
        row = await service.get(job.id)
        assert (row.state, row.outcome, row.error_kind) == ("ended", "failed", "cli_not_found")


async def test_no_more_runs_at_once_than_the_settings_say(yard: Any) -> None:
    (yard.folder / ".config/leadrope").mkdir(parents=True)
    (yard.folder / ".config/leadrope/config.toml").write_text("[service]\nrunning = 2\nqueued = 3\n")
    agent = yard.agent("a", [{"text": "x"}, {"await_file": str(yard.folder / "go")}, *CLOSE])
    async with yard.service() as service:
        jobs = [await service.start(yard.request(agent)) for _ in range(3)]
        with service.store.notifier.listen() as heard:
            while (await service.store.states()).get("running", 0) < 2:
                await heard.wait(5)
        jobs += [await service.start(yard.request(agent)) for _ in range(2)]
        assert await service.store.states() == {"running": 2, "queued": 3}
        with pytest.raises(errors.QueueFull):
            await service.start(yard.request(agent))
        (yard.folder / "go").touch()
        for job in jobs:
            assert (await job.result()).outcome == "succeeded"


async def test_a_day_that_has_spent_its_budget_holds_the_queue(yard: Any) -> None:
    (yard.folder / ".config/leadrope").mkdir(parents=True)
    (yard.folder / ".config/leadrope/config.toml").write_text('[budgets]\nlabels = { "team=blue" = 1.0 }\n')
    agent = yard.agent("a", [{"text": "x"}, {"result": {"total_cost_usd": 2.0}}, {"await_eof": True}])
    async with yard.service() as service:
        limits = msgspec.structs.replace(yard.request(agent).limits, budget_usd=100.0)
        first = await service.start(yard.request(agent, labels={"team": "blue"}, limits=limits))
        await first.result()
        second = await service.start(yard.request(agent, labels={"team": "blue"}))
        with service.store.notifier.listen() as heard:
            while not (await service.get(second.id)).note:
                await heard.wait(5)
        row = await service.get(second.id)
        assert row.state == "queued"
        assert "team=blue" in row.note
        other = await service.start(yard.request(agent, labels={"team": "red"}))
        assert (await other.result()).outcome == "succeeded"
        await service.stop(second.id)
        assert (await second.result()).outcome == "stopped"


async def test_a_closed_service_leaves_no_run_that_says_running(yard: Any) -> None:
    agent = yard.agent("a", [{"text": "x"}, {"hang": True}])
    async with yard.service() as service:
        job = await service.start(yard.request(agent))
        async for item in service.follow(job.id):
            if isinstance(item.event, events.MessageCompleted):
                break
    async with yard.service() as service:
        assert await service.listing(Filter(is_open=True)) == []
        assert (await service.get(job.id)).outcome == "stopped"
    database_file.check_sound(yard.home / "leadrope.db")


@pytest.mark.parametrize("jump_s", [86400.0, -86400.0], ids=["forwards", "backwards"])
async def test_a_jump_of_the_clock_fires_no_timer(yard: Any, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    """All clocks of a run are monotonic: an approval of a minute still waits when the date has jumped by a day."""
    agent = yard.agent("a", [call(yard), {"text": "done"}, *CLOSE])
    real = time.time
    async with yard.service() as service:
        limits = msgspec.structs.replace(yard.request(agent).limits, approval_s=60, idle_s=60, wall_s=600)
        job = await service.start(yard.request(agent, limits=limits))
        with service.store.notifier.listen() as heard:
            while not (waiting := await service.approvals()):
                await heard.wait(5)
            monkeypatch.setattr(time, "time", lambda: real() + jump_s)
            for _ in range(3):  # what looks for dead owners and due runs has looked
                await heard.wait(2.1)
        assert await service.approvals() == waiting
        assert (await service.get(job.id)).owner == service.lease.owner.id
        await service.answer(waiting[0].id, Answer(approved=True, by="ann"))
        assert (await job.result()).outcome == "succeeded"
        assert yard.marker.exists()


async def test_prune_keeps_what_it_must(yard: Any) -> None:
    """What lives, what is new, and what holds work that was never brought home."""
    done = yard.agent("done", [{"text": "x"}, *CLOSE])
    hangs = yard.agent("hangs", [{"text": "x"}, {"hang": True}])
    async with yard.service() as service:
        old = [await service.start(yard.request(done)) for _ in range(3)]
        for job in old:
            await job.result()
        await service.store.set_place(await service.get(old[2].id), {"worktree": {}})
        living = await service.start(yard.request(hangs))
        async for item in service.follow(living.id):
            if isinstance(item.event, events.MessageCompleted):
                break
        assert (await service.prune(keep_days=1, keep_runs=0)).runs == 0
        assert (await service.prune(keep_days=0, keep_runs=2, dry_run=True)).runs == 1
        assert len(await service.listing()) == 4
        with pytest.raises(errors.WrongState, match="has not ended"):
            await service.delete([living.id])
        assert (await service.prune(keep_days=0, keep_runs=0)).runs == 2
        assert [row.id for row in await service.listing()] == [living.id, old[2].id]
        await service.stop(living.id)
        await living.result()


async def test_a_conversation_is_kept_like_every_run(yard: Any) -> None:
    """Two turns with one process, read by the caller, are one run in the store."""
    agent = yard.agent("a", [{"text": "one"}, {"result": True}, {"await_user": True}, {"text": "two"}, *CLOSE])
    async with yard.service() as service:
        given = msgspec.structs.replace(yard.request(agent), prompt="")
        async with open_conversation(given, environ=yard.environ, opener=service.open) as conversation:
            assert (await conversation.ask("first")).text == "one"
            assert (await conversation.ask("second")).text == "two"
        (row,) = await service.listing()
        with service.store.notifier.listen() as heard:
            while (await service.get(row.id)).state != "ended":
                await heard.wait(5)
        records = await recover.all_events(service.store, row)
        assert [r.event.text for r in records if isinstance(r.event, events.MessageCompleted)] == ["one", "two"]
        assert (await service.get(row.id)).outcome == "succeeded"
        with pytest.raises(errors.CliNotFound):
            await service.open(yard.request(str(yard.folder / "nothing")))


async def test_a_usage_limit_holds_the_runs_of_its_account_alone(yard: Any) -> None:
    limit = {"status": "rejected", "resetsAt": int(time.time()) + 3600, "rateLimitType": "five_hour"}
    told = {"is_error": True, "api_error_status": 429, "result": "You have hit your limit"}
    limited = yard.agent(
        "limited",
        [{"line": {"type": "rate_limit_event", "rate_limit_info": limit}}, {"result": told}, {"await_eof": True}],
    )
    fine = yard.agent("fine", [{"text": "x"}, *CLOSE])
    async with yard.service() as service:
        first = await service.start(yard.request(limited))
        assert (await first.result()).outcome == "parked"
        same = await service.start(yard.request(fine))
        other = await service.start(yard.request(fine, billing="api_key"))
        assert (await other.result()).outcome == "succeeded"
        assert (await service.get(same.id)).state == "queued"
        await service.stop(same.id)
        assert (await same.result()).outcome == "stopped"


async def test_runs_with_other_labels_take_turns(yard: Any) -> None:
    """Ten of one team do not keep the one of another team waiting."""
    (yard.folder / ".config/leadrope").mkdir(parents=True)
    (yard.folder / ".config/leadrope/config.toml").write_text("[service]\nrunning = 2\n")
    agent = yard.agent("a", [{"text": "x"}, {"await_file": str(yard.folder / "go")}, *CLOSE])
    async with yard.service() as service:
        blue = [await service.start(yard.request(agent, labels={"team": "blue"})) for _ in range(5)]
        with service.store.notifier.listen() as heard:
            while (await service.store.states()).get("running", 0) < 2:
                await heard.wait(5)
        red = await service.start(yard.request(agent, labels={"team": "red"}))
        running = [job.id for job in blue if (await service.get(job.id)).state == "running"]
        await service.stop(running[0])
        with service.store.notifier.listen() as heard:
            while (await service.get(red.id)).state == "queued":
                await heard.wait(5)
        assert [(await service.get(job.id)).state for job in blue].count("queued") == 3
        (yard.folder / "go").touch()
        for job in (*blue, red):
            await job.result()
