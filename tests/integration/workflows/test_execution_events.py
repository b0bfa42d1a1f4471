"""The events of an execution: numbered without a gap, each once, followed from anywhere, without secrets."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import msgspec
import pytest

from collector import Listener, listening
from leadrope.core import execution_events as events
from leadrope.core.execution_events import ExecutionRecord
from leadrope.runs.observe.webhook import verify_webhook
from leadrope.runtime.gate.approvers import Answer

SIGNED_WITH = "0123456789abcdef0123456789abcdef"
SECRET = "hunter2-of-the-house"


async def stored(shop: Any, execution_id: str) -> list[ExecutionRecord]:
    async with shop.service() as service:
        return list(await service.executions.all_events(await service.executions.get(execution_id)))


def kinds(records: list[ExecutionRecord]) -> list[str]:
    return [str(record.event.__struct_config__.tag) for record in records]


def check_whole(records: list[ExecutionRecord]) -> None:
    """No gap, and one end for each step."""
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    ended = Counter((one.event.execution, one.event.step) for one in records if isinstance(one.event, events.StepEnded))
    assert set(ended.values()) <= {1}, ended


async def test_what_is_shown_is_what_is_stored(shop: Any) -> None:
    records: list[ExecutionRecord] = []
    text = """# Two steps

## Steps

### one
- type: note
- text: a
### two
- type: condition
- expression: 1 == 1
- next: {yes: three, no: end}
### three
- type: note
- text: ${one.text}

## Outputs

### said
- source: ${three.text}
"""
    shop.saw = records.append
    result = await shop.run(text)
    assert await stored(shop, result.execution_id) == records
    check_whole(records)
    assert kinds(records) == [
        "execution.started",
        *("step.started", "step.ended") * 3,
        "execution.ended",
    ]
    started, ended = records[0].event, records[-1].event
    assert isinstance(started, events.ExecutionStarted)
    assert (started.title, [step.id for step in started.steps]) == ("Two steps", ["one", "two", "three"])
    assert isinstance(ended, events.ExecutionEnded)
    assert (ended.outcome, ended.outputs) == ("succeeded", {"said": "a"})
    assert [one.event.branch for one in records if isinstance(one.event, events.StepEnded)] == [None, "yes", None]


async def test_a_called_workflow_tells_in_the_log_of_its_caller(shop: Any) -> None:
    shop.write("# In\n\n## Steps\n\n### deep\n- type: note\n- text: x\n", "inner.flow.md")
    text = "## Steps\n### call\n- type: workflow\n- workflow: ./inner.flow.md\n- batch: {items: [1, 2]}\n"
    result = await shop.run(text)
    records = await stored(shop, result.execution_id)
    check_whole(records)
    inner = [one.event for one in records if isinstance(one.event, events.ExecutionStarted) and one.event.parent]
    assert sorted(one.parent_key for one in inner) == ["call#0[0]", "call#0[1]"]
    assert all(one.parent == result.execution_id for one in inner)
    async with shop.service() as service:
        child = await service.executions.get(inner[0].execution)
        assert (child.last_seq, await service.executions.read_events(child, 1, 100)) == (0, [])
        followed = [one async for one in service.follow_execution(child.id, live=False)]
    assert kinds(followed) == ["execution.started", "step.started", "step.ended", "execution.ended"]
    assert {one.event.execution for one in followed} == {child.id}


async def test_a_batch_does_not_write_an_event_for_each_item(shop: Any) -> None:
    text = """## Steps
### each
- type: condition
- expression: ${item} != 7
- batch: {items: ${numbers}, error_handling: continue, parallel: true}
### fails
- type: shell
- command: test ${item} != 2
- batch: {items: [1, 2, 3], error_handling: continue}
## Inputs
### numbers
- type: array
"""
    result = await shop.run(text, {"numbers": list(range(400))})
    records = await stored(shop, result.execution_id)
    check_whole(records)
    assert len(records) < 40
    units = [one.event for one in records if isinstance(one.event, events.UnitEnded)]
    failed = [(one.step, one.item) for one in units if one.status == "failed"]
    assert failed == [("fails", 1)]
    ended = {one.event.step: one.event for one in records if isinstance(one.event, events.StepEnded)}
    assert (ended["each"].units, ended["fails"].units) == (400, 3)
    warning = next(one.event for one in records if isinstance(one.event, events.StepWarning))
    assert (warning.step, warning.kind) == ("fails", "batch.items_failed")


async def test_progress_is_told_now_and_then_and_not_after_the_end(shop: Any) -> None:
    lines = "for i in $(seq 200); do echo line $i; sleep 0.01; done"
    result = await shop.run(f"## Steps\n### busy\n- type: shell\n- command: {lines}\n")
    records = await stored(shop, result.execution_id)
    told = [one for one in records if isinstance(one.event, events.StepProgress)]
    (ended,) = [one for one in records if isinstance(one.event, events.StepEnded)]
    assert 1 <= len(told) <= 2 + ended.event.duration_s / 0.5  # type: ignore[union-attr]  # it is one
    assert all(one.seq < ended.seq for one in told)


async def test_an_execution_that_waits_and_goes_on_has_one_log(shop: Any) -> None:
    text = "## Steps\n### before\n- type: note\n- text: b\n### ask\n- type: approval\n- message: Go on?\n"
    waiting = await shop.run(text)
    approval_id = waiting.approvals[0].id
    records = await stored(shop, waiting.execution_id)
    assert kinds(records)[-3:] == ["step.started", "step.asked", "execution.waiting"]
    asked = records[-2].event
    assert isinstance(asked, events.StepAsked)
    assert (asked.approval_id, asked.title) == (approval_id, waiting.approvals[0].title)
    await shop.resume(approval_id, answer=Answer(approved=True))
    records = await stored(shop, waiting.execution_id)
    check_whole(records)
    assert kinds(records).count("execution.started") == kinds(records).count("execution.resumed") == 1
    assert kinds(records)[-1] == "execution.ended"
    (answered,) = [one.event for one in records if isinstance(one.event, events.StepAnswered)]
    assert (answered.approval_id, answered.approved, answered.by) == (approval_id, True, "user")
    assert [one.epoch for one in records] == sorted(one.epoch for one in records)
    assert {one.epoch for one in records} == {1, 2}


async def test_follow_gives_what_is_stored_and_then_what_comes_each_once(shop: Any) -> None:
    note = "- type: note\n- text: x\n"
    text = f"## Steps\n### a\n{note}### b\n- type: wait\n- seconds: 0.5\n### c\n{note}"
    async with shop.begun(text) as execution, shop.service() as elsewhere:
        running = asyncio.ensure_future(execution.run())
        await shop.until(lambda: shop.of(events.StepEnded))
        followed = [one async for one in elsewhere.follow_execution(execution.id)]
        await running
        late = [one async for one in elsewhere.follow_execution(execution.id, 4)]
    assert followed == await stored(shop, execution.id)
    assert late == followed[3:]
    check_whole(followed)


async def test_no_event_holds_a_secret(shop: Any) -> None:
    text = """## Steps
### says
- type: shell
- command: echo ${password} >&2; sleep 0.5; echo ${password}; exit 3
- on-error: after
### after
- type: note
- text: got ${password}
## Inputs
### password
## Outputs
### leaked
- source: ${after.text}
"""
    records: list[ExecutionRecord] = []
    shop.saw = records.append
    result = await shop.run(text, {"password": SECRET})
    assert SECRET not in msgspec.json.encode(records).decode()
    assert SECRET not in msgspec.json.encode(await stored(shop, result.execution_id)).decode()
    async with shop.service() as service:
        unit = await service.executions.unit(result.execution_id, "says")
    assert SECRET not in msgspec.json.encode(unit).decode()
    assert "echo" in unit.inputs["command"]


async def test_what_a_unit_was_given_and_gave_is_found_by_its_key_and_bounded(shop: Any) -> None:
    text = """## Steps
### make
- type: shell
- command: yes some words | head -c 300000
### use
- type: note
- text: ${make.stdout} and ${item}
- batch: {items: [a, b]}
"""
    result = await shop.run(text)
    async with shop.service() as service:
        made = await service.executions.unit(result.execution_id, "make")
        used = await service.executions.unit(result.execution_id, "use", 0, 1)
    assert made.outputs["exit_code"] == 0
    assert made.outputs["stdout"]["bytes"] > 200_000
    assert len(msgspec.json.encode(made)) < 110_000
    assert used.inputs["text"]["cut"].startswith("some words")
    assert used.inputs["text"]["bytes"] == used.inputs_bytes - len('{"text":}')
    assert len(msgspec.json.encode(used)) < 130_000
    assert (used.status, used.times) == ("succeeded", 1)


# -- who looks on -----------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(shop: Any) -> Any:
    with listening() as found:
        config = shop.folder / ".config/leadrope"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(
            f'[notify]\nwebhook = "{found.url}/hook"\n[telemetry]\nendpoint = "{found.url}"\n'
        )
        shop.home.mkdir(mode=0o700)
        (shop.home / ".env").write_text(f"LEADROPE_WEBHOOK_SECRET={SIGNED_WITH}\n")
        (shop.home / ".env").chmod(0o600)
        yield found


async def test_a_signed_word_tells_that_a_workflow_waits(shop: Any, watched: Listener) -> None:
    waiting = await shop.run("# Ship\n## Steps\n### ask\n- type: approval\n- message: Ship it?\n", labels={"team": "a"})
    ((_, headers, body),) = [item for item in watched.got if item[0] == "/hook"]
    stamp, signature = headers["x-leadrope-timestamp"], headers["x-leadrope-signature"]
    assert verify_webhook(SIGNED_WITH, stamp, body, signature, time.time())
    word = msgspec.json.decode(body)
    assert (word["type"], word["execution_id"], word["step"]) == ("step.asked", waiting.execution_id, "ask")
    assert (word["asked_id"], word["labels"]) == (waiting.approvals[0].id, {"team": "a"})
    assert "Ship it?" in word["body"]


async def test_the_spans_of_an_execution_arrive_at_the_collector(shop: Any, watched: Listener) -> None:
    shop.write("# In\n\n## Steps\n\n### deep\n- type: note\n- text: x\n", "inner.flow.md")
    text = """# Out
## Steps
### call
- type: workflow
- workflow: ./inner.flow.md
### bad
- type: shell
- command: exit 4
- on-error: after
### after
- type: note
- text: x
"""
    result = await shop.run(text)
    spans = {span.name: span for span in watched.spans()}
    assert set(spans) == {
        "invoke_workflow test",
        "invoke_workflow inner",
        *(f"workflow_step {step}" for step in ("call", "deep", "bad", "after")),
    }

    def parent(name: str) -> str:
        return next(str(one.name) for one in spans.values() if one.span_id == spans[name].parent_span_id)

    assert parent("workflow_step call") == parent("workflow_step bad") == "invoke_workflow test"
    assert parent("invoke_workflow inner") == "workflow_step call"
    assert parent("workflow_step deep") == "invoke_workflow inner"
    root = {item.key: item.value.string_value for item in spans["invoke_workflow test"].attributes}
    assert (root["leadrope.execution.id"], root["leadrope.outcome"]) == (result.execution_id, "degraded")
    bad = {item.key: item.value.string_value for item in spans["workflow_step bad"].attributes}
    assert bad["error.type"] == "command_failed"
    assert watched.of("/v1/metrics")
