"""The engine with steps that touch nothing: order, batches, loops, handlers, and what a workflow honestly came to."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from leadrope.core import execution_events
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows.engine.execution_context import ExecutionContext
from leadrope.workflows.problems import BadWorkflow
from leadrope.workflows.report import ExecutionResult

FAILS = "- type: read-file\n- file_path: missing.txt\n"


def states(result: ExecutionResult) -> dict[str, str]:
    return {step.id: step.state for step in result.steps}


async def test_steps_run_in_order_and_values_reach_those_behind(shop: Any) -> None:
    result = await shop.run(
        """# T
## Inputs
### who
- type: string
## Steps
### one
- type: note
- text: hello ${who}
### two
- type: note
- text: <${one.text}>
## Outputs
### said
- source: ${two.text}
""",
        {"who": "you"},
    )
    assert (result.outcome, result.outputs, states(result)) == (
        "succeeded",
        {"said": "<hello you>"},
        {"one": "succeeded", "two": "succeeded"},
    )
    assert [one.step for one in shop.of(execution_events.StepEnded)] == ["one", "two"]
    assert [one.outputs for one in await shop.outcomes(result.execution_id)] == [
        {"text": "hello you"},
        {"text": "<hello you>"},
    ]


async def test_a_failed_step_stops_those_behind_it_and_no_others(shop: Any) -> None:
    result = await shop.run(
        f"""## Steps
### bad
{FAILS}- after: []
### behind
- type: note
- text: x
- after: bad
### beside
- type: note
- text: y
- after: []
"""
    )
    assert result.outcome == "failed"
    assert states(result) == {"bad": "failed", "behind": "blocked", "beside": "succeeded"}
    assert result.failures[0].error is not None
    assert "missing.txt" in result.failures[0].error.message


async def test_a_handler_makes_it_degraded_and_sees_the_error(shop: Any) -> None:
    result = await shop.run(
        f"""## Steps
### bad
{FAILS}- on-error: mend
### behind
- type: note
- text: never
### mend
- type: note
- text: ${{bad.error.message}}
## Outputs
### why
- source: ${{mend.text}}
"""
    )
    assert result.outcome == "degraded"
    assert states(result) == {"bad": "failed", "behind": "left_out", "mend": "succeeded"}
    assert "missing.txt" in result.outputs["why"]


async def test_a_step_starts_as_soon_as_its_own_inputs_are_there(shop: Any) -> None:
    """`b2` needs only `b1`; `a1` takes until it is stopped, and no layer is waited for."""
    text = """## Steps
### a1
- type: wait
- seconds: 3600
- after: []
### b1
- type: note
- text: b
- after: []
### b2
- type: note
- text: ${b1.text}2
- after: b1
"""
    async with shop.begun(text) as execution:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: "b2" in {one.step for one in shop.of(execution_events.StepEnded)})
        execution.stop("seen enough")
        result = await running
    assert result.outcome == "stopped"
    assert states(result) == {"a1": "not_run", "b1": "succeeded", "b2": "succeeded"}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("false", "skipped"),
        ("${n} > 3", "skipped"),
        ("${n} == 3 and ${s} contains 'b'", "succeeded"),
        ("${s}", "succeeded"),
    ],
)
async def test_when(shop: Any, condition: str, expected: str) -> None:
    result = await shop.run(
        f"""## Inputs
### n
- type: integer
### s
- type: string
## Steps
### maybe
- type: note
- text: "${{n}} ${{s}}"
- when: {condition}
### after
- type: note
- text: always
""",
        {"n": 3, "s": "abc"},
    )
    assert (result.outcome, states(result)) == ("succeeded", {"maybe": expected, "after": "succeeded"})


async def test_branches(shop: Any) -> None:
    text = """## Inputs
### mood
- type: string
## Steps
### ask
- type: condition
- value: ${mood}
- contains: good
- next: {yes: smile, no: frown}
### smile
- type: note
- text: ":)"
- next: last
### frown
- type: note
- text: ":("
- next: last
### last
- type: note
- text: ${smile.text ?? frown.text}
"""
    good = await shop.run(text, {"mood": "good"})
    bad = await shop.run(text, {"mood": "bad"})
    assert states(good) == {"ask": "succeeded", "smile": "succeeded", "frown": "left_out", "last": "succeeded"}
    assert states(bad) == {"ask": "succeeded", "smile": "left_out", "frown": "succeeded", "last": "succeeded"}
    assert good.outcome == bad.outcome == "succeeded"


BATCH = """## Inputs
### files
- type: array
## Steps
### each
- type: read-file
- file_path: ${{item}}
```yaml batch
items: ${{files}}
max_concurrent: 3
error_handling: {handling}
```
## Outputs
### read
- source: ${{each.results}}
### errors
- source: ${{each.errors}}
"""


@pytest.mark.parametrize(
    ("handling", "files", "outcome"),
    [
        ("continue", ["a", "b"], "succeeded"),
        ("continue", ["a", "nothing", "b"], "degraded"),
        ("continue", ["nothing"], "failed"),
        ("fail_fast", ["nothing", "a"], "failed"),
        ("continue", [], "succeeded"),
    ],
)
async def test_batches(shop: Any, handling: str, files: list[str], outcome: str) -> None:
    (shop.ws / "a").write_text("A")
    (shop.ws / "b").write_text("B")
    result = await shop.run(BATCH.format(handling=handling), {"files": files})
    assert result.outcome == outcome
    if outcome != "failed":
        read = result.outputs["read"]
        assert [one.get("content") for one in read] == [{"a": "A", "b": "B"}.get(name) for name in files]
        assert [(one["index"], one["item"]) for one in read] == list(enumerate(files))
        assert [one["item"] for one in read if "error" in one] == [name for name in files if name == "nothing"]
        assert [one["index"] for one in result.outputs["errors"]] == [i for i, n in enumerate(files) if n == "nothing"]


async def test_a_loop_carries_values_and_ends_by_its_condition(shop: Any) -> None:
    text = """## Steps
### grow
- type: note
- text: ${{text ?? ""}}x
```yaml loop
{condition}
carry:
  text: ${{grow.text}}
max_iterations: 4
```
## Outputs
### text
- source: ${{grow.text}}
### turns
- source: ${{grow.iterations}}
"""
    ended = await shop.run(text.format(condition="until: ${grow.text} == 'xxx'"))
    assert (ended.outcome, ended.outputs) == ("succeeded", {"text": "xxx", "turns": 3})
    endless = await shop.run(text.format(condition="while: true"))
    assert (endless.outcome, endless.outputs["turns"]) == ("degraded", 4)
    assert endless.steps[0].warnings[0].kind == "loop.not_finished"


async def test_a_workflow_inside_a_workflow(shop: Any) -> None:
    shop.write(
        """## Inputs
### n
- type: integer
## Steps
### inner
- type: note
- text: inner ${n}
### ask
- type: approval
- message: inner asks
## Outputs
### text
- source: ${inner.text}
""",
        "inner.flow.md",
    )
    text = """## Steps
### call
- type: workflow
- workflow: inner.flow.md
- inputs: {n: 7}
### after
- type: note
- text: got ${call.text}
## Outputs
### all
- source: ${after.text}
"""
    waiting = await shop.run(text)
    assert waiting.outcome == "waiting"
    result = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert (result.outcome, result.outputs) == ("succeeded", {"all": "got inner 7"})


async def test_a_workflow_that_calls_itself_ends_in_a_named_error(shop: Any) -> None:
    text = "## Steps\n### again\n- type: workflow\n- workflow: test.flow.md\n"
    result = await shop.run(text)
    assert result.outcome == "failed"
    assert result.failures[0].error is not None
    assert "workflow number 11 inside each other; at most 10" in result.failures[0].error.message
    async with shop.service() as service:
        assert len(await service.executions.listing()) == 10


async def test_a_time_out_ends_a_step_and_is_named(shop: Any) -> None:
    result = await shop.run("## Steps\n### long\n- type: wait\n- seconds: 3600\n- timeout: 0.05\n")
    assert result.failures[0].error is not None
    assert result.failures[0].error.kind == "timed_out"
    assert "0.05 s" in result.failures[0].error.message


async def test_a_template_without_a_value_names_the_step(shop: Any) -> None:
    result = await shop.run(
        """## Steps
### maybe
- type: note
- text: x
- when: false
### needs
- type: note
- text: ${maybe.text}
"""
    )
    assert result.outcome == "failed"
    assert result.failures[0].error is not None
    assert result.failures[0].error.kind == "unresolved_template"


async def test_a_number_where_text_belongs_is_written_as_one(shop: Any) -> None:
    text = "## Inputs\n### n\n- type: integer\n## Steps\n### a\n- type: note\n- text: ${n}\n"
    assert (await shop.run(text + "## Outputs\n### t\n- source: ${a.text}\n", {"n": 7})).outputs == {"t": "7"}


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("- type: note\n- text: x\n- when: ${n} >\n", "5:9: error: when cannot be read"),
        ("- type: note\n- text: x\n- when: n > 3\n", "n must be written ${n}"),
        ("- type: note\n- text: x\n- loop: {until: '${__iteration__} = 1'}\n", "loop.until cannot be read"),
        ("- type: shell\n- command: eval ${n}\n", "`eval` reads its words as code"),
    ],
)
async def test_mistakes_that_no_schema_can_tell_are_told_before_anything_runs(shop: Any, step: str, told: str) -> None:
    with pytest.raises(BadWorkflow) as caught:
        await shop.run(f"## Inputs\n### n\n- type: integer\n## Steps\n### a\n{step}", {"n": 1})
    assert told.removeprefix("5:9: error: ") in str(caught.value)


async def test_code_is_no_text_with_templates(shop: Any) -> None:
    text = """## Steps
### compute
- type: code
```python code
result = "${no.such} ${"
```
## Outputs
### value
- source: ${compute.result}
"""
    assert (await shop.run(text)).outputs == {"value": "${no.such} ${"}


async def test_ten_thousand_items_end_with_the_first_that_fails(shop: Any) -> None:
    text = """## Steps
### each
- type: read-file
- file_path: ${item}
```yaml batch
items: ${files}
max_concurrent: 100
```
## Inputs
### files
- type: array
"""
    result = await shop.run(text, {"files": [f"missing-{number}" for number in range(10_000)]})
    assert result.outcome == "failed"
    assert result.failures[0].error is not None
    assert "missing-0" in result.failures[0].error.message
    assert len(await shop.outcomes(result.execution_id)) <= 101, "what had begun, and what it came to"


@pytest.mark.parametrize(
    ("items", "told"), [("text", "no list"), (7, "no list"), ({"a": 1}, "no list"), (list(range(100_001)), "at most")]
)
async def test_items_that_are_no_list_are_told(shop: Any, items: Any, told: str) -> None:
    text = (
        "## Inputs\n### x\n- type: any\n## Steps\n### each\n- type: note\n- text: ${item}\n- batch: {items: '${x}'}\n"
    )
    result = await shop.run(text, {"x": items})
    assert result.failures[0].error is not None
    assert told in result.failures[0].error.message


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("- workflow: nowhere.flow.md\n", "no file"),
        ("- workflow: nothing\n", "no workflow 'nothing'"),
        ("- workflow: inner.flow.md\n", "n: is required"),
        ("- workflow: inner.flow.md\n- inputs: {n: x}\n", "n:"),
        ("- workflow: inner.flow.md\n- inputs: {n: 1, m: 2}\n", "m: there is no such input"),
        ("- workflow: broken.flow.md\n", "has 1 error"),
    ],
)
async def test_a_workflow_that_cannot_be_called_is_a_failed_step(shop: Any, step: str, told: str) -> None:
    shop.write("## Inputs\n### n\n- type: integer\n## Steps\n### a\n- type: note\n- text: ${n}\n", "inner.flow.md")
    shop.write("### a\n- type: nonsense\n", "broken.flow.md")
    result = await shop.run("## Steps\n### call\n- type: workflow\n" + step)
    assert result.failures[0].error is not None
    assert told in result.failures[0].error.message


async def test_a_workflow_inside_that_fails_or_is_soft_is_told_outside(shop: Any) -> None:
    shop.write(f"### bad\n{FAILS}", "fails.flow.md")
    shop.write(f"### bad\n{FAILS}- on-error: mend\n### mend\n- type: note\n- text: x\n", "soft.flow.md")
    call = "## Steps\n### call\n- type: workflow\n- workflow: {name}.flow.md\n"
    failed = await shop.run(call.format(name="fails"))
    assert failed.failures[0].error is not None
    assert (failed.outcome, "missing.txt" in failed.failures[0].error.message) == ("failed", True)
    soft = await shop.run(call.format(name="soft"))
    assert (soft.outcome, soft.steps[0].warnings[0].kind) == ("degraded", "workflow.degraded")


async def test_who_opens_the_sandbox_may_be_ended_and_whoever_waits_for_it_opens_it(shop: Any) -> None:
    async with (
        shop.service() as service,
        ExecutionContext(service, tag=uuid.uuid4().hex, workspace=shop.ws, environ=shop.environ) as host,
    ):
        # With a proxy for its hosts, so that opening takes more than a moment.
        rules = ({"network": {"reach": "model-only", "allowed_hosts": ["example.com"]}},)
        first = asyncio.create_task(host.commands_under(rules))
        others = [asyncio.create_task(host.commands_under(rules)) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        found = await asyncio.gather(*others)
        assert first.cancelled()
        assert len(set(map(id, found))) == 1
        assert (await found[0].run(["echo", "x"])).stdout == b"x\n"
