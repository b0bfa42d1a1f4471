"""Finds the git folder of a worktree or submodule, without trusting a pointer that an agent could have written.

A `.git` file in the workspace says where its git folder is, and the workspace is writable. If it were trusted, it could
name any folder of the machine and have it opened for writing at the next run. So the git folder must point back, lie
outside of everything writable, and look like one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from leadrope import errors
from leadrope.confined import Folder, names, open_named, real_path
from leadrope.regex import regex

SETTINGS = ("config", "config.worktree")
_WORKTREE = regex(r"^\s*worktree\s*=\s*(.+?)\s*$", re.MULTILINE)
_SECTION = regex(r"^\s*\[\s*", re.MULTILINE)
_INCLUDE = regex(r"""^\s*path\s*=\s*"?([^"\n#;]+?)"?\s*$""", re.MULTILINE | re.IGNORECASE)
_MOST_INCLUDES = 16
_MOST_BYTES = 64 * 1024
_MOST_PARTS = 40
_DEEPEST = 4


def outer_git_dir(workspace: str, *, writable: Sequence[str]) -> str | None:
    """Returns the folder that git in this workspace writes to, if it lies elsewhere."""
    pointer = _read(Path(workspace, ".git"))
    if pointer is None or not pointer.startswith("gitdir:"):
        return None
    git_dir = _resolved(workspace, pointer.removeprefix("gitdir:").strip())
    if git_dir is None or _is_inside(git_dir, writable):
        return None
    common = _common_of_worktree(git_dir, workspace) or _submodule(git_dir, workspace)
    if common is None or _is_inside(common, writable) or any(_is_inside(folder, [common]) for folder in writable):
        return None
    return common if _is_git_dir(common) else None


def git_dirs(workspace: str, *, given: Sequence[str], writable: Sequence[str]) -> tuple[str, ...]:
    """Returns the git folders that the agent can write to: the outer one, and those that are inside as a whole.

    `given` are the folders for the agent's work, `writable` everything that it can write to.
    """
    outer = outer_git_dir(workspace, writable=writable)
    inner = (real_path(Path(folder, ".git")) for folder in given)
    found = [path for path in inner if Path(path).is_dir() and _is_inside(path, given)]
    return tuple(dict.fromkeys([*([outer] if outer else []), *found]))


def included(config: str, home: str, depth: int = 2) -> tuple[str, ...]:
    """Returns the files that a git configuration includes, regardless of conditions, which git evaluates."""
    text = _read(Path(config)) or ""
    found: list[str] = []
    for section in _SECTION.split(text)[1:]:
        name, _, rest = section.partition("\n")
        if re.match(r"(include|includeif)\b", name, re.IGNORECASE):
            found += [_named(path, config, home) for path in _INCLUDE.findall(rest)]
    found = [path for path in found[:_MOST_INCLUDES] if Path(path).is_file()]
    deeper = [path for file in found for path in included(file, home, depth - 1)] if depth > 1 else []
    return (*found, *deeper)


def _named(path: str, config: str, home: str) -> str:
    return f"{home}/{path[2:]}" if path.startswith("~/") else os.path.normpath(Path(config).parent / path)


def git_risks(folder: str, *, writable: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns what must not change in a git folder: what git runs later, outside of the sandbox, and what points to it.

    `writable` are the writable folders of the sandbox: a worktree that lies elsewhere is not the agent's concern.
    """
    return tuple(path for path, is_pin in _parts(folder, writable) if not is_pin)


def git_settings(folder: str, *, writable: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns those of the `git_risks` that git itself changes in ordinary work, by their real names."""
    files = [Path(path) for path in git_risks(folder, writable=writable) if Path(path).name in SETTINGS]
    return tuple(real_path(file) for file in files if file.is_file() and not file.is_symlink())


def git_pins(folder: str, *, writable: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the folders around the `git_risks`.

    They are mounted on themselves; otherwise one could be renamed and another put in its place.
    """
    return tuple(path for path, is_pin in _parts(folder, writable) if is_pin)


def fill_gaps(folder: str, *, writable: Sequence[str] = ()) -> None:
    """Creates what is missing and would take effect once it exists, empty: what does not exist cannot be protected.

    git does not read a `config.worktree` unless `config` enables it, which the agent cannot do.
    """
    for git_dir in filter(_is_git_dir, git_pins(folder, writable=writable)):
        # It exists; or not even the user may write here, and so neither may the agent.
        with contextlib.suppress(OSError, errors.UnsafeFile), _opened(git_dir) as opened:
            with contextlib.suppress(OSError, errors.UnsafeFile):
                opened.make("hooks", mode=0o777)
            for place in _config_places(git_dir):
                with contextlib.suppress(OSError, errors.UnsafeFile):
                    opened.write_new(f"{place}config.worktree", b"", mode=0o644)


def plantable(folders: Sequence[str]) -> tuple[str, ...]:
    """Returns files that redirect git's settings, do not exist in these git folders, and can be created by the agent.

    A mount would need an empty file there, with which git refuses to work.
    """
    whole = [folder for folder in folders if _is_git_dir(folder)]
    trees = [
        folder for folder in folders if Path(folder).parent.name == "worktrees" and Path(folder, "gitdir").exists()
    ]
    found = [
        *(f"{folder}/commondir" for folder in whole),
        # Takes effect once somebody sets extensions.worktreeConfig, which `git sparse-checkout` does by itself.
        *(f"{folder}/config.worktree" for folder in (*whole, *trees)),
    ]
    return tuple(path for path in found if not os.path.lexists(path))


class Planted(NamedTuple):
    path: str
    problem: str = ""
    """Why the file could not be moved away; empty if it was renamed to end in `.planted`."""


def disarm(paths: Sequence[str]) -> Iterator[Planted]:
    """Moves away what was planted at these paths and reports it. Git itself never creates these files there."""
    for path in paths:
        try:
            with _opened(str(Path(path).parent)) as folder:
                if folder.kind(Path(path).name) is None:
                    continue
                _put_aside(folder, Path(path).name)
        except FileNotFoundError:  # another run in the same repository was faster
            continue
        except errors.UnsafeFile as error:
            yield Planted(path, error.message)
        except OSError as error:
            yield Planted(path, error.strerror or str(error))
        else:
            yield Planted(path)


def _put_aside(folder: Folder, name: str) -> None:
    aside = f"{name}.planted"
    try:
        folder.rename(name, aside, replaces=True)
    except FileNotFoundError:
        raise
    except OSError:  # a folder is in the way
        folder.remove(aside)
        folder.rename(name, aside, replaces=True)


def _opened(path: str) -> Folder:
    """Opens a git folder; fails if it has become a link."""
    with Folder.open(Path(path).parent, hard_links=True) as parent:
        return parent.folder(Path(path).name)


def _config_places(git_dir: str) -> Iterator[str]:
    """Yields their names in the git folder, each with a trailing slash."""
    if "worktreeconfig" in (_read(Path(git_dir, "config")) or "").lower():
        yield ""
        yield from (f"worktrees/{Path(tree).name}/" for tree in _folders(Path(git_dir, "worktrees")))


def _parts(git_dir: str, writable: Sequence[str]) -> Iterator[tuple[str, bool]]:
    yield git_dir, True
    for name in ("hooks", "config", "config.worktree", "commondir"):
        if (path := Path(git_dir, name)).exists():
            yield str(path), False
    yield from _few(Path(git_dir, "worktrees"), _worktrees(Path(git_dir, "worktrees"), writable))
    yield from _few(Path(git_dir, "modules"), _modules(Path(git_dir, "modules"), writable, _DEEPEST))


def _few(folder: Path, parts: Iterator[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """Yields the parts, or the whole folder if there are many of them.

    Each part is a mount of its own, which takes almost a millisecond.
    """
    if folder.is_dir() and not folder.is_symlink():
        found = list(itertools.islice(parts, _MOST_PARTS + 1))
        yield from [(str(folder), True), *found] if len(found) <= _MOST_PARTS else [(str(folder), False)]


def _worktrees(folder: Path, writable: Sequence[str]) -> Iterator[tuple[str, bool]]:
    for tree in _folders(folder):
        back = _read(Path(tree, "gitdir"))
        is_here = back is not None and _is_inside(real_path(back.strip()), writable)
        yield tree, is_here
        for name in ("commondir", "gitdir", "config.worktree") if is_here else ():
            if (path := Path(tree, name)).exists():
                yield str(path), False


def _modules(folder: Path, writable: Sequence[str], depth: int) -> Iterator[tuple[str, bool]]:
    """Yields the parts of all modules; their names may have slashes, and modules may contain modules."""
    for path in _folders(folder):
        if _is_git_dir(path):
            yield from _parts(path, writable)
        elif depth:
            yield path, True
            yield from _modules(Path(path), writable, depth - 1)
        else:
            yield path, False


def _folders(folder: Path) -> list[str]:
    try:
        return sorted(entry.path for entry in names(folder) if entry.is_folder)
    except OSError:
        return []


def _is_git_dir(path: str) -> bool:
    return Path(path, "HEAD").is_file() and all(Path(path, name).is_dir() for name in ("objects", "refs"))


def _common_of_worktree(git_dir: str, workspace: str) -> str | None:
    back = _read(Path(git_dir, "gitdir"))
    if back is None or real_path(back.strip()) != real_path(Path(workspace, ".git")):
        return None
    parent = Path(git_dir).parent
    return str(parent.parent) if parent.name == "worktrees" else None


def _submodule(git_dir: str, workspace: str) -> str | None:
    found = _WORKTREE.search(_read(Path(git_dir, "config")) or "")
    if found is None or "modules" not in Path(git_dir).parts:
        return None
    return git_dir if _resolved(git_dir, found[1].strip('"')) == real_path(workspace) else None


def _resolved(folder: str, path: str) -> str | None:
    try:
        return str(Path(folder, path).resolve(strict=True))
    except (OSError, RuntimeError, ValueError):
        return None


def _read(path: Path) -> str | None:
    """Reads a file, following links: the only things used from it are paths that are checked later."""
    try:
        with open_named(path) as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, errors.UnsafeFile):
        return None


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in map(real_path, folders))
