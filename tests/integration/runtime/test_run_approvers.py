"""Approvers that are plain functions of a program: slow, broken, and still asked when the run ends."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leadrope import Answer, events
from leadrope.runtime.gate.approvers import as_approver

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


def steps(stage: Stage) -> list[dict[str, Any]]:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "touch": str(stage.marker)}
    return [*OPEN, {"call": call}, {"text": "ok"}, *CLOSE]


async def test_a_sync_approver_that_waits_holds_nothing_else(stage: Stage) -> None:
    """It waits for the loop itself to go on: on the loop's own thread it would wait for ever."""
    went_on = threading.Event()

    def approver(asked: events.ApprovalRequested) -> bool:
        return went_on.wait(30) and threading.current_thread() is not threading.main_thread()

    async with stage.open(steps(stage), approver=approver) as run:
        async for recorded in run:
            if isinstance(recorded.event, events.ApprovalRequested):
                asyncio.get_running_loop().call_soon(went_on.set)
        result = await run.result()
    assert result.outcome == "succeeded"
    assert stage.marker.exists()


async def test_a_sync_approver_sees_the_context_of_its_program(stage: Stage) -> None:
    WHO.set("the program")
    found, _ = await stage.play(steps(stage), approver=lambda _: Answer(approved=False, reason=f"asked by {WHO.get()}"))
    (denied,) = [event for event in found if isinstance(event, events.ToolDecided)]
    assert denied.reason == "asked by the program"


async def test_a_run_that_is_stopped_does_not_wait_for_its_approver(stage: Stage) -> None:
    """And the thread is gone when the function returns; the fixture of all tests looks for it."""
    release, asked_at = threading.Event(), []

    def approver(asked: events.ApprovalRequested) -> bool:
        asked_at.append(threading.current_thread())
        return release.wait(30)

    async with stage.open(steps(stage), approver=approver) as run:
        async for recorded in run:
            if isinstance(recorded.event, events.ApprovalRequested):
                break
        began = time.monotonic()
        result = await run.stop("enough")
        took = time.monotonic() - began
    assert result.outcome == "stopped"
    assert took < 10
    assert not stage.marker.exists()
    assert all(thread.daemon for thread in asked_at)
    release.set()


async def test_an_approver_that_raises_is_logged_and_named(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def approver(asked: events.ApprovalRequested) -> bool:
        raise KeyError("no such user")

    with caplog.at_level(logging.ERROR, "leadrope.run"):
        _, result = await stage.play(steps(stage), approver=approver)
    assert not stage.marker.exists()
    (warning,) = [one for one in result.warnings if one.kind == "approver_failed"]
    assert "KeyError('no such user')" in warning.message
    assert "Bash was denied" in warning.message
    assert "KeyError" in result.denials[0].reason
    assert result.outcome == "denied"
    assert result.error is not None
    assert result.error.hint == "Allow what the task needs with allow, tools or another mode, or ask for less."
    assert 'raise KeyError("no such user")' in caplog.text, "the traceback says where"


@pytest.mark.parametrize("given", ["yes", 1, None, [True]])
async def test_a_wrong_answer_is_named(stage: Stage, given: Any) -> None:
    _, result = await stage.play(steps(stage), approver=lambda _: given)
    assert not stage.marker.exists()
    told = f"the approver returned {given!r} ({type(given).__name__}); it must return True, False or an Answer"
    assert result.denials[0].reason == told
    assert [one.message for one in result.warnings if one.kind == "approver_failed"] == [f"{told}; Bash was denied"]


async def _yes(asked: events.ApprovalRequested) -> bool:
    return True


def _late(asked: events.ApprovalRequested) -> Any:
    return _yes(asked)


class _Object:
    async def __call__(self, asked: events.ApprovalRequested) -> Answer:
        assert threading.current_thread() is threading.main_thread()
        return Answer(approved=True)


class _SyncMethods:
    def approve(self, asked: events.ApprovalRequested) -> Answer:
        return Answer(approved=threading.current_thread() is not threading.main_thread())

    def answer(self, asked: events.QuestionRequested) -> Answer:
        return Answer(approved=False)


@pytest.mark.parametrize("approver", [_yes, _late, _Object(), _SyncMethods(), lambda _: Answer(approved=True)])
async def test_every_form_of_a_yes_is_one(stage: Stage, approver: Any) -> None:
    _, result = await stage.play(steps(stage), approver=approver)
    assert stage.marker.exists()
    assert not result.denials


async def test_an_answer_to_a_question_has_its_type_too() -> None:
    approver = as_approver(_SyncMethods())  # type: ignore[arg-type]  # sync methods are taken as well
    reply = await approver.answer(events.QuestionRequested(question_id="q", kind="question"))
    assert not reply.approved


def test_a_program_ends_while_its_approver_still_waits(tmp_path: Any) -> None:
    """An executor's thread would be waited for at the end of the interpreter."""
    import subprocess
    import sys

    code = (
        "import asyncio, time\n"
        "from leadrope.runtime.embedding import user_code\n"
        "async def main():\n"
        "    try:\n"
        "        await asyncio.wait_for(user_code.call(time.sleep, 600, name='x'), 0.2)\n"
        "    except TimeoutError:\n"
        "        print('left')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "left", "")
