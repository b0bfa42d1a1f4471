"""Finds and hashes the files of a repository that could start something. Starts nothing itself.

These are the files that the agent reads by itself (`.claude` here and in parent folders, `.mcp.json`, leadrope.toml),
and files that commands in them name. Files called by a named script are not followed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.confined import is_text, names, open_named, real_path

# A repository with more files than this is not read completely at every start, so changes could go unnoticed.
MOST_FILES = 2000
MOST_BYTES = 16 * 1024 * 1024

# Whole checkouts that the agent creates for its subagents; nothing in them is read on behalf of this folder.
_NOT_READ = "worktrees"
_MOST_FOLDERS = 20
_DEEPEST = 64
_MOST_TEXT = 256 * 1024

PROJECT = "leadrope.toml"
"""Applies to every run, because it can only tighten. A change of it is still a change of the repository."""

RUNNERS = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), ("package.json",)),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
}
"""Programs that find what they run in a file that their command does not name."""
_ENTRIES = ("index.js", "index.mjs", "index.cjs", "__main__.py", "package.json")


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    files: dict[str, str] = {}
    """Relative path -> hash of the content and of the link target, if it is a link."""
    folders: tuple[str, ...] = ()
    """Real folders whose entire content is included."""
    problem: str = ""
    """Why these files cannot be trusted; empty if they can."""


def collect(folder: Path, user_home: Path | None = None, *, above: bool = True) -> Collected:
    """Collect the files. `user_home` has the user's own `.claude`, which is excluded. Without `above`, only this
    folder.
    """
    folder = Path(real_path(folder))
    found = [path for name in (".mcp.json", PROJECT) if os.path.lexists(path := folder / name)]
    folders: list[str] = []
    problem = ""
    for place in places(folder, user_home) if above else filter(os.path.lexists, [folder / ".claude"]):
        if place.is_symlink():
            # The agent could change the link while it works, and with it everything that was checked.
            problem = f"{os.path.relpath(place, folder)} is a link"
        for path in _below(place, folders):
            found.append(path)
            if _is_deep(path, place):
                problem = f"{os.path.relpath(place, folder)} is more than {_DEEPEST} folders deep"
            if len(found) > MOST_FILES:
                name = os.path.relpath(place, folder)
                return Collected(
                    files={name: f"more than {MOST_FILES} files"}, problem=f"{name} holds more than {MOST_FILES} files"
                )
    files = {os.path.relpath(path, folder): path for path in found}
    for path in found:
        files |= {os.path.relpath(named, folder): named for named in _named(folder, path)}
    hashes = {name: _hash(path) for name, path in files.items()}
    large = next((name for name, told in hashes.items() if told.endswith(_LARGE)), None)
    if large is not None:
        problem = f"{large} is larger than {MOST_BYTES >> 20} MiB"
    odd = next((name for name in hashes if not is_text(name)), None)
    if odd is not None:
        problem = f"the name {os.fsencode(odd)!r} is not UTF-8 text"
        hashes = {name: told for name, told in hashes.items() if is_text(name)}
    return Collected(files=hashes, folders=tuple(folders), problem=problem)


def places(folder: Path, user_home: Path | None) -> Iterator[Path]:
    """Yield the folders that the agent reads subagents, commands and skills from: up to the root of the repository."""
    theirs = Path(real_path(user_home)) if user_home is not None else None
    for parent in (folder, *folder.parents):
        if parent == theirs and parent != folder:
            return
        if os.path.lexists(parent / ".claude"):
            yield parent / ".claude"
        if os.path.lexists(parent / ".git"):
            return


def _below(place: Path, folders: list[str]) -> Iterator[Path]:
    """Yield every file, also through links to folders; each real folder once, and add it to `folders`."""
    todo = [place]
    while todo:
        here = todo.pop()
        real = real_path(here)
        if _is_deep(here, place) or not os.path.isdir(real):  # noqa: PTH112  # as the calls beside it
            yield here
        elif real not in folders:
            folders.append(real)
            try:
                # One more than the limit is enough to reject it.
                found = sorted(entry.name for entry in names(real, most=MOST_FILES + 2))
            except OSError:
                yield here
                continue
            todo += [here / name for name in found if not (here == place and name == _NOT_READ)]


def _is_deep(path: Path, place: Path) -> bool:
    return len(path.parts) - len(place.parts) > _DEEPEST


# -- files named by commands
# --------------------------------------------------------------------------------------------


def _named(folder: Path, source: Path) -> Iterator[Path]:
    """Yield the scripts that a hook's command names: they are what runs, so a change of them counts."""
    for text in _texts(source):
        words = _words(text)
        inner = [path for word in words if (path := _inside(folder, folder / word.lstrip("/"))) and path.is_dir()]
        for base in (folder, *inner[:_MOST_FOLDERS]):
            for word in words:
                module = word.replace(".", "/")
                names = (word.lstrip("/"), *RUNNERS.get(word, ()), f"{module}.py", f"{module}/__main__.py")
                for path in (*([Path(word)] if word.startswith("/") else []), *(base / name for name in names)):
                    yield from _files(folder, path)
        for path in inner[:_MOST_FOLDERS]:
            for name in _ENTRIES:
                yield from _files(folder, path / name)


def _files(folder: Path, path: Path) -> Iterator[Path]:
    real = _inside(folder, path)
    if real is not None and real.is_file():
        yield real


def _inside(folder: Path, path: Path) -> Path | None:
    """Return the path if it is part of the repository; anything outside is the user's own."""
    if not os.path.lexists(path):  # most words are not files, and resolving each would be slow
        return None
    real = Path(real_path(path))
    return real if real != folder and real.is_relative_to(folder) else None


def _words(text: str) -> list[str]:
    for variable in ("${CLAUDE_PROJECT_DIR}", "$CLAUDE_PROJECT_DIR"):
        text = text.replace(variable, ".")
    found = [text, *re.findall(r"[\w./@+-]+", text)]
    try:
        reader = shlex.shlex(text, posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        found += list(reader)
    except ValueError:  # an unclosed quote
        pass
    return [word for word in dict.fromkeys(found) if 0 < len(word) < 1024 and "\0" not in word]


def _texts(source: Path) -> list[str]:
    """Return the texts that may contain commands: all of JSON except its rules, and the front matter of subagents."""
    if source.suffix not in (".json", ".md"):
        return []
    try:
        with open_named(source) as file:
            content = file.read(_MOST_TEXT)
    except (OSError, errors.UnsafeFile):
        return []
    lines = content.decode("utf-8", errors="replace").splitlines()
    if source.suffix == ".md":
        return [line.partition("command:")[2].strip(" \"'") for line in lines if "command:" in line]
    try:
        return list(_strings(msgspec.json.decode(content)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return lines


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for one in value:
                yield from _strings(one)
        case dict():
            for key, one in value.items():
                if key != "permissions":  # patterns, which start nothing
                    yield from _strings(one)


# -- hashes -----------------------------------------------------------------------------------------------------------

_LARGE = "too large"


def _hash(path: Path) -> str:
    try:
        link = f"-> {os.readlink(path)} " if path.is_symlink() else ""  # noqa: PTH115  # as it is
        try:
            file = open_named(path)
        except errors.UnsafeFile:
            return f"{link}no file"
        with file:
            digest, left = hashlib.sha256(), MOST_BYTES
            while chunk := file.read(min(1024 * 1024, left + 1)):
                digest.update(chunk)
                left -= len(chunk)
                if left < 0:
                    return f"{link}{_LARGE}"
        return link + digest.hexdigest()
    except OSError as error:
        return f"unreadable ({error.strerror})"
