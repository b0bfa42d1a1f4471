"""Everyday commands of many ecosystems, and how many of them a person is asked about in each mode."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import msgspec

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.call_analysis import Facts
from leadrope.policy.decide import Policy, decide
from leadrope.policy.files.sources import gather_policy
from leadrope.policy.shell import reader
from leadrope.runtime.gate.machine_facts import MachineFacts

DATA = Path(__file__).parents[1] / "data" / "commands"
MODES: tuple[Mode, ...] = get_args(Mode)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PROJECT = {
    "README.md": "# Project\n",
    "Makefile": "test:\n\ttrue\n",
    "package.json": '{"name": "project", "scripts": {"test": "true"}}\n',
    "pyproject.toml": '[project]\nname = "project"\n',
    "Cargo.toml": '[package]\nname = "project"\n',
    "go.mod": "module example.com/project\n",
    "Dockerfile": "FROM scratch\n",
    ".gitignore": "*.log\n",
    ".env": "TOKEN=x\n",
    ".github/workflows/ci.yml": "on: push\n",
    "src/main.py": "print(1)\n",
    "src/a.c": "int main(void) { return 0; }\n",
    "tests/test_a.py": "def test_a() -> None: ...\n",
    "docs/index.md": "# Docs\n",
}


class Line(msgspec.Struct, frozen=True):
    command: str
    reads: bool
    """It only looks."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What of the table is not simply allowed."""

    mode: Mode
    sandboxed: bool
    asked: tuple[str, ...]
    of: int
    asked_reads: tuple[str, ...]

    @property
    def percent(self) -> float:
        return 100 * len(self.asked) / self.of


def lines() -> tuple[Line, ...]:
    ecosystems = msgspec.yaml.decode((DATA / "ecosystems.yaml").read_bytes(), type=dict[str, dict[str, list[str]]])
    everyday = msgspec.yaml.decode((DATA / "everyday.yaml").read_bytes(), type=dict[str, list[str]])
    reads = {line for group in ecosystems.values() for line in group["reads"]}
    others = (line for group in ecosystems.values() for line in group.get("works", ()))
    every = dict.fromkeys((*(line for group in everyday.values() for line in group), *reads, *others))
    return tuple(Line(line, line in reads) for line in every)


def project(folder: Path) -> None:
    """A repository with the files of an ordinary project, in which the commands are looked at.

    It has no rust-toolchain.toml, which chooses the program that `cargo --version` starts.
    """
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)


def programs(folder: Path, commands: Iterable[str]) -> Path:
    """A folder with every program that the commands name and this machine may not have."""
    folder.mkdir(exist_ok=True)
    for command in commands:
        for program in reader.read(command).programs:
            name = program.words[0]
            if name is not None and "/" not in name:
                (folder / name).touch(mode=0o755)
    return folder


async def shares(folder: Path) -> list[Share]:
    """By mode, without and with a sandbox, under the shipped policy, with somebody there to be asked.

    What the verdicts need to know about the machine is looked up as the gate of a run does it.
    """
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir()
    project(workspace)
    every = lines()
    path = f"{SYSTEM_PATH}:{programs(folder / 'programs', [line.command for line in every])}"
    machine = MachineFacts(workspace=(str(workspace),), env={"PATH": path, "HOME": str(home)})
    rules = gather_policy(config=home / "none.toml", home=home, agent=None, cwd=workspace, policies=[]).effective()
    calls = {line: ToolCall(id="t", name="Bash", input={"command": line.command}) for line in every}
    known = {line: await machine.looked_up(call, Facts(home=str(home))) for line, call in calls.items()}
    found: list[Share] = []
    for mode in MODES:
        policy = Policy(mode=mode, workspace=(str(workspace),), rules=rules)
        for sandboxed in (False, True):
            facts = {line: msgspec.structs.replace(fact, sandboxed=sandboxed) for line, fact in known.items()}
            asked = tuple(line for line in every if decide(policy, calls[line], facts[line]).word != "allow")
            found.append(
                Share(
                    mode=mode,
                    sandboxed=sandboxed,
                    asked=tuple(line.command for line in asked),
                    of=len(every),
                    asked_reads=tuple(line.command for line in asked if line.reads),
                )
            )
    return found
