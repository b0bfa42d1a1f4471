"""Files of a checkout as a snapshot looks at them: never through a link, at any depth, and never taken for gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostile_folders import deep_tree
from leadrope import errors
from leadrope.runs.workspace.snapshots import Files


def test_a_tree_that_is_deeper_than_pythons_stack(tmp_path: Path) -> None:
    with deep_tree(tmp_path, 1500) as bottom:
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=bottom))
        files = Files(str(tmp_path))
        assert files.look(b"d/" * 1500 + b"file") is not None
        assert files.is_folder(b"d/" * 1499 + b"d")
        assert files.look(b"d/" * 5000 + b"file") is None, "too long for any system call"


def test_what_lies_behind_a_link_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("x")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "link").symlink_to("../outside")
    files = Files(str(tmp_path / "ws"))
    assert files.look(b"link/file") is None
    assert files.is_other(b"link")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into everything; test_hostile_doors does this as a user")
def test_what_cannot_be_looked_at_is_told(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "file").write_text("x")
    (tmp_path / "closed").chmod(0)
    with pytest.raises(errors.GitFailed, match=r"closed/file in .* cannot be looked at: Permission denied"):
        Files(str(tmp_path)).look(b"closed/file")
    (tmp_path / "closed").chmod(0o700)
