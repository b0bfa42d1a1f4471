"""Every example of the README is run as it stands, with the rehearsal model behind it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from leadrope.core import config
from leadrope.rehearsal import ModelServer

README = Path(__file__).parents[2] / "README.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The commands of each console block; those of one block build on each other."""
    return [[line[2:] for line in block.splitlines() if line.startswith("$ ")] for block in blocks("console")]


@pytest.fixture
def machine(stage: Any) -> Any:
    """A user's machine: a key in leadrope's own settings, a config that points at the rehearsal model."""
    home = Path(stage.environ["LEADROPE_HOME"])
    home.mkdir()
    (home / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-rehearsal-0000000000\n")
    (stage.ws / "task.md").write_text("Look around.\n")
    stage.environ["PATH"] = f"{Path(sys.executable).parent}:{stage.environ['PATH']}"
    return stage


def run(machine: Any, argv: list[str], model: Any) -> str:
    folder = Path(machine.environ["HOME"], ".config", "leadrope")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f'[run]\nbase_url = "{model.url}"\n')
    done = subprocess.run(
        argv, cwd=machine.ws, env=machine.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("lines", commands(), ids=lambda lines: lines[0][:40])
def test_console(machine: Any, lines: list[str]) -> None:
    runs = sum("leadrope run" in line for line in lines)
    with ModelServer.in_thread([{"text": "Here you are.", "repeat": runs}] if runs else []) as model:
        for line in lines:
            shown = run(machine, ["bash", "-c", line], model)
            assert ("Here you are." if "leadrope run" in line else "rm -rf") in shown


@pytest.mark.parametrize("code", blocks("python"), ids=["run_sync", "events", "rehearsal"])
def test_python(machine: Any, code: str) -> None:
    """The model's address comes from the user's settings; the last example brings its own."""
    show = {"name": "Bash", "input": {"command": "ls", "description": "look"}}
    with ModelServer.in_thread([{"tool": show, "optional": True}, {"text": "All done."}], strict=False) as model:
        run(machine, [sys.executable, "-c", code], model)


def test_toml() -> None:
    (block,) = blocks("toml")
    parsed = config.parse(block)
    assert set(parsed.profiles) == {"careful"}
    assert set(parsed.connections) == {"docs"}
    assert tomllib.loads(block)["run"]["mode"] == "edit"


def test_exit_codes_and_modes_are_those_of_the_program() -> None:
    from leadrope.core.request import Mode
    from leadrope.policy.decide import MODES

    text = README.read_text()
    for mode in MODES:
        assert f"| `{mode}` |" in text
    assert set(MODES) == set(Mode.__args__)  # type: ignore[attr-defined]  # a Literal's members
