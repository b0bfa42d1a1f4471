"""The git folder that a worktree or submodule belongs to; believes no pointer that an agent could have written.

A `.git` file in the workspace says where its git folder is, and the workspace is writable. Taken at its word it could
name any folder of the machine and have it opened for writing at the next run. So the git folder must point back, lie
outside of everything that is writable, and look like one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_WORKTREE = re.compile(r"^\s*worktree\s*=\s*(.+?)\s*$", re.MULTILINE)
_MOST_BYTES = 64 * 1024


def outer_git_dir(workspace: str, *, writable: Sequence[str]) -> str | None:
    """The folder that git in this workspace writes to, if it lies elsewhere."""
    pointer = _read(Path(workspace, ".git"))
    if pointer is None or not pointer.startswith("gitdir:"):
        return None
    git_dir = _resolved(workspace, pointer.removeprefix("gitdir:").strip())
    if git_dir is None or _is_inside(git_dir, writable):
        return None
    common = _common_of_worktree(git_dir, workspace) or _submodule(git_dir, workspace)
    if common is None or _is_inside(common, writable) or any(_is_inside(folder, [common]) for folder in writable):
        return None
    is_git = (Path(common) / "HEAD").is_file() and all((Path(common) / name).is_dir() for name in ("objects", "refs"))
    return common if is_git else None


def git_risks(folder: str) -> tuple[str, ...]:
    """What git itself runs later, outside of the box, when somebody works in the same repository."""
    return tuple(str(path) for name in ("hooks", "config") if (path := Path(folder, name)).exists())


def _common_of_worktree(git_dir: str, workspace: str) -> str | None:
    back = _read(Path(git_dir, "gitdir"))
    if back is None or os.path.realpath(back.strip()) != os.path.realpath(Path(workspace, ".git")):
        return None
    parent = Path(git_dir).parent
    return str(parent.parent) if parent.name == "worktrees" else None


def _submodule(git_dir: str, workspace: str) -> str | None:
    found = _WORKTREE.search(_read(Path(git_dir, "config")) or "")
    if found is None or "modules" not in Path(git_dir).parts:
        return None
    return git_dir if _resolved(git_dir, found[1].strip('"')) == os.path.realpath(workspace) else None


def _resolved(folder: str, path: str) -> str | None:
    try:
        return str(Path(folder, path).resolve(strict=True))
    except (OSError, RuntimeError, ValueError):
        return None


def _read(path: Path) -> str | None:
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return None
    return None


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in map(os.path.realpath, folders))
