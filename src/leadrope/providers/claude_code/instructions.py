"""The CLAUDE.md and AGENTS.md files of user and project, read as plain text for the model; runs nothing they say.

The agent itself would read them only together with a repository's settings and hooks, which are switched off.
`@import` lines stay text: following them would let a repository name any file of the machine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

# AGENTS.md comes first, so that what was written for this very agent has the last word.
NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
USER_NAMES = ("AGENTS.md", "CLAUDE.md")

# Some sixty thousand tokens. Larger files are logs or data by mistake, and would push the task out of the context.
FILE_BYTES = 256 * 1024


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    files: tuple[str, ...] = ()
    """Absolute paths, in the order in which the model reads them: the user's, then from the project's root down."""
    notices: tuple[str, ...] = ()


class _Unreadable(Exception):
    """Never leaves this module."""


def read(cwd: Path, home: Path, environ: Mapping[str, str] | None = None) -> Instructions:
    """Collect the files for a run in `cwd`. What cannot be used is left out, with a notice that says why."""
    root = project_root(cwd)
    config = (environ or {}).get("CLAUDE_CONFIG_DIR")
    user = Path(config) if config else home / ".claude"
    sections: list[str] = []
    files: list[str] = []
    notices: list[str] = []
    seen_paths: set[Path] = set()
    seen_texts: set[str] = set()
    for path, inside in _candidates(cwd, root, user):
        try:
            real = path.resolve(strict=True)
        except FileNotFoundError:
            if path.is_symlink():
                notices.append(f"{path} is a link to nothing")
            continue
        except (OSError, RuntimeError) as error:
            notices.append(f"{path} cannot be followed: {error}")
            continue
        if inside is not None and not real.is_relative_to(inside):
            notices.append(f"{path} leads out of the project and is not read")
            continue
        if real in seen_paths:
            continue
        seen_paths.add(real)
        try:
            text, is_cut = _read(real)
        except _Unreadable as error:
            notices.append(f"{path} {error}")
            continue
        if is_cut:
            notices.append(f"{path} is longer than {FILE_BYTES // 1024} KiB; the rest was left out")
        # The same text under both names is common, and twice is only dearer.
        if not text.strip() or text.strip() in seen_texts:
            continue
        seen_texts.add(text.strip())
        whose = "project" if inside is not None else "user"
        sections.append(f"# Instructions of the {whose}, from {path}\n\n{text.strip()}")
        files.append(str(path))
    return Instructions(text="\n\n".join(sections), files=tuple(files), notices=tuple(notices))


def project_root(cwd: Path) -> Path:
    """The nearest folder upwards that holds `.git`; without one, `cwd` itself: its parents are not the project's."""
    cwd = cwd.resolve()
    for folder in (cwd, *cwd.parents):
        # A worktree and a submodule have a file there, not a folder.
        if (folder / ".git").exists():
            return folder
    return cwd


def _candidates(cwd: Path, root: Path, user: Path) -> Iterator[tuple[Path, Path | None]]:
    """Each path with the folder that its real place must lie in; the user's own files may be links to anywhere."""
    for name in USER_NAMES:
        yield user / name, None
    cwd = cwd.resolve()
    below = [folder for folder in (cwd, *cwd.parents) if folder.is_relative_to(root)]
    for folder in reversed(below):
        for name in NAMES:
            yield folder / name, root


def _read(path: Path) -> tuple[str, bool]:
    try:
        # O_NONBLOCK: a pipe under this name would otherwise hold us until somebody writes to it. O_NOFOLLOW: the
        # path is resolved; a link that appears now was put there in between.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _Unreadable("is not a regular file")
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror}") from None
    is_cut = len(data) > FILE_BYTES
    data = data[:FILE_BYTES]
    if b"\0" in data:
        raise _Unreadable("is not text")
    try:
        return data.decode(), is_cut
    except UnicodeDecodeError as error:
        # The cut may have split the last character.
        if is_cut and error.start >= len(data) - 3:
            return data[: error.start].decode(), is_cut
        raise _Unreadable("is not UTF-8 text") from None
