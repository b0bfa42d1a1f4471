"""A git that leadrope starts writes below the folders it was given, also where a link in them leads elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.process.sandbox import command_domain
from leadrope.runs.workspace.git import Git

pytestmark = pytest.mark.skipif(bool(command_domain.look().missing), reason="the kernel has no Landlock")


@pytest.fixture
def outside(place: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files are allowed everywhere, and this test's own folder is one of them otherwise."""
    (place.folder / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place.folder / "tmp"))
    (place.folder / "outside").mkdir()
    return Path(place.folder, "outside")


def limited(place: Any) -> Git:
    git = Git(place.environ).within(GIT_DIR=place.repo / ".git", GIT_WORK_TREE=place.repo)
    return git.limited(place.repo / ".git", place.home)


async def test_a_ref_is_not_written_through_a_link(place: Any, outside: Path) -> None:
    head = place.git("rev-parse", "HEAD").strip()
    await limited(place).run("update-ref", "refs/other/one", head, cwd=place.repo)
    assert place.git("rev-parse", "refs/other/one").strip() == head
    (place.repo / ".git" / "refs" / "leadrope").symlink_to(outside)
    with pytest.raises(errors.GitFailed, match="Permission denied"):
        await limited(place).run("update-ref", "refs/leadrope/one", head, cwd=place.repo)
    assert list(outside.iterdir()) == []


async def test_a_worktree_is_not_made_through_a_link(place: Any, outside: Path) -> None:
    place.home.mkdir()
    (place.repo / ".git" / "worktrees").symlink_to(outside)
    with pytest.raises(errors.GitFailed, match="Permission denied"):
        await limited(place).run("worktree", "add", "-q", "--detach", str(place.home / "tree"), cwd=place.repo)
    assert list(outside.iterdir()) == []


async def test_objects_are_not_written_through_a_link(place: Any, outside: Path) -> None:
    objects = place.repo / ".git" / "objects"
    objects.rename(outside / "objects")
    objects.symlink_to(outside / "objects")
    before = sorted((outside / "objects").rglob("*"))
    with pytest.raises(errors.GitFailed):
        await limited(place).run("hash-object", "-w", "--stdin", cwd=place.repo, stdin=b"new")
    assert sorted((outside / "objects").rglob("*")) == before
