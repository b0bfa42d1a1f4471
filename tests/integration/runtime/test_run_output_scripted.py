"""Answers with a schema from a scripted agent: background reports, early exits, errors beside the output, usage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leadrope import Recorded, RunRequest, RunResult, Secret, events, open_run
from leadrope.core.fold import fold
from leadrope.rehearsal import write_executable

VERSION = "2.1.325 (Claude Code)"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
AGENT_OPEN = {
    "line": {
        "type": "system",
        "subtype": "background_tasks_changed",
        "tasks": [{"task_id": "a1", "task_type": "local_agent"}],
    }
}
AGENT_GONE = {"line": {"type": "system", "subtype": "background_tasks_changed", "tasks": []}}
REPORT = {"origin": {"kind": "task-notification"}}


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "ws").mkdir()

    async def play(
        self, steps: list[Any], *, on: Any = None, then: list[Any] | None = None, **fields: Any
    ) -> tuple[list[events.Event], RunResult]:
        """`then`: what is played when it is started once more."""
        claude = self.folder / "claude"
        if then is None:
            write_executable(claude, {"version": VERSION, "steps": steps})
        else:
            first = write_executable(self.folder / "first", {"version": VERSION, "steps": steps})
            second = write_executable(self.folder / "second", {"version": VERSION, "steps": then})
            mark = self.folder / "started"
            again = f'[ -e {mark} ] && exec {second} "$@"; touch {mark}; exec {first} "$@"'
            claude.write_text(f"#!/bin/sh\n{again}\n")
            claude.chmod(0o755)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LEADROPE_HOME": str(self.folder / "home"),
            "LEADROPE_CLAUDE_BIN": str(claude),
        }
        given: dict[str, Any] = {
            "prompt": "go",
            "cwd": str(self.folder / "ws"),
            "credential": Secret("sk-ant-rehearsal-0000000000000000"),
            "attempts": 1,
            "output_schema": SCHEMA,
        }
        recorded: list[Recorded] = []
        async with open_run(RunRequest(**(given | fields)), environ=environ) as run:
            async for item in run:
                recorded.append(item)
                if on is not None:
                    await on(run, item.event)
            result = await run.result()
        assert fold(recorded[:-1]) == result
        return [record.event for record in recorded], result


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def of(found: list[events.Event], kind: type) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


async def test_an_answer_that_waits_for_its_agents_is_not_judged_before_their_report(stage: Stage) -> None:
    steps = [
        *OPEN, AGENT_OPEN, {"result": {"result": "my agents are at work"}},
        AGENT_GONE, {"init": True}, {"result": {"result": "here", "structured_output": {"n": 3}, **REPORT}},
        {"await_eof": True},
    ]  # fmt: skip
    found, result = await stage.play(steps)
    assert [(checked.valid, checked.correction) for checked in of(found, events.OutputChecked)] == [(True, 0)]
    assert (result.outcome, result.output) == ("succeeded", {"n": 3})


async def test_a_report_that_brings_nothing_is_corrected(stage: Stage) -> None:
    steps = [
        *OPEN, AGENT_OPEN, {"result": {"result": "my agents are at work"}},
        AGENT_GONE, {"init": True}, {"result": {"result": "they are done", **REPORT}},
        {"await_user": True}, {"init": True}, {"result": {"result": "", "structured_output": {"n": 3}}},
        {"await_eof": True},
    ]  # fmt: skip
    found, result = await stage.play(steps)
    assert [checked.retrying for checked in of(found, events.OutputChecked)] == [True, False]
    assert (result.outcome, result.output, result.corrections) == ("succeeded", {"n": 3}, 1)


async def test_a_report_after_a_good_answer_changes_nothing(stage: Stage) -> None:
    steps = [
        *OPEN, AGENT_OPEN, {"result": {"result": "done", "structured_output": {"n": 3}}},
        AGENT_GONE, {"init": True}, {"result": {"result": "they say hello", **REPORT}}, {"await_eof": True},
    ]  # fmt: skip
    found, result = await stage.play(steps)
    assert len(of(found, events.OutputChecked)) == 1
    assert (result.outcome, result.output) == ("succeeded", {"n": 3})


async def test_an_agent_that_is_gone_cannot_be_corrected_and_that_is_said(stage: Stage) -> None:
    steps = [*OPEN, {"result": {"result": "no number"}}, {"exit": 0}]
    found, result = await stage.play(steps, persist_session=False)
    assert (result.outcome, result.text, result.output) == ("degraded", "no number", None)
    assert [notice.code for notice in of(found, events.Notice) if notice.level == "warning"] == ["no_correction"]
    assert {warning.kind for warning in result.warnings} == {"claude_code.schema_not_satisfied", "no_correction"}
    assert result.schema_error == "the answer holds no JSON value"


async def test_an_agent_that_leaves_before_its_agents_report_is_judged_by_what_it_said(stage: Stage) -> None:
    steps = [*OPEN, AGENT_OPEN, {"result": {"result": "wait"}}, {"exit": 0}]
    found, result = await stage.play(steps, persist_session=False)
    assert [(checked.valid, checked.retrying) for checked in of(found, events.OutputChecked)] == [(False, False)]
    assert (result.outcome, result.text) == ("degraded", "wait")


async def test_an_agent_that_is_gone_is_corrected_in_its_session(stage: Stage) -> None:
    """Another process, the same session; the first one's usage is among the retries."""
    then = [*OPEN, {"result": {"result": "", "structured_output": {"n": 3}}}, {"await_eof": True}]
    found, result = await stage.play(
        [*OPEN, {"result": {"result": "no number"}}, {"exit": 0}], then=then, sandbox="off"
    )
    assert (result.outcome, result.output, result.corrections) == ("succeeded", {"n": 3}, 1)
    assert result.attempts == 2
    assert [started.origin for started in of(found, events.SessionStarted)] == ["new", "rebuilt"]
    assert len({started.session_id for started in of(found, events.SessionStarted)}) == 1


async def test_an_agent_that_always_leaves_is_asked_as_often_as_allowed(stage: Stage) -> None:
    steps = [*OPEN, {"result": {"result": "no number"}}, {"exit": 0}]
    found, result = await stage.play(steps, schema_retries=2, sandbox="off")
    assert (result.outcome, result.attempts, result.output) == ("degraded", 3, None)
    assert len(of(found, events.OutputChecked)) == 3
    assert "claude_code.schema_not_satisfied_after_retries" in {warning.kind for warning in result.warnings}


async def test_an_error_beside_the_output_degrades_and_keeps_it(stage: Stage) -> None:
    told = {"is_error": True, "subtype": "error_during_execution", "errors": ["a hook failed"]}
    _, result = await stage.play([*OPEN, {"result": {**told, "structured_output": {"n": 3}}}, {"exit": 1}])
    assert (result.outcome, result.output) == ("degraded", {"n": 3})
    assert [warning.kind for warning in result.warnings] == ["claude_code.sdk_error_with_structured_output"]
    assert result.schema_error is not None
    assert "a hook failed" in result.schema_error


async def test_an_error_without_output_is_a_failure(stage: Stage) -> None:
    told = {"is_error": True, "subtype": "error_during_execution", "errors": ["a hook failed"]}
    found, result = await stage.play([*OPEN, {"result": told}, {"exit": 1}])
    assert result.outcome == "failed"
    assert not of(found, events.OutputChecked)


async def test_a_stop_during_a_corrective_turn_is_a_stop(stage: Stage) -> None:
    async def stop(run: Any, event: events.Event) -> None:
        if isinstance(event, events.TurnStarted) and event.turn == 2:
            await run.stop("enough")

    steps = [*OPEN, {"result": {"result": "no number"}}, {"await_user": True}, {"init": True}, {"hang": True}]
    _, result = await stage.play(steps, on=stop)
    assert (result.outcome, result.corrections) == ("stopped", 1)


async def test_a_correction_outlives_a_pause_and_goes_before_the_next_prompt(stage: Stage) -> None:
    go_on = stage.folder / "ws" / "go-on"

    async def hold(run: Any, event: events.Event) -> None:
        if isinstance(event, events.TurnStarted) and event.turn == 1:
            run.pause()
            go_on.touch()
        elif isinstance(event, events.OutputChecked) and event.retrying:
            await run.send("and the next?")
            run.unpause()

    answers = [({"await_user": True}, {"init": True}, {"result": {"structured_output": {"n": n}}}) for n in (3, 4)]
    steps = [*OPEN, {"await_file": str(go_on)}, {"result": {"result": "no number"}}, *answers[0], *answers[1]]
    found, result = await stage.play([*steps, {"await_eof": True}], on=hold)
    assert [checked.correction for checked in of(found, events.OutputChecked)] == [0, 1, 0]
    assert (result.outcome, result.output) == ("succeeded", {"n": 4})


async def test_a_command_of_the_agent_itself_is_no_answer(stage: Stage) -> None:
    steps = [*OPEN, {"result": {"result": "", "num_turns": 0}}, {"exit": 0}]
    found, _ = await stage.play(steps)
    assert not of(found, events.OutputChecked)


async def test_a_large_answer_passes(stage: Stage) -> None:
    value = {"n": 1, "rows": [{"id": number, "text": "x" * 40} for number in range(20_000)]}
    _, result = await stage.play([*OPEN, {"result": {"structured_output": value}}, {"await_eof": True}])
    assert result.output == value


async def test_what_a_failed_attempt_has_used_stands_beside_the_final_one(stage: Stage) -> None:
    delta = {"type": "stream_event", "event": {"type": "message_delta", "usage": {"output_tokens": 9}}}
    start = {
        "type": "stream_event",
        "event": {
            "type": "message_start",
            "message": {"id": "m1", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 50, "output_tokens": 1}},
        },
    }
    usage = {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 3}
    # The first process dies in its turn; the second finds another script.
    stop = {"type": "stream_event", "event": {"type": "message_stop"}}
    first = [*OPEN, {"lines": [start, delta, stop]}, {"die": 9}]
    second = [
        *OPEN, {"result": {"structured_output": {"n": 1}, "usage": usage, "total_cost_usd": 0.25, "duration_ms": 70}},
        {"await_eof": True},
    ]  # fmt: skip

    async def change(run: Any, event: events.Event) -> None:
        if isinstance(event, events.RetryScheduled):
            write_executable(stage.folder / "claude", {"version": VERSION, "steps": second})

    _, result = await stage.play(first, on=change, attempts=2)
    assert result.outcome == "succeeded"
    assert result.llm_usage is not None
    assert result.totals is not None
    (failed,) = result.llm_usage.retries
    assert (failed.input_tokens, failed.output_tokens, failed.cost_source) == (50, 9, "computed")
    assert failed.cost_usd > 0
    final = result.llm_usage
    assert (final.input_tokens, final.uncached_input_tokens, final.cache_read_input_tokens) == (10, 7, 3)
    assert (final.duration_ms, final.cost_source) == (70, "cli")
    assert result.totals.output_tokens == 11
    assert result.totals.cost_usd == pytest.approx(final.cost_usd + failed.cost_usd)
    assert result.totals.cost_usd == pytest.approx(result.cost_usd)
    assert result.totals.attempts == 2
