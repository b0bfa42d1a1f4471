"""Paths that cannot be looked at are as good as missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leadrope.process import reachable


@pytest.mark.parametrize("look", [reachable.exists, reachable.is_file, reachable.is_dir, reachable.is_symlink])
def test_an_error_is_no_answer(look: Callable[[str | Path], bool]) -> None:
    assert look("/tmp/" + "x" * 5000) is False  # ENAMETOOLONG, which pathlib raises


def test_what_is_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    assert reachable.is_dir(tmp_path)
    assert reachable.is_file(tmp_path / "file")
    assert reachable.is_symlink(tmp_path / "link")
    assert reachable.exists(tmp_path / "link")
    assert not reachable.exists(tmp_path / "none")
