"""Questions, plans, interrupts, resumed and forked sessions."""

from __future__ import annotations

from typing import Any

import pytest

import leadrope
from leadrope import InlineApprover, Limits, events
from leadrope.rehearsal import ModelServer
from leadrope.runtime.run import Run

QUESTION = {
    "name": "AskUserQuestion",
    "input": {
        "questions": [
            {
                "question": "Which colour?",
                "header": "Colour",
                "multiSelect": False,
                "options": [
                    {"label": "Red", "description": "like a rose"},
                    {"label": "Blue", "description": "like the sea"},
                ],
            },
            {
                "question": "Which sizes?",
                "header": "Size",
                "multiSelect": True,
                "options": [{"label": "S", "description": "small"}, {"label": "L", "description": "large"}],
            },
        ]
    },
}


async def test_a_question_is_shown_whole_and_its_answer_reaches_the_model(stage: Any) -> None:
    async def on(run: Run, event: events.Event) -> None:
        if isinstance(event, events.QuestionRequested):
            assert run.answer(event.question_id, {"Which colour?": "Blue", "Which sizes?": "S, L"})
            assert not run.answer(event.question_id, {"Which colour?": "Red"}), "the first answer counts"

    played = await stage.play(
        [{"tool": QUESTION}, {"text": "thanks", "expect": {"tool_result": {"contains": ["Blue", "S, L"]}}}],
        approver=InlineApprover(),
        on=on,
    )
    asked = played.one(events.QuestionRequested)
    assert [q.question for q in asked.questions] == ["Which colour?", "Which sizes?"]
    assert [q.multi_select for q in asked.questions] == [False, True]
    assert asked.questions[0].options[1].description == "like the sea"
    assert played.one(events.QuestionResolved).answers["Which colour?"] == "Blue"
    assert played.result.outcome == "succeeded"


async def test_a_question_that_nobody_answers_is_turned_down(stage: Any) -> None:
    played = await stage.play(
        [{"tool": QUESTION}, {"text": "then not"}],
        approver=InlineApprover(),
        limits=Limits(approval_s=0.2),
    )
    resolved = played.one(events.QuestionResolved)
    assert not resolved.answered
    assert "APPROVAL_TIMEOUT" in resolved.reason
    assert played.result.outcome == "succeeded"


@pytest.mark.parametrize(
    ("tool", "mode"),
    [(QUESTION, "default"), ({"name": "ExitPlanMode", "input": {"plan": "touch"}}, "plan")],
    ids=["question", "plan"],
)
async def test_a_policy_caps_the_time_for_it(stage: Any, tool: dict[str, Any], mode: str) -> None:
    played = await stage.play(
        [{"tool": tool}, {"text": "then not"}], approver=InlineApprover(), mode=mode, policy={"max_approval_ms": 200}
    )
    resolved = played.one(events.QuestionResolved)
    assert (resolved.answered, "APPROVAL_TIMEOUT" in resolved.reason) == (False, True)
    assert played.one(events.QuestionRequested).expires_s == 0.2


async def test_a_plan_is_shown_and_approving_it_approves_nothing_else(stage: Any) -> None:
    plan = {
        "name": "ExitPlanMode",
        "input": {"plan": "1. touch the marker", "allowedPrompts": [{"tool": "Bash", "prompt": "make markers"}]},
    }
    asked: list[str] = []

    async def on(run: Run, event: events.Event) -> None:
        if isinstance(event, events.QuestionRequested):
            run.answer(event.question_id)
        if isinstance(event, events.ApprovalRequested):
            asked.append(event.call.name)
            run.deny(event.approval_id, "not yet")

    write = {"name": "Write", "input": {"file_path": str(stage.ws / "written"), "content": "x"}}
    played = await stage.play(
        [
            {"tools": [stage.touch, write]},
            {"tool": plan},
            {"tool": stage.touch},
            {"tool": write},
            {"text": "done"},
        ],
        approver=InlineApprover(),
        on=on,
        mode="plan",
    )
    shown = played.one(events.QuestionRequested)
    assert shown.kind == "plan"
    assert shown.plan == "1. touch the marker"
    assert shown.allowed_prompts == ("Bash: make markers",)
    assert asked == ["Bash", "Write"], "before the plan the mode denied; after it each call is asked for"
    assert not stage.marker.exists()
    assert not (stage.ws / "written").exists()
    for name in asked:
        assert [d.by for d in played.of(events.ToolDecided) if d.call.name == name] == ["policy", "user"]


async def test_a_rejected_plan_keeps_the_mode(stage: Any) -> None:
    async def on(run: Run, event: events.Event) -> None:
        if isinstance(event, events.QuestionRequested):
            run.answer(event.question_id, reject=True, reason="think again")

    played = await stage.play(
        [
            {"tool": {"name": "ExitPlanMode", "input": {"plan": "touch"}}},
            {"tool": stage.touch, "expect": {"tool_result": {"contains": "think again"}}},
            {"text": "ok"},
        ],
        approver=InlineApprover(),
        on=on,
        mode="plan",
    )
    assert played.of(events.ApprovalRequested) == []
    assert not stage.marker.exists()


async def test_interrupt_ends_the_turn_and_keeps_the_process(stage: Any) -> None:
    slow = {"name": "Bash", "input": {"command": f"touch {stage.marker}; tail -f /dev/null", "description": "wait"}}
    interrupted = False

    async def on(run: Run, event: events.Event) -> None:
        nonlocal interrupted
        if isinstance(event, events.ToolDecided) and not interrupted:
            interrupted = True
            await run.interrupt()
            await run.send("go on")
        if isinstance(event, events.TurnEnded) and event.turn == 2:
            run.finish()

    played = await stage.play([{"tool": slow}, {"text": "still alive"}], approver=lambda _: True, on=on, keep_open=True)
    assert [t.is_error for t in played.of(events.TurnEnded)] == [True, False]
    assert played.result.outcome == "succeeded"
    assert played.result.text == "still alive"


async def test_an_interrupted_last_turn_is_stopped(stage: Any) -> None:
    async def on(run: Run, event: events.Event) -> None:
        if isinstance(event, events.MessageDelta):
            await run.interrupt()

    played = await stage.play([{"text": "half", "hang": "mid_stream"}], on=on)
    assert played.result.outcome == "stopped"


async def test_two_prompts_one_process(stage: Any) -> None:
    async def on(run: Run, event: events.Event) -> None:
        if isinstance(event, events.TurnStarted) and event.turn == 1:
            await run.send("and then?")

    played = await stage.play(
        [{"text": "first"}, {"text": "second", "expect": {"contains": ["go", "and then?"]}}], on=on
    )
    assert [t.text for t in played.of(events.TurnEnded)] == ["first", "second"]
    assert played.result.text == "second"
    assert len(played.of(events.SessionStarted)) == 1


async def test_resume_and_fork(stage: Any) -> None:
    first = await stage.play([{"text": "my number is 42"}], prompt="remember")
    session = first.result.session_id
    second = await stage.play(
        [{"text": "it was 42", "expect": {"contains": ["my number is 42", "what was it?"]}}],
        prompt="what was it?",
        resume=session,
    )
    assert second.result.session_id == session
    assert second.one(events.SessionStarted).origin == "resumed"
    fork = await stage.play(
        [{"text": "forked", "expect": {"contains": ["my number is 42", "it was 42"]}}],
        prompt="branch off",
        resume=session,
        fork=True,
    )
    assert fork.result.session_id != session
    third = await stage.play([{"text": "again", "expect": {"lacks": "branch off"}}], prompt="once more", resume=session)
    assert third.result.outcome == "succeeded"
    again = await stage.play(
        [{"text": "deep", "expect": {"contains": "branch off"}}], prompt="deeper", resume=fork.result.session_id
    )
    assert again.result.outcome == "succeeded"


async def test_a_slash_or_an_at_sign_in_a_prompt_is_only_text(stage: Any) -> None:
    """Taken as commands they would act past the gate."""
    (stage.ws / "secret.txt").write_text("hidden content")
    for prompt in ("/clear", "look at @secret.txt"):
        played = await stage.play(
            [{"text": "seen", "expect": {"contains": prompt, "lacks": "hidden content"}}], prompt=prompt
        )
        assert played.result.text == "seen"


async def test_complete_goes_through_the_gate(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat's answer: named tools pass, all others are held, and ten turns are the limit."""
    for name, value in stage.environ.items():
        monkeypatch.setenv(name, value)
    agent = {"name": "Agent", "input": {"description": "x", "prompt": "y", "subagent_type": "general-purpose"}}
    async with ModelServer([{"tool": stage.touch}, {"tool": agent}, {"text": "hello"}]) as model:
        request = stage.request(model)
        done = await leadrope.complete(
            leadrope.Context(message="hi", system_prompt="Be kind."),
            cwd=request.cwd,
            base_url=model.url,
            credential=request.credential,
        )
    assert (done.text, done.provider) == ("hello", "claude-code")
    assert done.tokens == 330
    assert stage.marker.exists()
    assert model.requests[2].tool_results[0].is_error
    assert "Be kind." in model.requests[0].text
