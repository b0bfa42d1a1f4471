"""Every file under which a program can be started on this machine; masks nothing itself."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

FOLDERS = ("/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/games")
DEEP_FOLDERS = ("/opt", "/usr/local", "/usr/libexec", "/usr/lib/git-core", "/snap/bin")
"""Searched to their depth: copies of programs lie there under their own names."""

# One file with many names. What it can do beside the masked program is decided by its first argument, so the whole
# file must go; where the system's shell is the same file, nothing could start any more.
MULTI_CALL = ("busybox", "toybox")

_MOST_ENTRIES = 50_000

KEPT_S = 30.0
"""How long an answer is kept: a search takes some 30 ms, and programs are seldom installed in between."""


class Cannot(Exception):
    """The program shares its file with the system's shell."""

    def __init__(self, program: str, file: str) -> None:
        super().__init__(f"{program} is the same file as the system's shell ({file})")
        self.program = program
        self.file = file


def files_of(programs: Sequence[str], path: str) -> tuple[str, ...]:
    """The real files of the named programs: on the PATH, in the system's folders, in /opt, and their hard links."""
    if not programs:
        return ()
    return _search(tuple(programs), path, int(time.monotonic() / KEPT_S))


@functools.lru_cache(maxsize=32)
def _search(programs: tuple[str, ...], path: str, moment: int) -> tuple[str, ...]:
    names = {program for program in programs if "/" not in program}
    folders = [*dict.fromkeys(map(os.path.realpath, [*filter(os.path.isabs, path.split(":")), *FOLDERS]))]
    entries = [*_entries(folders), *_deep_entries(DEEP_FOLDERS)]
    found = {os.path.realpath(entry) for entry in entries if os.path.basename(entry) in names}  # noqa: PTH119  # fast
    found |= {os.path.realpath(program) for program in programs if program.startswith("/")}
    if names:
        found |= {os.path.realpath(entry) for entry in entries if os.path.basename(entry) in MULTI_CALL}  # noqa: PTH119
    files = {file for file in found if Path(file).is_file()}
    shell = _identity("/bin/sh")
    for file in files:
        if _identity(file) == shell:
            raise Cannot(", ".join(programs), file)
    linked = {_identity(file) for file in files if os.stat(file).st_nlink > 1}  # noqa: PTH116  # beside its fellows
    if linked:
        files |= {os.path.realpath(entry) for entry in entries if _identity(entry) in linked}
    return tuple(sorted(files))


def _entries(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                yield from (entry.path for entry in entries)
        except OSError:
            continue


def _deep_entries(folders: Sequence[str]) -> Iterator[str]:
    seen = 0
    for folder in folders:
        for parent, _, files in os.walk(folder):
            for name in files:
                yield f"{parent}/{name}"
                seen += 1
                if seen >= _MOST_ENTRIES:
                    return


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino
