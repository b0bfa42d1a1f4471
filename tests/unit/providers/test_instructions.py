"""Which instruction files reach the model, in which order, and which do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope.providers.claude_code import instructions


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write(tmp_path / "home/.claude/x", "").parent.parent


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    (root / "a/b").mkdir(parents=True)
    return root


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_users_first_then_from_the_root_down(home: Path, repo: Path) -> None:
    write(repo.parent / "CLAUDE.md", "outside the repository")
    expected = [
        write(home / ".claude/CLAUDE.md", "user\n"),
        write(repo / "AGENTS.md", "root agents"),
        write(repo / "CLAUDE.md", "root claude"),
        write(repo / "a/.claude/CLAUDE.md", "a hidden"),
        write(repo / "a/b/CLAUDE.md", "b claude @../../etc/passwd"),
        write(repo / "a/b/CLAUDE.local.md", "b local"),
    ]
    found = instructions.read(repo / "a/b", home)
    assert found.files == tuple(map(str, expected))
    assert found.notices == ()
    assert found.text.startswith(
        f"# Instructions of the user, from {expected[0]}\n\nuser\n\n# Instructions of the proj"
    )
    places = [found.text.index(str(path)) for path in expected]
    assert places == sorted(places)
    assert "b claude @../../etc/passwd" in found.text
    assert "outside" not in found.text


def test_without_a_repository_only_the_folder_itself(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "CLAUDE.md", "parent")
    write(tmp_path / "plain/AGENTS.md", "mine")
    assert instructions.read(tmp_path / "plain", home).files == (str(tmp_path / "plain/AGENTS.md"),)


def test_a_worktree_is_a_repository_too(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "tree/.git", "gitdir: elsewhere")
    write(tmp_path / "tree/CLAUDE.md", "root")
    (tmp_path / "tree/sub").mkdir()
    assert instructions.read(tmp_path / "tree/sub", home).files == (str(tmp_path / "tree/CLAUDE.md"),)


def test_nothing_there_is_nothing(home: Path, repo: Path) -> None:
    write(repo / "CLAUDE.md", "  \n")
    assert instructions.read(repo, home) == instructions.Instructions()


def test_the_same_text_is_told_once(home: Path, repo: Path) -> None:
    write(repo / "AGENTS.md", "rules")
    (repo / "CLAUDE.md").symlink_to("AGENTS.md")
    write(repo / "a/CLAUDE.md", "rules\n")
    assert instructions.read(repo / "a", home).files == (str(repo / "AGENTS.md"),)


def test_a_link_out_of_the_project_is_not_followed(home: Path, repo: Path) -> None:
    secret = write(repo.parent / "secret", "private key")
    (repo / "CLAUDE.md").symlink_to(secret)
    (repo / "a/CLAUDE.md").symlink_to(repo / "nowhere")
    (repo / "a/b/CLAUDE.md").symlink_to("CLAUDE.md")
    found = instructions.read(repo / "a/b", home)
    assert found.text == ""
    assert [notice.removeprefix(str(repo)) for notice in found.notices][:2] == [
        "/CLAUDE.md leads out of the project and is not read",
        "/a/CLAUDE.md is a link to nothing",
    ]
    assert "/a/b/CLAUDE.md cannot be followed" in found.notices[2]


def test_a_link_of_the_workspace_may_not_lead_above_it(home: Path, repo: Path) -> None:
    """An agent works in a folder of the repository, and sees no other; what it links to is shown to the next one."""
    write(repo / "deploy/key.md", "private key")
    (repo / "a/b/CLAUDE.md").symlink_to("../../deploy/key.md")
    found = instructions.read(repo / "a/b", home)
    assert found.text == ""
    assert found.notices == (f"{repo / 'a/b/CLAUDE.md'} leads out of the project and is not read",)
    # Above the folder that the agent works in, a link may lead to anything in the repository.
    (repo / "CLAUDE.md").symlink_to("deploy/key.md")
    assert instructions.read(repo / "a/b", home).files == (str(repo / "CLAUDE.md"),)


def test_a_link_to_instructions_that_are_read_anyway_is_no_matter(home: Path, repo: Path) -> None:
    write(repo / "AGENTS.md", "root rules")
    (repo / "a/b/CLAUDE.md").symlink_to("../../AGENTS.md")
    found = instructions.read(repo / "a/b", home)
    assert found.files == (str(repo / "AGENTS.md"),)
    assert found.notices == ()


def test_links_inside_of_the_workspace_are_followed(home: Path, repo: Path) -> None:
    write(repo / "docs/agents.md", "rules")
    (repo / "guide").symlink_to("docs")
    (repo / "AGENTS.md").symlink_to("CLAUDE.md")
    (repo / "CLAUDE.md").symlink_to(repo / "guide/agents.md")
    found = instructions.read(repo, home)
    assert found.files == (str(repo / "AGENTS.md"),)
    assert "rules" in found.text
    assert found.notices == ()


def test_the_users_own_file_may_be_a_link_in_its_folder_only(home: Path, repo: Path) -> None:
    """With the user's own login an agent can write to that folder."""
    secret = write(home / ".ssh/id_rsa", "private key")
    (home / ".claude/CLAUDE.md").symlink_to(secret)
    write(home / ".claude/mine.md", "my rules")
    (home / ".claude/AGENTS.md").symlink_to("mine.md")
    found = instructions.read(repo, home)
    assert "my rules" in found.text
    assert "private key" not in found.text
    assert found.notices == (f"{home / '.claude/CLAUDE.md'} leads out of {home / '.claude'} and is not read",)


def test_the_users_folder_itself_may_be_a_link(home: Path, repo: Path, tmp_path: Path) -> None:
    write(tmp_path / "dotfiles/claude/CLAUDE.md", "from dotfiles")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.claude").symlink_to(tmp_path / "dotfiles/claude")
    assert "from dotfiles" in instructions.read(repo, tmp_path / "other").text


def test_a_config_dir_of_the_users_choice(home: Path, repo: Path, tmp_path: Path) -> None:
    write(tmp_path / "work/CLAUDE.md", "work rules")
    found = instructions.read(repo, home, {"CLAUDE_CONFIG_DIR": str(tmp_path / "work")})
    assert found.files == (str(tmp_path / "work/CLAUDE.md"),)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"a\0b", "is not text"), (b"\xff\xfe caf\xe9 and more", "is not UTF-8 text")]
)
def test_what_is_not_text_is_left_out(home: Path, repo: Path, content: bytes, reason: str) -> None:
    (repo / "CLAUDE.md").write_bytes(content)
    found = instructions.read(repo, home)
    assert found.files == ()
    assert found.notices == (f"{repo / 'CLAUDE.md'} {reason}",)


def test_a_long_file_is_cut_between_characters(home: Path, repo: Path) -> None:
    (repo / "CLAUDE.md").write_text("x" + "é" * instructions.FILE_BYTES)
    found = instructions.read(repo, home)
    assert found.files == (str(repo / "CLAUDE.md"),)
    assert found.text.endswith("é")
    assert len(found.text.encode()) < instructions.FILE_BYTES + 500
    assert "longer than 256 KiB" in found.notices[0]


def test_a_pipe_or_a_folder_does_not_hold_us(home: Path, repo: Path) -> None:
    os.mkfifo(repo / "CLAUDE.md")
    (repo / "AGENTS.md").mkdir()
    found = instructions.read(repo, home)
    assert found.files == ()
    assert len(found.notices) == 2


def test_pipes_and_folders_below_links_do_not_hold_us_either(home: Path, repo: Path) -> None:
    os.mkfifo(repo / "pipe")
    (repo / "CLAUDE.md").symlink_to("pipe")
    (repo / "AGENTS.md").symlink_to("a")
    (repo / ".claude").write_text("no folder")
    os.mkfifo(home / ".claude/CLAUDE.md")
    found = instructions.read(repo, home)
    assert found.files == ()
    assert len(found.notices) == 4
    assert all(name in " ".join(found.notices) for name in ("/.claude/CLAUDE.md", "repo/AGENTS.md", "repo/CLAUDE.md"))
