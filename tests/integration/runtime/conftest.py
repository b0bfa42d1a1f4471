"""Runs of a scripted agent: a real process that says exactly what a test needs to hear."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from leadrope import Recorded, RunRequest, RunResult, Secret, events, open_run
from leadrope.core.fold import fold
from leadrope.rehearsal import write_executable
from leadrope.runtime.run import Run

KEY = "sk-ant-rehearsal-0000000000000000"


class Stage:
    """A workspace, a scratch home, and a scripted agent in the place of the real one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ws = folder / "ws"
        self.ws.mkdir(parents=True)
        self.marker = folder / "marker"
        self.claude = folder / "claude"
        self.stdin = folder / "stdin.jsonl"
        self.started = folder / "started.jsonl"
        self.notes = {"stdin_file": str(self.stdin), "start_file": str(self.started)}
        """Where the stand-in writes down what it is told."""
        self.answers: dict[str, Any] = {}
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "home"),
            "LEADROPE_CLAUDE_BIN": str(self.claude),
        }

    def beside(self, name: str) -> Stage:
        return Stage(self._folder / name)

    def request(self, **fields: Any) -> RunRequest:
        given: dict[str, Any] = {"prompt": "go", "cwd": str(self.ws), "credential": Secret(KEY), "attempts": 1}
        # The stand-in writes down what it is told beside its workspace, where a sandbox would keep it from writing.
        return RunRequest(**(given | {"sandbox": "off"} | fields))

    def open(self, steps: list[Any], *, approver: Any = None, version: str = "2.1.325", **fields: Any) -> Run:
        script = {
            "version": f"{version} (Claude Code)",
            **self.notes,
            "answers": self.answers,
            "steps": steps,
        }
        write_executable(self.claude, script)
        return open_run(self.request(**fields), approver=approver, environ=self.environ)

    async def play(self, steps: list[Any], **fields: Any) -> tuple[list[events.Event], RunResult]:
        recorded: list[Recorded] = []
        async with self.open(steps, **fields) as run:
            recorded.extend([item async for item in run])
            result = await run.result()
        assert [r.seq for r in recorded] == list(range(1, len(recorded) + 1))
        assert fold(recorded[:-1]) == result
        return [r.event for r in recorded], result

    def said(self) -> list[Any]:
        return [json.loads(line) for line in self.stdin.read_text().splitlines()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
