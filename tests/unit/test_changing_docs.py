"""docs/internals/changing.md: what to touch for a change, by paths that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = re.split(r"^## ", (ROOT / "docs/internals/changing.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
PATH = re.compile(r"`((?:src|tests|docs)/[^`]*|[\w.-]+\.(?:md|toml))`( \((?:new|to come)\))?")


def test_there_is_a_section_for_each_kind_of_change() -> None:
    assert len(SECTIONS) == 1 + 12


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.splitlines()[0][:40])
def test_every_path_exists_or_is_marked_as_one_that_does_not(section: str) -> None:
    found = PATH.findall(section)
    assert found
    for path, mark in found:
        named = ROOT / path
        if mark == " (new)":
            assert named.name.partition(".")[0].isupper() or "NAME" in named.name, path
            assert named.parent.is_dir() or "GROUP" in path, path
        elif "leadrope.toml" not in path:
            assert named.exists() != bool(mark), path


@pytest.mark.parametrize("section", SECTIONS[1:], ids=lambda section: section.splitlines()[0])
def test_no_change_needs_more_than_six_files(section: str) -> None:
    steps = re.findall(r"^\d\. .*(?:\n .*)*", section, re.MULTILINE)
    first = [path for step in steps for path, _ in PATH.findall(step.partition(":")[0])]
    assert 3 <= len(first) <= 6, first
