"""Git counts as reading only while no setting that it will use names a program, wherever the setting was made."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope import events

needs_sandbox = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
SANDBOX = [pytest.param("off", id="no sandbox"), pytest.param("workspace", id="sandbox", marks=needs_sandbox)]


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try"}}}


@pytest.fixture
def repository(stage: Any) -> Path:
    ws: Path = stage.ws
    (ws / "a.txt").write_text("hello\n")
    (ws / "made.sh").write_text("#!/bin/sh\ntouch made\n")
    (ws / "made.sh").chmod(0o755)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(ws)]
    subprocess.run(["git", "init", "-q", str(ws)], check=True)
    subprocess.run([*git, "add", "a.txt"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    return ws


def configure(repository: Path, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        subprocess.run(["git", "-C", str(repository), "config", name, value], check=True)


async def decided(stage: Any, *commands: str, **fields: Any) -> list[str]:
    played = await stage.play([*map(bash, commands), {"text": "done"}], mode="edit", **fields)
    assert played.result.outcome in ("succeeded", "denied"), played.result
    return [found.decision for found in played.of(events.ToolDecided)]


@pytest.mark.parametrize("sandbox", SANDBOX)
async def test_a_setting_that_the_agent_makes_ends_reading(stage: Any, repository: Path, sandbox: str) -> None:
    """Behind the sandbox the setting is in the agent's copy alone, and git reads that copy."""
    found = await decided(
        stage,
        "git status",
        "git config core.fsmonitor ./made.sh",
        "git status",
        "git diff",
        approver=lambda asked: "git config" in asked.call.input["command"],
        sandbox=sandbox,
    )
    assert found == ["allow", "allow", "deny", "deny"]
    assert not (repository / "made").exists()


@pytest.mark.parametrize("sandbox", SANDBOX)
@pytest.mark.parametrize(
    "settings",
    [
        {"core.fsmonitor": "./made.sh"},
        {"diff.external": "./made.sh"},
        {"log.showSignature": "true", "gpg.program": "./made.sh"},
        {"format.pretty": "%G?", "gpg.program": "./made.sh"},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_a_setting_of_the_repository_ends_reading(
    stage: Any, repository: Path, settings: dict[str, str], sandbox: str
) -> None:
    configure(repository, settings)
    found = await decided(stage, "git status", "git log -1", "git diff", "cat a.txt", sandbox=sandbox)
    assert found == ["deny", "deny", "deny", "allow"]
    assert not (repository / "made").exists()
