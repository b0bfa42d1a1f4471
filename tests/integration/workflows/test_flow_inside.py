"""Workflows inside workflows: stopped, timed out, killed, changed and asked, they go on where they were."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import database_file
from leadrope import errors
from leadrope.core import execution_events
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import library
from leadrope.workflows.report import ExecutionResult
from leadrope.workflows.start import start

CALL = "## Steps\n\n### call\n\n- type: workflow\n- workflow: in.flow.md\n{more}"
INNER = """## Steps

### once

- type: write-file
- file_path: log
- content: x
- mode: append

### long

- type: shell
- command: test -e go || sleep 3600

## Outputs

### path

- source: ${once.path}
"""
ASKS = """## Steps

### once

- type: write-file
- file_path: log
- content: x
- mode: append

### ask

- type: approval
- message: Go on?

## Outputs

### path

- source: ${once.path}
"""


def states(result: ExecutionResult) -> dict[str, str]:
    return {step.id: step.state for step in result.steps}


def has_ended(shop: Any, step: str) -> bool:
    return any(one.step == step for one in shop.of(execution_events.StepEnded))


async def test_a_stop_reaches_inside_and_the_same_process_goes_on(shop: Any) -> None:
    shop.write(INNER, "in.flow.md")
    loaded = library.load(shop.write(CALL.format(more="")))
    surroundings: dict[str, Any] = {"environ": shop.environ, "show": shop.saw}
    async with shop.service() as service:
        async with start.started(service, loaded, {}, workspace=shop.ws, **surroundings) as execution:
            running = asyncio.ensure_future(execution.run())
            await shop.until(lambda: has_ended(shop, "once"))
            execution.stop()
            stopped = await running
        assert stopped.outcome == "stopped"
        (child,) = await service.executions.children(stopped.execution_id)
        assert child.state == "interrupted", "whoever looks at it is not told that it runs"
        (shop.ws / "go").touch()
        async with start.resumed(service, stopped.execution_id, **surroundings) as execution:
            result = await execution.run()
    assert result.outcome == "succeeded", result
    assert (shop.ws / "log").read_text() == "x"


async def test_one_that_was_timed_out_is_tried_again_from_where_it_was(shop: Any) -> None:
    shop.write(INNER.replace("test -e go || sleep 3600", "test -e go || { touch go; sleep 3600; }"), "in.flow.md")
    result = await shop.run(CALL.format(more="- timeout: 2\n- retry: {max: 2, wait: 0}\n"))
    assert (result.outcome, result.steps[0].attempts) == ("succeeded", 2), result
    assert (shop.ws / "log").read_text() == "x"


async def test_one_that_had_ended_when_the_process_died_is_not_run_again(shop: Any) -> None:
    """Killed after the inner workflow's end and before the outer one's journal: its result is taken."""
    shop.write(INNER, "in.flow.md")
    (shop.ws / "go").touch()
    text = CALL.format(more="") + "\n## Outputs\n\n### path\n\n- source: ${call.path}\n"
    whole = await shop.run(text)
    with database_file.opened(shop.home / "leadrope.db") as db:
        (number,) = db.execute("select n from executions where id = ?", (whole.execution_id,)).fetchone()
        assert db.execute("delete from unit_outcomes where execution = ?", (number,)).rowcount == 1
        db.execute("update executions set state = 'interrupted', outcome = null, owner = null where n = ?", (number,))
    result = await shop.resume(whole.execution_id)
    assert (result.outcome, result.outputs) == ("succeeded", {"path": "log"}), result
    assert (shop.ws / "log").read_text() == "x"


async def test_a_changed_file_inside_is_refused_unless_told(shop: Any) -> None:
    shop.write(ASKS, "in.flow.md")
    waiting = await shop.run(CALL.format(more=""))
    (wait,) = waiting.approvals
    shop.write(ASKS.replace("- content: x\n", "- content: y\n"), "in.flow.md")
    with pytest.raises(errors.WrongState, match=r"in\.flow\.md was changed"):
        await shop.resume(wait.id, answer=Answer(approved=True))
    result = await shop.resume(wait.id, answer=Answer(approved=True), takes_change=True)
    assert result.outcome == "succeeded", "the refusal has not used up the answer"
    assert (shop.ws / "log").read_text() == "x", "what is done stays done"


async def test_workflows_inside_a_batch_each_ask_and_each_go_on_once(shop: Any) -> None:
    inner = "## Inputs\n\n### n\n\n- type: integer\n\n" + ASKS.replace("Go on?", "Go on with ${n}?")
    shop.write(inner, "in.flow.md")
    more = "- inputs: {n: '${item}'}\n- batch: {items: [1, 2, 3], max_concurrent: 3}\n"
    result = await shop.run(CALL.format(more=more))
    asked = []
    while result.outcome == "waiting":
        asked.append(len(result.approvals))
        result = await shop.resume(result.approvals[0].id, answer=Answer(approved=True))
    assert (result.outcome, asked) == ("succeeded", [3, 2, 1])
    assert (shop.ws / "log").read_text() == "xxx"
