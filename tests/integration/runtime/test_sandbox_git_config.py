"""What is left of an agent's git settings after its run: real files, changed by a real git as an agent would."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from hostile_folders import swapping
from leadrope import events
from leadrope.process.sandbox import git_config_copy
from leadrope.process.sandbox.git_config_copy import View
from leadrope.runtime.sandboxing import git_config_changes

NOBODY = 65534


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Desk:
    """A repository's settings, and the copy in an agent's hands."""

    def __init__(self, folder: Path) -> None:
        self.repository, self.run_dir = folder / "it", folder / "run"
        self.run_dir.mkdir()
        git("init", "-q", str(self.repository))
        self.config = self.repository / ".git" / "config"
        self.lock = self.config.with_name("config.lock")
        self.mine("remote.origin.url", "git@example.org:me/it.git")
        self.mine("core.hooksPath", ".husky")
        self.view = self.copied()
        self.copy = Path(self.view.link).with_name("config")

    def copied(self) -> View:
        (view,) = git_config_copy.make([str(self.config)], str(self.run_dir))
        return view

    def mine(self, name: str, value: str) -> None:
        git("config", "--file", str(self.config), name, value)

    def agent(self, *words: str) -> None:
        git("config", "--file", str(self.copy), *words)

    def settle(self) -> list[events.Notice]:
        return list(git_config_changes.settle([self.view]))

    def value(self, name: str) -> list[str]:
        done = subprocess.run(
            ["git", "config", "--file", str(self.config), "--get-all", name],
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout.splitlines()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_harmless_settings_are_kept_and_the_rest_is_named(desk: Desk) -> None:
    desk.agent("user.name", "-B")
    desk.agent("remote.fork.url", "https://example.org/fork.git")
    desk.agent("--add", "remote.fork.url", "https://example.net/fork.git")
    desk.agent("branch.main.remote", "fork")
    desk.agent("branch.main.merge", "refs/heads/main")
    desk.agent("core.fsmonitor", "/tmp/evil")
    desk.agent("core.hooksPath", "evil")
    desk.agent("remote.origin.url", "https://evil.example/it.git")
    kept, dropped = desk.settle()
    assert (kept.code, kept.level) == (git_config_changes.KEPT, "info")
    assert (dropped.code, dropped.level) == (git_config_changes.DROPPED, "warning")
    for name in ("user.name", "remote.fork.url", "branch.main.remote", "branch.main.merge"):
        assert name in kept.message
    for name in ("core.fsmonitor", "core.hookspath", "remote.origin.url"):
        assert name in dropped.message
    assert str(desk.config) in dropped.message
    assert "evil" not in dropped.message
    assert desk.value("user.name") == ["-B"]
    assert desk.value("remote.fork.url") == ["https://example.org/fork.git", "https://example.net/fork.git"]
    assert desk.value("branch.main.remote") == ["fork"]
    assert desk.value("core.fsmonitor") == []
    assert desk.value("core.hooksPath") == [".husky"]
    assert desk.value("remote.origin.url") == ["git@example.org:me/it.git"]


def test_what_was_taken_away_stays_away_if_it_may(desk: Desk) -> None:
    desk.agent("--remove-section", "remote.origin")
    desk.agent("--unset", "core.hooksPath")
    kept, dropped = desk.settle()
    assert "remote.origin.url" in kept.message
    assert "core.hookspath" in dropped.message
    assert 'remote "origin"' not in desk.config.read_text()
    assert desk.value("core.hooksPath") == [".husky"]


def test_nothing_is_said_where_nothing_was_changed(desk: Desk) -> None:
    before = desk.config.read_bytes()
    assert desk.settle() == []
    desk.agent("user.name", "B")
    desk.agent("--remove-section", "user")
    assert desk.settle() == []
    assert desk.config.read_bytes() == before


def test_what_the_user_has_set_meanwhile_stands(desk: Desk) -> None:
    """Another run, or the user's own git."""
    desk.agent("user.name", "B")
    desk.agent("user.email", "b@b")
    desk.mine("user.name", "C")
    desk.mine("user.email", "b@b")
    kept, other = desk.settle()
    assert "user.email" in kept.message
    assert "changed meanwhile" in other.message
    assert "user.name" in other.message
    assert desk.value("user.name") == ["C"]


def test_two_runs_do_not_undo_each_other(desk: Desk) -> None:
    second = desk.copied()
    desk.agent("branch.a.remote", "origin")
    git("config", "--file", second.link, "branch.b.remote", "origin")
    list(git_config_changes.settle([desk.view, second]))
    assert (desk.value("branch.a.remote"), desk.value("branch.b.remote")) == (["origin"], ["origin"])


def test_a_lock_that_was_left_stops_it_with_a_word(desk: Desk) -> None:
    desk.agent("user.name", "B")
    desk.lock.symlink_to("/tmp/evil")
    (told,) = desk.settle()
    assert told.code == git_config_changes.DROPPED
    assert "could not lock config file" in told.message
    assert desk.value("user.name") == []


@pytest.mark.parametrize("text", ["[broken", "\0", "= value\n"])
def test_what_git_cannot_read_is_dropped_as_a_whole(desk: Desk, text: str) -> None:
    before = desk.config.read_bytes()
    desk.copy.write_text(f"[user]\nname = B\n{text}")
    told = desk.settle()
    assert [notice.code for notice in told] == [git_config_changes.DROPPED]
    assert desk.config.read_bytes() == before


def test_nothing_is_included_while_it_is_read(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("[user]\nname = B\n")
    desk.agent("include.path", str(other))
    (told,) = desk.settle()
    assert "include.path" in told.message
    assert desk.value("user.name") == []


def test_names_are_shown_harmlessly(desk: Desk) -> None:
    desk.agent("evil.\x1b[31mred.name", "x")
    desk.agent(f"evil.{'long' * 100}.name", "x")
    (told,) = desk.settle()
    assert "\x1b" not in told.message
    assert len(told.message) < 600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for others")
def test_root_leaves_the_file_to_its_owner() -> None:
    with tempfile.TemporaryDirectory(prefix="leadrope-test-") as folder:  # pytest's own are closed to others
        Path(folder).chmod(0o755)
        desk = Desk(Path(folder))
        for path in (desk.config.parent, desk.config):
            os.chown(path, NOBODY, NOBODY)
        desk.view = desk.copied()
        desk.copy = Path(desk.view.link).with_name("config")
        desk.agent("user.name", "B")
        assert [notice.code for notice in desk.settle()] == [git_config_changes.KEPT]
        found = desk.config.stat()
        assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)
        assert desk.value("user.name") == ["B"]


@pytest.mark.parametrize("trap", ["link", "pipe", "folder", "hard link", "large"])
def test_a_copy_that_is_none_any_more_is_dropped(desk: Desk, tmp_path: Path, trap: str) -> None:
    (tmp_path / "other").write_text("[user]\nname = X\n")
    desk.copy.unlink()
    match trap:
        case "link":
            desk.copy.symlink_to(tmp_path / "other")
        case "pipe":
            os.mkfifo(desk.copy)
        case "folder":
            desk.copy.mkdir()
        case "hard link":
            os.link(tmp_path / "other", desk.copy)
        case "large":
            desk.copy.write_bytes(b"#" * (git_config_copy.MOST_BYTES + 1))
    before = desk.config.read_bytes()
    (notice,) = desk.settle()
    assert notice.code == git_config_changes.DROPPED
    assert desk.config.read_bytes() == before


def test_a_folder_that_became_a_link_is_not_written_through(desk: Desk, tmp_path: Path) -> None:
    """Another agent in the same workspace may have exchanged it, for one with the very same settings in it."""
    desk.agent("user.name", "B")
    other = tmp_path / "victim"
    shutil.copytree(desk.config.parent, other)
    before = (other / "config").read_bytes()
    desk.config.parent.rename(tmp_path / "was")
    desk.config.parent.symlink_to(other)
    (notice,) = desk.settle()
    assert "has become another folder" in notice.message
    assert (other / "config").read_bytes() == before
    assert sorted(path.name for path in other.iterdir()) == sorted(path.name for path in (tmp_path / "was").iterdir())


def test_no_swap_leads_the_settings_elsewhere(desk: Desk, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(desk.config.read_bytes())
    link = tmp_path / "link"
    link.symlink_to(victim)
    before = victim.stat()
    desk.agent("user.name", "B")
    for _ in range(20):
        with swapping(desk.config, link):
            desk.settle()
    after = victim.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("victim")] == ["victim"]


def test_settings_that_became_a_link_are_not_written_through(desk: Desk, tmp_path: Path) -> None:
    desk.agent("user.name", "B")
    victim = tmp_path / "victim"
    victim.write_bytes(desk.config.read_bytes())
    desk.config.unlink()
    desk.config.symlink_to(victim)
    before = victim.read_bytes()
    (notice,) = desk.settle()
    assert "is a link" in notice.message
    assert victim.read_bytes() == before
    assert desk.config.is_symlink()
