"""A service with its store in a scratch home, and scripted agents that are real processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leadrope import RunRequest
from leadrope.rehearsal import write_executable
from leadrope.runs.service import Service

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


class Yard:
    """One home, one workspace, and as many scripted agents as a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.home = folder / "leadrope"
        self.marker = folder / "marker"
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LEADROPE_HOME": str(self.home)}

    def agent(self, name: str, steps: list[Any], **script: Any) -> str:
        return str(write_executable(self.folder / name, {"steps": [*OPEN, *steps], **script}))

    def request(self, binary: str, **fields: Any) -> RunRequest:
        given: dict[str, Any] = {"prompt": "go", "cwd": str(self.ws), "provider": "scripted", "binary": binary}
        return RunRequest(**(given | {"sandbox": "off", "attempts": 1} | fields))

    def service(self, **options: Any) -> Service:
        return Service(self.environ, **options)


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)
