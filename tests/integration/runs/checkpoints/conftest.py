"""A folder that a run works in, as a git repository and without git, and leadrope's store beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from leadrope.runs.workspace import checkpoints
from leadrope.runs.workspace.checkpoints import Checkpoint, RestorePlan

ODD_NAMES = ("two words", "line\nend", "ümläut-✓", "-dash", "quote\"'", "a\\b", "*", ":(top)x")
RUN = "run-1"


class Ground:
    """A folder that a run works in, and leadrope's store beside it."""

    run = RUN
    odd_names = ODD_NAMES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ws = folder / "my ws"
        self.store = folder / "leadrope" / "checkpoints"
        self.user_home = folder / "home"
        self.user_home.mkdir()
        (self.user_home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.com\n")
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.user_home)}
        self.ws.mkdir()

    def git(self, *arguments: str, cwd: Path | None = None, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.ws, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode in codes, done.stderr
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def files(self) -> dict[str, str]:
        found = {}
        for path in sorted(self.ws.rglob("*")):
            name = str(path.relative_to(self.ws))
            if name == ".git" or name.startswith(".git/") or "/.git/" in name:
                continue
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            elif path.is_file():
                found[name] = f"{path.stat().st_mode & 0o7777:o} {path.read_bytes()!r}"
        return found

    def state(self) -> list[str]:
        index = (self.ws / ".git" / "index").read_bytes().hex()
        refs = self.git("for-each-ref", "refs/heads", "refs/tags", "refs/stash")
        return [(self.ws / ".git" / "HEAD").read_text(), index, refs, self.git("stash", "list")]

    async def take(self, run_id: str = RUN, cwd: Path | None = None) -> Checkpoint:
        return await checkpoints.take(cwd or self.ws, self.store, run_id, environ=self.environ)

    async def close(self, checkpoint: Checkpoint) -> Checkpoint:
        closed = await checkpoints.close(checkpoint, environ=self.environ)
        return msgspec.convert(msgspec.to_builtins(closed), Checkpoint)

    async def undo(self, checkpoint: Checkpoint, *, force: bool = False) -> RestorePlan:
        return await checkpoints.undo(checkpoint, force=force, environ=self.environ)

    async def describe(self, checkpoint: Checkpoint) -> RestorePlan:
        return await checkpoints.describe(checkpoint, environ=self.environ)

    def work(self) -> None:
        """What a run may do to files: all of it must be taken back."""
        ws = self.ws
        (ws / "one.txt").write_text("changed\n")
        (ws / "staged.txt").unlink()
        (ws / "untracked.txt").write_text("changed\n")
        (ws / "secret").unlink()
        (ws / "run.sh").chmod(0o644)
        (ws / "link").unlink()
        (ws / "link").symlink_to("/etc/hostname")
        for name in ODD_NAMES:
            (ws / name).write_text("changed")
            (ws / f"{name} new").write_text("new")
        shutil.rmtree(ws / "dir")
        (ws / "dir").write_text("a file now\n")
        (ws / "made" / "deep").mkdir(parents=True)
        (ws / "made" / "deep" / "file").write_text("new\n")


@pytest.fixture
def bare_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def ground(bare_ground: Ground) -> Ground:
    """A repository in the middle of somebody's work."""
    ws = bare_ground.ws
    bare_ground.git("init", "-q", "-b", "main")
    (ws / "one.txt").write_text("one\n")
    (ws / "staged.txt").write_text("first\n")
    (ws / "dir").mkdir()
    (ws / "dir" / "two.txt").write_text("two\n")
    (ws / "run.sh").write_text("#!/bin/sh\n")
    (ws / "run.sh").chmod(0o755)
    (ws / "link").symlink_to("one.txt")
    (ws / ".gitignore").write_text("*.log\nbuild/\n.env\n")
    for name in ODD_NAMES:
        (ws / name).write_text(f"in {name}")
    bare_ground.commit("first")
    (ws / "staged.txt").write_text("staged\n")
    bare_ground.git("add", "staged.txt")
    (ws / "staged.txt").write_text("and changed again\n")
    (ws / "untracked.txt").write_text("untracked\n")
    (ws / "secret").write_text("private\n")
    (ws / "secret").chmod(0o600)
    (ws / ".env").write_text("KEY=1\n")
    (ws / "build").mkdir()
    (ws / "build" / "out").write_text("built\n")
    return bare_ground
