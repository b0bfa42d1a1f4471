"""What waits for a person, wherever it stands: days later it goes on, once, and only as far as was wanted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadrope import errors
from leadrope.core import execution_events
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows.report import ExecutionResult

RULE = "\n## Settings\n\n- policy: {require_approval: ['Bash(touch *)']}\n"
MARK = "### mark\n\n- type: shell\n- command: touch marker{n}; echo x{n} >> log\n"
PLACES = {
    "a step": (MARK.format(n=""), ["x"]),
    "a batch": (MARK.format(n="${item}") + "- batch: {items: [1, 2, 3], max_concurrent: 2}\n", ["x1", "x2", "x3"]),
    "a batch, one by one": (MARK.format(n="${item}") + "- batch: {items: [1, 2]}\n", ["x1", "x2"]),
    "a loop": (MARK.format(n="${__iteration__}") + "- loop: {max_iterations: 3}\n", ["x0", "x1", "x2"]),
    "a batch in a loop": (
        MARK.format(n="${__iteration__}${item}") + "- batch: {items: [1, 2]}\n- loop: {max_iterations: 2}\n",
        ["x01", "x02", "x11", "x12"],
    ),
    "a workflow inside": ("### call\n\n- type: workflow\n- workflow: in.flow.md\n", ["x"]),
    "a handler": (
        "### bad\n\n- type: read-file\n- file_path: missing\n- on-error: mark\n\n" + MARK.format(n=""),
        ["x"],
    ),
}


def states(result: ExecutionResult) -> dict[str, str]:
    return {step.id: step.state for step in result.steps}


@pytest.mark.parametrize("place", PLACES)
async def test_what_the_policy_wants_approved_waits_and_runs_once_after_its_yes(shop: Any, place: str) -> None:
    """Every answer comes to a process of its own: nothing but the journal is left between two of them."""
    shop.write("## Steps\n\n" + MARK.format(n=""), "in.flow.md")
    steps, lines = PLACES[place]
    result = await shop.run("## Steps\n\n" + steps + RULE)
    answers = 0
    while result.outcome == "waiting":
        done = (shop.ws / "log").read_text().splitlines() if (shop.ws / "log").exists() else []
        assert len(done) <= answers, "no command runs before its yes"
        result = await shop.resume(result.approvals[0].id, answer=Answer(approved=True))
        answers += 1
    assert (result.ok, answers) == (True, len(lines)), result
    assert sorted((shop.ws / "log").read_text().splitlines()) == lines


@pytest.mark.parametrize("place", PLACES)
async def test_a_no_ends_it_and_nothing_has_run(shop: Any, place: str) -> None:
    shop.write("## Steps\n\n" + MARK.format(n=""), "in.flow.md")
    result = await shop.run("## Steps\n\n" + PLACES[place][0] + RULE)
    result = await shop.resume(result.approvals[0].id, answer=Answer(approved=False, reason="no"))
    assert result.outcome == "failed", result
    assert not (shop.ws / "log").exists()


async def test_an_answer_from_elsewhere_is_heard_while_other_steps_run(shop: Any) -> None:
    text = """## Steps

### ask

- type: approval
- message: Go on?
- after: []

### behind

- type: note
- text: went on
- after: ask

### long

- type: wait
- seconds: 3600
- after: []
"""
    async with shop.begun(text) as execution, shop.service() as elsewhere:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(execution_events.StepAsked))
        (asked,) = shop.of(execution_events.StepAsked)
        await elsewhere.answer(asked.approval_id, Answer(approved=True))
        await shop.until(lambda: "behind" in {one.step for one in shop.of(execution_events.StepEnded)})
        execution.stop()
        result = await running
    assert states(result) == {"ask": "succeeded", "behind": "succeeded", "long": "not_run"}


async def test_one_step_alone_that_waited_is_still_one_step_alone(shop: Any) -> None:
    text = """## Steps

### before

- type: note
- text: b

### ask

- type: approval
- message: Go on?

### behind

- type: write-file
- file_path: log
- content: ran
"""
    first = await shop.run(text)
    await shop.resume(first.approvals[0].id, answer=Answer(approved=False))
    waiting = await shop.run(text, only="ask")
    assert waiting.outcome == "waiting"
    result = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert (result.outcome, states(result)) == (
        "succeeded",
        {"before": "succeeded", "ask": "succeeded", "behind": "not_run"},
    )
    assert not (shop.ws / "log").exists()


async def test_one_step_alone_needs_all_before_it_and_says_so(shop: Any) -> None:
    """The last execution was stopped early: there are no values, and nothing that ran is no success."""
    text = "## Steps\n\n### one\n\n- type: wait\n- seconds: 3600\n\n### two\n\n- type: note\n- text: x\n"
    async with shop.begun(text) as execution:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(execution_events.StepProgress))
        execution.stop()
        await running
    for how in ("only", "begin_at"):
        with pytest.raises(errors.WrongState, match="'two'"):
            await shop.run(text, **{how: "two"})


async def test_from_does_that_step_and_those_behind_it_and_no_others(shop: Any) -> None:
    text = """## Steps

### a

- type: write-file
- file_path: a
- content: x
- mode: append
- after: []

### b

- type: write-file
- file_path: b
- content: x
- mode: append
- after: a

### beside

- type: read-file
- file_path: missing
- after: []

### behind-beside

- type: write-file
- file_path: never
- content: x
- after: beside
"""
    assert (await shop.run(text)).outcome == "failed"
    (shop.ws / "missing").write_text("now it is there")
    again = await shop.run(text, begin_at="b")
    assert states(again) == {"a": "succeeded", "b": "succeeded", "beside": "failed", "behind-beside": "blocked"}
    assert again.outcome == "failed", "what it took over had failed"
    assert [(shop.ws / name).read_text() for name in ("a", "b")] == ["x", "xx"]
