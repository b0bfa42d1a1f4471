"""Detached runs that wait for a person, by commands alone and with the real CLI: asked, left, answered, resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import stored
from leadrope.process import reaper
from leadrope.rehearsal import ModelServer
from leadrope.runs.records.values import Owner

T = TypeVar("T")
KEY = "sk-ant-rehearsal-0000000000000000"
DONE = {"text": "all done"}


class Terminal:
    """`leadrope …` as a user types it; each call is a process of its own."""

    def __init__(self, stage: Any, *, waiting_agent_s: float = 0.5) -> None:
        self.stage = stage
        self.ws = stage.ws
        self.home = Path(stage.environ["LEADROPE_HOME"])
        self.home.mkdir()
        (self.home / ".env").write_text(f"ANTHROPIC_API_KEY={KEY}\n")
        config = stage.home / ".config/leadrope"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(f"[service]\nidle_s = 1\nwaiting_agent_s = {waiting_agent_s}\n")

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "leadrope.cli.main", *words],
            env=self.stage.environ,
            cwd=self.ws,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    def detach(self, model: Any, *words: str) -> str:
        given = ("--base-url", model.url, "--billing", "api_key", "--attempts", "1")
        return self("run", "go", "--detach", *given, *words).strip()

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("runs", "show", run_id, "-o", "json"))
        return found

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("approvals", "list", "-o", "json").splitlines()]

    def left_alone(self, run_id: str, count: int = 1) -> list[str]:
        """The ids of what it asks, when nobody has answered for so long that its agent is gone."""
        asked = until(lambda: found if len(found := self.asked()) == count else [])
        until(lambda: not reaper.tagged(run_id))
        told = self.run(run_id)["run"]
        assert (told["state"], told.get("owner"), told.get("outcome")) == ("waiting", None, None)
        return [one["id"] for one in asked]

    def ended(self, run_id: str) -> dict[str, Any]:
        until(lambda: self.run(run_id)["run"]["state"] == "ended")
        return self.run(run_id)

    def owners(self) -> list[Owner]:
        return stored.background_owners(self.home)


def until(look: Callable[[], T]) -> T:
    give_up = time.monotonic() + 90
    while not (found := look()):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return found


@pytest.fixture
def leadrope(stage: Any, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    terminal = Terminal(stage, waiting_agent_s=getattr(request, "param", 0.5))
    yield terminal
    for owner in terminal.owners():
        os.kill(owner.pid, signal.SIGTERM)
    until(lambda: not terminal.owners())


def bash(command: str) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command, "description": "a step"}}


def agent(name: str) -> dict[str, Any]:
    task = {"description": name, "prompt": name, "subagent_type": "general-purpose", "run_in_background": False}
    return {"name": "Agent", "input": task}


def test_an_answer_after_the_agent_is_gone_is_used_for_the_same_call(leadrope: Terminal) -> None:
    """Approved, then denied: each time with nobody there, no agent and no background process."""
    touch = bash("touch made")
    script = [{"tool": touch}, {"tool": touch}, {"tool": bash("touch other")}, DONE]
    with ModelServer.in_thread(script) as model:
        run_id = leadrope.detach(model)
        (approval,) = leadrope.left_alone(run_id)
        until(lambda: not leadrope.owners())
        assert not (leadrope.ws / "made").exists()
        assert "  no limit  " in leadrope("approvals", "list").splitlines()[1]
        assert "ago, no time limit" in leadrope("runs", "list")
        leadrope("approvals", "approve", approval)
        until((leadrope.ws / "made").exists)
        (second,) = leadrope.left_alone(run_id)
        assert "waits until it is answered" in leadrope("approvals", "show", second)
        leadrope("approvals", "deny", second, "--reason", "not this one")
        told = leadrope.ended(run_id)
        asked = model.requests[1].text, model.requests[3].text
    assert not (leadrope.ws / "other").exists()
    assert 'Approved: Bash {"command":"touch made"' in asked[0]
    assert 'Denied (not this one): Bash {"command":"touch other"' in asked[1]
    result = told["result"]
    assert (result["outcome"], result.get("attempts", 1)) == ("succeeded", 1), "a wait is not a failed attempt"
    assert [denial["reason"] for denial in result["denials"]] == ["not this one"]
    assert result["usage"]["input_tokens"] == 400, "what was spent before each wait counts"
    assert "attempts   1\n" in leadrope("runs", "show", run_id)


@pytest.mark.parametrize("leadrope", [600], indirect=True)
def test_calls_of_two_subagents_are_answered_after_kill_9_of_their_owner(leadrope: Terminal) -> None:
    """One is approved, the other edited. The run resumes with the last answer, and not before it."""
    both = {"tools": [agent("one"), agent("two")]}
    done = {"text": "made it"}
    right, wrong = {"tool": bash("touch made")}, {"tool": bash("touch wrong")}
    script = {"turns": [both, both, DONE], "subagents": [[right], [wrong], [right, done], [wrong, done]]}
    with ModelServer.in_thread(script) as model:
        run_id = leadrope.detach(model, "--allow", "Agent")
        asked = until(lambda: found if len(found := leadrope.asked()) == 2 else [])
        (owner,) = leadrope.owners()
        os.kill(owner.pid, signal.SIGKILL)
        until(lambda: not leadrope.owners())
        assert leadrope.left_alone(run_id, 2) == [one["id"] for one in asked], "they are still there"
        ids = {one["asked"]["call"]["input"]["command"]: one["id"] for one in asked}
        leadrope("approvals", "approve", ids["touch made"])
        assert leadrope.run(run_id)["run"]["state"] == "waiting"
        assert [one["id"] for one in leadrope.asked()] == [ids["touch wrong"]]
        leadrope("approvals", "edit", ids["touch wrong"], '{"command": "touch right", "description": "a step"}')
        assert leadrope.ended(run_id)["run"]["outcome"] == "succeeded"
    assert sorted(path.name for path in leadrope.ws.iterdir()) == ["made", "right"]


@pytest.mark.parametrize("leadrope", [600], indirect=True)
def test_a_question_and_a_plan_survive_an_owner_that_is_told_to_end(leadrope: Terminal) -> None:
    options = [{"label": "red", "description": "r"}, {"label": "blue", "description": "b"}]
    question = {"question": "Which colour?", "header": "Colour", "multiSelect": False, "options": options}
    ask = {"tool": {"name": "AskUserQuestion", "input": {"questions": [question]}}}
    plan = {"tool": {"name": "ExitPlanMode", "input": {"plan": "1. Make a file"}}}
    with ModelServer.in_thread([ask, ask, plan, plan, {"tool": bash("touch made")}, DONE]) as model:
        run_id = leadrope.detach(model, "--mode", "plan")

        def interrupted() -> str:
            until(leadrope.asked)
            (owner,) = leadrope.owners()
            os.kill(owner.pid, signal.SIGTERM)
            until(lambda: not leadrope.owners())
            (approval,) = leadrope.left_alone(run_id)
            return approval

        leadrope("approvals", "approve", interrupted(), "--answer", "Which colour?=blue")
        leadrope("approvals", "approve", interrupted())
        (asked,) = until(leadrope.asked)
        leadrope("approvals", "approve", asked["id"])
        assert leadrope.ended(run_id)["run"]["outcome"] == "succeeded"
        # The agent was told in its prompt, and again as the result of the same question.
        assert "The answer: blue" in model.requests[1].text
        assert any("blue" in str(one) for one in model.requests[2].tool_results)
    assert (leadrope.ws / "made").exists(), "the plan was approved, so its steps may be asked for"


def test_a_subagents_call_waits_too(leadrope: Terminal) -> None:
    ask = {"tool": bash("touch made")}
    make = {"tool": agent("make it")}
    script = {"turns": [make, make, DONE], "subagents": [[ask], [ask, {"text": "made it"}]]}
    with ModelServer.in_thread(script) as model:
        run_id = leadrope.detach(model, "--allow", "Agent")
        (approval,) = leadrope.left_alone(run_id)
        leadrope("approvals", "approve", approval)
        assert leadrope.ended(run_id)["run"]["outcome"] == "succeeded"
    assert (leadrope.ws / "made").exists()


def test_an_agent_that_has_something_to_do_is_not_ended(leadrope: Terminal) -> None:
    """One subagent runs a command while the other one waits for a person."""
    pipe = leadrope.ws / "pipe"
    os.mkfifo(pipe)
    script = {
        "turns": [{"tools": [agent("one"), agent("two")]}, DONE],
        "subagents": [[{"tool": bash("cat pipe")}, {"text": "read"}], [{"tool": bash("touch made")}, {"text": "made"}]],
    }
    with ModelServer.in_thread(script, strict=False) as model:
        run_id = leadrope.detach(model, "--allow", "Agent", "--allow", "Bash(cat pipe)")
        (asked,) = until(leadrope.asked)
        until(lambda: time.time() - asked["requested"] > 4)
        assert reaper.tagged(run_id), "its command would be lost"
        assert leadrope.run(run_id)["run"]["owner"]
        with pipe.open("w") as writer:
            writer.write("read this")
        assert leadrope.left_alone(run_id) == [asked["id"]]
        read = [one for request in model.requests for one in request.tool_results]
        assert any("read this" in str(one) for one in read)
        assert "stopped" in leadrope("runs", "stop", run_id)
        assert leadrope.asked() == []


def test_what_was_granted_holds_after_a_wait_until_it_is_revoked(leadrope: Terminal) -> None:
    make, again, last = bash("make test"), bash("make test A=1"), bash("make test A=2")
    exact, other = bash("touch exact"), bash("touch other")
    # Each call that is asked for stands there twice: before the wait, and after it.
    calls = [make, make, again, exact, exact, again, other, other, exact, last, last, exact]
    with ModelServer.in_thread([{"tool": call} for call in calls]) as model:
        run_id = leadrope.detach(model)

        def asked_for(command: str) -> str:
            (approval,) = leadrope.left_alone(run_id)
            assert f"the call:\n    {command}\n" in leadrope("approvals", "show", approval)
            return approval

        leadrope("approvals", "approve", asked_for("make test"), "--pattern")
        leadrope("approvals", "approve", asked_for("touch exact"), "--for-run")
        third = asked_for("touch other")
        assert "Bash(make test *)" in leadrope("runs", "show", run_id)
        leadrope("runs", "revoke", run_id, "Bash(make test *)")
        leadrope("approvals", "approve", third)
        fourth = asked_for("make test A=2")  # it was revoked while there was no agent
        shown = json.loads(leadrope("runs", "show", run_id, "-o", "json"))["grants"]
        (name,) = [grant["pattern"] for grant in shown if grant["state"] == "active"]
        assert name.startswith("call:")
        leadrope("runs", "revoke", run_id, name)
        leadrope("approvals", "approve", fourth)
        asked_for("touch exact")  # and so was this one
        assert "stopped" in leadrope("runs", "stop", run_id)
