"""A command of the real CLI, in its sandbox, that takes too much memory: ended, and gone on from in its session."""

from __future__ import annotations

from typing import Any

from leadrope import Limits, events
from leadrope.process import reaper

GROWS = "held = bytearray(b'x') * (1000 << 20); import time; time.sleep(600)"


async def test_a_command_that_takes_too_much_memory(stage: Any) -> None:
    grow = {"name": "Bash", "input": {"command": f'python3 -c "{GROWS}"', "description": "grow"}}
    script = [
        {"tool": grow},
        {"text": "Smaller.", "expect": {"contains": ["do the thing", "more memory than this run"]}},
    ]
    limits = Limits(memory_mb=900)
    played = await stage.play(script, prompt="do the thing", approver=lambda _: True, attempts=2, limits=limits)
    assert (played.result.outcome, played.result.text) == ("succeeded", "Smaller."), played.result
    assert [s.origin for s in played.of(events.SessionStarted)] == ["new", "resumed"]
    (ending,) = played.of(events.RunEnding)
    assert ending.kind == "out_of_memory"
    assert "most of it is python3" in ending.message
    assert not reaper.tagged(played.recorded[0].run_id)
