"""The search for blocked and protected paths, in a workspace that an agent has filled."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hostile_folders import deep_tree
from leadrope.runtime.sandboxing.policy_paths import Area, find


def test_hard_links_are_found_beside_a_tree_that_is_deeper_than_a_path(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "key").write_text("x")
    (tmp_path / "other").hardlink_to(tmp_path / "keys" / "key")
    with deep_tree(tmp_path, 2100):
        found = find(Area(roots=(str(tmp_path),), home="/nonexistent", blocked=("keys/",)))
    assert set(found.blocked) == {f"{tmp_path}/keys", f"{tmp_path}/other"}


def test_what_is_too_deep_to_be_searched_is_told(tmp_path: Path) -> None:
    with deep_tree(tmp_path, 2100):
        found = find(Area(roots=(str(tmp_path),), home="/nonexistent", protected=("workflows/",)))
    assert "too deep" in found.problem


def test_links_and_pipes_are_not_searched(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "keys"
    outside.mkdir(parents=True)
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(ws / "pipe")
    found = find(Area(roots=(str(ws),), home="/nonexistent", blocked=("keys/",), protected=("*.toml",)))
    assert (found.blocked, found.protected, found.problem) == ((), (), "")


def test_a_pattern_that_leads_elsewhere_does_not_slow_a_search(tmp_path: Path) -> None:
    """`*` in a folder elsewhere fits every name: each file was compared with each pattern, along all of its path."""
    names = tuple(f"name-{number}" for number in range(50))
    with deep_tree(tmp_path, 1200):
        took = []
        for protected in (names, (*names, "/elsewhere/*")):
            began = time.process_time()
            find(Area(roots=(str(tmp_path),), home="/nonexistent", protected=protected))
            took.append(time.process_time() - began)
    assert took[1] < 3 * took[0]
