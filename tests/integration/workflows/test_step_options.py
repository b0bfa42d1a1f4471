"""What every step may say beside its parameters: retry, timeout, batch, loop, cache, approval, budget, policy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadrope.core import execution_events
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows.engine.step_attempt import pause_before
from leadrope.workflows.model import Retry
from leadrope.workflows.report import ExecutionResult
from leadrope.workflows.steps.base import StepQuestion


def states(result: ExecutionResult) -> dict[str, str]:
    return {step.id: step.state for step in result.steps}


def workflow(*lines: str, after: str = "") -> str:
    return "## Steps\n\n### one\n\n" + "\n".join(lines) + "\n" + after


@pytest.mark.parametrize(
    ("retry", "pauses"),
    [
        (Retry(max=4, wait=3), [3, 3, 3, 3]),
        (Retry(max=10, wait=1, backoff="exponential"), [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]),
        (Retry(max=2, wait=0, backoff="exponential"), [0, 0]),
    ],
)
def test_pauses_are_the_same_or_grow_to_a_minute(retry: Retry, pauses: list[float]) -> None:
    assert [pause_before(retry, attempt) for attempt in range(1, retry.max + 1)] == pauses


async def test_so_many_attempts_and_no_more(shop: Any) -> None:
    retry = "- retry: {max: 3, wait: 0, retry_on: [exit_code]}"
    result = await shop.run(workflow("- type: shell", "- command: echo x >> log; exit 1", retry))
    assert (result.outcome, result.steps[0].attempts) == ("failed", 3)
    assert (shop.ws / "log").read_text() == "x\n" * 3
    assert [(one.attempt, one.wait_s) for one in shop.of(execution_events.StepRetried)] == [(2, 0), (3, 0)]


async def test_what_cannot_heal_is_not_tried_again(shop: Any) -> None:
    result = await shop.run(workflow("- type: read-file", "- file_path: missing", "- retry: {max: 5, wait: 0}"))
    assert (result.outcome, result.steps[0].attempts) == ("failed", 1)
    assert shop.of(execution_events.StepRetried) == []


async def test_each_attempt_has_the_whole_time(shop: Any) -> None:
    command = "- command: test -e tried || { touch tried; sleep 3600; }"
    result = await shop.run(workflow("- type: shell", command, "- timeout: 1", "- retry: {max: 2, wait: 0}"))
    assert (result.outcome, result.steps[0].attempts) == ("succeeded", 2)


class Slow:
    """A person who needs as long as a step has: its clock would strike before the answer."""

    approver = None

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, asked: StepQuestion, token: str) -> Answer:
        # A clock that was set after the step's own, for as long: where this one has struck, that one would have.
        self.asked += 1
        struck = asyncio.Event()
        asyncio.get_running_loop().call_later(TIME_S, struck.set)
        await struck.wait()
        return Answer(approved=True)


TIME_S = 1.5


async def test_a_persons_time_is_not_the_steps(shop: Any) -> None:
    (shop.ws / ".git").mkdir()
    asked = workflow("- type: write-file", "- file_path: .git/description", "- content: x", f"- timeout: {TIME_S}")
    assert (await shop.run(asked, people=Slow())).outcome == "succeeded"


async def test_a_persons_time_is_not_that_of_a_step_around_either(shop: Any) -> None:
    """Two are asked beside each other, and one after them."""
    (shop.ws / ".git").mkdir()
    step = "### {0}\n\n- type: write-file\n- file_path: .git/{0}\n- content: x\n- after: {1}\n"
    steps = (step.format(name, after) for name, after in (("a", "[]"), ("b", "[]"), ("c", "[a, b]")))
    (shop.ws / "inner.flow.md").write_text("## Steps\n\n" + "\n".join(steps))
    people = Slow()
    outer = workflow("- type: workflow", "- workflow: inner.flow.md", f"- timeout: {TIME_S}")
    assert (await shop.run(outer, people=people)).outcome == "succeeded"
    assert people.asked == 3


class OneAfterTheOther(Slow):
    """Both are asked; the second answers as long as a step has after the first."""

    def __init__(self) -> None:
        super().__init__()
        self.both = asyncio.Event()

    async def ask(self, asked: StepQuestion, token: str) -> Answer:
        if not self.asked:
            self.asked += 1
            await self.both.wait()
            return Answer(approved=True)
        self.both.set()
        return await super().ask(asked, token)


async def test_the_clock_stands_still_until_all_have_answered(shop: Any) -> None:
    (shop.ws / ".git").mkdir()
    step = "### {0}\n\n- type: write-file\n- file_path: .git/{0}\n- content: x\n- after: []\n"
    (shop.ws / "inner.flow.md").write_text("## Steps\n\n" + "\n".join(map(step.format, "ab")))
    outer = workflow("- type: workflow", "- workflow: inner.flow.md", f"- timeout: {TIME_S}")
    people = OneAfterTheOther()
    assert (await shop.run(outer, people=people)).outcome == "succeeded"
    assert people.asked == 2


async def test_a_step_around_has_its_own_time_when_nobody_is_asked(shop: Any) -> None:
    """The clock goes on where it stood still."""
    (shop.ws / ".git").mkdir()
    (shop.ws / "inner.flow.md").write_text(
        "## Steps\n\n### a\n\n- type: write-file\n- file_path: .git/a\n- content: x\n\n"
        "### b\n\n- type: shell\n- command: sleep 1000\n"
    )
    outer = workflow("- type: workflow", "- workflow: inner.flow.md", f"- timeout: {TIME_S}")
    result = await shop.run(outer, people=Slow())
    assert (result.outcome, result.steps[0].error.kind) == ("failed", "timed_out")


async def test_items_have_a_name_and_a_number_and_keep_to_their_width(shop: Any) -> None:
    text = workflow(
        "- type: shell",
        "- command: touch run-${file}; ls run-*|wc -l; echo ${file} ${__index__}; sleep .1; mv run-${file} was-${file}",
        "- batch: {items: [a, b, c, d, e], as: file, max_concurrent: 2}",
        after="\n## Outputs\n\n### all\n\n- source: ${one.results}\n\n### count\n\n- source: ${one.count}\n",
    )
    result = await shop.run(text)
    said = [one["stdout"].split() for one in result.outputs["all"]]
    assert [words[1:] for words in said] == [["a", "0"], ["b", "1"], ["c", "2"], ["d", "3"], ["e", "4"]]
    assert {words[0] for words in said} <= {"1", "2"}, "two at once, and never three"
    assert result.outputs["count"] == 5


async def test_what_was_chosen_comes_back_from_the_cache_too(shop: Any) -> None:
    text = """## Steps

### way

- type: condition
- value: x
- contains: x
- cache: true
- next: {yes: good, no: bad}

### good

- type: note
- text: a
- next: []

### bad

- type: note
- text: b
- next: []
"""
    first, second = await shop.run(text), await shop.run(text)
    assert states(first) == states(second) == {"way": "succeeded", "good": "succeeded", "bad": "left_out"}


async def test_a_failure_is_not_kept_in_the_cache(shop: Any) -> None:
    text = workflow("- type: read-file", "- file_path: later", "- cache: true")
    assert (await shop.run(text)).outcome == "failed"
    (shop.ws / "later").write_text("x")
    assert (await shop.run(text)).outcome == "succeeded"


async def test_a_persons_yes_is_not_kept_in_the_cache(shop: Any) -> None:
    text = workflow("- type: approval", "- message: Go on?", "- cache: true")
    assert (await shop.run(text, people=shop.somebody(Answer(approved=True)))).outcome == "succeeded"
    assert (await shop.run(text)).outcome == "waiting"


async def test_approval_required_in_a_batch_is_asked_for_each_item_and_holds_for_days(shop: Any) -> None:
    text = workflow(
        *("- type: write-file", "- file_path: log", "- content: ${item}", "- mode: append", "- approval: required"),
        "- batch: {items: [a, b], max_concurrent: 2}",
    )
    result = await shop.run(text)
    asked = []
    while result.outcome == "waiting":
        asked.append(len(result.approvals))
        result = await shop.resume(result.approvals[0].id, answer=Answer(approved=True))
    assert (result.outcome, asked, sorted((shop.ws / "log").read_text())) == ("succeeded", [2, 1], ["a", "b"])


async def test_a_steps_policy_holds_for_it_alone(shop: Any) -> None:
    text = workflow(
        "- type: shell",
        "- command: touch one",
        "- policy: {blocked_commands: [touch]}",
        "- on-error: two",
        after="\n### two\n\n- type: shell\n- command: touch two\n",
    )
    result = await shop.run(text)
    assert states(result) == {"one": "failed", "two": "succeeded"}
    assert sorted(path.name for path in shop.ws.iterdir()) == ["test.flow.md", "two"]


async def test_rules_of_a_step_hold_inside_the_workflow_that_it_calls(shop: Any) -> None:
    shop.write("### mark\n\n- type: shell\n- command: touch marker\n", "in.flow.md")
    text = workflow("- type: workflow", "- workflow: in.flow.md", "- policy: {blocked_commands: [touch]}")
    assert (await shop.run(text)).outcome == "failed"
    assert not (shop.ws / "marker").exists()


STUBBORN = """## Steps

### deaf

- type: shell
- after: []

```shell command
trap '' TERM INT HUP; touch started-deaf; while :; do sleep 1; done
```

### busy

- type: code
- after: []

```python code
open("started-busy", "w").close()
while True:
    pass
```

### many

- type: shell
- command: touch started-${item}; sleep 3600
- batch: {items: [a, b, c], max_concurrent: 3}
- after: []

### inside

- type: workflow
- workflow: in.flow.md
- after: []
"""


async def test_a_stop_ends_also_what_does_not_listen(shop: Any) -> None:
    """The fixture that looks for what is left behind does the rest."""
    shop.write(
        "### long\n\n- type: shell\n\n```shell command\ntrap '' TERM; touch started-in; sleep 3600\n```\n", "in.flow.md"
    )
    async with shop.begun(STUBBORN) as flow_:
        running = asyncio.ensure_future(flow_.run())
        async with asyncio.timeout(60):
            while len(list(shop.ws.glob("started-*"))) < 6:  # noqa: ASYNC110  # a file tells no one
                await asyncio.sleep(0.01)
            flow_.stop()
            result = await running
    assert (result.outcome, set(states(result).values())) == ("stopped", {"not_run"})


async def test_the_first_item_that_fails_ends_the_others(shop: Any) -> None:
    text = workflow(
        "- type: shell",
        "- command: test ${item} = 0 || { touch run; sleep 3600; }; until test -e run; do sleep 0.01; done; exit 1",
        "- batch: {items: [0, 1, 2], max_concurrent: 3}",
    )
    result = await shop.run(text)
    assert result.outcome == "failed"
    assert [one.key for one in await shop.outcomes(result.execution_id)] == [("one", 0, 0), ("one", -1, None)]


async def test_at_most_so_many_steps_at_once(shop: Any) -> None:
    step = "- type: shell\n- command: touch run-{n}; ls run-* | wc -l; sleep 0.2; mv run-{n} was-{n}\n- after: []\n"
    steps = "".join(f"\n### s{number}\n\n" + step.format(n=number) for number in range(4))
    outputs = "".join(f"\n### o{number}\n\n- source: ${{s{number}.stdout}}\n" for number in range(4))
    text = f"## Steps\n{steps}\n## Outputs\n{outputs}\n## Settings\n\n- concurrency: 2\n"
    result = await shop.run(text)
    assert {one.strip() for one in result.outputs.values()} <= {"1", "2"}


async def test_a_yes_counts_for_one_attempt(shop: Any) -> None:
    rule = "\n## Settings\n\n- policy: {require_approval: ['Bash(touch *)']}\n"
    command = "- command: touch marker; echo x >> log; exit 1"
    text = workflow("- type: shell", command, "- retry: {max: 3, wait: 0, retry_on: [1]}", after=rule)
    somebody = shop.somebody(Answer(approved=True), Answer(approved=True), Answer(approved=False))
    result = await shop.run(text, people=somebody)
    assert (result.outcome, len(somebody.asked)) == ("failed", 3)
    assert (shop.ws / "log").read_text() == "x\n" * 2
