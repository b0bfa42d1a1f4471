"""Claude Code, the real program, holds what every provider must hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope.rehearsal import ModelStage, conformance

# What the agent program itself writes is not its model's to say; noise on the wire is the recordings' and the fuzz's.
STAGED = [check for check in conformance.checks("claude-code") if check.name != "unknown-lines-do-not-end-it"]


@pytest.mark.parametrize("check", STAGED, ids=str)
async def test_claude_code_conforms(check: conformance.Check, claude: str, tmp_path: Path) -> None:
    stage = ModelStage("claude-code", {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "LEADROPE_CLAUDE_BIN": claude})
    await check(stage, tmp_path)
