"""Without a sandbox a person is asked about the author's code once, however many items and turns run it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadrope.runtime.gate.approvers import Answer

YES, NO = Answer(approved=True, by="me"), Answer(approved=False, by="me", reason="not this")
ITEMS = list(range(12))


@pytest.fixture
def open_shop(shop: Any) -> Any:
    """A machine without a sandbox, as where bubblewrap is missing."""
    config = shop.folder / "config.toml"
    config.write_text('[policy]\nsandbox = "off"\n')
    shop.environ["LEADROPE_CONFIG"] = str(config)
    return shop


def code(*more: str, name: str = "it", text: str = "i: int\nresult = i * 2", inputs: str = '{i: "${item}"}') -> str:
    lines = "\n".join(more)
    return f"### {name}\n- type: code\n- inputs: {inputs}\n{lines}\n\n```python code\n{text}\n```\n\n"


def batch(count: int = len(ITEMS), at_once: int = 4, **more: str) -> str:
    words = "".join(f", {name}: {value}" for name, value in more.items())
    return f"- batch: {{items: {ITEMS[:count]}, max_concurrent: {at_once}{words}}}"


async def test_a_batch_of_code_is_asked_about_once(open_shop: Any) -> None:
    person = open_shop.somebody(YES)
    result = await open_shop.run("## Steps\n" + code(batch()), people=person)
    assert result.outcome == "succeeded", result
    assert len(person.asked) == 1
    assert "result = i * 2" in person.asked[0].detail
    (step,) = result.steps
    assert step.units == len(ITEMS)


async def test_other_code_is_another_question(open_shop: Any) -> None:
    person = open_shop.somebody(YES, YES)
    text = code(batch()) + code(batch(), name="again") + code(batch(), name="other", text="i: int\nresult = i")
    assert (await open_shop.run("## Steps\n" + text, people=person)).outcome == "succeeded"
    assert len(person.asked) == 2


async def test_a_loop_of_code_is_asked_about_once(open_shop: Any) -> None:
    person = open_shop.somebody(YES)
    loop = "- loop: {until: '${it.result} >= 3', max_iterations: 5}"
    text = code(loop, text="n: int\nresult = n", inputs='{n: "${__iteration__}"}')
    result = await open_shop.run("## Steps\n" + text, people=person)
    assert result.outcome == "succeeded", result
    assert len(person.asked) == 1


async def test_a_no_is_for_all_items(open_shop: Any) -> None:
    person = open_shop.somebody(NO)
    result = await open_shop.run("## Steps\n" + code(batch(error_handling="continue")), people=person)
    assert result.outcome == "failed"
    assert len(person.asked) == 1
    assert result.failures[0].error.kind == "denied"


@pytest.mark.parametrize("approved", [True, False])
async def test_one_answer_resumes_the_whole_batch(open_shop: Any, approved: bool) -> None:
    text = "## Steps\n" + code(batch(error_handling="continue"))
    begun = await open_shop.run(text)
    assert (begun.outcome, len(begun.approvals)) == ("waiting", 1)
    result = await open_shop.resume(begun.approvals[0].id, answer=Answer(approved=approved))
    assert result.outcome == ("succeeded" if approved else "failed"), result
    assert not result.approvals


HOLDS = """import os, time
i: int
open(f"{i}.began", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
result = i"""


async def test_a_yes_counts_after_a_stop(open_shop: Any) -> None:
    """What was approved is not asked again by the process that resumes it."""
    person = open_shop.somebody(YES)
    async with open_shop.begun("## Steps\n" + code(batch(), text=HOLDS), people=person) as execution:
        running = asyncio.ensure_future(execution.run())
        async with asyncio.timeout(60):
            while not (open_shop.ws / "0.began").exists():  # noqa: ASYNC110  # another process makes it
                await asyncio.sleep(0.01)
        execution.stop()
        stopped = await running
    assert stopped.outcome == "stopped"
    (open_shop.ws / "go").touch()
    result = await open_shop.resume(stopped.execution_id)
    assert result.outcome == "succeeded", result
    assert len(person.asked) == 1


async def test_commands_of_a_batch_share_an_answer_where_they_are_equal_to_the_letter(shop: Any) -> None:
    def workflow(command: str) -> str:
        return f"## Steps\n### it\n- type: shell\n- command: {command}\n{batch(4)}\n"

    same = shop.somebody(YES)
    assert (await shop.run(workflow("rm -f x"), people=same)).outcome == "succeeded"
    assert len(same.asked) == 1
    other = shop.somebody(YES, YES, YES, YES)
    assert (await shop.run(workflow("rm -f ${item}"), people=other)).outcome == "succeeded"
    assert len(other.asked) == 4


async def test_each_turn_of_a_loop_asks_about_its_command(shop: Any) -> None:
    """A yes to one push is no yes to the next."""
    person = shop.somebody(YES, YES)
    text = "## Steps\n### it\n- type: shell\n- command: rm -f x\n- loop: {while: '1 == 1', max_iterations: 2}\n"
    await shop.run(text, people=person)
    assert len(person.asked) == 2
