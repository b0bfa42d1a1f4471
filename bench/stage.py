"""Scratch folders, the environment of a measuring process, and its start; knows no measurement.

Every measurement runs in a fresh process: what an earlier one imported or allocated would be counted with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import RunRequest, Secret
from leadrope.rehearsal import write_executable

KEY = "sk-ant-rehearsal-0000000000000000"
CALL_ID = "toolu_bench_0001"
HERE = Path(__file__).parent
LONGEST_S = 120.0


class MeasurementFailed(Exception):
    """A measuring process did not do what was to be measured."""


class Stage:
    """A scratch home and workspace, and an environment that holds nothing of this machine but PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.ws = folder / "ws"
        for path in (self.home, self.ws):
            path.mkdir(exist_ok=True)

    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.folder),
            "LEADROPE_HOME": str(self.home / "leadrope"),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "LANG": "C.UTF-8",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def measure(self, module: str, *arguments: str) -> Any:
        """Run `bench/MODULE.py ARGUMENTS` to its end; its last line is what it measured, as JSON."""
        command = [sys.executable, str(HERE / f"{module}.py"), str(self.folder), *arguments]
        done = subprocess.run(
            command, env=self.environ(), cwd=self.ws, capture_output=True, check=False, timeout=LONGEST_S
        )
        if done.returncode != 0:
            told = done.stderr.decode(errors="replace")[-3000:]
            raise MeasurementFailed(f"{' '.join([module, *arguments])} exited with {done.returncode}:\n{told}")
        return msgspec.json.decode(done.stdout.splitlines()[-1])

    def request(self, binary: Path | str, **fields: Any) -> RunRequest:
        given: dict[str, Any] = {
            "prompt": "go",
            "mode": "plan",
            "cwd": str(self.ws),
            "binary": str(binary),
            "credential": Secret(KEY),
            # The stand-ins lie outside of the workspace; (g) measures the sandbox.
            "sandbox": "off",
            "attempts": 1,
            "api_retries": 0,
        }
        return RunRequest(**(given | fields))

    def stand_in(self, name: str, steps: Sequence[dict[str, Any]], *, is_gated: bool = True) -> Path:
        """An agent that opens like the real one, has one Read allowed by the gate, and then plays `steps`.

        All later tool results carry that call's id: a result without a decision would rightly end the run.
        """
        opening: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
        if is_gated:
            opening.append({"hook": {"tool": "Read", "id": CALL_ID, "input": {"file_path": str(self.ws / "a")}}})
        return write_executable(self.folder / name, [*opening, *steps])

    def bare_stand_in(self, name: str, steps: Sequence[dict[str, Any]]) -> Path:
        """One that says its lines unasked."""
        return write_executable(self.folder / name, list(steps))


def tell(measured: Any) -> None:
    """The last words of a measuring process."""
    print(msgspec.json.encode(measured).decode())
