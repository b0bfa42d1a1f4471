"""What lasts beyond one go: people who answer later, parts done again, the journal, the cache, what is not kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadrope import errors
from leadrope.core import execution_events
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows.report import ExecutionResult


def states(result: ExecutionResult) -> dict[str, str]:
    return {step.id: step.state for step in result.steps}


async def test_an_approval_that_nobody_answers_puts_the_workflow_aside_and_a_token_goes_on(shop: Any) -> None:
    text = """## Steps
### before
- type: write-file
- file_path: log
- content: once
- mode: append
### ask
- type: approval
- message: Shall it go on?
- values: {file: "${before.path}"}
### after
- type: note
- text: ${ask.by}
"""
    waiting = await shop.run(text)
    assert (waiting.outcome, states(waiting)["after"]) == ("waiting", "not_run")
    (wait,) = waiting.approvals
    shop.write(text + "\n### more\n- type: note\n- text: x\n")
    with pytest.raises(errors.WrongState, match="was changed"):
        await shop.resume(wait.id)
    shop.write(text)
    result = await shop.resume(wait.id, answer=Answer(approved=True, by="ann"))
    assert (result.outcome, states(result)) == ("succeeded", dict.fromkeys(("before", "ask", "after"), "succeeded"))
    assert (shop.ws / "log").read_text() == "once", "what was done before is not done again"
    with pytest.raises(errors.WrongState):
        await shop.resume(wait.id, answer=Answer(approved=True))


async def test_the_results_of_a_batch_keep_their_items_after_a_resume(shop: Any) -> None:
    text = """## Steps
### names
- type: code
- after: []
```python code
result = [{"n": 1}, {"n": 0}, {"n": 2}]
```
### ask
- type: approval
- message: Shall it go on?
- after: each
### tell
- type: code
- inputs: {good: "${each.results[*].item.n}", all: "${each.results}", bad: "${each.error_count}"}
```python code
good: list
result = [good, [one["index"] for one in all], [one["item"]["n"] for one in all if "error" in one], bad]
```
### each
- type: shell
- command: test ${item.n} != 0 && echo ${item.n}
- batch: {items: "${names.result}", error_handling: continue}
- after: names
- next: end
## Outputs
### told
- source: ${tell.result}
"""
    from leadrope.runtime.gate.approvers import Answer

    waiting = await shop.run(text)
    assert waiting.outcome == "waiting"
    result = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert result.outputs == {"told": [[1, 2], [0, 1, 2], [0], 1]}, result


async def test_a_no_is_a_failure_unless_it_has_a_branch(shop: Any) -> None:
    text = """## Steps
### ask
- type: approval
- message: Go on?
{next}
"""
    ways = """### yes
- type: note
- text: y
- next: []
### no
- type: note
- text: n
- next: []
"""
    somebody = shop.somebody(Answer(approved=False, reason="not today"), Answer(approved=False), Answer(approved=True))
    failed = await shop.run(text.format(next=""), people=somebody)
    assert failed.outcome == "failed"
    assert failed.failures[0].error is not None
    assert (failed.failures[0].error.kind, "not today" in failed.failures[0].error.message) == ("denied", True)
    branch = text.format(next="- next: {approved: yes, denied: no}") + ways
    denied = await shop.run(branch, people=somebody)
    assert (denied.outcome, states(denied)["no"], states(denied)["yes"]) == ("succeeded", "succeeded", "left_out")
    approved = await shop.run(branch, people=somebody)
    assert (states(approved)["no"], states(approved)["yes"]) == ("left_out", "succeeded")


async def test_choices(shop: Any) -> None:
    result = await shop.run(
        """## Steps
### ask
- type: approval
- message: Which?
- choices: [red, blue]
- next: {red: r, else: other}
### r
- type: note
- text: red
- next: []
### other
- type: note
- text: other
- next: []
""",
        people=shop.somebody(Answer(approved=True, choice="blue")),
    )
    assert (states(result)["r"], states(result)["other"]) == ("left_out", "succeeded")


async def test_approval_required_shows_the_filled_parameters_and_holds_the_step(shop: Any) -> None:
    text = """## Steps
### write
- type: write-file
- file_path: out.txt
- content: secret plan
- approval: required
"""
    somebody = shop.somebody(Answer(approved=False))
    result = await shop.run(text, people=somebody)
    assert result.outcome == "failed"
    assert not (shop.ws / "out.txt").exists()
    assert somebody.asked[0].values["content"] == "secret plan"
    result = await shop.run(text, people=shop.somebody(Answer(approved=True)))
    assert (shop.ws / "out.txt").read_text() == "secret plan"


async def test_no_wait_means_no(shop: Any) -> None:
    text = "## Steps\n### ask\n- type: approval\n- message: m\n"
    result = await shop.run(text, on_ask="deny")
    assert (result.outcome, result.approvals) == ("failed", ())


async def test_only_and_from_take_the_last_values_before(shop: Any) -> None:
    text = """## Steps
### one
- type: write-file
- file_path: one
- content: x
- mode: append
### two
- type: write-file
- file_path: two
- content: ${one.path}
- mode: append
### three
- type: write-file
- file_path: three
- content: ${two.path}
- mode: append
"""
    with pytest.raises(errors.WrongState, match="not run yet"):
        await shop.run(text, only="two")
    await shop.run(text)
    only = await shop.run(text, only="two")
    assert (only.outcome, states(only)["three"]) == ("succeeded", "not_run")
    begun = await shop.run(text, begin_at="two")
    assert begun.outcome == "succeeded"
    files = [(shop.ws / name).read_text() for name in ("one", "two", "three")]
    assert files == ["x", "one" * 3, "two" * 2]
    changed = text.replace("- content: x\n", "- content: y\n")
    with pytest.raises(errors.WrongState, match="'one' was changed"):
        await shop.run(changed, begin_at="two")
    assert (await shop.run(changed, begin_at="two", is_forced=True)).outcome == "succeeded"
    with pytest.raises(errors.BadValue, match="no step 'tow'"):
        await shop.run(text, only="tow")


async def test_a_step_that_the_last_execution_did_not_come_to_cannot_be_begun_at(shop: Any) -> None:
    text = """## Steps
### way
- type: condition
- value: x
- contains: y
- next: {yes: one, no: two}
### one
- type: note
- text: a
- next: []
### two
- type: note
- text: b
- next: []
"""
    await shop.run(text)
    for how in ("only", "begin_at"):
        with pytest.raises(errors.WrongState, match="no way that leads to 'one'"):
            await shop.run(text, **{how: "one"})
        assert (await shop.run(text, **{how: "two"})).outcome == "succeeded"


async def test_cache(shop: Any) -> None:
    text = """## Inputs
### text
- type: string
## Steps
### once
- type: write-file
- file_path: log
- content: ${text}
- mode: append
- cache: true
"""
    for word in ("a", "a", "b"):
        assert (await shop.run(text, {"text": word})).outcome == "succeeded"
    assert (shop.ws / "log").read_text() == "ab"


async def test_a_stopped_workflow_goes_on_from_its_journal(shop: Any) -> None:
    text = """## Steps
### one
- type: write-file
- file_path: one
- content: x
- mode: append
### two
- type: wait
- seconds: ${seconds}
## Inputs
### seconds
- type: number
- default: 3600
"""
    async with shop.begun(text) as execution:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(execution_events.StepEnded))
        execution.stop()
        stopped = await running
    assert stopped.outcome == "stopped"
    shop.write(text.replace("${seconds}", "0"))
    result = await shop.resume(stopped.execution_id[:10], takes_change=True)
    assert result.outcome == "succeeded"
    assert (shop.ws / "one").read_text() == "x"


async def test_what_a_secret_was_taken_out_of_is_not_used_after_a_resume(shop: Any) -> None:
    text = """## Steps
### has
- type: read-file
- file_path: token
### ask
- type: approval
- message: Go on?
### uses
- type: note
- text: ${has.content}
"""
    (shop.ws / "token").write_text("hunter2hunter2")
    waiting = await shop.run(text, secrets=["hunter2hunter2"])
    assert waiting.outcome == "waiting"
    result = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert result.failures[0].error is not None
    assert (result.failures[0].id, result.failures[0].error.kind) == ("uses", "redacted_value")
    assert "hunter2" not in (shop.home / "leadrope.db").read_bytes().decode("latin-1")


async def test_a_workflow_with_a_secret_input_is_not_put_aside(shop: Any) -> None:
    """It could never go on: the input is not kept."""
    text = "## Inputs\n### api_token\n- type: string\n## Steps\n### ask\n- type: approval\n- message: ${api_token}?\n"
    result = await shop.run(text, {"api_token": "hunter2hunter2"})
    assert result.failures[0].error is not None
    assert (result.outcome, result.failures[0].error.kind) == ("failed", "cannot_wait")
    asked = await shop.run(text, {"api_token": "hunter2hunter2"}, people=shop.somebody(Answer(approved=True)))
    assert asked.outcome == "succeeded", "where somebody answers it goes on"
    assert "hunter2" not in (shop.home / "leadrope.db").read_bytes().decode("latin-1")


async def test_two_questions_of_one_step_are_each_asked_once(shop: Any) -> None:
    """Whoever has answered the first is not asked again because the second had to wait."""
    text = """## Steps
### write
- type: write-file
- file_path: .git/description
- content: x
- approval: required
"""
    (shop.ws / ".git").mkdir()
    waiting = await shop.run(text)
    titles = []
    while waiting.outcome == "waiting":
        (wait,) = waiting.approvals
        titles.append(wait.title)
        waiting = await shop.resume(wait.id, answer=Answer(approved=True))
    assert waiting.outcome == "succeeded"
    assert titles == ["write (write-file) is to start", "write: Write"]


async def test_what_another_execution_has_paid_for_is_not_counted_again(shop: Any) -> None:
    text = "## Steps\n### a\n- type: note\n- text: x\n### b\n- type: note\n- text: ${a.text}\n"
    await shop.run(text)
    shop.happened.clear()
    result = await shop.run(text, begin_at="b")
    assert result.cost_usd == 0
    kinds = [type(one) for one in shop.happened]
    assert kinds[0] is execution_events.ExecutionStarted, "what is known stands below the title"
    assert [(one.step, one.is_known) for one in shop.of(execution_events.StepEnded)] == [("a", True), ("b", False)]


async def test_a_unit_that_was_cut_off_is_known(shop: Any) -> None:
    async with shop.begun("## Steps\n### long\n- type: wait\n- seconds: 3600\n") as execution:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(execution_events.StepProgress))
        execution.stop()
        await running
        assert [one.step for one in await execution.host.service.executions.begun(execution.id)] == ["long"]
