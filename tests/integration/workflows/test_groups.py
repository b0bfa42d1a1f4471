"""Groups: several steps as one, in loops, batches and each other; what is seen from where, and how they fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core.execution_events import StepEnded, StepProgress
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import library
from leadrope.workflows.report import ExecutionResult
from leadrope.workflows.start import surroundings

ROUNDS = """# Rounds

## Inputs

### goal

- type: integer
- default: 3

## Steps

### start

- type: set
- values: {by: 1}

### rounds

- type: group
- loop: {until: "${check.result.done}", carry: {n: "${add.result}"}, max_iterations: 5}

#### add

- type: code
- inputs: {n: "${n ?? 0}", by: "${start.by}", turn: "${__iteration__}"}
- code: "result = n + by"

#### check

- type: code
- inputs: {n: "${add.result}", goal: "${goal}"}
- code: "result = {'done': n >= goal}"

### after

- type: note
- text: "${rounds.add.result} after ${rounds.iterations}: ${rounds.loop_stopped}"
"""


def states(result: ExecutionResult) -> dict[str, str]:
    return {step.id: step.state for step in result.steps}


async def test_a_loop_over_several_steps(shop: Any) -> None:
    result = await shop.run(ROUNDS)
    assert (result.outcome, result.last.result) == ("succeeded", "3 after 3: condition")
    assert states(result) == {"start": "succeeded", "rounds": "succeeded", "after": "succeeded"}
    cut = await shop.run(ROUNDS, {"goal": 9})
    assert (cut.outcome, cut.last.result) == ("degraded", "5 after 5: max_iterations")


async def test_each_turn_has_a_journal_of_its_own(shop: Any) -> None:
    result = await shop.run(ROUNDS)
    async with shop.service() as service:
        keys = [(one.step, one.iteration, one.item) for one in await service.executions.outcomes(result.execution_id)]
        turns_and_whole = [("rounds", number, None) for number in (0, 1, 2, -1)]
        assert keys == [("start", 0, None), *turns_and_whole, ("after", 0, None)]
        turns = await service.executions.children(result.execution_id)
        assert [turn.parent_key for turn in turns] == ["rounds#0", "rounds#1", "rounds#2"]
        for number, turn in enumerate(turns):
            inner = await service.executions.outcomes(turn.id)
            assert [one.step for one in inner] == ["add", "check"]
            assert inner[0].outputs["result"] == number + 1


NESTED = """## Steps

### outer

- type: group
- loop: {until: "${__iteration__} == 1", carry: {seen: "${all.result}"}}

#### inner

- type: group
- loop: {max_iterations: 2}

##### each

- type: group
- batch: {items: [a, b], max_concurrent: 2}

###### mark

- type: code
- inputs: {word: "${item}", i: "${__index__}", seen: "${seen ?? null}"}
- code: "result = f'{word}{i}{len(seen or [])}'"

##### gather

- type: code
- inputs: {found: "${each.results}"}
- code: "result = [one['mark']['result'] for one in found]"

#### all

- type: code
- inputs: {seen: "${seen ?? null}", found: "${inner.gather.result}", turns: "${inner.iterations}"}
- code: "result = (seen or []) + found + [turns]"

## Outputs

### all

- source: ${outer.all.result}

### deep

- source: ${outer.inner.gather.result[1]}
"""


async def test_groups_in_groups_with_loops_and_batches(shop: Any) -> None:
    result = await shop.run(NESTED)
    assert result.outcome == "succeeded", result
    assert result.outputs == {"all": ["a00", "b10", 2, "a03", "b13", 2], "deep": "b13"}


FAILS = """## Steps

### work

- type: group
{more}

#### first

- type: shell
- command: echo one

#### second

- type: shell
- command: echo half; exit 3

#### third

- type: note
- text: never

### sorry

- type: note
- text: "{sorry}"
{tail}
"""


async def test_a_step_that_fails_inside_fails_the_group(shop: Any) -> None:
    result = await shop.run(FAILS.format(more="", sorry="x", tail=""))
    assert (result.outcome, states(result)) == ("failed", {"work": "failed", "sorry": "blocked"})
    (failed,) = result.failures
    assert failed.error is not None
    assert failed.error.message.startswith("work: second: `echo half; exit 3` ended with exit code 3")
    assert failed.error.kind == "command_failed"


async def test_a_handler_of_a_group_takes_over_from_all_of_its_steps(shop: Any) -> None:
    said = "${work.error.kind}; ${work.first.stdout}; ${work.second.stdout ?? 'nothing'}"
    result = await shop.run(FAILS.format(more="- on-error: sorry", sorry=said, tail=""))
    assert (result.outcome, states(result)) == ("degraded", {"work": "failed", "sorry": "succeeded"})
    assert result.last.result == "command_failed; one; nothing"


async def test_a_handler_inside_makes_the_group_degraded(shop: Any) -> None:
    text = """## Steps

### work

- type: group

#### bad

- type: shell
- command: exit 3
- on-error: mend

#### mend

- type: note
- text: mended

## Outputs

### said

- source: ${work.mend.text}
"""
    result = await shop.run(text)
    assert (result.outcome, result.outputs) == ("degraded", {"said": "mended"})
    (warning,) = result.steps[0].warnings
    assert warning.kind == "group.handled"
    assert warning.message.startswith("bad failed, and its on-error took over")


async def test_a_fail_step_inside_keeps_its_code_and_kind(shop: Any) -> None:
    text = """## Steps

### work

- type: group
- batch: {items: [1, 2, 3]}

#### guard

- type: fail
- when: ${item} == 2
- message: two is not allowed
- code: 22
- kind: bad_item
"""
    result = await shop.run(text)
    assert (result.outcome, result.code, result.failures[0].error.kind) == ("failed", 22, "bad_item")


async def test_a_switch_inside_ends_a_turn_early(shop: Any) -> None:
    text = """## Steps

### tries

- type: group
- loop: {until: "exists(${good.text})", max_iterations: 4}

#### look

- type: switch
- cases: {right: "${__iteration__} == 2"}
- next: {right: good, else: end}

#### good

- type: note
- text: found in turn ${__iteration__}
"""
    result = await shop.run(text)
    assert (result.outcome, result.last.result) == ("succeeded", "found in turn 2")
    assert result.steps[0].units == 3


async def test_a_person_is_asked_inside_a_turn_and_it_goes_on_where_it_was(shop: Any) -> None:
    text = """## Steps

### rounds

- type: group
- loop: {max_iterations: 2}

#### before

- type: write-file
- file_path: log
- content: "b${__iteration__} "
- mode: append

#### ask

- type: approval
- message: Turn ${__iteration__}?

#### after

- type: write-file
- file_path: log
- content: "a${__iteration__} "
- mode: append
"""
    result = await shop.run(text)
    for turn in range(2):
        assert result.outcome == "waiting"
        (asked,) = result.approvals
        assert (asked.step, asked.detail) == ("ask", f"Turn {turn}?")
        result = await shop.resume(asked.id, answer=Answer(approved=True))
    assert result.outcome == "succeeded"
    assert (shop.ws / "log").read_text() == "b0 a0 b1 a1 "


async def test_a_stop_reaches_inside_and_the_turn_goes_on_where_it_was(shop: Any) -> None:
    text = """## Steps

### rounds

- type: group
- loop: {max_iterations: 2}

#### once

- type: write-file
- file_path: log
- content: "o${__iteration__} "
- mode: append

#### long

- type: shell
- command: test -e go || sleep 3600
"""
    async with shop.begun(text) as execution:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: any(one.step == "long" for one in shop.of(StepProgress)))
        execution.stop()
        stopped = await running
    assert stopped.outcome == "stopped"
    (shop.ws / "go").write_text("")
    result = await shop.resume(stopped.execution_id)
    assert (result.outcome, result.steps[0].units) == ("succeeded", 2)
    assert (shop.ws / "log").read_text() == "o0 o1 "


async def test_the_end_inside_counts_where_the_process_died_before_it_was_noted_outside(shop: Any) -> None:
    result = await shop.run(ROUNDS)
    async with shop.service() as service:

        def forget(db: Any) -> None:
            db.execute("delete from unit_outcomes where step = 'after' or (step = 'rounds' and iteration in (2, -1))")
            db.execute("update executions set state = 'interrupted', outcome = null where parent is null")

        await service.store.write(forget)
    shop.happened.clear()
    again = await shop.resume(result.execution_id)
    assert (again.outcome, again.last.result) == ("succeeded", "3 after 3: condition")
    assert [one.step for one in shop.of(StepEnded)] == ["rounds", "after"], "the steps inside have ended before"


async def test_a_budget_a_timeout_and_a_policy_hold_for_all_steps_inside(shop: Any) -> None:
    text = """## Steps

### slow

- type: group
- timeout: 1

#### one

- type: wait
- seconds: 3600
"""
    late = await shop.run(text)
    assert (late.outcome, late.failures[0].error.kind) == ("failed", "timed_out")
    denied = await shop.run(
        text.replace("- timeout: 1", "- policy: {blocked_commands: [touch]}").replace(
            "- type: wait\n- seconds: 3600", "- type: shell\n- command: touch x"
        )
    )
    assert (denied.outcome, denied.failures[0].error.kind) == ("failed", "denied")


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("### g\n- type: group\n", "the group 'g' has no steps"),
        ("### g\n- type: group\n- retry: {max: 2}\n#### a\n- type: note\n", "a group takes no 'retry'"),
        ("### g\n- type: group\n- cache: true\n#### a\n- type: note\n", "a group takes no 'cache'"),
        (
            "### g\n- type: group\n#### a\n- type: note\n### b\n- type: note\n- text: ${a.text}\n",
            "did you mean ${g.a.text}",
        ),
        ("### g\n- type: group\n- when: ${a.text}\n#### a\n- type: note\n", "no value before the group has begun"),
        (
            "### g\n- type: group\n#### a\n- type: note\n- next: b\n### b\n- type: note\n",
            "only one of the two is inside 'g'",
        ),
        (
            "### g\n- type: group\n#### a\n- type: note\n### b\n- type: note\n- after: a\n",
            "only one of the two is inside 'g'",
        ),
        ("### g\n- type: group\n#### a\n- type: note\n### b\n- type: note\n- text: ${g.a.txt}\n", "gives no 'txt'"),
        ("### g\n- type: group\n#### a\n- type: note\n### b\n- type: note\n- text: ${g.c}\n", "gives no 'c'"),
        ("### g\n- type: group\n#### count\n- type: note\n", "no step inside a group can be called 'count'"),
        (
            "### g\n- type: group\n#### a\n- type: note\n- after: b\n#### b\n- type: note\n",
            "these steps wait for each other",
        ),
        ("### g\n- type: group\n#### g\n- type: note\n", "the step 'g' stands here again"),
        ("### g\n- type: group\n##### a\n- type: note\n", "did you mean #### a"),
        ("### g\n- type: group\n#### a\n- type: shel\n", "did you mean shell"),
        ("### a\n- type: note\n#### b\n- type: note\n", "'type' is given twice"),
    ],
)
def test_mistakes_are_found_before_anything_runs(shop: Any, steps: str, told: str) -> None:
    with pytest.raises(errors.RequestError) as caught:
        library.load(shop.write(f"## Steps\n\n{steps}"))
    assert told in str(caught.value)


def test_a_carried_name_that_is_read_inside_without_a_first_value_is_a_warning(shop: Any) -> None:
    text = "## Steps\n\n### g\n\nx\n\n- type: group\n- loop: {carry: {n: '${a.text}'}}\n\n#### a\n\nx\n\n- type: note\n"
    (warning,) = library.load(shop.write(text + "- text: ${n}\n")).warnings
    assert (warning.kind, warning.line) == ("no_first_value", 15)


async def test_only_and_from_name_groups_and_not_what_is_inside(shop: Any) -> None:
    await shop.run(ROUNDS)
    with pytest.raises(errors.BadValue, match="inside the group 'rounds'"):
        await shop.run(ROUNDS, begin_at="add")
    again = await shop.run(ROUNDS, begin_at="rounds")
    assert (again.outcome, again.last.result) == ("succeeded", "3 after 3: condition")


async def test_a_secret_that_a_step_inside_gave_is_not_handed_on_without_it(shop: Any) -> None:
    """After a stop the journal has the output without its secret: whoever uses the group's outputs is told so."""
    text = """## Steps

### work

- type: group

#### make

- type: shell
- command: echo correct horse battery

### hold

- type: shell
- command: test -e go || sleep 3600

### use

- type: shell
- command: echo got ${work.make.stdout}
"""
    async with shop.begun(text, secrets=["correct horse battery"]) as execution:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: any(one.step == "hold" for one in shop.of(StepProgress)))
        execution.stop()
        stopped = await running
    (shop.ws / "go").write_text("")
    result = await shop.resume(stopped.execution_id)
    assert (result.outcome, result.failures[0].error.kind) == ("failed", "redacted_value")


def test_who_pays_is_known_for_agents_inside_groups() -> None:
    """An execution that another owner continues is never billed to another account, wherever its agents stand."""
    text = "## Steps\n\n### g\n\n- type: group\n\n#### ask\n\n- type: llm\n- prompt: x\n"
    found = surroundings.accounts([library.parsed(text)], configs.Config(), {}, {})
    assert [name.split()[0] for name in found] == ["claude-code"]
