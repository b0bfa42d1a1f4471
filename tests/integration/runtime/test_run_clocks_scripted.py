"""Clocks and endings of a scripted agent: each ends in its own named reason, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from leadrope import Limits, errors, events

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

Until = Callable[[Callable[[], bool]], Awaitable[None]]
OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


def of(found: list[events.Event], kind: type) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


async def test_an_agent_that_never_speaks_ends_by_the_start_clock(stage: Stage) -> None:
    _, result = await stage.play([{"hang": True}], limits=Limits(start_s=0.3))
    assert result.outcome == "timed_out"
    assert result.error is not None
    assert (result.error.clock, result.error.code) == ("start", "TIMEOUT_ERROR")


async def test_heartbeats_do_not_reset_the_idle_clock(stage: Stage) -> None:
    beat = {"type": "tool_progress", "tool_use_id": "t1", "tool_name": "Bash", "elapsed_time_seconds": 1}
    steps = [{"repeat": {"times": 1000, "steps": [{"line": beat}, {"pause_ms": 20}]}}]
    found, result = await stage.play([*OPEN, *steps], limits=Limits(idle_s=0.5))
    assert result.error is not None
    assert result.error.clock == "idle"
    assert of(found, events.ToolProgress)


async def test_the_idle_clock_stands_still_while_a_person_is_asked(stage: Stage) -> None:
    limits = Limits(idle_s=0.3)
    silent = stage.beside("silent")

    async def slow(_: events.ApprovalRequested) -> bool:
        # Another run of the same limits begins now and ends of its silence: so long has the person thought.
        _events, other = await silent.play([*OPEN, {"hang": True}], limits=limits)
        return other.error is not None and other.error.clock == "idle"

    call = {"tool": "Bash", "id": "t1", "input": {}}
    found, result = await stage.play([*OPEN, {"call": call}, {"text": "ok"}, *CLOSE], approver=slow, limits=limits)
    assert result.outcome == "succeeded"
    assert [d.decision for d in of(found, events.ToolDecided)] == ["allow"]


async def test_the_idle_clock_stands_still_while_the_consumer_is_slow(stage: Stage) -> None:
    """The agent is held by a full outbox then: its silence is not its own."""
    limits = Limits(idle_s=0.5)
    flood = {"flood": {"lines": 40_000, "size": 1000}}
    steps = [*OPEN, flood, {"touch": str(stage.marker)}, {"text": "ok"}, *CLOSE]
    async with stage.open(steps, limits=limits) as run:
        reading = aiter(run)
        await anext(reading)
        # Another run of the same limits begins now and ends of its silence: so long does this one wait.
        _events, other = await stage.beside("silent").play([*OPEN, {"hang": True}], limits=limits)
        assert other.error is not None
        assert other.error.clock == "idle"
        assert not stage.marker.exists(), "40 MB that nobody has read hold the agent"
        async for _ in reading:
            pass
        assert stage.marker.exists()
        assert (await run.result()).outcome == "succeeded"


async def test_the_idle_clock_comes_from_the_environment(stage: Stage) -> None:
    stage.environ["LEADROPE_SPAWN_IDLE_TIMEOUT_MS"] = "300"
    _, result = await stage.play([*OPEN, {"hang": True}])
    assert result.error is not None
    assert result.error.message == "the agent was silent for 0.3 s"
    stage.environ["LEADROPE_SPAWN_MAX_MS"] = "200"
    stage.environ["LEADROPE_SPAWN_IDLE_TIMEOUT_MS"] = "0"
    _, result = await stage.play([*OPEN, {"hang": True}])
    assert result.error is not None
    assert result.error.clock == "wall"


async def test_an_agent_that_does_not_exit_after_its_result_is_ended_and_succeeds(stage: Stage) -> None:
    found, result = await stage.play(
        [*OPEN, {"text": "ok"}, {"result": True}, {"hang": True}], limits=Limits(exit_s=0.3)
    )
    assert result.outcome == "succeeded"
    assert of(found, events.AgentExited)[0].ended_by == "supervisor"


async def test_what_an_agent_leaves_behind_is_killed_and_counted(stage: Stage) -> None:
    steps = [{"spawn": {"kind": kind, "clear_env": True}} for kind in ("child", "setsid", "double_fork")]
    _, result = await stage.play([*OPEN, {"text": "ok"}, *steps, *CLOSE])
    assert result.outcome == "succeeded"
    assert result.leftovers_killed == 3


async def test_a_background_agent_is_awaited(stage: Stage) -> None:
    """A result is not the end: the open agent's report opens another turn, whose answer is the run's."""

    def tasks(*open_: dict[str, str]) -> dict[str, Any]:
        return {"type": "system", "subtype": "background_tasks_changed", "tasks": list(open_)}

    agent = {"task_id": "a1", "task_type": "local_agent", "description": "x"}
    steps = [
        {"line": tasks(agent)},
        {"text": "started it"},
        {"result": {"result": "started it"}},
        {"pause_ms": 300},
        {"call": {"tool": "Bash", "id": "t1", "input": {}, "agent_id": "a1", "touch": str(stage.marker)}},
        {"line": tasks()},
        {"init": True},
        {"text": "it is done"},
        {"result": {"result": "it is done", "origin": {"kind": "task-notification"}}},
        {"await_eof": True},
    ]
    _, result = await stage.play([*OPEN, *steps], approver=lambda _: True, limits=Limits(exit_s=5, idle_s=20))
    assert result.outcome == "succeeded"
    assert result.text == "it is done"
    assert stage.marker.exists(), "stdin stayed open for the agent's own calls"


async def test_a_background_agent_that_ends_without_a_word_does_not_hold_the_run(stage: Stage) -> None:
    def tasks(*open_: dict[str, str]) -> dict[str, Any]:
        return {"type": "system", "subtype": "background_tasks_changed", "tasks": list(open_)}

    steps = [
        {"line": tasks({"task_id": "a1", "task_type": "local_agent"})},
        {"text": "started it"},
        {"result": {"result": "started it"}},
        {"line": tasks()},
        {"await_eof": True},
    ]
    _, result = await stage.play([*OPEN, *steps], limits=Limits(exit_s=0.3))
    assert result.outcome == "succeeded"


async def test_an_agent_that_says_it_works_on_after_a_result_is_not_hurried(stage: Stage) -> None:
    """A result is not the end: what it still does behind the turn has its own words to come."""
    running = {"type": "system", "subtype": "session_state_changed", "state": "running"}
    later = [{"line": running}, {"pause_ms": 900}, {"text": "two"}]
    found, result = await stage.play([*OPEN, {"result": True}, *later, *CLOSE], limits=Limits(exit_s=0.3, stop_s=0.1))
    assert [said.text for said in of(found, events.MessageCompleted)] == ["two"]
    assert result.outcome == "succeeded"


async def test_leaving_the_block_ends_the_agent(stage: Stage) -> None:
    async with stage.open([*OPEN, {"spawn": {"kind": "setsid"}}, {"text": "busy"}, {"hang": True}]) as run:
        async for item in run:
            if isinstance(item.event, events.MessageCompleted):
                break
    result = await run.result()
    assert result.outcome == "stopped"
    assert result.leftovers_killed == 1


async def test_a_stop_from_another_task_lets_the_reader_see_the_end(stage: Stage) -> None:
    async with stage.open([*OPEN, {"text": "busy"}, {"hang": True}]) as run:
        stops = []
        kinds = []
        async for item in run:
            kinds.append(type(item.event))
            if isinstance(item.event, events.MessageCompleted):
                stops.append(asyncio.create_task(run.stop("enough")))
        result = await stops[0]
    assert kinds[-3:] == [events.RunEnding, events.AgentExited, events.RunEnded]
    assert result.error is not None
    assert result.error.message == "enough"


async def test_stopping_before_the_agent_has_spoken(stage: Stage) -> None:
    async with stage.open([{"hang": True}]) as run:
        result = await run.stop()
    assert result.outcome == "stopped"


async def test_a_cancelled_task_ends_its_agent(stage: Stage, until: Until) -> None:
    async def work() -> None:
        async with stage.open([*OPEN, {"touch": str(stage.marker)}, {"hang": True}]) as run:
            async for _ in run:
                pass

    task = asyncio.create_task(work())
    await until(stage.marker.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_dying_agent_keeps_the_tail_of_its_stderr(stage: Stage) -> None:
    _, result = await stage.play([*OPEN, {"stderr": "first\nlast words\n"}, {"die": 11}])
    assert result.error is not None
    assert result.error.kind == "agent_died"
    assert result.error.stderr_tail == ("first", "last words")
    assert result.error.exit_code == -11


async def test_result_without_iterating_and_slow_iterating_both_work(stage: Stage) -> None:
    steps = [*OPEN, {"flood": {"lines": 20_000, "size": 1000}}, {"text": "ok"}, *CLOSE]
    async with stage.open(steps) as run:
        assert (await run.result()).outcome == "succeeded"
    count = 0
    async with stage.open(steps) as run:
        async for _ in run:
            count += 1
            if count % 1000 == 0:
                await asyncio.sleep(0.005)
    assert count > 20_000


async def test_a_run_is_used_inside_its_block_and_entered_once(stage: Stage) -> None:
    """Without a start there is nothing to wait for, and it would be waited for without an end."""
    run = stage.open([*OPEN, {"text": "ok"}, *CLOSE])
    for ask in (run.result, run.stop):
        with pytest.raises(errors.RunClosed, match="not started"):
            await ask()
    for read in (run.__aiter__, run.batches):
        with pytest.raises(errors.RunClosed, match="async with"):
            read()
    async with run:
        assert (await run.result()).outcome == "succeeded"
    with pytest.raises(errors.RunClosed, match="started before"):
        await run.__aenter__()


async def test_of_two_readers_one_is_refused_and_the_other_reads_on(stage: Stage) -> None:
    """Each would see a part of the events, and one of them would wait for its end for ever."""
    async with stage.open([*OPEN, {"text": "ok"}, *CLOSE]) as run:

        async def read() -> list[events.Event]:
            return [item.event async for item in run]

        both = await asyncio.gather(read(), read(), return_exceptions=True)
    (refused,) = [got for got in both if isinstance(got, BaseException)]
    assert isinstance(refused, RuntimeError)
    assert "one reader" in str(refused)
    (events_,) = [got for got in both if isinstance(got, list)]
    assert isinstance(events_[-1], events.RunEnded)


async def test_sending_after_the_end_is_an_error(stage: Stage) -> None:
    async with stage.open([*OPEN, {"text": "ok"}, *CLOSE]) as run:
        await run.result()
        with pytest.raises(errors.RunClosed):
            await run.send("more")
        with pytest.raises(errors.EmptyPrompt):
            await run.send("  ")
        with pytest.raises(errors.BadValue, match="prompt"):
            await run.send("caf\udce9")
