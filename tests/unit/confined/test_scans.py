"""Searches list names: no link is followed, nothing is waited for, and no depth or number of files breaks them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostile_folders import deep_tree
from leadrope.confined import below, names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    folder = tmp_path / "ws"
    (folder / "sub" / "inner").mkdir(parents=True)
    (folder / "file").write_text("x")
    (folder / "sub" / "inner" / "deep").write_text("x")
    (folder / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(folder / "pipe")
    return folder


def test_names_say_what_each_entry_is(folder: Path) -> None:
    found = {entry.name: (entry.path, entry.is_folder, entry.is_link) for entry in names(folder)}
    assert found == {
        "sub": (f"{folder}/sub", True, False),
        "file": (f"{folder}/file", False, False),
        "link": (f"{folder}/link", False, True),
        "pipe": (f"{folder}/pipe", False, False),
    }
    assert len(names(folder, most=2)) == 2


@pytest.mark.parametrize("name", ["link", "pipe", "file"])
def test_only_a_folder_is_listed(folder: Path, name: str) -> None:
    with pytest.raises(NotADirectoryError):
        names(folder / name)


def test_a_link_is_followed_where_its_name_was_given(folder: Path) -> None:
    assert [entry.path for entry in names(folder / "link", follows=True)] == [f"{folder}/link/secret"]


def test_everything_below_without_what_links_lead_to(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0)
    found = [os.path.relpath(entry.path, folder) for entry in below(folder)]
    assert sorted(found) == ["closed", "file", "link", "pipe", "sub", "sub/inner", "sub/inner/deep"]


def test_a_tree_that_no_path_reaches_the_end_of(folder: Path) -> None:
    with deep_tree(folder, 2100):
        assert sum(entry.name == "d" for entry in below(folder)) > 1500
