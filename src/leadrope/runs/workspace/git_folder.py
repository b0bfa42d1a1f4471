"""Checks that a git folder contains no links or pipes: git follows links in it, and blocks on pipes.

An agent can write to most of `.git`. With a link there, git would write refs, objects or worktree records elsewhere, or
copy a file of the user (`info/sparse-checkout`) to where the agent can read it. Such a repository is rejected before
git works in it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from leadrope import errors
from leadrope.confined import Folder, FolderEntry, below, real_path

MOST_ENTRIES = 500_000
"""Maximum entries checked; a repository with more loose refs must be packed first."""
MOST_SETTINGS = 1024 * 1024

_TREES = ("refs", "logs")
_FOLDERS = ("", "info", "objects", "objects/info", "objects/pack", "worktrees")
_MAY_BE_LINKS = ("hooks", "info/exclude")
"""Commonly links, and harmless: hooks are disabled, and patterns are only compared with names."""
_READ_BY_GIT = (".gitignore", ".gitattributes", ".gitmodules")


def check(top: str, git_dir: str, common_dir: str) -> None:
    """Check the repository and the path to it from the checkout; BadDirectory says what is wrong."""
    _check_way(top, git_dir)
    for folder in dict.fromkeys((git_dir, common_dir)):
        check_folder(folder)


def check_folder(git_dir: str) -> None:
    """Reject links, pipes and devices where git reads and writes."""
    try:
        with Folder.open(git_dir, hard_links=True) as folder:
            for entry in _entries(folder):
                if entry.kind in ("file", "folder", "socket") or _is_harmless(git_dir, entry):
                    continue
                raise errors.BadDirectory(
                    f"{git_dir}/{entry.path} is a {entry.kind}, and git would follow it or wait for it",
                    hint="Check where it leads. If you did not put it there, remove it.",
                )
    except errors.UnsafeFile as error:
        raise errors.BadDirectory(f"git cannot be used here: {error.message}", hint=error.hint) from None
    except OSError as error:
        raise errors.BadDirectory(f"{git_dir} cannot be looked at: {error.strerror}") from None


def waits_for_pipe(pid: int) -> bool:
    """Return whether a process is blocked opening a pipe without a writer, as Linux reports it. False if unknown.

    A file can become a pipe between git's check and its opening of it.
    """
    try:
        sleeps_in = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return False
    return sleeps_in == "wait_for_partner" or any(waits_for_pipe(int(child)) for child in children)


def find_endless(folders: Iterable[str]) -> str | None:
    """Describe what a hanging git may be reading: a pipe or a device."""
    for path in folders:
        is_git = Path(path, "HEAD").exists() or Path(path).name == ".git"
        for entry in itertools.islice(below(path), 4 * MOST_ENTRIES):
            inside = entry.path.removeprefix(path)
            if entry.is_folder or entry.is_link:
                continue
            if is_git or entry.name in _READ_BY_GIT or "/.git/" in inside or inside == "/.git":
                with contextlib.suppress(OSError):  # it is gone
                    mode = os.lstat(entry.path).st_mode
                    if stat.S_ISFIFO(mode):
                        return f"{entry.path}, which is a pipe"
                    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                        return f"{entry.path}, which is a device"
    return None


def _entries(folder: Folder) -> Iterator[FolderEntry]:
    for name in _FOLDERS:
        if folder.kind(name) == "folder" or not name:
            for entry in folder.entries(name, most=MOST_ENTRIES):
                yield entry
                if name == "worktrees" and entry.kind == "folder":
                    yield from folder.entries(entry.path, most=MOST_ENTRIES)
    for name in _TREES:
        if folder.kind(name) == "folder":
            yield from folder.walk(name, most=MOST_ENTRIES)


def _is_harmless(git_dir: str, entry: FolderEntry) -> bool:
    if entry.kind != "link" or entry.path not in _MAY_BE_LINKS:
        return False
    target = Path(git_dir, entry.path)
    return target.is_dir() if entry.path == "hooks" else target.is_file()


def _check_way(top: str, git_dir: str) -> None:
    """Check a `.git` that is a file or a link, which can name any folder: one outside of the checkout must name the
    checkout.
    """
    real = real_path(git_dir)
    here = real_path(top)
    if Path(here) in Path(real).parents:
        return
    if here not in _named_by(Path(real)):
        raise errors.BadDirectory(
            f"{top}/.git leads to {real}, a repository that does not name {top} as its checkout",
            hint="A worktree or a submodule does. If the repository is meant, work in its own checkout.",
        )


def _named_by(git_dir: Path) -> set[str]:
    """Return the checkouts that a git folder names: as a linked worktree, or as the repository of a submodule."""
    found: set[str] = set()
    try:
        with Folder.open(git_dir, hard_links=True) as folder:
            with contextlib.suppress(FileNotFoundError):
                told = folder.read_text("gitdir", most=MOST_SETTINGS, errors="surrogateescape").strip()
                found.add(real_path(git_dir / os.path.dirname(told)))  # noqa: PTH120
            with contextlib.suppress(FileNotFoundError):
                for line in folder.read_text("config", most=MOST_SETTINGS, errors="surrogateescape").splitlines():
                    name, _, value = line.partition("=")
                    if name.strip().lower() == "worktree":
                        found.add(real_path(git_dir / value.strip().strip('"')))
    except (OSError, errors.UnsafeFile):
        return set()
    return found
