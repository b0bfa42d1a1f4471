"""Paths in the user's own settings (servers, their arguments, certificates), to be shown read-only or reported.

A path is trusted because the user wrote it, never because of content that an agent could have written: what lies in a
writable place is shown as it is, and links there are not followed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import names, open_named, real_path
from leadrope.process import reachable
from leadrope.process.sandbox.toolchains import BIN_NAMES
from leadrope.process.sandbox.values import MachinePath

# A program with one of these suffixes is more than its own file: it loads files beside it.
CODE = frozenset(
    {".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".pl", ".php", ".sh", ".jar", ".dll", ".lua"}
)
PACKAGE_SIGNS = ("package.json", "pyproject.toml", "setup.py", "pyvenv.cfg", "Gemfile", "deno.json", "composer.json")
SOURCE_SIGNS = ("pyproject.toml", "setup.py", "setup.cfg")
_MOST_PARENTS = 4
_MOST_LINKED = 64
_MOST_BYTES = 64 * 1024
_MOST_ENTRIES = 10_000


class ConfiguredPaths(msgspec.Struct, frozen=True, kw_only=True):
    places: tuple[MachinePath, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders of programs, to be searched for their dependencies like those of the PATH."""


def named(
    programs: Sequence[str],
    words: Sequence[str],
    *,
    path: str,
    home: str,
    writable: Iterable[str],
    taken: Iterable[str],
) -> ConfiguredPaths:
    """Finds the existing paths among the programs and words of the settings.

    `taken` are folders that the sandbox mounts itself; none of them is shown as a whole.
    """
    theirs, wide = tuple(writable), _Wide(home, frozenset(taken))
    places: dict[str, MachinePath] = {}
    folders: list[str] = []
    for program in programs:
        found = shutil.which(program, path=path)
        if found is None or not found.startswith("/") or _is_in(os.path.normpath(found), theirs):
            continue
        if Path(found).parent.name in BIN_NAMES:
            folders.append(str(Path(found).parent))
        else:
            places |= {place.name: place for place in _with_its_own(found, wide, is_code=not is_elf(found))}
        folders += interpreter(found)
    for folder in {*folders, *filter(os.path.isabs, path.split(":"))}:
        if not _is_in(os.path.normpath(folder), theirs):
            places |= {source: _place(source) for source in linked_sources(Path(folder).parent) if not wide(source)}
    for word in words:
        for text in _paths(word):
            if not _is_in(os.path.normpath(text), theirs) and os.path.exists(text):  # noqa: PTH110  # may be closed
                places |= {place.name: place for place in _with_its_own(text, wide)}
    return ConfiguredPaths(places=tuple(places.values()), folders=tuple(dict.fromkeys(folders)))


class _Wide(msgspec.Struct, frozen=True):
    """Decides whether showing a folder would reveal more than intended."""

    home: str
    taken: frozenset[str]

    def __call__(self, folder: str) -> bool:
        real, home = real_path(folder), real_path(self.home)
        is_above = home == real or home.startswith(real.rstrip("/") + "/")
        return is_above or real in self.taken or real.count("/") < 2


def _paths(word: str) -> Iterator[str]:
    """Yields the absolute paths in `/a/b`, `--option=/a/b`, `/a/b:/c/d` or `/a/b,/c/d`.

    Relative paths belong to the workspace.
    """
    for text in (word, word.partition("=")[2]):
        if text.startswith("/"):
            yield text
            yield from (part for part in re.split("[:,]", text) if part.startswith("/") and part != text)


def _with_its_own(path: str, is_wide: _Wide, *, is_code: bool = False) -> Iterator[MachinePath]:
    """Yields the path itself and, if it is code, the folder that it belongs to."""
    if os.path.isdir(path):  # noqa: PTH112
        if not is_wide(path):
            yield _place(path)
        return
    yield _place(path)
    if not is_code and Path(path).suffix not in CODE:
        return
    real = Path(real_path(path))
    roots = [
        folder
        for folder in real.parents[:_MOST_PARENTS]
        if any(reachable.exists(folder / sign) for sign in PACKAGE_SIGNS)
    ]
    for folder in (*roots[:1], real.parent):
        if not is_wide(str(folder)):
            yield _place(str(folder))
            return


def linked_sources(prefix: Path) -> tuple[str, ...]:
    """Finds the source folders that a virtual environment links to (editable installs).

    An agent may have worked in the project that the environment belongs to, and could have named any folder of the user
    there. So only Python projects are shown: the folder, or one of the two above it, must have a project file.
    """
    found: list[str] = []
    if not reachable.is_file(prefix / "pyvenv.cfg"):
        return ()
    for file in _link_files(prefix):
        text = _beginning(file, _MOST_BYTES).decode(errors="replace")
        lines = text.splitlines() if file.suffix == ".pth" else re.findall(r"""['"](/[^'"\n]+)['"]""", text)
        found += [line.strip() for line in lines if line.startswith("/") and _is_source(Path(line.strip()))]
    return tuple(dict.fromkeys(found))[:_MOST_LINKED]


def _link_files(prefix: Path) -> Iterator[Path]:
    try:
        pythons = [entry.path for entry in names(prefix / "lib") if entry.name.startswith("python3")]
        for folder in pythons:
            for entry in names(f"{folder}/site-packages", most=_MOST_ENTRIES):
                is_module = entry.name.startswith("__editable__") and entry.name.endswith(".py")
                if is_module or entry.name.endswith(".pth"):
                    yield Path(entry.path)
    except OSError:
        return


def _is_source(path: Path) -> bool:
    folders = (path, *path.parents[:2])
    return reachable.exists(path) and any(
        reachable.is_file(folder / sign) for folder in folders for sign in SOURCE_SIGNS
    )


def is_elf(path: str) -> bool:
    return _beginning(path, 4) == b"\x7fELF"


def interpreter(program: str) -> Iterator[str]:
    """Yields the folder of the interpreter in a script's first line."""
    first = _beginning(program, 256).partition(b"\n")[0]
    if first.startswith(b"#!"):
        words = first[2:].split()
        if words and words[0].startswith(b"/"):
            yield str(Path(os.fsdecode(words[0])).parent)


def _beginning(path: str | Path, most: int) -> bytes:
    """Reads the beginning of a regular file.

    A folder on the PATH may have been a workspace; a pipe there must not block.
    """
    try:
        with open_named(path) as file:
            return file.read(most)
    except (OSError, errors.UnsafeFile):
        return b""


def _place(path: str) -> MachinePath:
    return MachinePath(name=path, real=real_path(path), is_dir=os.path.isdir(path))  # noqa: PTH112


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
