"""A hint can be typed as it is printed, also where `leadrope` is not on PATH or is another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from leadrope.cli import main
from leadrope.rehearsal import ModelServer

EXECUTION = "# Ask\n## Steps\n### ask\nA person decides.\n- type: approval\n- message: go?\n"
_HINT = re.compile(r"(?<![\w./-])(?P<program>[\w./-]*leadrope|[\w./-]*python[\d.]* -m leadrope) (?P<words>[a-z-]+.*)")
_WORDS = re.compile(r"[a-z][a-z-]*(?![\w=.|])")
_GROUPS = ("runs", "flow", "approvals", "agents", "sessions", "policy", "connections")


class Installation:
    """An environment in the project's folder, as `make run` and `python -m venv .venv` leave it; nothing is on PATH."""

    def __init__(self, desk: Any) -> None:
        self.project: Path = desk.project
        folder = self.project / ".venv"
        venv.create(folder, symlinks=True, with_pip=False)
        (site,) = folder.glob("lib/python*/site-packages")
        # `addsitedir`, for the .pth file of an editable installation.
        (site / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        self.program = folder / "bin/leadrope"
        self.program.write_text(
            f"#!{folder}/bin/python\nimport sys\nfrom leadrope.cli.main import entry\nsys.exit(entry())\n"
        )
        self.program.chmod(0o755)
        paths = [path for path in desk.environ["PATH"].split(":") if not Path(path, "leadrope").exists()]
        self.environ = desk.environ | {"PATH": ":".join(paths)}

    def run(self, line: str, cwd: Path | None = None) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=cwd or self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def here(desk: Any) -> Installation:
    return Installation(desk)


def hints(shown: str) -> list[tuple[str, list[str]]]:
    """Each command that a text names: the program, and the words up to the first argument."""
    found = []
    for line in re.split(r"[`\n]|, or | · ", shown):
        for hint in _HINT.finditer(line):
            first = hint["words"].split()[0]
            if first not in main.COMMANDS:
                continue
            words = [first]
            rest = hint["words"].split()[1:]
            if first in _GROUPS and rest and _WORDS.fullmatch(rest[0]):
                words.append(rest[0])
            found.append((hint["program"], words))
    return found


COMMANDS = (
    "runs list",
    "runs show",
    "runs show nothing",
    "runs resume nothing",
    "runs diff nothing",
    "approvals show nothing",
    "approvals approve nothing",
    "agents list",
    "agents show nothing",
    "sessions show nothing",
    "run hello --resume nothing",
    "run hello --agent nothing",
    "run two words",
    "run hello --mode odd",
    "fix it",
    "'fix it'",
    "rums",
    "flow list",
    "flow history",
    "flow report nothing",
    "flow run nothing",
    "flow data",
    "flow data nothing",
    "flow steps",
    "flow check",
    "flow check nothing",
    "flow check slip.flow.md",
    "doctor",
    "top --once",
    "events nothing",
    "trust",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_each_hint_can_be_typed_as_it_is_printed(here: Installation, words: str) -> None:
    (here.project / "slip.flow.md").write_text("## Steps\n### one\nOne.\n- type: shell\n- uses: shell\n- command: ls\n")
    (here.project / ".claude").mkdir()
    (here.project / ".claude/settings.json").write_text('{"env": {"A": "b"}}')
    _, shown = here.run(f".venv/bin/leadrope {words}")
    assert "Traceback" not in shown
    for program, named in hints(shown):
        code, said = here.run(f"{program} {' '.join(named)} --help")
        assert code == 0, (shown, program, named, said)


def test_the_commands_above_print_hints(here: Installation) -> None:
    """The test above would also pass if it found none."""
    printed = [bool(hints(here.run(f".venv/bin/leadrope {words}")[1])) for words in COMMANDS]
    silent = [words for words, has in zip(COMMANDS, printed, strict=True) if not has]
    assert len(silent) < len(COMMANDS) / 3, silent


async def test_hints_of_a_run_and_of_a_workflow_work(background: Any, here: Installation) -> None:
    (here.project / "ask.flow.md").write_text(EXECUTION)
    async with ModelServer([{"text": "Hello."}]) as model:
        code, shown = await _run(here, f".venv/bin/leadrope run hello --base-url {model.url}")
    assert code == 0, shown
    (show,) = re.findall(r"(\S*leadrope runs show \S+)", shown)
    assert "Hello." in (await _run(here, show))[1]
    code, shown = await _run(here, ".venv/bin/leadrope flow run ask.flow.md")
    assert code == 4, shown
    (approve,) = re.findall(r"(\S*leadrope approvals approve \S+)", shown)
    (deny,) = re.findall(r"(\S*leadrope approvals deny [^\s);]+)", shown)
    assert deny.startswith(".venv/bin/leadrope ")
    code, shown = await _run(here, f"{approve} && .venv/bin/leadrope flow logs -f")
    assert code == 0, shown


async def _run(here: Installation, line: str) -> tuple[int, str]:
    import asyncio  # the model answers in this loop meanwhile

    return await asyncio.to_thread(here.run, line)


def test_the_name_alone_is_used_only_for_the_program_that_runs(here: Installation, tmp_path: Path) -> None:
    other = tmp_path / "other bin"
    other.mkdir()
    (other / "leadrope").write_text("#!/bin/sh\necho another one\n")
    (other / "leadrope").chmod(0o755)
    line = "runs show nothing"
    path = here.environ["PATH"]
    here.environ["PATH"] = f"{other}:{path}"
    assert "`.venv/bin/leadrope runs list`" in here.run(f".venv/bin/leadrope {line}")[1]
    assert f"`{here.program} runs list`" in here.run(f"{here.program} {line}", cwd=other)[1]
    assert "`./leadrope runs list`" in here.run(f"./leadrope {line}", cwd=here.program.parent)[1]
    here.environ["PATH"] = f"{here.program.parent}:{other}:{path}"
    assert "`leadrope runs list`" in here.run(f"leadrope {line}")[1]
    here.environ["PATH"] = path
    assert "`.venv/bin/leadrope runs list`" in here.run(f".venv/bin/python -m leadrope {line}")[1]
    here.program.unlink()
    assert "`.venv/bin/python -m leadrope runs list`" in here.run(f".venv/bin/python -m leadrope {line}")[1]


def test_what_is_stored_and_json_keep_the_plain_name(here: Installation) -> None:
    _, shown = here.run(".venv/bin/leadrope doctor -o json")
    assert ".venv/bin/leadrope " not in shown
    assert os.fspath(sys.executable) not in shown
