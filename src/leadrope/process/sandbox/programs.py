"""Finds every file with which a program can be started on this machine."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Sequence

from leadrope import confined
from leadrope.process import reachable

FOLDERS = ("/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/games")
DEEP_FOLDERS = ("/opt", "/usr/local", "/usr/libexec", "/usr/lib/git-core", "/snap/bin")
"""Searched recursively: copies of programs lie there under their own names."""

# One file with many names. Its first argument decides what it does, so the whole file must be masked; where it is also
# the system's shell, nothing could be started any more.
MULTI_CALL = ("busybox", "toybox")

_MOST_ENTRIES = 50_000

KEPT_S = 30.0
"""How long a result is kept: a search takes some 30 ms, and programs are rarely installed in between."""


class Cannot(Exception):
    """The program shares its file with the system's shell."""

    def __init__(self, program: str, file: str) -> None:
        super().__init__(f"{program} is the same file as the system's shell ({file})")
        self.program = program
        self.file = file


def files_of(programs: Sequence[str], path: str, *, must: bool = True) -> tuple[str, ...]:
    """Returns the real files of the programs: on the PATH, in system folders, in /opt, and their hard links.

    With `must`, raises Cannot for a program that is also the system's shell; otherwise that file is left out.
    """
    if not programs:
        return ()
    files, shells = _search(tuple(programs), path, int(time.monotonic() / KEPT_S))
    if shells and must:
        raise Cannot(", ".join(programs), shells[0])
    return files


def shells_of(programs: Sequence[str], path: str) -> tuple[str, ...]:
    """Returns the files that `files_of` leaves out because they are also the system's shell."""
    return _search(tuple(programs), path, int(time.monotonic() / KEPT_S))[1] if programs else ()


@functools.lru_cache(maxsize=32)
def _search(programs: tuple[str, ...], path: str, moment: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = {program for program in programs if "/" not in program}
    folders = [*dict.fromkeys(map(confined.real_path, [*filter(os.path.isabs, path.split(":")), *FOLDERS]))]
    wanted = frozenset({*names, *MULTI_CALL}) if names else frozenset[str]()
    found = {confined.real_path(entry) for entry in _all(folders, wanted)}
    found |= {confined.real_path(program) for program in programs if program.startswith("/")}
    files = {file for file in found if reachable.is_file(file)}
    shell = _identity("/bin/sh")
    shells = tuple(sorted(file for file in files if _identity(file) == shell))
    files.difference_update(shells)
    linked = {_identity(file) for file in files if os.stat(file).st_nlink > 1}  # noqa: PTH116  # beside its fellows
    if linked:
        files |= {confined.real_path(entry) for entry in _all(folders) if _identity(entry) in linked}
    return tuple(sorted(files)), shells


def _all(folders: Sequence[str], names: frozenset[str] | None = None) -> Iterator[str]:
    """Yields every entry, or only those with one of the names."""
    yield from _entries(folders, names)
    yield from _deep_entries(DEEP_FOLDERS, names)


def _entries(folders: Sequence[str], names: frozenset[str] | None) -> Iterator[str]:
    for folder in folders:
        if names is not None:  # some twenty lookups instead of a list of thousands
            yield from (path for name in names if os.path.lexists(path := f"{folder}/{name}"))
            continue
        try:
            found = confined.names(confined.real_path(folder))
        except OSError:
            continue
        yield from (f"{folder}/{entry.name}" for entry in found)


def _deep_entries(folders: Sequence[str], names: frozenset[str] | None) -> Iterator[str]:
    seen = 0
    left = [*reversed(folders)]
    while left and seen < _MOST_ENTRIES:
        folder = left.pop()
        try:
            with os.scandir(folder) as entries:  # os.walk takes four times as long
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                        continue
                    seen += 1
                    if names is None or entry.name in names:
                        yield entry.path
        except OSError:
            continue


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino
