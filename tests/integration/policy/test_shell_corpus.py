"""Command lines that really start `evil`, none judged clean without it; and everyday ones, most of them clean."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from leadrope.policy.shell.reader import read

DATA = Path(__file__).parents[2] / "data" / "commands"


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: str
    needs: tuple[str, ...] = ()
    times: int = 0
    before: str = ""

    @property
    def command(self) -> str:
        return self.before * self.times + self.run


def load(name: str) -> dict[str, list[Case]]:
    found = msgspec.yaml.decode((DATA / name).read_bytes(), type=dict[str, list[str | Case]])
    return {kind: [Case(case) if isinstance(case, str) else case for case in cases] for kind, cases in found.items()}


EVIL = load("evil.yaml")
EVERYDAY = load("everyday.yaml")


def every(corpus: dict[str, list[Case]]) -> Iterator[Case]:
    for cases in corpus.values():
        yield from cases


def test_the_corpus_is_wide() -> None:
    assert len(EVIL) == 12
    assert {kind: len(cases) for kind, cases in EVIL.items() if len(cases) < 12} == {}
    commands = [case.command for case in every(EVIL)]
    assert len(commands) == len(set(commands)) >= 250
    assert len({case.command for case in every(EVERYDAY)}) >= 90


@pytest.mark.parametrize("kind", EVIL)
def test_no_command_that_starts_evil_is_judged_clean_without_it(kind: str) -> None:
    wrong = []
    for case in EVIL[kind]:
        reading = read(case.command)
        named = any(posixpath.basename(program.words[0] or "") == "evil" for program in reading.programs)
        if reading.is_clean and not named:
            wrong.append(case.command)
    assert wrong == []


def test_every_one_of_them_really_starts_evil(started_evil: Callable[[Sequence[str]], list[bool]]) -> None:
    """The table proves nothing about commands that would not work anyway."""
    missing = {tool for case in every(EVIL) for tool in case.needs if shutil.which(tool, path="/usr/bin:/bin") is None}
    cases = [case.command for case in every(EVIL) if not missing & set(case.needs)]
    assert len(cases) >= 250, f"too few commands could be tried here; missing are {sorted(missing)}"
    idle = [case for case, started in zip(cases, started_evil(cases), strict=True) if not started]
    # On a busy machine one of hundreds may not have come to it in its time; alone it has the machine's whole attention.
    assert [case for case in idle if not started_evil([case])[0]] == []


def test_most_everyday_commands_are_clean() -> None:
    judged = {case.command: read(case.command) for case in every(EVERYDAY)}
    clean = [command for command, reading in judged.items() if reading.is_clean]
    unclear = {command: reading.opaque for command, reading in judged.items() if not reading.is_clean}
    assert len(clean) >= 0.6 * len(judged), unclear
