"""docs/tutorial.md from its first command to its last, as a reader would type it, on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer
from leadrope.runs import leases
from shell_examples import Fence, fences

PAGE = "docs/tutorial.md"
PLACEHOLDER = re.compile(r"\b3fa9\b")
QUESTION = re.compile(r"(Allow\?.*\[e\]dit|Continue\?)[^\n]*: $", re.DOTALL)
"""The two kinds of questions, at the moment when an answer is waited for."""


def edit(name: str, old: str, new: str) -> dict[str, Any]:
    return {"tool": {"name": "Edit", "input": {"file_path": name, "old_string": old, "new_string": new}}}


def read(name: str) -> dict[str, Any]:
    return {"tool": {"name": "Read", "input": {"file_path": name}}}


def script() -> list[dict[str, Any]]:
    """What the model says in each run of the page, in their order."""
    tests = {"name": "Bash", "input": {"command": "python3 -m unittest -q", "description": "Run the unit tests"}}
    mul = "    return a + b\n\n\ndef mul(a, b):\n    return a * b"
    return [
        {"text": "It is a calculator."},
        read("calc.py"),
        edit("calc.py", "return a - b", "return a + b"),
        {"tool": tests},
        {"text": "Corrected."},
        read("calc.py"),
        edit("calc.py", "    return a + b", mul),
        read("test_calc.py"),
        edit("test_calc.py", "import add", "import add, mul"),
        {"text": "Added mul()."},
        {"text": "The change is fine."},
        {"text": "It is a calculator, still."},
    ]


class Reader:
    """Somebody who follows the page: saves the files, types the commands, answers the questions with yes."""

    def __init__(self, stage: Any, url: str) -> None:
        self.folder: Path = stage.ws
        self.cwd = stage.ws
        home = Path(stage.environ["LEADROPE_HOME"])
        home.mkdir()
        (home / ".env").write_text("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-rehearsal-0000000000\n")
        config = Path(stage.environ["HOME"], ".config", "leadrope", "config.toml")
        config.parent.mkdir(parents=True)
        config.write_text(f'[run]\nbase_url = "{url}"\n\n[service]\nidle_s = 1\n')
        self.home = home
        self.environ = stage.environ | {
            "PATH": f"{Path(sys.executable).parent}:{stage.environ['PATH']}",
            "TERM": "xterm",
            "NO_COLOR": "1",
            **{f"GIT_{who}_{what}": f"t@{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        self.asked = 0

    def save(self, name: str, fence: Fence) -> None:
        (self.cwd / name).write_text("\n".join(fence.body) + "\n")

    def run(self, line: str) -> str:
        """In a terminal of its own; a `cd` in the line holds for the next one."""
        place = self.folder.parent / "pwd"
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 100, 0, 0))  # so that no diff needs a pager
        seen = ""
        with subprocess.Popen(
            ["setsid", "--ctty", "--wait", "bash", "-c", f'{line}\ncode=$?; pwd > "{place}"; exit $code'],
            cwd=self.cwd,
            env=self.environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        ) as child:
            os.close(slave)
            give_up, answered = time.monotonic() + 120, 0
            while select.select([master], [], [], max(0, give_up - time.monotonic()))[0]:
                try:
                    seen += os.read(master, 65536).decode(errors="replace").replace("\r\n", "\n")
                except OSError:  # the last process has closed its end
                    break
                if QUESTION.search(seen[answered:]):
                    os.write(master, b"yes\n")
                    answered = len(seen)
                    self.asked += 1
            if time.monotonic() >= give_up:
                child.kill()
            os.close(master)
        assert child.returncode == 0, (line, seen)
        assert "Traceback" not in seen
        self.cwd = Path(place.read_text().strip())
        return seen

    def filled(self, line: str) -> str:
        """The newest id in the place of the example's, as somebody reads it from the list before."""
        if not PLACEHOLDER.search(line):
            return line
        if "approvals" in line:
            until(lambda: self.json("approvals list"))
            (found,) = self.json("approvals list")
            return PLACEHOLDER.sub(found["id"][:8], line)
        return PLACEHOLDER.sub(self.json("runs list")[0]["id"][:8], line)

    def json(self, command: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            ["leadrope", *command.split(), "-o", "json"],
            cwd=self.cwd,
            env=self.environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return [json.loads(text) for text in done.stdout.splitlines()]


def until(holds: Any) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, "the state never came"
        time.sleep(0.1)


def is_free(lock: Path) -> bool:
    with leases.Exclusive(lock) as free:
        return free


def test_the_tutorial_works_from_its_first_command_to_its_last(stage: Any) -> None:
    page = [fence for fence in fences() if fence.document == PAGE]
    shown: dict[str, str] = {}
    with ModelServer.in_thread(script(), strict=False) as model:
        reader = Reader(stage, model.url)
        for fence in page:
            _, _, name = fence.info.partition(" ")
            if name:
                reader.save(name, fence)
            for line in fence.body if fence.info == "console" else ():
                words = line.removeprefix("$ ")
                if words == "leadrope approvals list":
                    until(lambda: reader.json("approvals list"))
                shown[words] = reader.run(reader.filled(words))
        until(lambda: is_free(reader.home / "background" / "owner.lock"))
        assert model.problems == []
    assert reader.asked == 2, "the command of the first run, and the last step of the workflow"
    pushed, tested = (shown[line] for line in shown if line.startswith("leadrope policy explain"))
    assert "verdict  deny" in pushed
    assert "verdict  allow" in tested
    assert "def mul" in shown["leadrope runs diff"], shown["leadrope runs apply"]
    calculator = stage.ws / "calculator"
    assert (calculator / "calc.py").read_text().endswith("def mul(a, b):\n    return a * b\n")
    assert "import add, mul" in (calculator / "test_calc.py").read_text()
    assert "The change is fine." in shown["leadrope flow run review.flow.md"]
    assert shown["python3 ask.py"].split("\n")[:2] == ["succeeded", "It is a calculator, still."]
    assert "<html" in (calculator / "run.html").read_text()


@pytest.mark.parametrize("name", ["calc.py", "test_calc.py", "leadrope.toml", "review.flow.md", "ask.py"])
def test_the_page_shows_every_file_that_it_uses(name: str) -> None:
    assert [fence for fence in fences() if fence.document == PAGE and fence.info.endswith(f" {name}")]
