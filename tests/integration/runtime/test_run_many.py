"""Many runs in one call: their order, how many at a time, one budget for all, and what ends them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import leadrope
from leadrope import RunRequest, errors, events
from leadrope.core.events import Recorded
from leadrope.rehearsal import write_executable

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]


def agent(stage: Stage, name: str, *, cost: float = 0.0, steps: list[Any] | None = None) -> RunRequest:
    file = stage.ws.parent / name
    result = {"result": {"total_cost_usd": cost}} if cost else {"result": True}
    script = {
        "version": "2.1.325 (Claude Code)",
        "steps": [*OPEN, *(steps or [{"text": name}]), result, {"await_eof": True}],
    }
    write_executable(file, script)
    return stage.request(prompt=name, binary=str(file))


async def test_results_come_in_the_order_of_the_prompts(stage: Stage) -> None:
    go, both = stage.ws.parent / "go", stage.ws.parent / "both"
    slow = agent(stage, "slow", steps=[{"await_file": str(go)}, {"text": "slow"}])
    running: set[str] = set()
    most = 0

    def count(recorded: Recorded) -> None:
        nonlocal most
        if isinstance(recorded.event, events.RunEnded):
            running.discard(recorded.run_id)
            go.touch()
        else:
            running.add(recorded.run_id)
        most = max(most, len(running))
        if most == 2:
            both.touch()

    names = [f"agent{number}" for number in range(4)]
    requests = [slow, *(agent(stage, name, steps=[{"await_file": str(both)}, {"text": name}]) for name in names)]
    results = await leadrope.run_many(requests, concurrency=2, environ=stage.environ, on_event=count)
    assert [result.text for result in results] == ["slow", "agent0", "agent1", "agent2", "agent3"]
    assert len({result.run_id for result in results}) == 5
    assert most == 2


async def test_one_budget_ends_those_that_run_and_starts_no_more(stage: Stage) -> None:
    requests = [agent(stage, f"agent{number}", cost=0.3) for number in range(5)]
    results = await leadrope.run_many(requests, concurrency=1, budget_usd=0.5, environ=stage.environ)
    assert [result.outcome for result in results] == ["succeeded", *["over_budget"] * 4]
    assert [result.attempts for result in results] == [1, 1, 0, 0, 0]
    reasons = [result.error.message for result in results if result.error is not None]
    assert all("the budget of 0.5 USD for all runs is reached" in reason for reason in reasons)
    assert reasons[-1].startswith("not started")


async def test_the_budget_ends_a_run_that_has_spent_nothing_of_it(stage: Stage) -> None:
    waits = agent(stage, "waits", steps=[{"text": "x"}, {"hang": True}])
    spends = agent(stage, "spends", cost=1.0)
    results = await leadrope.run_many([waits, spends], concurrency=2, budget_usd=0.5, environ=stage.environ)
    assert [result.outcome for result in results] == ["over_budget", "over_budget"]


async def test_what_cannot_start_is_a_result_too(stage: Stage) -> None:
    missing = stage.request(binary=str(stage.ws / "nothing"))
    empty = agent(stage, "empty")
    results = await leadrope.run_many(
        [missing, agent(stage, "fine"), RunRequest(prompt=" ", binary=empty.binary)], environ=stage.environ
    )
    assert [(result.outcome, result.error.kind if result.error else None) for result in results] == [
        ("failed", "cli_not_found"),
        ("succeeded", None),
        ("failed", "empty_prompt"),
    ]
    assert results[0].error is not None
    assert results[0].error.hint


async def test_cancelling_ends_all_of_them(stage: Stage, until: Any) -> None:
    """The fixture of all tests looks for processes that are left."""
    seen: set[str] = set()

    def started(recorded: Recorded) -> None:
        if isinstance(recorded.event, events.MessageCompleted):
            seen.add(recorded.run_id)

    requests = [agent(stage, f"agent{number}", steps=[{"text": "x"}, {"hang": True}]) for number in range(3)]
    work = asyncio.create_task(leadrope.run_many(requests, environ=stage.environ, on_event=started))
    await until(lambda: len(seen) == 3)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"budget_usd": 0}, {"mod": "plan"}])
async def test_a_wrong_keyword_starts_nothing(stage: Stage, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.BadValue):
        await leadrope.run_many([stage.request()], environ=stage.environ, **wrong)
    assert not stage.started.exists()
