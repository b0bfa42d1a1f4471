"""What a repository would like to run on this machine, and whether the user has said yes to exactly that.

A repository's settings, hooks, servers and agents are ignored until they are trusted; the yes holds for the files as
they were then. Any change asks again.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadrope.core import home

FILE = "trust.json"
STATES = Literal["nothing", "untrusted", "trusted", "changed"]
# A repository with more than this in .claude is not read to its end at every start; it cannot be trusted as a whole.
MOST_FILES = 2000
MOST_BYTES = 16 * 1024 * 1024


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    state: STATES
    folder: str
    files: dict[str, str] = {}
    """Path inside the repository -> hash of its content."""
    changed: tuple[str, ...] = ()
    """What is new, gone or different since the yes."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    files: dict[str, str]


def look(leadrope_home: Path, folder: str) -> Trust:
    """How things stand for this folder now."""
    files = collect(Path(folder))
    if not files:
        return Trust(state="nothing", folder=folder)
    record = _read(leadrope_home).get(folder)
    if record is None:
        return Trust(state="untrusted", folder=folder, files=files)
    names = sorted({*files, *record.files})
    changed = tuple(name for name in names if files.get(name) != record.files.get(name))
    return Trust(state="changed" if changed else "trusted", folder=folder, files=files, changed=changed)


def remember(leadrope_home: Path, trust: Trust) -> None:
    """The user's yes to these files as they are in `trust`, not as they may have become meanwhile."""
    records = _read(leadrope_home)
    records[trust.folder] = _Record(files=trust.files)
    _write(leadrope_home, records)


def forget(leadrope_home: Path, folder: str) -> bool:
    records = _read(leadrope_home)
    if records.pop(folder, None) is None:
        return False
    _write(leadrope_home, records)
    return True


def collect(folder: Path) -> dict[str, str]:
    """Every file that could start something: .claude, .mcp.json, leadrope.toml, and what their commands name."""
    found = [path for name in (".mcp.json", "leadrope.toml") if (path := folder / name).exists()]
    found += [path for path in sorted((folder / ".claude").rglob("*")) if not path.is_dir() or path.is_symlink()]
    if len(found) > MOST_FILES:
        return {".claude": f"more than {MOST_FILES} files"}
    files = {str(path.relative_to(folder)): _hash(path) for path in found}
    for name in list(files):
        if name.endswith(".json"):
            files |= _named_files(folder, folder / name)
    return files


def _named_files(folder: Path, source: Path) -> dict[str, str]:
    """A hook is a command; the script that it names is what runs, so a change of the script counts."""
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for word in set(re.findall(r"[\w./${}-]+", text)):
        plain = word.replace("${CLAUDE_PROJECT_DIR}", ".").replace("$CLAUDE_PROJECT_DIR", ".").lstrip("/")
        path = folder / plain
        if "/" in plain or "." in plain:
            real = Path(os.path.realpath(path))
            if real.is_file() and real.is_relative_to(folder.resolve()):
                found[os.path.relpath(real, folder.resolve())] = _hash(real)
    return found


def _hash(path: Path) -> str:
    link = f"-> {path.readlink()} " if path.is_symlink() else ""
    try:
        if path.stat().st_size > MOST_BYTES:
            return f"{link}too large"
        return link + hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"{link}unreadable ({error.strerror})"


def _read(leadrope_home: Path) -> dict[str, _Record]:
    try:
        return msgspec.json.decode((leadrope_home / FILE).read_bytes(), type=dict[str, _Record])
    except (OSError, msgspec.MsgspecError):
        return {}  # no record is no trust


def _write(leadrope_home: Path, records: dict[str, Any]) -> None:
    path = home.ensure(leadrope_home) / FILE
    fresh = path.with_suffix(f".{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(msgspec.json.format(msgspec.json.encode(records), indent=1))
    fresh.replace(path)
