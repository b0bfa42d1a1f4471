"""Reads the CLAUDE.md and AGENTS.md files of user and project as plain text for the model; executes nothing in them.

The agent itself would read them only together with a repository's settings and hooks, which are disabled. `@import`
lines stay text: following them would let a repository name any file of the machine. For the same reason a link is
followed only inside the folder that an agent could have put it into (`AGENTS.md -> CLAUDE.md`): what is read here is
shown to the model.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder, real_path

# AGENTS.md comes first, so that text written for this agent in particular takes precedence.
NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")
USER_NAMES = ("AGENTS.md", "CLAUDE.md")

# About sixty thousand tokens. Larger files are logs or data by mistake, and would push the task out of the context.
FILE_BYTES = 256 * 1024


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    files: tuple[str, ...] = ()
    """Absolute paths in the order in which the model reads them: the user's, then from the project's root down."""
    notices: tuple[str, ...] = ()


class _Unreadable(Exception):
    """Internal to this module."""


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    inside: Path
    """Links must not lead out of this folder."""
    whose: str


def read(cwd: Path, home: Path, environ: Mapping[str, str] | None = None) -> Instructions:
    """Collect the files for a run in `cwd`. Unusable files are omitted, with a notice that says why."""
    config = (environ or {}).get("CLAUDE_CONFIG_DIR")
    candidates = list(
        _candidates(Path(real_path(cwd)), project_root(cwd), Path(config) if config else home / ".claude")
    )
    sections: list[str] = []
    files: list[str] = []
    notices: list[str] = []
    seen_paths: set[str] = set()
    seen_texts: set[str] = set()
    for candidate in candidates:
        path = candidate.path
        try:
            found = _read(candidate, seen_paths, {str(other.path) for other in candidates})
        except _Unreadable as error:
            notices.append(f"{path} {error}")
            continue
        if found is None:
            continue
        text, is_cut = found
        if is_cut:
            notices.append(f"{path} is longer than {FILE_BYTES // 1024} KiB; the rest was left out")
        # The same text under both names is common, and repeating it only costs more.
        if not text.strip() or text.strip() in seen_texts:
            continue
        seen_texts.add(text.strip())
        sections.append(f"# Instructions of the {candidate.whose}, from {path}\n\n{text.strip()}")
        files.append(str(path))
    return Instructions(text="\n\n".join(sections), files=tuple(files), notices=tuple(notices))


def project_root(cwd: Path) -> Path:
    """Return the nearest parent folder with `.git`; if there is none, `cwd` itself."""
    cwd = Path(real_path(cwd))
    for folder in (cwd, *cwd.parents):
        # In a worktree or a submodule it is a file, not a folder.
        if (folder / ".git").exists():
            return folder
    return cwd


def _candidates(cwd: Path, root: Path, user: Path) -> Iterator[_Candidate]:
    """Yield the files to read. An agent can write in `cwd`, and with the user's own login in `user`, but not in
    between.
    """
    for name in USER_NAMES:
        yield _Candidate(path=user / name, inside=user, whose="user")
    above = [folder for folder in cwd.parents if folder.is_relative_to(root)]
    for folder in (*reversed(above), cwd):
        for name in NAMES:
            yield _Candidate(path=folder / name, inside=cwd if folder == cwd else root, whose="project")


def _read(candidate: _Candidate, seen: set[str], known: set[str]) -> tuple[str, bool] | None:
    """Return the text and whether it was cut; None if there is nothing, or nothing new, to read."""
    below = candidate.path.relative_to(candidate.inside)
    try:
        with Folder.open(candidate.inside, hard_links=True) as folder:
            real = folder.resolve(below)
            if folder.kind(real) is None:
                if folder.kind(below) is None:
                    return None
                raise _Unreadable("is a link to nothing")
            if f"{candidate.inside}/{real}" in seen:
                return None
            seen.add(f"{candidate.inside}/{real}")
            with folder.open_read(real) as file:
                return _text(file.read(FILE_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except errors.UnsafeFile as error:
        if "leads out" in error.reason and _target(candidate.path) in known:  # it is read under its own name
            return None
        raise _Unreadable(_reason(error, candidate)) from None
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror}") from None


def _reason(error: errors.UnsafeFile, candidate: _Candidate) -> str:
    if "leads out" in error.reason:
        where = "the project" if candidate.whose == "project" else str(candidate.inside)
        return f"leads out of {where} and is not read"
    if "circle" in error.reason:
        return "cannot be followed: it is a link in a circle"
    return f"is not read: {error.message}"


def _target(path: Path) -> str | None:
    """Return the target of a link without opening anything."""
    with contextlib.suppress(OSError):
        return os.path.normpath(path.parent / os.readlink(path))  # noqa: PTH115
    return None


def _text(data: bytes) -> tuple[str, bool]:
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
