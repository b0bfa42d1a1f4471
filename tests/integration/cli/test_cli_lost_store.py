"""The run store is overwritten or removed while an agent works: one sentence says so, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from background_processes import Background
from leadrope.rehearsal import ModelServer

WAIT = {"tool": {"name": "Bash", "input": {"command": "touch begun; while [ ! -e go ]; do sleep 0.05; done"}}}


def overwrite(home: Path) -> None:
    for path in home.glob("leadrope.db*"):
        path.write_bytes(os.urandom(20_000))


def remove(home: Path) -> None:
    for path in home.glob("leadrope.db*"):
        path.unlink()


def remove_all(home: Path) -> None:
    while home.exists():
        shutil.rmtree(home, ignore_errors=True)  # the agent makes and removes files in there meanwhile


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (overwrite, "leadrope.db is damaged: "),
        (remove, "leadrope.db was removed while run "),
        (remove_all, "leadrope.db was removed while run "),
    ],
    ids=["overwritten", "removed", "whole-home"],
)
async def test_it_is_said_in_one_sentence(
    desk: Any, background: Background, harm: Callable[[Path], None], told: str
) -> None:
    home = Path(desk.environ["LEADROPE_HOME"])
    async with ModelServer([WAIT, {"text": "Here I am."}], strict=False) as model:
        words = ("run", "go", "--mode", "full", "--base-url", model.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadrope.cli.main", *words),
            cwd=desk.project,
            env=desk.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        await background.until((desk.project / "begun").exists)
        harm(home)
        (desk.project / "go").touch()
        async with asyncio.timeout(60):
            out, err = (text.decode() for text in await process.communicate())
    assert process.returncode == 1, err
    lines = [line for line in err.splitlines() if line.startswith("leadrope")]
    assert [line for line in lines if told in line] == lines, err
    assert len(lines) == 1, err
    assert "lost" in lines[0]
    assert "Traceback" not in err
    assert "ExceptionGroup" not in err
    assert "runs show" not in err, "there is no record to look at"
    if harm is remove:
        assert "Here I am." in out, "the run itself is not affected"
    assert not background.all()
