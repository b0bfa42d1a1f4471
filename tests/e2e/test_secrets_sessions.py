"""Sessions of the real CLI and their secrets: kept as digests over resumes and forks, out of the agent's reach."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from leadrope import Sessions, events

FIRST, SECOND = "tangerine-window-circus", "quiet-harbour-lantern"


def secret(value: str) -> dict[str, Any]:
    return {"variables": {"DATABASE_URL": value}, "secret_variables": ("DATABASE_URL",)}


def exported(stage: Any, session: str) -> str:
    return b"".join(Sessions.of(stage.environ).export(session)).decode()


async def test_a_resumed_and_a_forked_session_know_all_that_was_secret_in_them(stage: Any) -> None:
    said = [{"text": f"It is {FIRST}."}]
    first = (await stage.play(said, prompt=f"use {FIRST}", **secret(FIRST))).result.session_id
    again = [{"text": f"It was {FIRST}, and is {SECOND}."}]
    resumed = await stage.play(again, prompt=f"use {SECOND}", resume=first, **secret(SECOND))
    forked = await stage.play([{"text": f"{FIRST} and {SECOND}"}], prompt="say it", resume=first, fork=True)
    assert resumed.result.session_id == first
    assert forked.result.session_id != first
    for session in (first, forked.result.session_id):
        native = "".join(
            path.read_text() for path in (Path(stage.environ["LEADROPE_HOME"]) / "sessions" / session).rglob("*.jsonl")
        )
        assert FIRST in native
        assert SECOND in native
        text = exported(stage, session)
        assert "config/projects" in text
        assert "It was [redacted], and is [redacted]." in text
        assert FIRST not in text
        assert SECOND not in text


async def test_an_export_can_be_resumed_on_another_machine(stage: Any, tmp_path: Path) -> None:
    first = (await stage.play([{"text": "Noted."}], prompt=f"remember {FIRST}", **secret(FIRST))).result.session_id
    text = exported(stage, first)
    stage.environ["LEADROPE_HOME"] = str(tmp_path / "other")
    Sessions.of(stage.environ).import_(line.encode() for line in text.splitlines(keepends=True))
    played = await stage.play([{"text": "Yes."}], prompt="do you?", resume=first)
    assert played.one(events.SessionStarted).origin == "resumed"
    asked = str(played.model.requests[-1].body["messages"])
    assert "remember [redacted]" in asked
    assert FIRST not in asked


async def test_a_session_whose_digests_are_lost_says_so_and_is_rebuilt_elsewhere(
    stage: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = (await stage.play([{"text": "Noted."}], prompt=f"remember {FIRST}", **secret(FIRST))).result.session_id
    (Path(stage.environ["LEADROPE_HOME"]) / "sessions" / first / "secrets.json").unlink()
    played = await stage.play([{"text": "Yes."}], prompt="do you?", resume=first)
    (notice,) = [notice for notice in played.of(events.Notice) if notice.code == "session_secrets"]
    assert "secrets.json is missing" in notice.message
    text = exported(stage, first)
    assert "left out" in caplog.text
    assert FIRST not in text
    stage.environ["LEADROPE_HOME"] = str(tmp_path / "other")
    Sessions.of(stage.environ).import_(line.encode() for line in text.splitlines(keepends=True))
    rebuilt = await stage.play([{"text": "Yes."}], prompt="and now?", resume=first)
    assert rebuilt.one(events.SessionStarted).origin == "rebuilt"
    assert rebuilt.result.outcome == "succeeded"


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
async def test_an_agent_in_its_sandbox_sees_neither_the_key_nor_the_digests(stage: Any) -> None:
    home = stage.environ["LEADROPE_HOME"]
    command = (
        f"for path in {home}/machine.key $CLAUDE_CONFIG_DIR/../secrets.json; do "
        'cat "$path" || echo unreadable; echo x > "$path" || echo unwritable; done 2>/dev/null; true'
    )
    look = {"name": "Bash", "input": {"command": command, "description": "look"}}
    played = await stage.play(
        [{"tool": look}, {"text": f"It is {FIRST}."}], approver=lambda _: True, sandbox="workspace", **secret(FIRST)
    )
    assert played.one(events.SessionStarted).sandbox == "workspace"
    shown = played.one(events.ToolCompleted).text
    assert shown.count("unreadable") == 2
    assert '"digest"' not in shown
    text = exported(stage, played.result.session_id)
    assert "It is [redacted]." in text, "and what it wrote there changed nothing"
