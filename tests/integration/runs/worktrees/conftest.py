"""A scratch repository with real git, and leadrope's home beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope.runs.workspace import worktree_changes as changes
from leadrope.runs.workspace import worktrees
from leadrope.runs.workspace.worktrees import Worktree

RUN = "0123456789abcdef0123456789abcdef"
ODD_NAMES = ("two words", "line\nend", "ümläut-✓", "-dash", "quote\"'", "a\\b", "*", ":(top)x")


class Place:
    """A repository of a user, and leadrope's home beside it."""

    run = RUN
    odd_names = ODD_NAMES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = folder / "my project"
        self.home = folder / "leadrope"
        self.user_home = folder / "home"
        self.user_home.mkdir()
        (self.user_home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.com\n")
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.user_home)}
        self.repo.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.repo / "one.txt").write_text("".join(f"line {n}\n" for n in range(20)))
        (self.repo / "sub").mkdir()
        (self.repo / "sub" / "two.txt").write_text("two\n")
        (self.repo / ".gitignore").write_text("*.log\n")
        self.commit("first")

    def git(self, *arguments: str, cwd: Path | str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.repo, env=self.environ, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, message: str, cwd: Path | str | None = None) -> str:
        self.git("add", "-A", cwd=cwd)
        self.git("commit", "-q", "-m", message, cwd=cwd)
        return self.git("rev-parse", "HEAD", cwd=cwd).strip()

    def plant_hooks(self) -> Path:
        """Each hook, and every setting that names a program, would leave a marker."""
        marker = self.folder / "MARKER"
        script = self.folder / "evil.sh"
        script.write_text(f"#!/bin/sh\necho $0 $* >> '{marker}'\ncat\n")
        script.chmod(0o755)
        hooks = self.repo / ".git" / "hooks"
        hooks.mkdir(exist_ok=True)
        names = (
            "post-checkout",
            "reference-transaction",
            "pre-commit",
            "post-merge",
            "post-index-change",
            "pre-merge-commit",
        )
        for name in (*names, "post-commit", "commit-msg", "prepare-commit-msg", "fsmonitor-watchman", "pre-auto-gc"):
            shutil.copy(script, hooks / name)
        for key in ("core.fsmonitor", "diff.external", "core.pager", "core.editor", "filter.evil.clean", "gpg.program"):
            self.git("config", key, str(script))
        for key in ("filter.evil.smudge", "diff.evil.textconv", "diff.evil.command", "merge.evil.driver"):
            self.git("config", key, str(script))
        self.git("config", "filter.evil.required", "true")
        self.git("config", "commit.gpgsign", "true")
        (self.repo / ".git" / "info").mkdir(exist_ok=True)
        (self.repo / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
        return marker

    def state(self) -> dict[str, str]:
        """What of the user's must stay as it is."""
        return {
            "head": self.git("rev-parse", "HEAD"),
            "branch": self.git("symbolic-ref", "HEAD"),
            "index": self.git("ls-files", "-s", "-z"),
            "heads": self.git("for-each-ref", "refs/heads", "refs/tags", "refs/stash"),
        }

    async def create(self, run_id: str = RUN, **options: Any) -> Worktree:
        return await worktrees.create(
            options.pop("repo", self.repo), run_id, home=self.home, environ=self.environ, **options
        )

    async def diff(self, tree: Worktree, **options: Any) -> str:
        return await changes.diff(tree, environ=self.environ, **options)

    async def apply(self, tree: Worktree, **options: Any) -> changes.Applied:
        return await changes.apply(tree, home=self.home, environ=self.environ, **options)

    async def discard(self, tree: Worktree) -> worktrees.Discarded:
        return await worktrees.discard(tree, home=self.home, environ=self.environ)

    @staticmethod
    def files(folder: Path | str) -> dict[str, str]:
        """Names, contents, links and modes below a folder, without git's own."""
        found = {}
        for path in sorted(Path(folder).rglob("*")):
            name = str(path.relative_to(folder))
            if name == ".git" or name.startswith(".git/"):
                continue
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            elif path.is_file():
                found[name] = f"{path.stat().st_mode & 0o777:o} {path.read_bytes()!r}"
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
