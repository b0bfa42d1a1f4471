"""What the agent may do: every call is held, and runs only after a yes."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope import Answer, events


async def test_text(stage: Any) -> None:
    """A plain answer: streamed, told whole, counted once, and the credential is named but not shown."""
    played = await stage.play([{"text": "Hello there."}])
    assert played.result.outcome == "succeeded"
    assert played.result.text == "Hello there."
    assert "".join(d.text for d in played.of(events.MessageDelta)) == "Hello there."
    assert played.one(events.MessageCompleted).text == "Hello there."
    assert played.result.usage.input_tokens == 100
    assert played.result.usage.output_tokens == 10
    assert played.result.cost_usd > 0
    started = played.one(events.SessionStarted)
    assert started.session_id == played.result.session_id
    assert started.credential.billing == "api_key"
    assert "0000000000000000" not in str(played.events)
    assert started.model == played.model.requests[0].model == "claude-sonnet-5-5"


async def test_allowed_call_runs_once(stage: Any) -> None:
    asked: list[events.ApprovalRequested] = []

    def yes(request: events.ApprovalRequested) -> bool:
        assert not stage.marker.exists(), "the command ran before it was approved"
        asked.append(request)
        return True

    played = await stage.play([{"tool": stage.touch}, {"text": "done"}], approver=yes)
    assert stage.marker.exists()
    assert [a.call.name for a in asked] == ["Bash"]
    decided = played.one(events.ToolDecided)
    assert (decided.decision, decided.by) == ("allow", "program")
    assert played.one(events.ToolCompleted).is_error is False
    assert played.result.denials == ()


async def test_denied_call_never_runs(stage: Any) -> None:
    """The agent is told why, goes on, and the run succeeds with the denial listed."""
    played = await stage.play(
        [
            {"tool": stage.touch},
            {"text": "then not", "expect": {"tool_result": {"contains": "too risky", "is_error": True}}},
        ],
        approver=lambda _: Answer(approved=False, reason="too risky"),
    )
    assert not stage.marker.exists()
    assert played.result.outcome == "denied"
    assert [d.reason for d in played.result.denials] == ["too risky"]


async def test_nobody_there_is_a_no(stage: Any) -> None:
    played = await stage.play([{"tool": stage.touch}, {"text": "ok"}])
    assert not stage.marker.exists()
    assert len(played.result.denials) == 1


@pytest.mark.parametrize("mode", ["plan", "default", "edit", "full", "dontAsk"])
async def test_a_denied_call_stays_denied_in_every_mode(stage: Any, mode: str) -> None:
    """Whatever the agent itself would do in that mode: in `full` it would run everything."""
    played = await stage.play(
        [{"tool": stage.touch}, {"text": "ok", "expect": {"tool_result": {"is_error": True}}}],
        approver=lambda _: True,
        mode=mode,
        tools=("Read",),
    )
    assert not stage.marker.exists()
    assert [d.call.name for d in played.result.denials] == ["Bash"]
    assert played.one(events.ToolDecided).rule == "tools"


@pytest.mark.parametrize("mode", ["plan", "default", "edit", "dontAsk"])
async def test_a_mode_that_does_not_allow_commands_runs_none(stage: Any, mode: str) -> None:
    played = await stage.play([{"tool": stage.touch}, {"text": "ok"}], approver=lambda _: False, mode=mode)
    assert not stage.marker.exists()
    assert played.one(events.ToolDecided).rule == f"mode:{mode}"


async def test_full_mode_runs_without_asking(stage: Any) -> None:
    played = await stage.play([{"tool": stage.touch}, {"text": "ok"}], mode="full")
    assert stage.marker.exists()
    assert played.of(events.ApprovalRequested) == []
    assert played.one(events.ToolDecided).rule == "mode:full"


async def test_edited_call_runs_the_edit(stage: Any) -> None:
    other = stage.ws / "other"
    edited = {"command": f"touch {other}", "description": "make another"}
    played = await stage.play(
        [{"tool": stage.touch}, {"text": "ok"}], approver=lambda _: Answer(approved=True, edited=edited)
    )
    assert other.exists()
    assert not stage.marker.exists()
    assert played.one(events.ToolDecided).edited == edited


async def test_edit_of_a_file(stage: Any) -> None:
    """Read and Edit inside the workspace pass in mode edit; a write outside of it is asked for."""
    file = stage.ws / "a.txt"
    file.write_text("old text\n")
    outside = stage.home / "b.txt"
    played = await stage.play(
        [
            {"tool": {"name": "Read", "input": {"file_path": str(file)}}},
            {"tool": {"name": "Edit", "input": {"file_path": str(file), "old_string": "old", "new_string": "new"}}},
            {"tool": {"name": "Write", "input": {"file_path": str(outside), "content": "x"}}},
            {"text": "done"},
        ],
        mode="edit",
    )
    assert file.read_text() == "new text\n"
    assert not outside.exists()
    assert [d.decision for d in played.of(events.ToolDecided)] == ["allow", "allow", "deny"]


async def test_a_call_that_the_agent_checks_again_is_answered_from_the_first_decision(stage: Any) -> None:
    """The CLI has safety checks of its own (rm -rf, .git/hooks); our yes and our no hold for them too."""
    target = stage.ws / "old"
    target.mkdir()
    hook = stage.ws / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(parents=True)
    played = await stage.play(
        [
            {"tool": {"name": "Bash", "input": {"command": f"rm -rf {target}", "description": "clean"}}},
            {"tool": {"name": "Write", "input": {"file_path": str(hook), "content": "#!/bin/sh\n"}}},
            {"text": "done"},
        ],
        approver=lambda _: True,
        sandbox="off",  # behind them a repository's hooks are read-only, whoever says yes
    )
    assert not target.exists()
    assert hook.exists()
    assert len(played.of(events.ApprovalRequested)) == 2


async def test_a_subagents_call_is_held(stage: Any) -> None:
    agent = {"name": "Agent", "input": {"description": "sub", "prompt": "do it", "subagent_type": "general-purpose"}}
    script = {
        "turns": [{"tool": agent}, {"text": "parent done"}, {"text": "noted", "optional": True}],
        "subagents": [[{"tool": stage.touch}, {"text": "sub done"}]],
    }

    def only_agents(asked: events.ApprovalRequested) -> bool:
        return asked.call.name == "Agent"

    played = await stage.play(script, approver=only_agents)
    assert not stage.marker.exists()
    decided = {d.call.name: d for d in played.of(events.ToolDecided)}
    assert decided["Bash"].decision == "deny"
    assert decided["Bash"].call.agent_id
    assert played.of(events.SubagentStarted)
    assert played.of(events.SubagentEnded)
    assert played.result.outcome == "denied"


async def test_calls_of_one_message_are_kept_apart(stage: Any) -> None:
    """Several calls at once: each has its own answer, whatever the order of the answers."""
    calls = [{"name": "Bash", "input": {"command": f"touch {stage.ws}/m{n}", "description": "m"}} for n in range(3)]
    played = await stage.play(
        [{"tools": calls}, {"text": "done"}], approver=lambda asked: "m1" in asked.call.input["command"]
    )
    assert sorted(p.name for p in stage.ws.iterdir()) == ["m1"]
    assert sorted(d.decision for d in played.of(events.ToolDecided)) == ["allow", "deny", "deny"]


async def test_thinking_is_told_apart_from_text(stage: Any) -> None:
    played = await stage.play([{"thinking": "let me see", "text": "the answer"}], max_thinking_tokens=2000)
    assert played.one(events.ThinkingCompleted).text == "let me see"
    assert played.result.text == "the answer"
    assert "".join(piece.text for piece in played.of(events.ThinkingDelta)) == "let me see"
    assert "".join(piece.text for piece in played.of(events.MessageDelta)) == "the answer"
