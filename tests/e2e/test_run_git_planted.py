"""A repository after an agent that has set things with git, for its work or for worse."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

from leadrope import events


async def test_a_planted_pointer_is_put_aside(stage: Any) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(stage.ws)], check=True)
    pointer = stage.ws / ".git" / "commondir"
    plant = {"name": "Bash", "input": {"command": f"echo ../evil > {pointer}", "description": "plant"}}
    played = await stage.play([{"tool": plant}, {"text": "Done."}], sandbox="workspace", approver=lambda _: True)
    assert played.result.outcome == "succeeded", played.result
    assert "git_planted" in [notice.code for notice in played.of(events.Notice)]
    assert not pointer.exists()
    assert pointer.with_name("commondir.planted").read_text() == "../evil\n"


SET = """
set -e
git config user.name Agent
git remote add fork https://example.org/fork.git
git checkout -q -b topic
git commit -q --allow-empty -m one
git push -q -u origin topic
git branch -m renamed
git config core.fsmonitor {marker}
git config remote.origin.url https://elsewhere.example/it.git
"""


async def test_settings_for_work_stay_and_those_that_start_programs_do_not(stage: Any) -> None:
    """All of it through the agent's own Bash; the user's git is called while the agent is still at work."""
    remote, marker = stage.ws / "remote.git", stage.ws / "started"
    monitor = stage.ws / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {marker}\n")
    monitor.chmod(0o755)
    git = ["git", "-C", str(stage.ws), "-c", "user.name=A", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q"],
        ["init", "-q", "--bare", str(remote)],
        ["commit", "-q", "--allow-empty", "-m", "zero"],
        ["remote", "add", "origin", str(remote)],
        ["config", "user.email", "a@b"],
    ):
        await asyncio.to_thread(subprocess.run, [*git, *words], check=True)

    looks = 0

    def at_work(asked: Any) -> bool:
        nonlocal looks
        if asked.call.input["command"] == "touch look":
            subprocess.run([*git, "status"], check=True, capture_output=True)
            looks += 1
        return True

    played = await stage.play(
        [
            {"tool": {"name": "Bash", "input": {"command": SET.format(marker=monitor), "description": "set"}}},
            {"tool": {"name": "Bash", "input": {"command": "touch look", "description": "look"}}},
            {"text": "Done."},
        ],
        sandbox="workspace",
        approver=at_work,
        policy={"require_approval": True},
    )
    assert played.result.outcome == "succeeded", played.result
    told = {notice.code: notice for notice in played.of(events.Notice)}
    assert "branch.renamed.remote" in told["git_settings_kept"].message
    assert "core.fsmonitor" in told["git_settings_dropped"].message
    assert "remote.origin.url" in told["git_settings_dropped"].message
    await asyncio.to_thread(subprocess.run, [*git, "status"], check=True, capture_output=True)
    assert (looks, marker.exists()) == (1, False)
    listed = await asyncio.to_thread(
        subprocess.run, [*git, "config", "--local", "--list"], check=True, capture_output=True, text=True
    )
    lines = listed.stdout.splitlines()
    for line in (
        "user.name=Agent",
        "remote.fork.url=https://example.org/fork.git",
        f"remote.origin.url={remote}",
        "branch.renamed.remote=origin",
        "branch.renamed.merge=refs/heads/topic",
    ):
        assert line in lines
    assert not [line for line in lines if line.startswith("core.fsmonitor")]
