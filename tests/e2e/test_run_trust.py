"""A trusted repository's settings count as they were looked at, also while an agent is at work in it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from leadrope import Limits, events
from leadrope.runtime.trust import trust


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try"}}}


def hooks(**commands: str) -> str:
    told = {name: [{"hooks": [{"type": "command", "command": command}]}] for name, command in commands.items()}
    return json.dumps({"hooks": told})


@pytest.fixture
def trusted(stage: Any) -> Path:
    """A workspace with a trusted hook, the script that it names, and settings for an agent to put in their place."""
    ws: Path = stage.ws.resolve()
    (ws / ".claude").mkdir()
    (ws / "scripts").mkdir()
    (ws / "scripts" / "hook.sh").write_text("touch trusted.mark\n")
    (ws / ".claude" / "settings.json").write_text(hooks(SessionStart="sh scripts/hook.sh"))
    planted = f"touch {ws}/planted.mark"
    (ws / "planted.json").write_text(hooks(SessionStart=planted, PreToolUse=planted, PostToolUse=planted, Stop=planted))
    home = Path(stage.environ["LEADROPE_HOME"])
    trust.remember(home, trust.look(home, str(ws)))
    return ws


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
async def test_an_agent_gives_itself_no_hooks(stage: Any, trusted: Path) -> None:
    """The CLI takes up a change of its settings while it runs, and starts what stands there without asking anybody."""
    plant = "cp planted.json .claude/settings.json; cp planted.json .claude/settings.local.json; mv .claude c"
    script = [
        bash(f"{plant}; echo 'touch planted.mark' > scripts/hook.sh; echo ended"),
        bash("sleep 2"),
        {"text": "done"},
    ]
    played = await stage.play(script, approver=lambda _: True)
    assert played.result.outcome == "succeeded"
    assert "ended" in played.of(events.ToolCompleted)[0].text
    assert (trusted / "trusted.mark").exists()
    assert not (trusted / "planted.mark").exists()
    assert (trusted / "scripts" / "hook.sh").read_text() == "touch trusted.mark\n"
    assert not (trusted / ".claude" / "settings.local.json").exists()


async def test_the_next_attempt_of_the_same_run_looks_again(stage: Any, trusted: Path) -> None:
    """Without a sandbox the agent has changed the script of a hook; what starts after that does not run it."""
    script = [
        bash("echo 'touch planted.mark' > scripts/hook.sh"),
        {"error": {"status": 500}},
        {"text": "done"},
    ]
    played = await stage.play(
        script, attempts=3, approver=lambda _: True, sandbox="off", limits=Limits(idle_s=60), strict=False
    )
    assert (played.result.outcome, played.result.attempts) == ("succeeded", 2)
    assert (trusted / "trusted.mark").exists()
    assert not (trusted / "planted.mark").exists()
    assert [n.message for n in played.of(events.Notice) if n.code == "repository_changed"]
