"""Trees that somebody hostile made: listed within bounds, copied without links, deleted without leaving the tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.confined import Folder

SECRET = b"the user's own"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "secret").write_bytes(SECRET)
    (folder / "sub" / "more").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def hostile(root: Path, outside: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "plain").write_text("plain")
    (root / "a" / "b" / "run").write_text("#!/bin/sh\n")
    (root / "a" / "b" / "run").chmod(0o4755)
    (root / "a" / "file").symlink_to(outside / "secret")
    (root / "a" / "dir").symlink_to(outside)
    (root / "a" / "inside").symlink_to("plain")
    os.mkfifo(root / "a" / "pipe")
    os.link(outside / "secret", root / "a" / "hard")


def is_whole(outside: Path) -> bool:
    return (
        sorted(path.name for path in outside.rglob("*")) == ["more", "secret", "sub"]
        and (outside / "secret").read_bytes() == SECRET
        and (outside / "sub" / "more").read_bytes() == SECRET
    )


def test_entries_tell_what_they_are(root: Path, outside: Path) -> None:
    hostile(root, outside)
    with Folder.open(root) as folder:
        found = {entry.path: entry.kind for entry in folder.entries("a")}
        assert found == {
            "a/b": "folder",
            "a/dir": "link",
            "a/file": "link",
            "a/hard": "file",
            "a/inside": "link",
            "a/pipe": "pipe",
            "a/plain": "file",
        }
        assert [entry.name for entry in folder.entries()] == ["a"]
        with pytest.raises(errors.UnsafeFile, match="holds more than 6 entries"):
            folder.entries("a", most=6)


def test_a_walk_enters_no_link_and_has_its_bounds(root: Path, outside: Path) -> None:
    hostile(root, outside)
    with Folder.open(root) as folder:
        everything = [entry.path for entry in folder.walk()]
        assert everything[:3] == ["a", "a/b", "a/b/run"]
        assert len(everything) == 9
        assert [entry.path for entry in folder.walk("a/b")] == ["a/b/run"]
        with pytest.raises(errors.UnsafeFile, match="holds more than 8 entries"):
            list(folder.walk(most=8))
        with pytest.raises(errors.UnsafeFile, match="more than 2 folders deep"):
            list(folder.walk(most_depth=2))


def test_a_copy_has_regular_files_only_and_says_what_it_dropped(root: Path, outside: Path, tmp_path: Path) -> None:
    hostile(root, outside)
    target = tmp_path / "target"
    target.mkdir()
    with Folder.open(root) as folder, Folder.open(target) as to:
        copied = folder.copy_tree("a", to, "copy", most_bytes=1000)
        with pytest.raises(FileExistsError):
            folder.copy_tree("a", to, "copy", most_bytes=1000)
    assert sorted(path.relative_to(target / "copy").as_posix() for path in (target / "copy").rglob("*")) == [
        "b",
        "b/run",
        "plain",
    ]
    assert (target / "copy" / "plain").read_text() == "plain"
    assert (target / "copy" / "b" / "run").stat().st_mode & 0o7777 == 0o755
    assert copied.files == 2
    assert copied.bytes == len("plain#!/bin/sh\n")
    assert {drop.path: drop.reason.split(",")[0] for drop in copied.dropped} == {
        "dir": "is a link",
        "file": "is a link",
        "hard": "has a second name (a hard link)",
        "inside": "is a link",
        "pipe": "is a pipe",
    }


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"most_bytes": 5}, "holds more than 5 bytes"),
        ({"most_bytes": 1000, "most_files": 7}, "holds more than 7 entries"),
        ({"most_bytes": 1000, "most_depth": 1}, "more than 1 folders deep"),
    ],
)
def test_a_copy_has_its_limits(root: Path, outside: Path, tmp_path: Path, limits: dict[str, int], reason: str) -> None:
    hostile(root, outside)
    (tmp_path / "target").mkdir()
    with (
        Folder.open(root) as folder,
        Folder.open(tmp_path / "target") as to,
        pytest.raises(errors.UnsafeFile, match=reason),
    ):
        folder.copy_tree("a", to, "copy", **limits)


def test_deleting_follows_nothing(root: Path, outside: Path) -> None:
    hostile(root, outside)
    (root / "link").symlink_to(outside)
    with Folder.open(root) as folder:
        folder.remove("link")
        folder.remove("a")
        folder.remove("a")
        with pytest.raises(FileNotFoundError):
            folder.remove("a", missing_ok=False)
    assert list(root.iterdir()) == []
    assert is_whole(outside)


def test_a_tree_deeper_than_descriptors_is_deleted(root: Path) -> None:
    (root / "deep").mkdir()
    here = os.open(root / "deep", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with Folder.open(root) as folder:
        folder.remove("deep")
    assert list(root.iterdir()) == []


def test_folders_that_keep_their_owner_out_are_deleted(root: Path) -> None:
    """As a user without root's rights: root passes every permission."""
    code = """
import os, sys
from leadrope.confined import Folder
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(12345); os.setuid(12345)
os.makedirs("closed/a/b")
open("closed/a/b/file", "w").close()
for mode, path in ((0, "closed/a/b"), (0o500, "closed/a"), (0o111, "closed")):
    os.chmod(path, mode)
with Folder.open(".") as folder:
    folder.remove("closed")
print(os.listdir("."))
"""
    root.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(root, 12345, 12345)
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_what_cannot_be_deleted_is_said_and_the_rest_goes(root: Path) -> None:
    (root / "a" / "other").mkdir(parents=True)
    (root / "a" / "other" / "kept").write_text("")
    (root / "a" / "mine").write_text("")
    os.chown(root, 12345, 12345)
    os.chown(root / "a", 12345, 12345)
    code = """
import os
from leadrope.confined import Folder
os.setgroups([]); os.setgid(12345); os.setuid(12345)
with Folder.open(".") as folder:
    try:
        folder.remove("a")
    except PermissionError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr
    assert [path.name for path in (root / "a").iterdir()] == ["other"]
