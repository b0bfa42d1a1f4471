"""Which command lines count as mere reading, and which of their near relatives do not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from leadrope.policy.programs.read_only import ReadOnly, reads_only
from leadrope.policy.shell.reader import read

DATA = Path(__file__).parents[3] / "data" / "commands" / "read_only.yaml"


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reads: list[str]
    others: dict[str, list[str]]


TABLE = msgspec.yaml.decode(DATA.read_bytes(), type=Table)
OTHERS = [(command, why) for why, commands in TABLE.others.items() for command in commands]


def test_the_tables_are_wide() -> None:
    assert len(set(TABLE.reads)) == len(TABLE.reads) >= 150
    assert len({command for command, _ in OTHERS}) == len(OTHERS) >= 200
    assert not set(TABLE.reads) & {command for command, _ in OTHERS}


@pytest.mark.parametrize("command", TABLE.reads)
def test_a_line_that_only_reads(command: str) -> None:
    reading = read(command)
    assert reads_only(reading) is not None, (reading.opaque, reading.unknown, reading.extras, reading.writes)


@pytest.mark.parametrize(("command", "why"), OTHERS)
def test_a_line_that_may_do_more(command: str, why: str) -> None:
    assert reads_only(read(command)) is None, why


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd src && ls -la | head -5", ReadOnly(("ls", "head"))),
        ("echo a && pwd", ReadOnly()),
        ("/usr/bin/cat x", ReadOnly(("/usr/bin/cat",))),
        ("rg x", ReadOnly(("rg",), unset=("RIPGREP_CONFIG_PATH",))),
    ],
)
def test_what_the_caller_has_to_make_sure_of(command: str, expected: ReadOnly) -> None:
    assert reads_only(read(command)) == expected


def test_git_is_named_with_the_folders_whose_settings_count() -> None:
    found = reads_only(read("git status && git -C ../a log -1 && cd b && git diff && git -C c show"))
    assert found is not None
    assert found.uses_git
    assert found.programs == ("git",)
    assert found.git_folders == (None, "../a", "b", "b/c")
    assert "GIT_EXTERNAL_DIFF" in found.unset


@pytest.mark.parametrize("before", ["", "ls; ", "ls | ", "cd src && "])
@pytest.mark.parametrize("command", [command for command, _ in OTHERS][::7])
def test_a_line_is_no_better_than_its_worst_part(command: str, before: str) -> None:
    assert reads_only(read(before + command)) is None
