"""The terminal is closed while an agent works: everything ends, and the run is kept."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer

BEATS = "for i in $(seq 600); do echo beat >> beats; sleep 0.1; done"
WORK = {"tool": {"name": "Bash", "input": {"command": BEATS, "description": "work for a minute"}}}
END_S = 30


class Window:
    """A program on a terminal that can be closed."""

    def __init__(self, argv: list[str], *, cwd: Path, env: dict[str, str]) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)  # never comes back

        # Somebody has to read, or the program waits for room on its screen. No thread: one that is in a read would keep
        # the terminal open.
        asyncio.get_running_loop().add_reader(self._master, self._drain)

    def _drain(self) -> None:
        try:
            os.read(self._master, 65536)
        except OSError:  # the program has ended
            asyncio.get_running_loop().remove_reader(self._master)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    async def ended(self) -> None:
        async with asyncio.timeout(END_S):
            await asyncio.to_thread(os.waitpid, self.pid, 0)


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


async def test_closing_the_terminal_ends_a_workflow_and_its_command(desk: Any) -> None:
    (desk.project / "w.flow.md").write_text(f"# W\n## Steps\n### beat\nWorks.\n- type: shell\n- command: {BEATS}\n")
    beats = desk.project / "beats"
    argv = [sys.executable, "-m", "leadrope.cli.main", "flow", "run", "w.flow.md"]
    window = Window(argv, cwd=desk.project, env=desk.environ | {"TERM": "xterm"})
    await written(beats, 3)
    window.close()
    await window.ended()
    count = len(beats.read_text().splitlines())
    listed = await desk.leadrope("flow", "history", "-o", "json")
    assert "stopped" in listed.out.splitlines()[0]
    assert len(beats.read_text().splitlines()) == count < 600


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
