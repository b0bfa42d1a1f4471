"""Hooks of a program: `before_tool` can only tighten, and what fails in any of them is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leadrope import Answer, AskFirst, DenyCall, EditCall, RunResult, ToolCall, events, open_run
from leadrope.core.events import Recorded
from leadrope.core.fold import fold

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


class Played:
    def __init__(self, recorded: list[Recorded], result: RunResult) -> None:
        self.recorded, self.result = recorded, result
        (self.decided,) = [one.event for one in recorded if isinstance(one.event, events.ToolDecided)]
        self.asked = [one.event for one in recorded if isinstance(one.event, events.ApprovalRequested)]

    def warned(self, kind: str) -> list[str]:
        return [one.message for one in self.result.warnings if one.kind == kind]


async def play(stage: Stage, *, command: str = "ls", approver: Any = None, mode: str = "full", **hooks: Any) -> Played:
    call = {"tool": "Bash", "id": "t1", "input": {"command": command}, "touch": str(stage.marker)}
    stage.open([*OPEN, {"call": call}, {"text": "ok"}, *CLOSE])
    request = stage.request(mode=mode)
    recorded = []
    async with open_run(request, approver=approver, environ=stage.environ, **hooks) as run:
        async for one in run:
            recorded.append(one)
        result = await run.result()
    assert fold(recorded[:-1]) == result
    return Played(recorded, result)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_hook_denies_what_the_mode_allows(stage: Stage, is_async: bool) -> None:
    seen: list[ToolCall] = []

    def deny(call: ToolCall) -> DenyCall:
        seen.append(call)
        return DenyCall("not on Fridays")

    async def deny_async(call: ToolCall) -> DenyCall:
        return deny(call)

    played = await play(stage, before_tool=deny_async if is_async else deny)
    assert (played.decided.decision, played.decided.rule, played.decided.reason) == (
        "deny",
        "before_tool",
        "not on Fridays",
    )
    assert [(call.name, call.input) for call in seen] == [("Bash", {"command": "ls"})]
    assert not stage.marker.exists()


async def test_a_hook_without_an_opinion_changes_nothing_and_cannot_allow(stage: Stage) -> None:
    assert (await play(stage, before_tool=lambda _: None)).decided.decision == "allow"
    denied = await play(stage, command="touch x", mode="plan", before_tool=lambda _: None)
    assert (denied.decided.decision, denied.decided.rule) == ("deny", "mode:plan")


@pytest.mark.parametrize(("says", "decision"), [(True, "allow"), (False, "deny")])
async def test_a_hook_has_a_person_asked_where_the_mode_would_not(stage: Stage, says: bool, decision: str) -> None:
    played = await play(stage, before_tool=lambda _: AskFirst("it is late"), approver=lambda _: says)
    assert [asked.reason for asked in played.asked] == ["it is late"]
    assert (played.decided.decision, played.decided.rule) == (decision, "before_tool")


async def test_where_nobody_is_asked_a_question_is_a_no(stage: Stage) -> None:
    played = await play(stage, mode="dontAsk", before_tool=lambda _: AskFirst("it is late"), approver=lambda _: True)
    assert (played.decided.decision, played.asked) == ("deny", [])


async def test_an_edit_runs_and_the_log_tells_both(stage: Stage) -> None:
    played = await play(stage, command="ls", before_tool=lambda _: EditCall({"command": "ls -la"}))
    assert played.decided.call.input == {"command": "ls"}
    assert played.decided.edited == {"command": "ls -la"}
    (answer,) = [
        told["response"]["response"]["hookSpecificOutput"] for told in stage.said() if "hookSpecificOutput" in str(told)
    ]
    assert answer["updatedInput"] == {"command": "ls -la"}


async def test_an_edit_is_judged_as_if_the_agent_had_made_it(stage: Stage) -> None:
    edit = EditCall({"command": "rm -rf /"})
    played = await play(stage, command="ls", before_tool=lambda _: edit, approver=lambda _: True)
    assert played.decided.decision == "deny"
    assert not stage.marker.exists()
    asks = await play(
        stage, command="ls", mode="default", before_tool=lambda _: EditCall({"command": "touch x"}), approver=None
    )
    assert [asked.call.input for asked in asks.asked] == [{"command": "touch x"}]
    assert asks.decided.decision == "deny"


async def test_a_persons_edit_is_shown_to_the_hook_too(stage: Stage) -> None:
    def no_make(call: ToolCall) -> DenyCall | None:
        return DenyCall("no make") if "make" in call.input["command"] else None

    def edits(asked: events.ApprovalRequested) -> Answer:
        return Answer(approved=True, edited={"command": "make all"})

    played = await play(stage, command="touch x", mode="default", before_tool=no_make, approver=edits)
    assert (played.decided.decision, played.decided.reason) == ("deny", "the edited call is forbidden: no make")


def _raises(call: ToolCall) -> None:
    raise LookupError("no such table")


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (_raises, "before_tool failed: LookupError('no such table')"),
        (lambda _: True, "before_tool returned True; it must return None"),
        (lambda _: "allow", "before_tool returned 'allow'"),
        (lambda _: EditCall("rm"), "malformed"),  # type: ignore[arg-type]  # what is refused
        (lambda _: EditCall({"command": object()}), "malformed"),
    ],
)
async def test_a_hook_that_fails_denies_the_call(
    stage: Stage, hook: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "leadrope.run"):
        played = await play(stage, before_tool=hook)
    assert played.decided.decision == "deny"
    assert words in played.decided.reason
    (told,) = played.warned("before_tool_failed")
    assert words in told
    assert "Bash was denied" in told
    assert ("no such table" in caplog.text) == (hook is _raises)
    assert not stage.marker.exists()


@pytest.mark.parametrize("is_async", [True, False])
async def test_after_a_call_its_hook_gets_the_call_and_the_result(stage: Stage, is_async: bool) -> None:
    seen = []

    def note(call: ToolCall, done: events.ToolCompleted) -> None:
        seen.append((call.input, done.call_id, threading.current_thread() is threading.main_thread()))

    async def note_async(call: ToolCall, done: events.ToolCompleted) -> None:
        note(call, done)

    await play(
        stage,
        before_tool=lambda _: EditCall({"command": "ls -la"}),
        after_tool=note_async if is_async else note,
    )
    assert seen == [({"command": "ls -la"}, "t1", is_async)]
    seen.clear()
    await play(stage, before_tool=lambda _: DenyCall("no"), after_tool=note)
    assert seen == [], "a call that was denied did not run"


async def test_failures_after_a_call_and_at_an_event_are_warnings(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR, "leadrope.run"):
        played = await play(stage, after_tool=broken, on_event=broken)
    assert played.result.outcome == "succeeded"
    assert played.warned("after_tool_failed") == ["after_tool failed for Bash: ValueError('broken')"]
    assert played.warned("on_event_failed") == ["on_event failed: ValueError('broken')"]
    assert caplog.text.count("Traceback") == 2


@pytest.mark.parametrize("is_async", [True, False])
async def test_every_event_is_shown_once_and_in_order(stage: Stage, is_async: bool) -> None:
    seen: list[Recorded] = []

    async def add(recorded: Recorded) -> None:
        await asyncio.sleep(0)
        seen.append(recorded)

    played = await play(stage, on_event=add if is_async else seen.append)
    assert seen == played.recorded
    assert isinstance(seen[-1].event, events.RunEnded)


async def test_an_observer_that_never_returns_does_not_hold_the_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadrope.runtime.journal.watcher.FINISH_S", 0.2)
    release = threading.Event()
    played = await play(stage, on_event=lambda _: release.wait(60))
    assert played.result.outcome == "succeeded"
    release.set()
