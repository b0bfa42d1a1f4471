"""Everyday commands of many ecosystems, and how many of them a person is asked about in each mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Policy, decide
from leadrope.policy.look import Facts
from leadrope.policy.sources import gather

DATA = Path(__file__).parents[1] / "data" / "commands"
MODES: tuple[Mode, ...] = get_args(Mode)


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


def shares(folder: Path) -> Iterator[Share]:
    """By mode, without and with a sandbox, under the shipped policy, with somebody there to be asked."""
    home, workspace = folder / "home", folder / "workspace"
    rules = gather(config=home / "none.toml", home=home, agent=None, cwd=workspace, policies=[]).effective()
    every = lines()
    for mode in MODES:
        policy = Policy(mode=mode, workspace=(str(workspace),), rules=rules)
        for sandboxed in (False, True):
            facts = Facts(
                sandboxed=sandboxed,
                git_is_plain=True,
                which=lambda name: f"/usr/bin/{name}",
                has_above=lambda _folder, _files: False,
            )
            asked = tuple(line for line in every if _verdict(policy, line.command, facts) != "allow")
            yield Share(
                mode=mode,
                sandboxed=sandboxed,
                asked=tuple(line.command for line in asked),
                of=len(every),
                asked_reads=tuple(line.command for line in asked if line.reads),
            )


def _verdict(policy: Policy, command: str, facts: Facts) -> str:
    return decide(policy, ToolCall(id="t", name="Bash", input={"command": command}), facts).word
