"""Functions of a program as tools of the real agent: gated as every call, and called only as they were allowed."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest

import leadrope
from leadrope import Limits, RunResult, errors, events, open_run
from leadrope.core.events import ToolCompleted
from leadrope.rehearsal import ModelServer
from leadrope.runs.service import Service

SECRET = "hunter2-hunter2"


class Calls:
    """What was called, with what."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def functions(self) -> list[Any]:
        @leadrope.tool
        def add(a: int, b: Annotated[int, "the second summand"] = 1) -> int:
            """Add two numbers."""
            self.seen.append((a, b, threading.current_thread() is threading.main_thread()))
            return a + b

        @leadrope.tool
        async def later(text: str) -> dict[str, str]:
            """Say it back, later."""
            await asyncio.sleep(0)
            self.seen.append((text, threading.current_thread() is threading.main_thread()))
            return {"said": text}

        @leadrope.tool
        def broken(why: str) -> str:
            """Always fails."""
            self.seen.append(why)
            raise ValueError(f"no way: {why} {SECRET}")

        @leadrope.tool(timeout_s=0.3)
        async def slow() -> str:
            """Takes its time."""
            self.seen.append("slow")
            await asyncio.sleep(600)
            return "never"

        @leadrope.tool
        def large(size: int) -> str:
            """A lot of text."""
            self.seen.append(size)
            return "x" * size

        return [add, later, broken, slow, large]


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"tool": {"name": f"mcp__functions__{name}", "input": given}}


async def play(
    stage: Any, script: list[Any], functions: list[Any], **fields: Any
) -> tuple[list[events.Event], RunResult, ModelServer]:
    async with ModelServer([*script, {"text": "Done."}]) as model:
        approver = fields.pop("approver", None)
        given = stage.request(model, **fields)
        async with open_run(given, functions=functions, approver=approver, environ=stage.environ) as run:
            found = [item.event async for item in run]
            return found, await run.result(), model


def results(found: list[events.Event]) -> list[ToolCompleted]:
    return [event for event in found if isinstance(event, ToolCompleted)]


async def test_what_is_allowed_is_called_and_its_result_comes_back(stage: Any) -> None:
    calls = Calls()
    script = [call("add", a=2, b=3), call("add", a=5), call("later", text="hi")]
    found, result, model = await play(
        stage, script, calls.functions(), allow=("add", "mcp__functions__later"), mode="default"
    )
    assert result.outcome == "succeeded", result
    assert [done.text for done in results(found)] == ["5", "6", '{"said":"hi"}']
    assert calls.seen == [(2, 3, False), (5, 1, False), ("hi", True)], "sync in a thread, async on the loop"
    tools = {tool["name"]: tool for tool in model.requests[0].body["tools"]}
    assert tools["mcp__functions__add"]["description"] == "Add two numbers."
    shape = tools["mcp__functions__add"]["input_schema"]
    assert shape["properties"]["b"]["description"] == "the second summand"
    assert shape["required"] == ["a"]


@pytest.mark.parametrize("mode", ["default", "plan", "edit", "dontAsk"])
async def test_handing_a_function_in_grants_nothing(stage: Any, mode: str) -> None:
    calls = Calls()
    found, result, _ = await play(stage, [call("add", a=2, b=3)], calls.functions(), mode=mode)
    assert calls.seen == []
    assert [done.is_error for done in results(found)] == [True]
    assert [denial.call.name for denial in result.denials] == ["mcp__functions__add"]


async def test_the_mode_a_person_and_the_list_decide_as_for_every_tool(stage: Any) -> None:
    calls = Calls()
    await play(stage, [call("add", a=1)], calls.functions(), mode="full", sandbox="off")
    assert calls.seen == [(1, 1, False)]
    await play(stage, [call("add", a=2)], calls.functions(), disallowed_tools=("add",), mode="full", sandbox="off")
    assert calls.seen == [(1, 1, False)]

    def edit(asked: events.ApprovalRequested) -> leadrope.Answer:
        return leadrope.Answer(approved=True, edited={"a": 40, "b": 2})

    found, _, _ = await play(stage, [call("add", a=2)], calls.functions(), approver=edit)
    assert calls.seen[1:] == [(40, 2, False)]
    assert results(found)[0].text == "42"


async def test_a_function_that_raises_is_a_tool_error_and_the_log_has_the_traceback(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    with caplog.at_level(logging.ERROR, "leadrope.run"):
        found, result, _ = await play(
            stage,
            [call("broken", why="because")],
            calls.functions(),
            allow=("broken",),
            variables={"API_PASSWORD": SECRET},
        )
    assert result.outcome == "succeeded"
    (done,) = results(found)
    assert done.is_error
    assert "broken failed: ValueError: no way: because [redacted]" in done.text
    assert "Traceback" not in done.text
    assert "raise ValueError" in caplog.text
    assert SECRET not in caplog.text


async def test_wrong_arguments_are_refused_before_the_call(stage: Any) -> None:
    calls = Calls()
    script = [call("add", a="two"), call("add", b=3), call("add", a=1, c=2)]
    found, result, _ = await play(stage, script, calls.functions(), allow=("add",))
    assert result.outcome == "succeeded"
    assert calls.seen == []
    assert all(done.is_error for done in results(found))
    told = [done.text.splitlines()[0] for done in results(found)]
    assert told == [
        "wrong arguments: a: Expected `int`, got `str`",
        "wrong arguments: a: is missing",
        "wrong arguments: c: there is no such parameter",
    ]


async def test_a_slow_function_has_a_clock(stage: Any) -> None:
    calls = Calls()
    found, result, _ = await play(stage, [call("slow")], calls.functions(), allow=("slow",))
    assert result.outcome == "succeeded"
    (done,) = results(found)
    assert done.is_error
    assert "slow took longer than 0.3 s" in done.text


async def test_a_megabyte_arrives_or_is_cut_as_the_agent_cuts_it(stage: Any) -> None:
    calls = Calls()
    found, result, _ = await play(stage, [call("large", size=1_000_000)], calls.functions(), allow=("large",))
    assert result.outcome == "succeeded", result
    (done,) = results(found)
    assert "1,000,000 characters" in done.text
    file = re.search(r"saved to (\S+\.txt)", done.text)
    assert file is not None
    assert "x" * 1_000_000 in Path(file[1]).read_text(), "the model can read it there, in parts"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_that_is_stopped_does_not_wait_for_a_function(stage: Any, is_async: bool) -> None:
    started, cancelled, release = asyncio.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def slow_async() -> None:
        """Waits."""
        started.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def slow_sync() -> None:
        """Waits."""
        loop.call_soon_threadsafe(started.set)
        release.wait(30)

    function: Any = slow_async if is_async else slow_sync
    async with ModelServer([call(function.__name__)], strict=False) as model:
        given = stage.request(model, allow=(function.__name__,))
        async with open_run(given, functions=[function], environ=stage.environ) as run:
            reading = asyncio.create_task(run.result())
            await asyncio.wait_for(started.wait(), 60)
            began = loop.time()
            result = await run.stop("enough")
            assert loop.time() - began < 15
            await reading
            for request in model.requests[1:]:
                print(request.body["messages"][-1])
    assert result.outcome == "stopped"
    assert cancelled.is_set() == is_async
    release.set()


async def test_the_tool_clock_ends_a_call_and_the_function_with_it(stage: Any) -> None:
    cancelled = asyncio.Event()

    async def slow() -> None:
        """Waits."""
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with ModelServer([call("slow"), {"text": "x", "optional": True}]) as model:
        given = stage.request(model, allow=("slow",), limits=Limits(tool_s=1))
        async with open_run(given, functions=[slow], environ=stage.environ) as run:
            result = await run.result()
    assert cancelled.is_set()
    assert any(warning.kind == "tool_timed_out" for warning in result.warnings) or result.outcome == "timed_out"


async def test_a_second_attempt_has_the_functions_too(stage: Any) -> None:
    calls = Calls()
    script = [{"error": {"status": 529}}, call("add", a=1), {"text": "Done."}]
    async with ModelServer(script) as model:
        given = stage.request(model, allow=("add",), attempts=2)
        async with open_run(given, functions=calls.functions(), environ=stage.environ) as run:
            result = await run.result()
    assert result.outcome == "succeeded", result.error
    assert calls.seen == [(1, 1, False)]


async def test_a_conversation_has_functions_in_every_turn(stage: Any) -> None:
    calls = Calls()
    script = [call("add", a=1), {"text": "One."}, call("add", a=2), {"text": "Two."}]
    async with ModelServer(script) as model:
        given = stage.request(model, allow=("add",), prompt="")
        async with leadrope.open_conversation(
            given, functions=calls.functions(), environ=stage.environ
        ) as conversation:
            first = await conversation.ask("one")
            await conversation.set_mode("edit")
            second = await conversation.ask("two")
    assert (first.text, second.text, conversation.starts) == ("One.", "Two.", 2)
    assert [a for a, _, _ in calls.seen] == [1, 2]


async def test_such_a_run_belongs_to_its_process_and_says_so(stage: Any) -> None:
    """It can be kept like every run; it cannot be handed to another process, nor started once more by one."""
    calls = Calls()
    async with ModelServer([call("add", a=1), {"text": "Done."}]) as model, Service(stage.environ) as service:
        request = stage.request(model, allow=("add",))
        for refused in (
            service.start(request, is_detached=True, functions=calls.functions()),
            service.enqueue(request, functions=calls.functions()),
        ):
            with pytest.raises(errors.BadValue, match=r"add, later.*cannot call functions of this one"):
                await refused
        job = await service.start(request, functions=calls.functions(), show=lambda _: None)
        result = await job.result()
        assert (result.outcome, calls.seen) == ("succeeded", [(1, 1, False)])
        for prompt in (None, "go on"):
            with pytest.raises(errors.WrongState, match="called functions of the program that started it"):
                await service.again(job.id, prompt=prompt)
