"""Runs of a scripted agent: a real process that says exactly what a test needs to hear."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from leadrope import Answer, Caller, Desk, Limits, Recorded, RunRequest, RunResult, Secret, errors, events, open_run
from leadrope.core.fold import fold
from leadrope.process import sandbox_trial
from leadrope.rehearsal import write_executable
from leadrope.runtime.run import Run

KEY = "sk-ant-rehearsal-0000000000000000"
OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


class Stage:
    def __init__(self, folder: Path) -> None:
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.marker = folder / "marker"
        self.claude = folder / "claude"
        self.stdin = folder / "stdin.jsonl"
        self.started = folder / "started.jsonl"
        self.answers: dict[str, Any] = {}
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "home"),
            "LEADROPE_CLAUDE_BIN": str(self.claude),
        }

    def request(self, **fields: Any) -> RunRequest:
        given: dict[str, Any] = {"prompt": "go", "cwd": str(self.ws), "credential": Secret(KEY), "attempts": 1}
        # The stand-in writes down what it is told beside its workspace, where walls would keep it from writing.
        return RunRequest(**(given | {"walls": "off"} | fields))

    def open(self, steps: list[Any], *, approver: Any = None, version: str = "2.1.325", **fields: Any) -> Run:
        script = {
            "version": f"{version} (Claude Code)",
            "stdin_file": str(self.stdin),
            "start_file": str(self.started),
            "answers": self.answers,
            "steps": steps,
        }
        write_executable(self.claude, script)
        return open_run(self.request(**fields), approver=approver, environ=self.environ)

    async def play(self, steps: list[Any], **fields: Any) -> tuple[list[events.Event], RunResult]:
        recorded: list[Recorded] = []
        async with self.open(steps, **fields) as run:
            recorded.extend([item async for item in run])
            result = await run.result()
        assert [r.seq for r in recorded] == list(range(1, len(recorded) + 1))
        assert fold(recorded[:-1]) == result
        return [r.event for r in recorded], result

    def said(self) -> list[Any]:
        return [json.loads(line) for line in self.stdin.read_text().splitlines()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def of(found: list[events.Event], kind: type) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


# -- the gate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [{"hooks_applied": False}, {"hook_on_failure_supported": False}, {"error": "no"}])
async def test_an_agent_without_a_gate_gets_no_prompt(stage: Stage, answer: Any) -> None:
    _, result = await stage.play([{"initialize": answer}, *OPEN[1:], *CLOSE])
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.kind == "gate_unsupported"
    assert [m["type"] for m in stage.said()] == ["control_request"], "only the opening was said"


async def test_a_result_without_a_decision_ends_the_run(stage: Stage) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "gate": False, "touch": str(stage.marker)}
    found, result = await stage.play([*OPEN, {"call": call}, {"hang": True}], mode="full")
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.kind == "gate_bypassed"
    assert "t1" in result.error.message
    assert len(of(found, events.RunEnding)) == 1


async def test_a_denied_call_that_has_a_good_result_ends_the_run(stage: Stage) -> None:
    denied = {
        "hook": {"tool": "Bash", "id": "t1", "input": {}, "if_denied": [{"tool_result": {"id": "t1", "text": "ran"}}]}
    }
    _, result = await stage.play([*OPEN, denied, {"hang": True}])
    assert result.error is not None
    assert result.error.kind == "gate_bypassed"


async def test_calls_that_the_agent_rejects_itself_are_no_bypass(stage: Stage) -> None:
    text = "<tool_use_error>InputValidationError: no such field</tool_use_error>"
    rejected = {"tool_result": {"id": "t1", "text": text, "is_error": True}}
    _, result = await stage.play([*OPEN, {"tool_use": {"tool": "Bash", "id": "t1"}}, rejected, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"


async def test_calls_outstanding_together_get_their_own_answers(stage: Stage) -> None:
    """Answered in reverse order, by request and not by turn."""
    calls = [{"tool": "Bash", "id": f"t{n}", "input": {"command": str(n)}, "result": f"r{n}"} for n in range(4)]
    waiting: list[str] = []
    async with stage.open([*OPEN, {"calls": calls}, {"text": "ok"}, *CLOSE], approver=Caller()) as run:
        found = []
        async for item in run:
            found.append(item.event)
            if isinstance(item.event, events.ApprovalRequested):
                waiting.append(item.event.approval_id)
                if len(waiting) == 4:
                    for n, approval in reversed(list(enumerate(waiting))):
                        assert run.approve(approval) if n % 2 else run.deny(approval, "odd ones only")
        result = await run.result()
    decided = {d.call.id: d.decision for d in of(found, events.ToolDecided)}
    assert decided == {"t0": "deny", "t1": "allow", "t2": "deny", "t3": "allow"}
    assert {c.call_id: c.is_error for c in of(found, events.ToolCompleted)} == {
        "t0": True,
        "t1": False,
        "t2": True,
        "t3": False,
    }
    assert result.outcome == "succeeded"


async def test_the_second_question_is_answered_from_the_first_decision(stage: Stage) -> None:
    """Same call id: our decision. Another input under the same id: judged anew."""
    steps = [
        {"hook": {"tool": "Bash", "id": "t1", "input": {"command": "a"}}},
        {"ask": {"tool": "Bash", "id": "t1", "input": {"command": "a"}, "if_denied": [{"exit": 9}]}},
        {"ask": {"tool": "Bash", "id": "t1", "input": {"command": "b"}, "if_allowed": [{"exit": 8}]}},
        {"ask": {"tool": "Bash", "id": "t2", "input": {"command": "c"}, "if_allowed": [{"exit": 7}]}},
    ]
    asked: list[str] = []

    def approve(request: events.ApprovalRequested) -> bool:
        asked.append(request.call.input["command"])
        return bool(request.call.input["command"] == "a")

    _, result = await stage.play([*OPEN, *steps, {"text": "ok"}, *CLOSE], approver=approve)
    assert result.outcome == "succeeded"
    assert asked == ["a", "b", "c"]


async def test_a_withdrawn_request_is_not_answered(stage: Stage) -> None:
    steps = [
        {"hook": {"tool": "Bash", "id": "t1", "input": {}, "request_id": "r1", "wait": False}},
        {"line": {"type": "control_cancel_request", "request_id": "r1"}},
        {"text": "never mind"},
    ]
    found, result = await stage.play([*OPEN, *steps, *CLOSE], approver=Caller())
    assert result.outcome == "succeeded"
    assert [(r.approved, r.by) for r in of(found, events.ApprovalResolved)] == [(False, "supervisor")]


@pytest.mark.parametrize(
    ("approver", "by", "why"),
    [
        (Caller(), "timeout", "APPROVAL_TIMEOUT"),
        (lambda _: 1 / 0, "supervisor", "ZeroDivisionError"),
        (lambda _: "yes", "person", "said no"),
        (lambda _: None, "person", "said no"),
    ],
)
async def test_whatever_is_no_clear_yes_is_a_no(stage: Stage, approver: Any, by: str, why: str) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "touch": str(stage.marker)}
    found, _ = await stage.play(
        [*OPEN, {"call": call}, {"text": "ok"}, *CLOSE], approver=approver, limits=Limits(approval_s=0.2)
    )
    decided = of(found, events.ToolDecided)[0]
    assert (decided.decision, decided.by) == ("deny", by)
    assert why in decided.reason
    assert not stage.marker.exists()


async def test_an_edited_approval_is_told_and_recorded(stage: Stage) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}}
    found, _ = await stage.play(
        [*OPEN, {"call": call}, {"text": "ok"}, *CLOSE],
        approver=lambda _: Answer(approved=True, edited={"command": "y"}),
    )
    assert of(found, events.ToolDecided)[0].edited == {"command": "y"}
    answer = stage.said()[2]["response"]["response"]["hookSpecificOutput"]
    assert answer["updatedInput"] == {"command": "y"}


def same_call(number: int, command: str = "x", **more: Any) -> dict[str, Any]:
    return {"call": {"tool": "Bash", "id": f"t{number}", "input": {"command": command, **more}}}


async def test_an_approval_for_the_run_covers_the_same_command_and_no_other(stage: Stage) -> None:
    asked: list[str] = []

    def approve(request: events.ApprovalRequested) -> Answer:
        asked.append(request.call.input["command"])
        return Answer(approved=request.call.input["command"] == "x", scope="run")

    steps = [same_call(1), same_call(2, description="again"), same_call(3, "x; y"), same_call(4, timeout=5)]
    found, _ = await stage.play([*OPEN, *steps, {"text": "ok"}, *CLOSE], approver=approve)
    assert asked == ["x", "x; y", "x"], "another text and another setting are other calls"
    assert [d.rule for d in of(found, events.ToolDecided)] == [
        "mode:default",
        "approval",
        "mode:default",
        "mode:default",
    ]


async def test_an_approval_for_one_call_is_not_used_for_another(stage: Stage) -> None:
    prints: list[str] = []

    def approve(request: events.ApprovalRequested) -> Answer:
        prints.append(request.fingerprint)
        return Answer(approved=True, fingerprint=prints[0])

    found, _ = await stage.play([*OPEN, same_call(1), same_call(2, "y"), {"text": "ok"}, *CLOSE], approver=approve)
    assert [d.decision for d in of(found, events.ToolDecided)] == ["allow", "deny"]
    assert "another call" in of(found, events.ToolDecided)[1].reason


async def test_a_desk_holds_the_requests_of_many_runs(stage: Stage) -> None:
    """Each is answered once, by whoever comes first, and an answer for another call is not taken."""
    desk = Desk()
    async with stage.open([*OPEN, same_call(1), {"text": "ok"}, *CLOSE], approver=desk.for_run("one")) as run:
        found = []
        async for item in run:
            found.append(item.event)
            if isinstance(item.event, events.ApprovalRequested):
                while not desk.pending():  # noqa: ASYNC110  # it comes to the desk in the loop's next round
                    await asyncio.sleep(0)
                (waiting,) = desk.pending()
                assert waiting.run_id == "one"
                assert isinstance(waiting.asked, events.ApprovalRequested)
                name = waiting.asked.approval_id
                assert not desk.answer("two", name, Answer(approved=True))
                assert not desk.answer("one", name, Answer(approved=True, fingerprint="of another call"))
                assert desk.answer("one", name, Answer(approved=True, fingerprint=waiting.asked.fingerprint))
                assert not desk.answer("one", name, Answer(approved=False)), "the first answer counts"
    assert [d.decision for d in of(found, events.ToolDecided)] == ["allow"]
    assert desk.pending() == ()


async def test_requests_that_nobody_can_serve_are_refused(stage: Stage) -> None:
    unknown = {"type": "control_request", "request_id": "r9", "request": {"subtype": "from_the_future"}}
    _, result = await stage.play([*OPEN, {"line": unknown}, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"
    assert [m["response"]["subtype"] for m in stage.said() if m["type"] == "control_response"] == ["error"]


# -- versions --------------------------------------------------------------------------------------------------------


def unknown_version(**answer: Any) -> dict[str, Any]:
    return {"initialize": {"answer": {"claude_code_version": "9.9.9", **answer}}}


async def test_an_untested_version_whose_gate_leaks_is_not_used(stage: Stage) -> None:
    """The trial sees that the denied command's mark is there: no prompt of the user is ever sent."""
    steps = [unknown_version(), *OPEN[1:], {"call": {"tool": "Bash", "id": "t", "gate": False}}, *CLOSE]
    found, result = await stage.play(steps)
    assert result.error is not None
    assert result.error.kind == "gate_unsupported"
    assert [n.code for n in of(found, events.Notice)] == ["untested_version"]


async def test_an_untested_version_is_tried_once_and_then_used(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    # The trial is a run of its own, and the stand-in must be able to write down its start there too.
    monkeypatch.setattr(sandbox_trial, "_known", sandbox_trial.Availability(ok=False, reason="not here"))
    call = {"tool": "Bash", "id": "t", "input": {"command": "x"}}
    steps = [unknown_version(), *OPEN[1:], {"call": call}, {"text": "ok"}, *CLOSE]
    for _ in range(2):
        found, result = await stage.play(steps)
        assert result.outcome == "succeeded"
        assert [n.code for n in of(found, events.Notice)] == ["untested_version"]
    starts = stage.started.read_text().splitlines()
    assert len(starts) == 3, "the run, its trial, and the second run without one"


# -- lines -----------------------------------------------------------------------------------------------------------


async def test_lines_that_are_not_understood_are_kept_and_the_run_goes_on(stage: Stage) -> None:
    steps = [{"lines": ["no JSON", {"type": "from_the_future"}, "[1, 2]"]}, {"raw": b"\xff\xfe broken \n"}]
    found, result = await stage.play([*OPEN, *steps, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"
    assert len(of(found, events.Unrecognised)) == 4


async def test_a_line_too_long_is_spooled_and_the_run_goes_on(stage: Stage) -> None:
    size = 65 * 1024 * 1024
    found, result = await stage.play([*OPEN, {"flood": {"lines": 1, "size": size}}, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"
    told = of(found, events.Unrecognised)
    assert [(t.reason, t.size) for t in told] == [("line_too_long", size - 1)] or told[0].size >= size - 1
    path = Path(told[0].path)
    assert path.stat().st_size == told[0].size
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Not logged in · Please run /login", "not_authenticated"),
        ("API Error: 401 invalid x-api-key", "not_authenticated"),
        ("--dangerously-skip-permissions cannot be used with root/sudo privileges", "spawn_failed"),
    ],
)
@pytest.mark.parametrize("where", ["line", "stderr"])
async def test_plain_text_that_explains_gives_the_same_kind_as_the_event_would(
    stage: Stage, where: str, text: str, kind: str
) -> None:
    _, result = await stage.play([{where: f"{text}\n" if where == "stderr" else text}, {"exit": 1}])
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.kind == kind


async def test_a_failed_run_logs_one_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="leadrope.run"):
        await stage.play([{"line": f"what is {KEY}"}, {"stderr": "bad things\n"}, {"exit": 3}], prompt="12345")
    (line,) = [record.getMessage() for record in caplog.records]
    for part in ("exit=3", "mode=default", "prompt=5", "text=0", "bad things", "unrecognised:1", "what is"):
        assert part in line
    assert KEY not in line


async def test_tracing_shows_each_line_and_masks_the_credential(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.environ["LEADROPE_DEBUG_SPAWN"] = "true"
    with caplog.at_level(logging.INFO, logger="leadrope.spawn"):
        await stage.play([*OPEN, {"text": f"your key is {KEY}"}, *CLOSE])
    text = caplog.text
    assert "--permission-prompt-tool" in text
    assert "your key is [redacted]" in text
    assert KEY not in text
    assert "given with the request" in text


# -- clocks and endings ------------------------------------------------------------------------------------------------


async def test_an_agent_that_never_speaks_ends_by_the_start_clock(stage: Stage) -> None:
    _, result = await stage.play([{"hang": True}], limits=Limits(start_s=0.3))
    assert result.outcome == "timed_out"
    assert result.error is not None
    assert (result.error.clock, result.error.code) == ("start", "TIMEOUT_ERROR")


async def test_heartbeats_do_not_reset_the_idle_clock(stage: Stage) -> None:
    beat = {"type": "tool_progress", "tool_use_id": "t1", "tool_name": "Bash", "elapsed_time_seconds": 1}
    steps = [{"repeat": {"times": 1000, "steps": [{"line": beat}, {"pause_ms": 20}]}}]
    found, result = await stage.play([*OPEN, *steps], limits=Limits(idle_s=0.5))
    assert result.error is not None
    assert result.error.clock == "idle"
    assert of(found, events.ToolProgress)


async def test_the_idle_clock_stands_still_while_a_person_is_asked(stage: Stage) -> None:
    async def slow(_: events.ApprovalRequested) -> bool:
        await asyncio.sleep(0.6)  # twice the idle clock: time itself is what is tested here
        return True

    call = {"tool": "Bash", "id": "t1", "input": {}}
    _, result = await stage.play(
        [*OPEN, {"call": call}, {"text": "ok"}, *CLOSE], approver=slow, limits=Limits(idle_s=0.3)
    )
    assert result.outcome == "succeeded"


async def test_the_idle_clock_comes_from_the_environment(stage: Stage) -> None:
    stage.environ["LEADROPE_SPAWN_IDLE_TIMEOUT_MS"] = "300"
    _, result = await stage.play([*OPEN, {"hang": True}])
    assert result.error is not None
    assert result.error.message == "the agent was silent for 0.3 s"
    stage.environ["LEADROPE_SPAWN_MAX_MS"] = "200"
    stage.environ["LEADROPE_SPAWN_IDLE_TIMEOUT_MS"] = "0"
    _, result = await stage.play([*OPEN, {"hang": True}])
    assert result.error is not None
    assert result.error.clock == "wall"


async def test_an_agent_that_does_not_exit_after_its_result_is_ended_and_succeeds(stage: Stage) -> None:
    found, result = await stage.play(
        [*OPEN, {"text": "ok"}, {"result": True}, {"hang": True}], limits=Limits(exit_s=0.3)
    )
    assert result.outcome == "succeeded"
    assert of(found, events.AgentExited)[0].ended_by == "supervisor"


async def test_what_an_agent_leaves_behind_is_killed_and_counted(stage: Stage) -> None:
    steps = [{"spawn": {"kind": kind, "clear_env": True}} for kind in ("child", "setsid", "double_fork")]
    _, result = await stage.play([*OPEN, {"text": "ok"}, *steps, *CLOSE])
    assert result.outcome == "succeeded"
    assert result.leftovers_killed == 3


async def test_a_background_agent_is_awaited(stage: Stage) -> None:
    """A result is not the end: the open agent's report opens another turn, whose answer is the run's."""

    def tasks(*open_: dict[str, str]) -> dict[str, Any]:
        return {"type": "system", "subtype": "background_tasks_changed", "tasks": list(open_)}

    agent = {"task_id": "a1", "task_type": "local_agent", "description": "x"}
    steps = [
        {"line": tasks(agent)},
        {"text": "started it"},
        {"result": {"result": "started it"}},
        {"pause_ms": 300},
        {"call": {"tool": "Bash", "id": "t1", "input": {}, "agent_id": "a1", "touch": str(stage.marker)}},
        {"line": tasks()},
        {"init": True},
        {"text": "it is done"},
        {"result": {"result": "it is done", "origin": {"kind": "task-notification"}}},
        {"await_eof": True},
    ]
    _, result = await stage.play([*OPEN, *steps], approver=lambda _: True, limits=Limits(exit_s=5, idle_s=20))
    assert result.outcome == "succeeded"
    assert result.text == "it is done"
    assert stage.marker.exists(), "stdin stayed open for the agent's own calls"


async def test_a_background_agent_that_ends_without_a_word_does_not_hold_the_run(stage: Stage) -> None:
    def tasks(*open_: dict[str, str]) -> dict[str, Any]:
        return {"type": "system", "subtype": "background_tasks_changed", "tasks": list(open_)}

    steps = [
        {"line": tasks({"task_id": "a1", "task_type": "local_agent"})},
        {"text": "started it"},
        {"result": {"result": "started it"}},
        {"line": tasks()},
        {"await_eof": True},
    ]
    _, result = await stage.play([*OPEN, *steps], limits=Limits(exit_s=0.3))
    assert result.outcome == "succeeded"


async def test_a_key_that_we_did_not_give_ends_the_run(stage: Stage) -> None:
    steps = [{"initialize": True}, {"await_user": True}, {"init": {"apiKeySource": "project settings"}}, {"hang": True}]
    _, result = await stage.play(steps)
    assert result.error is not None
    assert result.error.kind == "not_authenticated"
    assert "project settings" in result.error.message


def retry(status: int) -> dict[str, Any]:
    return {"line": {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": status, "error": "x"}}


async def test_the_agents_own_login_is_used_in_place(stage: Stage) -> None:
    """Nothing to forward: no credential and no private folder, and only the second refusal ends the run."""
    steps = [{"initialize": True}, {"await_user": True}, {"init": {"apiKeySource": "none"}}]
    steps += [retry(401), {"text": "refreshed"}, retry(401), {"hang": True}]
    stage.answers = {"auth status": {"stdout": '{"loggedIn": true, "authMethod": "claude.ai"}'}}
    found, result = await stage.play(steps, credential=None)
    (start,) = [json.loads(line) for line in stage.started.read_text().splitlines()]
    assert not [name for name in start["env"] if name.startswith(("ANTHROPIC_", "CLAUDE_CONFIG", "CLAUDE_CODE_OAUTH"))]
    assert of(found, events.SessionStarted)[0].credential.kind == "own_login"
    assert [e.text for e in of(found, events.MessageCompleted)] == ["refreshed"]
    assert result.error is not None
    assert result.error.kind == "not_authenticated"


async def test_nothing_at_all_is_an_error_that_says_what_to_do(stage: Stage) -> None:
    stage.answers = {"auth status": {"stdout": '{"loggedIn": false}', "exit": 1}}
    with pytest.raises(errors.NotAuthenticated, match="claude auth login"):
        await stage.play(OPEN, credential=None)
    assert not stage.started.exists()


async def test_a_forwarded_credential_gets_no_second_chance(stage: Stage) -> None:
    _, result = await stage.play([*OPEN, retry(403), {"hang": True}])
    assert result.error is not None
    assert (result.error.kind, result.error.api_status) == ("not_authenticated", 403)


async def test_leaving_the_block_ends_the_agent(stage: Stage) -> None:
    async with stage.open([*OPEN, {"spawn": {"kind": "setsid"}}, {"text": "busy"}, {"hang": True}]) as run:
        async for item in run:
            if isinstance(item.event, events.MessageCompleted):
                break
    result = await run.result()
    assert result.outcome == "stopped"
    assert result.leftovers_killed == 1


async def test_a_stop_from_another_task_lets_the_reader_see_the_end(stage: Stage) -> None:
    async with stage.open([*OPEN, {"text": "busy"}, {"hang": True}]) as run:
        stops = []
        kinds = []
        async for item in run:
            kinds.append(type(item.event))
            if isinstance(item.event, events.MessageCompleted):
                stops.append(asyncio.create_task(run.stop("enough")))
        result = await stops[0]
    assert kinds[-3:] == [events.RunEnding, events.AgentExited, events.RunEnded]
    assert result.error is not None
    assert result.error.message == "enough"


async def test_stopping_before_the_agent_has_spoken(stage: Stage) -> None:
    async with stage.open([{"hang": True}]) as run:
        result = await run.stop()
    assert result.outcome == "stopped"


async def test_a_cancelled_task_ends_its_agent(stage: Stage) -> None:
    async def work() -> None:
        async with stage.open([*OPEN, {"touch": str(stage.marker)}, {"hang": True}]) as run:
            async for _ in run:
                pass

    task = asyncio.create_task(work())
    while not stage.marker.exists():  # noqa: ASYNC110  # the other side is another process
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_dying_agent_keeps_the_tail_of_its_stderr(stage: Stage) -> None:
    _, result = await stage.play([*OPEN, {"stderr": "first\nlast words\n"}, {"die": 11}])
    assert result.error is not None
    assert result.error.kind == "agent_died"
    assert result.error.stderr_tail == ("first", "last words")
    assert result.error.exit_code == -11


async def test_result_without_iterating_and_slow_iterating_both_work(stage: Stage) -> None:
    steps = [*OPEN, {"flood": {"lines": 20_000, "size": 1000}}, {"text": "ok"}, *CLOSE]
    async with stage.open(steps) as run:
        assert (await run.result()).outcome == "succeeded"
    count = 0
    async with stage.open(steps) as run:
        async for _ in run:
            count += 1
            if count % 1000 == 0:
                await asyncio.sleep(0.005)
    assert count > 20_000


async def test_sending_after_the_end_is_an_error(stage: Stage) -> None:
    async with stage.open([*OPEN, {"text": "ok"}, *CLOSE]) as run:
        await run.result()
        with pytest.raises(errors.RunClosed):
            await run.send("more")
        with pytest.raises(errors.EmptyPrompt):
            await run.send("  ")


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"prompt": "  \n"}, errors.EmptyPrompt, "empty"),
        ({"cwd": "/no/such/place"}, errors.BadDirectory, "does not exist"),
        ({"cwd": __file__}, errors.BadDirectory, "not a directory"),
        *[({"cwd": cwd}, errors.BadDirectory, "system") for cwd in ("/", "/etc", "/usr/lib", "/bin", "/proc/self")],
        ({"extra_dirs": ("/no/such",)}, errors.BadDirectory, "/no/such"),
        ({"max_turns": 0}, errors.BadValue, "max_turns"),
        ({"max_turns": 101}, errors.BadValue, "max_turns"),
        ({"max_thinking_tokens": 999}, errors.BadValue, "max_thinking_tokens"),
        ({"schema_retries": 6}, errors.BadValue, "schema_retries"),
        ({"limits": Limits(idle_s=-1)}, errors.BadValue, "idle_s"),
        ({"mode": "yolo"}, errors.BadValue, "yolo"),
        ({"billing": "free"}, errors.BadValue, "billing"),
        ({"provider": "nobody"}, errors.BadValue, "nobody"),
        ({"tools": "Bash"}, errors.BadValue, "tools"),
        ({"max_turns": "3"}, errors.BadValue, "max_turns"),
        ({"connections": {"x": {"nonsense": 1}}}, errors.BadValue, "connections"),
        ({"connections": {"x": {"command": "a", "url": "http://b"}}}, errors.BadValue, "connections.x"),
        *[
            ({"variables": {name: "1"}}, errors.VariableRefused, name)
            for name in ("LD_PRELOAD", "PATH", "ANTHROPIC_BASE_URL", "claude_code_simple", "DATABASE_URL", "BASH_ENV")
        ],
        ({"resume": "11111111-1111-4111-8111-111111111111"}, errors.BadValue, "resume"),
        ({"resume": "../../etc"}, errors.BadValue, "resume"),
        ({"fork": True}, errors.BadValue, "fork"),
        ({"binary": "/no/such/claude"}, errors.CliNotFound, "/no/such/claude"),
        ({"output_schema": {"type": "object"}, "max_turns": 1}, errors.BadValue, "max_turns"),
        ({"sandbox": {"enabld": True}}, errors.BadValue, "sandbox"),
        ({"policy": {"permission_mod": "plan"}}, errors.RequestError, "permission_mod"),
        ({"policy": {"max_budget_usd": -1}}, errors.RequestError, "max_budget_usd"),
        ({"policy_files": ("/no/such.toml",)}, errors.RequestError, "no/such.toml"),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_started(
    stage: Stage, fields: dict[str, Any], error: type[errors.LeadropeError], says: str
) -> None:
    run = stage.open([{"touch": str(stage.marker)}], **fields)
    with pytest.raises(error, match=says) as caught:
        async with run:
            pass
    assert not stage.started.exists()
    assert isinstance(caught.value, errors.RequestError | errors.InstallError)


def test_run_sync_from_a_plain_program(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    import leadrope

    stage.open([*OPEN, {"text": "hello"}, *CLOSE])
    for name, value in stage.environ.items():
        monkeypatch.setenv(name, value)
    result = leadrope.run_sync(prompt="go", cwd=str(stage.ws), credential=Secret(KEY))
    assert result.raise_for_outcome().text == "hello"


async def test_run_sync_in_async_code_says_what_to_do(stage: Stage) -> None:
    import leadrope

    with pytest.raises(errors.RunClosed, match="await"):
        leadrope.run_sync(prompt="x")
