"""A repository after an agent that wanted the user's git to read other settings."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

from leadrope import events


async def test_a_planted_pointer_is_put_aside(stage: Any) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(stage.ws)], check=True)
    pointer = stage.ws / ".git" / "commondir"
    plant = {"name": "Bash", "input": {"command": f"echo ../evil > {pointer}", "description": "plant"}}
    played = await stage.play([{"tool": plant}, {"text": "Done."}], walls="workspace", approver=lambda _: True)
    assert played.result.outcome == "succeeded", played.result
    assert "git_planted" in [notice.code for notice in played.of(events.Notice)]
    assert not pointer.exists()
    assert pointer.with_name("commondir.planted").read_text() == "../evil\n"
