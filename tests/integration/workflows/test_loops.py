"""Loops: carried values and their seeds, pauses, limits of one loop and of all, and why a loop has ended."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.execution_events import StepProgress
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import library

COUNT = """## Inputs

### most

- type: integer
- default: 10

## Steps

### count

- type: code
- inputs: {{total: {seed}}}
- loop: {{carry: {{total: "${{count.result}}"}}, until: "${{count.result}} >= 3", max_iterations: "${{most}}"}}

```python code
total: int
result = total + 1
```

## Outputs

### total

- source: ${{count.result}}

### why

- source: ${{count.loop_stopped}}

### turns

- source: ${{count.iterations}}
"""


@pytest.mark.parametrize("seed", ["0", '"${total ?? 0}"'])
async def test_a_carried_name_overrides_the_input_of_its_name(shop: Any, seed: str) -> None:
    """Both ways to seed it: the value of the first turn, or a template that has it only from the second on."""
    result = await shop.run(COUNT.format(seed=seed))
    assert (result.outcome, result.outputs) == ("succeeded", {"total": 3, "why": "condition", "turns": 3})


async def test_the_number_of_turns_may_be_a_template_and_is_told(shop: Any) -> None:
    result = await shop.run(COUNT.format(seed=0), {"most": 2})
    assert (result.outcome, result.outputs) == ("degraded", {"total": 2, "why": "max_iterations", "turns": 2})
    for bad in (0, 1001):
        failed = await shop.run(COUNT.format(seed=0), {"most": bad})
        (step,) = failed.failures
        assert step.error is not None
        assert step.error.kind == "bad_input"
        assert "loop.max_iterations" in step.error.message


async def test_a_carried_name_is_seeded_by_an_input_of_the_workflow(shop: Any) -> None:
    text = """## Inputs
### word
- type: string
## Steps
### grow
- type: note
- text: ${word}x
- loop: {carry: {word: "${grow.text}"}, max_iterations: 3}
## Outputs
### text
- source: ${grow.text}
"""
    assert (await shop.run(text, {"word": "ab"})).outputs == {"text": "abxxx"}


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ("- text: ${said}\n- loop: {carry: {said: '${it.text}'}, max_iterations: 2}", "${said}"),
        ("- text: x\n- loop: {carry: {said: '${said}x'}, max_iterations: 2}", "${said}"),
        ("- text: x\n- loop: {carry: {said: '${it.text}'}, until: '${said.a} == 1'}", "${said.a}"),
    ],
)
def test_a_carried_name_without_a_first_value_is_a_mistake(shop: Any, step: str, found: str) -> None:
    with pytest.raises(errors.RequestError) as caught:
        library.load(shop.write(f"## Steps\n\n### it\n\n- type: note\n{step}\n"))
    assert f"{found} has no value in the first turn" in str(caught.value)
    assert f'did you mean {found[:-1]} ?? ""}}?' in str(caught.value)


@pytest.mark.parametrize("word", ['${said ?? "-"}', "${when}"])
def test_a_carried_name_with_a_first_value_is_none(shop: Any, word: str) -> None:
    text = "## Inputs\n\n### when\n\n- type: string\n\n## Steps\n\n### it\n\nx\n\n- type: note\n"
    text += f"- text: {word} ${{when}}\n"
    text += "- loop: {carry: {said: '${it.text}', when: '${it.text}'}, until: \"not exists(${said})\"}\n"
    assert library.load(shop.write(text)).warnings == ()


async def test_a_loop_pauses_between_turns_and_not_after_the_last(shop: Any) -> None:
    text = """## Steps
### poll
- type: set
- values: {wait: 0.15}
- loop: {wait: "${poll.wait}", max_iterations: 3}
"""
    result = await shop.run(text)
    assert result.outcome == "succeeded"
    units = sorted((one.iteration, one.started, one.ended) for one in await shop.outcomes(result.execution_id))[1:]
    pauses = [after[1] - before[2] for before, after in itertools.pairwise(units)]
    assert len(pauses) == 2
    assert all(pause >= 0.149 for pause in pauses), pauses
    # There is at most one such event in half a second; the pause of an hour below must have one.
    assert {one.action for one in shop.of(StepProgress)} <= {"next turn in 0 s"}


async def test_a_pause_that_is_over_is_not_waited_for_again(shop: Any) -> None:
    """An execution that stopped in a pause of an hour, and is resumed when that hour is over, goes on at once."""
    text = """## Steps
### poll
- type: note
- text: x
- loop: {wait: 3600, max_iterations: 2}
"""
    async with shop.begun(text) as execution:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(StepProgress))
        execution.stop()
        stopped = await running
    assert stopped.outcome == "stopped"
    async with shop.service() as service:
        db = service.store
        await db.write(
            lambda base: base.execute("update unit_outcomes set ended = ended - 3600, started = started - 3600")
        )
    began = time.monotonic()
    result = await shop.resume(stopped.execution_id)
    assert result.outcome == "succeeded"
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(("condition", "outcome"), [("until: 'no', ", "degraded"), ("", "succeeded")])
async def test_a_loop_ends_when_its_seconds_are_used_up(shop: Any, condition: str, outcome: str) -> None:
    """A pause that would go beyond the limit does not begin."""
    text = f"""## Steps
### poll
- type: note
- text: x
- loop: {{{condition}wait: 100, max_seconds: 100}}
## Outputs
### why
- source: ${{poll.loop_stopped}} after ${{poll.iterations}}
"""
    result = await shop.run(text)
    assert (result.outcome, result.outputs) == (outcome, {"why": "max_seconds after 1"})
    kinds = [(one.kind, one.message) for one in result.steps[0].warnings]
    wanted = "its condition still wanted another turn after 1 turns and all of its max_seconds"
    assert kinds == ([("loop.not_finished", wanted)] if outcome == "degraded" else [])


async def test_all_loops_together_have_a_limit(shop: Any) -> None:
    text = """## Steps
### one
- type: note
- text: x
- loop: {max_iterations: 3}
### two
- type: workflow
- workflow: in.flow.md
- loop: {max_iterations: 3}
## Settings
- max_iterations: 6
"""
    shop.write("## Steps\n### deep\n- type: note\n- text: x\n- loop: {max_iterations: 2}\n", "in.flow.md")
    result = await shop.run(text)
    assert result.outcome == "failed"
    (two,) = result.failures
    assert two.error is not None
    assert two.error.message.endswith("the loops of the workflow have had 6 turns together (max_iterations)")


async def test_a_workflow_ends_when_its_seconds_are_used_up(shop: Any) -> None:
    text = """## Steps
### quick
- type: note
- text: x
### long
- type: shell
- command: touch begun; exec sleep 3600
- on-error: sorry
### beside
- type: note
- after: quick
- text: x
- loop: {wait: 3600}
### sorry
- type: note
- text: x
### after
- type: note
- after: long
- text: x
## Settings
- max_seconds: 3
"""
    result = await shop.run(text)
    states = {step.id: step.state for step in result.steps}
    assert (shop.ws / "begun").exists()
    assert (result.outcome, states) == (
        "failed",
        {"quick": "succeeded", "long": "failed", "beside": "failed", "sorry": "failed", "after": "left_out"},
    )
    assert {step.error.kind for step in result.steps if step.error} == {"timed_out"}
    assert "time limit is used up (max_seconds: 3)" in result.failures[0].error.message


async def test_the_time_of_a_person_does_not_count(shop: Any) -> None:
    text = """## Steps
### ask
- type: approval
- message: Go on?
## Settings
- max_seconds: 1
"""

    class Slow:
        approver = None

        async def ask(self, asked: Any, token: str) -> Answer:
            # Set after the clock of the workflow, for as long: where this one has struck, that one would have.
            struck = asyncio.Event()
            asyncio.get_running_loop().call_later(1, struck.set)
            await struck.wait()
            return Answer(approved=True)

    assert (await shop.run(text, people=Slow())).outcome == "succeeded"


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        ("{max_iterations: many}", "loop.max_iterations: expected a number or a template, found 'many'"),
        ("{wait: soon}", "loop.wait: expected a number or a template, found 'soon'"),
        ("{wait: -1}", "loop.wait"),
        ("{wait: 86401}", "loop.wait"),
        ("{max_seconds: 0}", "loop.max_seconds"),
        ("{max_iterations: 1001}", "loop.max_iterations"),
        ("{wait: '${gone}'}", "nothing is called that here"),
    ],
)
def test_mistakes_are_found_before_anything_runs(shop: Any, loop: str, told: str) -> None:
    with pytest.raises(errors.RequestError) as caught:
        library.load(shop.write(f"## Steps\n\n### it\n\n- type: note\n- text: x\n- loop: {loop}\n"))
    assert told in str(caught.value)
