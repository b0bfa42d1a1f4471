"""Which files a policy's path patterns mean in a workspace, as the sandbox masks or guards them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope.runtime.sandboxing import policy_paths
from leadrope.runtime.sandboxing.policy_paths import Area, PolicyPaths, find


def search(root: Path, *, blocked: tuple[str, ...] = (), protected: tuple[str, ...] = ()) -> PolicyPaths:
    return find(Area(roots=(str(root),), home=str(root.parent / "home"), blocked=blocked, protected=protected))


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "ws"
    folder.mkdir()
    return folder


def below(root: Path, paths: tuple[str, ...]) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}


def test_a_single_name_is_found_at_any_depth_and_in_any_case(root: Path) -> None:
    make(root, ".env", "a/b/.ENV", "a/env", "config/prod/key", "config/dev/key")
    found = search(root, blocked=(".env", "config/prod/"))
    assert below(root, found.blocked) == {".env", "a/b/.ENV", "config/prod"}
    assert found.problem == ""


def test_links_and_second_names_count_as_what_they_lead_to(root: Path) -> None:
    make(root, "config/prod/key", "plain")
    os.link(root / "config/prod/key", root / "second")
    (root / ".env").symlink_to("plain")
    found = search(root, blocked=("config/prod/", ".env"))
    assert below(root, found.blocked) == {"config/prod", "second", "plain"}


def test_a_blocked_path_outside_of_the_workspace_is_found_where_its_pattern_says_where(root: Path) -> None:
    make(root.parent, "home/.aws/credentials", "elsewhere/.aws/credentials")
    found = search(root, blocked=("~/.aws/",), protected=("~/.aws/",))
    assert found.blocked == (str(root.parent / "home" / ".aws"),)
    assert found.protected == (), "it is not writable in the sandbox anyway"


def test_installed_packages_are_not_searched_for_what_is_protected_but_for_what_is_blocked(root: Path) -> None:
    make(root, "a.pth", ".venv/pyvenv.cfg", ".venv/lib/x.pth", "node_modules/p/x.pth")
    found = search(root, protected=("*.pth",))
    assert below(root, found.protected) == {"a.pth"}
    assert below(root, search(root, blocked=("*.pth",)).blocked) == {"a.pth", ".venv/lib/x.pth", "node_modules/p/x.pth"}


def test_too_many_paths_are_said(root: Path) -> None:
    make(root, *(f"{number}.pem" for number in range(policy_paths.MOST_PATHS)))
    assert search(root, blocked=("*.pem",)).problem == ""
    make(root, "one-more.pem")
    assert "201 paths match" in search(root, blocked=("*.pem",)).problem


def test_a_pattern_that_means_everything_is_said(root: Path) -> None:
    assert "means everything" in search(root, blocked=("**",)).problem


def test_the_limits_are_those_that_the_documentation_names() -> None:
    assert (policy_paths.MOST_PATHS, policy_paths.MOST_ENTRIES) == (200, 1_000_000)
