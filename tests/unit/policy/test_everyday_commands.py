"""How often a person is asked on an ordinary day."""

from __future__ import annotations

import msgspec
import pytest

from everyday_commands import DATA, Share, lines, shares

# What mode full asked about, of the same table, before programs were let run in a sandbox; every other mode: all of it.
FULL_BEFORE = 67


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Share]:
    return {(share.mode, share.sandboxed): share for share in shares(tmp_path_factory.mktemp("ws"))}


def test_the_table_is_wide() -> None:
    ecosystems = msgspec.yaml.decode((DATA / "ecosystems.yaml").read_bytes(), type=dict[str, dict[str, list[str]]])
    assert len(lines()) >= 300
    assert len([name for name, group in ecosystems.items() if len(group.get("works", ())) >= 5]) >= 10
    everyday = msgspec.yaml.decode((DATA / "everyday.yaml").read_bytes(), type=dict[str, list[str]])
    known = {line for group in everyday.values() for line in group}
    assert set(ecosystems["everyday"]["reads"]) <= known, "a line marked as reading is not in everyday.yaml"


def test_no_command_that_only_reads_is_asked_about_in_any_mode(found: dict[tuple[str, bool], Share]) -> None:
    assert {key: share.asked_reads for key, share in found.items() if share.asked_reads} == {}


@pytest.mark.parametrize(
    ("mode", "sandboxed", "most"),
    [
        ("edit", False, 60),
        ("edit", True, 60),
        ("sandboxed", True, 5),
        ("full", True, 5),
    ],
)
def test_a_person_is_asked_rarely(
    found: dict[tuple[str, bool], Share], mode: str, sandboxed: bool, most: float
) -> None:
    share = found[mode, sandboxed]
    assert share.percent <= most, share.asked


def test_without_a_sandbox_no_mode_asks_more_than_before(found: dict[tuple[str, bool], Share]) -> None:
    assert len(found["full", False].asked) <= FULL_BEFORE, found["full", False].asked
