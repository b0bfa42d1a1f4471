"""Reads the git settings in effect in a folder, from all files and their includes, with git itself.

`git config --list` starts no program that a setting names. It has a timeout, since an included file may be a FIFO, and
runs as the owner of the folder, since git does not read the settings of another user's repository.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from leadrope import errors
from leadrope.confined import Folder, names, real_path
from leadrope.process.sandbox.git_config_copy import PATH, Unreadable

TIMEOUT_S = 2.0
MOST_BYTES = 4 * 1024 * 1024
FORWARDED = ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")

_GITLINK = b"\x00\x00\xe0\x00"
"""The mode of a submodule in the index."""


class Setting(NamedTuple):
    name: str
    """As git prints it: `filter.lfs.clean`, section and variable in lower case."""
    value: str | None
    file: str
    """The file that has the setting; empty if no file does."""


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    top: str
    """The folder in which git runs its programs: the top of the working tree, or without one the folder itself."""
    git_dir: str | None
    settings: tuple[Setting, ...]


def read(folder: str, home: str, environ: Mapping[str, str] | None = None) -> Effective:
    """Reads the settings, in about 4 ms. Raises Unreadable if git is missing, refuses, or does not end."""
    top = top_of(folder)
    listed = _git(top or folder, home, environ or {}, "config", "--includes", "--show-origin", "-z", "--list")
    settings: list[Setting] = []
    words = listed.split(b"\0")
    for origin, entry in zip(words[::2], words[1::2], strict=False):
        name, equals, value = entry.partition(b"\n")
        kind, _, file = os.fsdecode(origin).partition(":")
        settings.append(
            Setting(
                name=os.fsdecode(name),
                value=os.fsdecode(value) if equals else None,
                file=_joined(top or folder, file) if kind == "file" else "",
            )
        )
    return Effective(top=top or folder, git_dir=_git_dir(top) if top else None, settings=tuple(settings))


def top_of(folder: str) -> str | None:
    """Returns the working tree that a folder belongs to."""
    for parent in (Path(folder), *Path(folder).parents):
        if os.path.lexists(parent / ".git"):
            return str(parent)
    return None


def submodules(found: Effective, home: str) -> tuple[str, ...]:
    """Returns the folders of the submodules in the index: `git status` enters each of them, with its own settings.

    Raises Unreadable if they cannot be determined.
    """
    if found.git_dir is None or not _has_gitlink(found.git_dir):
        return ()
    listed = _git(found.top, home, {}, "-c", "core.fsmonitor=false", "ls-files", "--stage", "-z")
    paths = [os.fsdecode(entry.partition(b"\t")[2]) for entry in listed.split(b"\0") if entry.startswith(b"160000 ")]
    return tuple(f"{found.top}/{path}" for path in paths if os.path.lexists(f"{found.top}/{path}/.git"))


def has_hook(found: Effective, hooks_path: str | None, name: str) -> bool:
    """Whether a hook with this name exists that git would run."""
    folder = hooks_path or (f"{found.git_dir}/hooks" if found.git_dir else None)
    return folder is not None and os.access(f"{folder}/{name}", os.X_OK)


def _has_gitlink(git_dir: str) -> bool:
    """Whether the index has a submodule, judged by its bytes: listing all files of a large repository takes long."""
    for name in ("index", *(name for name in _names(git_dir) if name.startswith("sharedindex."))):
        content = _content(f"{git_dir}/{name}")
        if content is None or _GITLINK in content:
            return True
    return False


def _names(folder: str) -> list[str]:
    try:
        return [entry.name for entry in names(real_path(folder))]
    except OSError:
        return []


def _content(path: str) -> bytes | None:
    """Returns the content; empty for a missing file, None for something that is not a file or is too large."""
    try:
        with Folder.open(Path(path).parent, hard_links=True) as folder:
            return folder.read_bytes(Path(path).name, most=16 * MOST_BYTES)
    except FileNotFoundError:
        return b""
    except (OSError, errors.UnsafeFile):
        return None


def _git_dir(top: str) -> str:
    path = f"{top}/.git"
    if not os.path.isdir(path) and (pointer := _content(path)):  # noqa: PTH112
        return _joined(top, os.fsdecode(pointer).removeprefix("gitdir:").strip())
    return path


def _joined(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))  # noqa: PTH118


def _home_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/nonexistent"


def _git(folder: str, home: str, environ: Mapping[str, str], *words: str) -> bytes:
    program = shutil.which("git", path=PATH)
    if program is None:
        raise Unreadable("git is not installed")
    owner = os.stat(folder)  # noqa: PTH116
    is_anothers = os.geteuid() == 0 and owner.st_uid != 0
    if is_anothers:  # git as another user reads that user's home
        home = _home_of(owner.st_uid)
    env = {name: environ[name] for name in FORWARDED if name in environ and not is_anothers}
    env |= {"PATH": PATH, "LC_ALL": "C", "HOME": home, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            [program, "--no-pager", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            env=env,
            timeout=TIMEOUT_S,
            check=False,
            user=owner.st_uid if is_anothers else None,
            group=owner.st_gid if is_anothers else None,
            extra_groups=[] if is_anothers else None,
        )
    except subprocess.TimeoutExpired:
        raise Unreadable(f"git did not end in {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise Unreadable(str(error)) from None
    if done.returncode != 0 or len(done.stdout) > MOST_BYTES:
        said = done.stderr.decode(errors="replace").strip()
        raise Unreadable(said.splitlines()[-1][:300] if said else f"git ended with code {done.returncode}")
    return done.stdout
