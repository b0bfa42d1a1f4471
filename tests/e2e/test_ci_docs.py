"""The sample action of docs/ci.md: its steps, executed as GitHub's runner does, by the real CLI in a sandbox."""

from __future__ import annotations

import asyncio
import html
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from leadrope.rehearsal import ModelServer

DOCS = Path(__file__).parents[2] / "docs" / "ci.md"
KEY = "sk-ant-rehearsal-0000000000000000"
URL = "https://git.example.com/leadrope.git@0123abc"

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


def steps() -> list[dict[str, Any]]:
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    found: list[dict[str, Any]] = yaml.safe_load(text)["jobs"]["review"]["steps"]
    return found


class Runner:
    """A machine of GitHub's: a checkout with its origin, the variables of a step, and what the steps would install."""

    def __init__(self, stage: Any, folder: Path) -> None:
        self.ws = stage.ws
        self.folder = folder
        self.summary = folder / "summary.md"
        self.installed = folder / "installed"
        programs = folder / "bin"
        programs.mkdir()
        # Nothing is fetched here: what is asked for is written down.
        for name in ("sudo", "pip"):
            self._program(programs / name, f'printf "%s\\n" "{name} $*" >> {self.installed}')
        self._program(programs / "leadrope", f'exec {sys.executable} -m leadrope.cli.main "$@"')
        self.environ = stage.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.ws),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_ENV": str(folder / "env"),
            "RUNNER_TEMP": str(folder),
        }

    @staticmethod
    def _program(path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(["git", *who, *words], cwd=self.ws, capture_output=True, check=True)

    def check_out(self) -> None:
        """A pull request of one commit, as `fetch-depth: 0` leaves it."""
        self.git("init", "-q", "-b", "main")
        (self.ws / "app.py").write_text("total = 1\n")
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.git("checkout", "-qb", "change")
        (self.ws / "app.py").write_text("total = 1 / 0\n")
        self.git("commit", "-qam", "::error::a title of a stranger")

    async def step(self, step: dict[str, Any], values: dict[str, str]) -> tuple[int, str]:
        env = {name: values[text.strip("${} ")] for name, text in step.get("env", {}).items()}
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        child = await asyncio.create_subprocess_exec(
            *("bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)),
            cwd=self.ws,
            env=self.environ | env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        said, _ = await child.communicate()
        return child.returncode or 0, said.decode()


async def test_the_sample_action_reviews_a_change(stage: Any, tmp_path: Path) -> None:
    runner = Runner(stage, tmp_path)
    runner.check_out()
    (stage.home / ".config/leadrope").mkdir(parents=True)
    script = [
        {"tool": {"name": "Read", "input": {"file_path": f"{runner.ws}/change.diff"}}},
        {"text": "app.py, line 1: the division by zero is a bug."},
    ]
    async with ModelServer(script) as model:
        # The one thing that is not as on GitHub: where the model is.
        (stage.home / ".config/leadrope/config.toml").write_text(f'[run]\nbase_url = "{model.url}"\n')
        values = {"github.base_ref": "main", "secrets.ANTHROPIC_API_KEY": KEY, "vars.LEADROPE_URL": URL}
        said = []
        for step in steps():
            if "run" in step:
                code, text = await runner.step(step, values)
                assert code == 0, text
                said.append(text)
        asked = str(model.requests[-1].body["messages"])
    assert runner.installed.read_text().splitlines() == [
        "sudo apt-get install -y --no-install-recommends bubblewrap socat",
        f"pip install leadrope[claude] @ git+{URL}",
    ]
    assert "1 / 0" in asked, "the agent has read the change"
    assert "division by zero" in said[-1]
    assert "::stop-commands::" in said[-1]
    assert KEY not in said[-1] + runner.summary.read_text()
    assert "division by zero" in runner.summary.read_text()
    (upload,) = [step["with"]["path"] for step in steps() if "upload-artifact" in step.get("uses", "")]
    suite = ET.parse(runner.ws / upload).getroot()
    assert [case.find("failure") for case in suite.iter("testcase")] == [None]


async def test_without_its_secret_the_sample_action_fails_and_says_why(stage: Any, tmp_path: Path) -> None:
    """As for a pull request from a fork: the secret is there, and empty."""
    runner = Runner(stage, tmp_path)
    runner.check_out()
    (review,) = [step for step in steps() if "leadrope run" in step.get("run", "")]
    code, text = await runner.step(review, {"github.base_ref": "main", "secrets.ANTHROPIC_API_KEY": ""})
    assert code == 1
    assert "::error" in text
    assert "not_authenticated" in html.unescape(runner.summary.read_text()) + text
