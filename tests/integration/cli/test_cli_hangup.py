"""The terminal is closed while an agent works: everything ends, and the run is kept."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer
from window import Window

BEATS = "for i in $(seq 600); do echo beat >> beats; sleep 0.1; done"
WORK = {"tool": {"name": "Bash", "input": {"command": BEATS, "description": "work for a minute"}}}
END_S = 30


async def written(path: Path, least: int) -> None:
    async with asyncio.timeout(60):
        while not path.exists() or len(path.read_text().splitlines()) < least:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.02)


async def outcome_of_last_run(desk: Any) -> str:
    """A shell that leads the terminal's session may end before the run does."""
    async with asyncio.timeout(END_S):
        while True:
            listed = json.loads((await desk.leadrope("runs", "list", "-o", "json")).out.splitlines()[0])
            if listed["state"] == "ended":
                return str(listed["outcome"])


@pytest.mark.fault
@pytest.mark.parametrize("leader", ["leadrope", "bash"])
async def test_closing_the_terminal_ends_a_run_and_everything_that_it_started(
    desk: Any, leader: str, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    count = 20 if is_soak else 2
    record_property("count", count)
    environ = desk.environ | {"TERM": "xterm", "NO_COLOR": "1"}
    beats = desk.project / "beats"
    for _ in range(count):
        beats.unlink(missing_ok=True)
        async with ModelServer([WORK, {"text": "Done."}], strict=False) as model:
            program = [sys.executable, "-m", "leadrope.cli.main", "run", "go", "--mode", "full"]
            argv = [*program, "--base-url", model.url]
            if leader == "bash":
                argv = ["bash", "-c", '"$@"; true', "bash", *argv]
            window = Window(argv, cwd=desk.project, env=environ)
            await written(beats, 3)
            window.close()
            await window.ended()
        assert await outcome_of_last_run(desk) == "stopped"
        beaten = len(beats.read_text().splitlines())
        await desk.leadrope("runs", "list")  # as long as several beats take
        assert len(beats.read_text().splitlines()) == beaten < 600


@pytest.mark.fault
async def test_closing_the_terminal_ends_a_workflow_and_its_command(
    desk: Any, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    trials = 20 if is_soak else 2
    record_property("count", trials)
    (desk.project / "w.flow.md").write_text(f"# W\n## Steps\n### beat\nWorks.\n- type: shell\n- command: {BEATS}\n")
    beats = desk.project / "beats"
    argv = [sys.executable, "-m", "leadrope.cli.main", "flow", "run", "w.flow.md"]
    for _ in range(trials):
        beats.unlink(missing_ok=True)
        window = Window(argv, cwd=desk.project, env=desk.environ | {"TERM": "xterm"})
        await written(beats, 3)
        window.close()
        await window.ended()
        count = len(beats.read_text().splitlines())
        listed = await desk.leadrope("flow", "history", "-o", "json")
        assert "stopped" in listed.out.splitlines()[0]
        assert len(beats.read_text().splitlines()) == count < 600


@pytest.mark.fault
async def test_closing_the_terminal_ends_a_chat_in_the_middle_of_a_command(
    desk: Any, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    trials = 20 if is_soak else 2
    record_property("count", trials)
    beats = desk.project / "beats"
    for _ in range(trials):
        beats.unlink(missing_ok=True)
        async with ModelServer([WORK, {"text": "Done."}], strict=False) as model:
            argv = [sys.executable, "-m", "leadrope.cli.main", "chat", "go", "--mode", "full", "--base-url", model.url]
            window = Window(argv, cwd=desk.project, env=desk.environ | {"TERM": "xterm", "NO_COLOR": "1"})
            await written(beats, 3)
            window.close()
            await window.ended()
        assert await outcome_of_last_run(desk) == "stopped"
        beaten = len(beats.read_text().splitlines())
        await desk.leadrope("runs", "list")  # as long as several beats take
        assert len(beats.read_text().splitlines()) == beaten < 600


async def test_a_run_under_nohup_outlives_its_terminal(desk: Any) -> None:
    waits = "touch begun; while [ ! -e go ]; do sleep 0.05; done; touch marker"
    work = {"tool": {"name": "Bash", "input": {"command": waits, "description": "wait"}}}
    async with ModelServer([work, {"text": "Done."}]) as model:
        program = [sys.executable, "-m", "leadrope.cli.main", "run", "go", "--mode", "full", "--base-url", model.url]
        window = Window(["nohup", *program], cwd=desk.project, env=desk.environ | {"TERM": "xterm"})
        await written(desk.project / "begun", 0)
        window.close()
        (desk.project / "go").touch()
        await window.ended()
    assert desk.marker.exists()
    assert await outcome_of_last_run(desk) == "succeeded"


@pytest.mark.parametrize("place", ["question", "line", "editor"])
async def test_closing_the_terminal_at_a_question_stops_the_run(desk: Any, place: str) -> None:
    editor = desk.home / "editor"
    editor.write_text("#!/bin/sh\ntouch editing\nwhile :; do sleep 0.05; done\n")
    editor.chmod(0o755)
    environ = desk.environ | {"TERM": "xterm", "NO_COLOR": "1", "EDITOR": str(editor)}
    async with ModelServer([{"tool": desk.touch}, {"text": "Done."}], strict=False) as model:
        argv = [sys.executable, "-m", "leadrope.cli.main", "run", "go", "--base-url", model.url]
        window = Window(argv, cwd=desk.project, env=environ)
        await window.shows("[y]es")
        if place != "question":
            window.type("e\r")
            await window.shows("Edit: touch")
        if place == "editor":
            window.type("\x18")
            await written(desk.project / "editing", 0)
        window.close()
        await window.ended()
        assert await outcome_of_last_run(desk) == "stopped"
    assert not desk.marker.exists()
    assert "Nothing waits for a person." in (await desk.leadrope("approvals", "list")).err


@pytest.mark.parametrize("viewer", ["top", "runs logs -f"])
async def test_closing_the_terminal_of_a_viewer_ends_it_and_not_what_it_shows(desk: Any, viewer: str) -> None:
    waits = "touch begun; while [ ! -e go ]; do sleep 0.05; done; touch marker"
    work = {"tool": {"name": "Bash", "input": {"command": waits, "description": "wait for a friend"}}}
    async with ModelServer([work, {"text": "Done."}]) as model:
        told = await desk.leadrope("run", "watched", "--detach", "--mode", "full", "--base-url", model.url)
        await written(desk.project / "begun", 0)
        argv = [sys.executable, "-m", "leadrope.cli.main", *viewer.split(), *([] if viewer == "top" else ["last"])]
        window = Window(argv, cwd=desk.project, env=desk.environ | {"TERM": "xterm", "NO_COLOR": "1"})
        await window.shows("watched" if viewer == "top" else "begun")
        window.close()
        await window.ended()
        (desk.project / "go").touch()
        await desk.leadrope("runs", "logs", "-f", told.out.strip())
        assert await outcome_of_last_run(desk) == "succeeded"
    assert desk.marker.exists()
