"""Finds the folders that the programs on a PATH need, so that they still run if the user's home is hidden.

A link in a folder that agents can write to is not trusted: it could name any file of the machine and have it shown at
the next run. Only links to a Python installation are followed, because a project's own venv has them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from leadrope.confined import names, real_path
from leadrope.process import reachable
from leadrope.process.sandbox.values import Cache, MachinePath

BIN_NAMES = frozenset({"bin", "sbin", "shims", "libexec", "condabin"})
# A folder that has one of these beside its bin folder is an installation, not a project with a few scripts in it.
PREFIX_SIGNS = ("lib", "lib64", "libexec", "pyvenv.cfg", "versions", "installs", "plugins", "pkg", "conda-meta")

COMPANIONS: dict[str, tuple[str, ...]] = {
    # Not ~/.cargo itself: its credentials lie there, and builds write a lock file beside them.
    ".cargo/bin": (".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/config.toml", ".cargo/env", ".rustup"),
    ".local/bin": (".local/bin", ".local/lib", ".local/share/pipx", ".local/share/uv", ".local/share/mise"),
    "go/bin": ("go/bin", "go/pkg"),
}

CACHES = (
    *(".cargo/registry", ".cargo/git", "go/pkg/mod"),
    *(".cache/go-build", ".cache/pip", ".cache/uv", ".cache/yarn", ".cache/pypoetry/cache", ".npm/_cacache"),
    *(".local/share/pnpm/store", ".m2/repository", ".gradle/caches", ".nuget/packages", ".cache/composer"),
)
"""Caches of package managers and compilers, below a home. Not their parent folders: those also hold credentials."""

_MOST_ENTRIES = 2000
_MOST_ROUNDS = 4
_MOST_LINKS = 8
_STEPS = frozenset({"", ".", ".."})


def toolchains(path: str, home: str, *, seen: Iterable[str], writable: Iterable[str] = ()) -> tuple[MachinePath, ...]:
    """Returns the folders to show read-only for the programs in `path`, except those below a folder in `seen`."""
    system, theirs = tuple(seen), tuple(writable)
    found: dict[str, MachinePath] = {}
    todo = [MachinePath(name=entry, real=real_path(entry)) for entry in path.split(":") if entry.startswith("/")]
    for _ in range(_MOST_ROUNDS):
        more: list[MachinePath] = []
        for entry in todo:
            is_theirs = _is_seen(os.path.normpath(entry.name), theirs) or _is_seen(entry.real, theirs)
            if not is_theirs and not (_is_seen(entry.real, system) and _is_seen(entry.name, system)):
                for part in _parts(entry, home) if reachable.exists(entry.real) else ():
                    found.setdefault(part.name, part)
            known = (*system, *theirs, *(place.real for place in found.values()))
            more += _pythons(entry.real, known) if is_theirs else _led_away(entry.real, known)
        todo = [place for place in more if place.name not in found]
        if not todo:
            break
    return tuple(found.values())


def caches(home: str, shown: Iterable[MachinePath], *, uid: int, writable: Iterable[str]) -> Iterator[Cache]:
    """Yields the caches of this user, except those in folders that agents can already write to."""
    theirs, seen = tuple(writable), [place.real for place in shown]
    for name in CACHES:
        path = f"{home}/{name}"
        real = real_path(path)
        is_theirs = _is_seen(real, theirs) or _is_seen(path, theirs)
        # Nothing could be changed in another user's cache, with or without a layer.
        if reachable.is_dir(path) and not is_theirs and Path(path).stat().st_uid == uid:
            yield Cache(place=MachinePath(name=path, real=real), is_extra=not _is_seen(real, seen))


def _pythons(folder: str, seen: tuple[str, ...]) -> Iterator[MachinePath]:
    for place in _led_away(folder, seen):
        prefix = Path(place.real).parent
        has_python = all(_has_python(prefix / name) for name in ("bin", "lib"))
        if place.is_dir and Path(place.real).name == "bin" and has_python:
            yield place


def _has_python(folder: Path) -> bool:
    try:
        return any(entry.name.startswith("python3") for entry in names(Path(real_path(folder)), most=_MOST_ENTRIES))
    except (OSError, RuntimeError):
        return False


def _parts(entry: MachinePath, home: str) -> Iterator[MachinePath]:
    for known, companions in COMPANIONS.items():
        if entry.name == f"{home}/{known}" or entry.real == f"{real_path(home)}/{known}":
            for name in companions:
                path = Path(home, name)
                if reachable.exists(path):
                    yield MachinePath(name=str(path), real=real_path(path), is_dir=reachable.is_dir(path))
            return
    prefix = Path(entry.real).parent
    if _is_prefix(prefix, entry.real, home):
        yield MachinePath(name=str(Path(entry.name).parent), real=str(prefix))
        if str(Path(entry.name).parent) != str(prefix):
            yield MachinePath(name=str(prefix), real=str(prefix))
        if Path(real_path(Path(entry.name).parent)) != prefix:  # only the bin folder is a link
            yield entry
        return
    yield MachinePath(name=entry.name, real=entry.real, is_dir=reachable.is_dir(entry.real))


def _is_prefix(folder: Path, bin_folder: str, home: str) -> bool:
    """Whether `folder` is an installation; never the home, a folder above it, or one such as /data."""
    real_home = real_path(home)
    is_too_wide = len(folder.parts) < 3 or _is_seen(real_home, (str(folder),)) or str(folder) == f"{real_home}/.local"
    if is_too_wide or Path(bin_folder).name not in BIN_NAMES:
        return False
    return any(reachable.exists(folder / sign) for sign in PREFIX_SIGNS)


def _led_away(folder: str, seen: tuple[str, ...]) -> Iterator[MachinePath]:
    """Yields the targets of links in a folder of programs that lead elsewhere: a venv's python, say."""
    try:
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116
    except OSError:
        return
    inside = _beginnings(seen)
    for link, target in _links(folder, changed):
        if f"{target}/".startswith(inside) or not reachable.is_file(target):
            continue
        parent = str(Path(target).parent)
        if Path(parent).name in BIN_NAMES:
            yield MachinePath(name=parent, real=parent)
        else:
            yield MachinePath(name=target, real=target, is_dir=False)
        yield from _on_the_way(link, seen)


@functools.lru_cache(maxsize=128)
def _links(folder: str, changed: int) -> tuple[tuple[str, str], ...]:
    """Lists links and their targets, cached while the folder is unchanged: there are hundreds in /usr/bin."""
    try:
        links = [entry.path for entry in names(folder, most=_MOST_ENTRIES) if entry.is_link]
    except OSError:
        return ()
    folders: dict[str, str] = {}
    return tuple((link, _followed(link, folders)) for link in links)


def _followed(link: str, folders: dict[str, str]) -> str:
    """Like `real_path`, but resolves the folder above each link only once and keeps it in `folders`."""
    path = link
    for _ in range(_MOST_LINKS):
        above, _, name = path.rpartition("/")
        if above not in folders:
            folders[above] = real_path(above or "/")
        path = f"{folders[above].rstrip('/')}/{name}"
        try:
            target = os.readlink(path)  # noqa: PTH115
        except OSError:
            return path  # not a link, or missing
        base = "" if target.startswith("/") else folders[above]
        while base and target.startswith("../"):
            base, target = base.rpartition("/")[0], target[3:]
        if not _STEPS.isdisjoint(target.removeprefix("/").split("/")):
            break  # going up through a link is not the same as removing a component of the text
        path = target if target.startswith("/") else f"{base}/{target}"
    return real_path(link)


def _on_the_way(link: str, seen: tuple[str, ...]) -> Iterator[MachinePath]:
    """Yields the intermediate folders of a chain of links: python -> ~/.pyenv/versions/3.11 (a link) -> 3.11.7."""
    for _ in range(8):
        if not reachable.is_symlink(link):
            return
        link = os.path.normpath(Path(link).parent / os.readlink(link))  # noqa: PTH115  # as text; Path would normalize it
        parent = str(Path(link).parent)
        if real_path(parent) != parent and not _is_seen(parent, seen) and Path(parent).name in BIN_NAMES:
            yield MachinePath(name=parent, real=real_path(parent))


def _is_seen(path: str, folders: Iterable[str]) -> bool:
    return f"{path}/".startswith(_beginnings(folders))


def _beginnings(folders: Iterable[str]) -> tuple[str, ...]:
    """Returns the prefixes that mark a path, with a slash appended, as one of the folders or as inside of one."""
    return tuple(f"{folder.rstrip('/')}/" for folder in folders)
