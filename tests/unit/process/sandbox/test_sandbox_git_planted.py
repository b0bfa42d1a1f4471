"""What was planted in a git folder is put aside, whatever it is and whatever stands in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope.process.sandbox import git_folders


@pytest.fixture
def git(tmp_path: Path) -> Path:
    folder = tmp_path / "ws" / ".git"
    for name in ("objects", "refs", "worktrees/a"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text("[extensions]\nworktreeConfig = true\n")
    return folder


@pytest.mark.parametrize("kind", ["file", "link", "pipe", "folder"])
@pytest.mark.parametrize("in_the_way", ["nothing", "file", "folder", "link"])
def test_it_is_put_aside(git: Path, tmp_path: Path, kind: str, in_the_way: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("x")
    put(git / "commondir", kind, tmp_path)
    put(git / "commondir.planted", in_the_way, tmp_path)
    assert list(git_folders.disarm([f"{git}/commondir"])) == [(f"{git}/commondir", "")]
    assert not os.path.lexists(git / "commondir")
    assert os.path.lexists(git / "commondir.planted")
    assert (tmp_path / "outside" / "file").read_text() == "x"
    assert list(git_folders.disarm([f"{git}/commondir"])) == []


def put(path: Path, kind: str, folder: Path) -> None:
    match kind:
        case "file":
            path.write_text("/elsewhere")
        case "link":
            path.symlink_to(folder / "outside")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
            (path / "full").write_text("")


def test_a_git_folder_that_became_a_link_is_said_and_left(git: Path, tmp_path: Path) -> None:
    git.rename(tmp_path / "moved")
    (tmp_path / "moved" / "commondir").write_text("x")
    git.symlink_to(tmp_path / "moved")
    ((path, problem),) = git_folders.disarm([f"{git}/commondir"])
    assert path == f"{git}/commondir"
    assert "is a link, not a folder" in problem
    assert (tmp_path / "moved" / "commondir").exists()


def test_gaps_are_filled_inside_of_the_git_folder_only(git: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (git / "hooks").symlink_to(tmp_path / "outside" / "hooks")
    (git / "worktrees" / "b").symlink_to(tmp_path / "outside")
    (git / "config.worktree").symlink_to(tmp_path / "outside" / "made")
    git_folders.fill_gaps(str(git))
    assert list((tmp_path / "outside").iterdir()) == []
    assert (git / "worktrees" / "a" / "config.worktree").read_text() == ""


def test_a_pointer_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert git_folders.outer_git_dir(str(tmp_path), writable=[str(tmp_path)]) is None
