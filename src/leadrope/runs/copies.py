"""Copies of single files from before their first edit: for folders without git, and for files that git ignores."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Literal

import msgspec

from leadrope.core import home as homes

MOST_FILE = 64 * 1024 * 1024
MOST_TOTAL = 256 * 1024 * 1024

LIST = "copies.jsonl"
CLOSED = "closed.json"

Kind = Literal["absent", "file", "link", "folder", "other"]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What lies at a path; two that are equal are the same."""

    kind: Kind
    bits: int = 0
    digest: str = ""
    target: str = ""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Below the folder; surrogates stand for bytes that are no text, escaped as in JSON."""
    state: State
    name: str = ""
    """Of the copy; "" if there is none: nothing was there, or it was too large."""

    @property
    def is_covered(self) -> bool:
        return bool(self.name) or self.state.kind in ("absent", "link")


class Copies:
    """Kept in one folder of leadrope's; each line of its list is written before the edit it is about."""

    def __init__(self, cwd: str, folder: Path) -> None:
        self.cwd = cwd
        self.folder = folder

    def remember(self, path: str | Path) -> bool:
        """Whether that path can be put back. One outside of the folder, or reached through a link, cannot."""
        if Path(self.cwd, path).is_symlink():
            # An edit goes through the link; the link itself may be replaced too.
            return self._keep(path) and self._keep(os.path.realpath(Path(self.cwd, path)))
        return self._keep(path)

    def _keep(self, path: str | Path) -> bool:
        name = self._name(path)
        if name is None:
            return False
        known = self.all()
        if name in known:
            return known[name].is_covered
        full = Path(self.cwd, name)
        size = full.lstat().st_size if os.path.lexists(full) else 0
        total = sum(entry.stat().st_size for entry in self.folder.iterdir()) if self.folder.is_dir() else 0
        fits = size <= MOST_FILE and total + size <= MOST_TOTAL
        state = look(full, digest=fits)
        homes.ensure(self.folder)
        copy = Copy(path=_text(name), state=state, name=f"{len(known)}.copy" if state.kind == "file" and fits else "")
        if copy.name:
            shutil.copyfile(full, self.folder / copy.name)
            (self.folder / copy.name).chmod(0o600)
        with (self.folder / LIST).open("ab") as file:
            file.write(msgspec.json.encode(copy) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return copy.is_covered

    def all(self) -> dict[str, Copy]:
        try:
            lines = (self.folder / LIST).read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        found = [msgspec.json.decode(line, type=Copy) for line in lines if line.endswith(b"}")]
        return {_path(copy.path): copy for copy in found}

    def close(self) -> None:
        """How each of them looks when the run has ended; what differs later was changed by somebody else."""
        known = self.all()
        if known:
            states = {_text(name): look(Path(self.cwd, name)) for name in known}
            (self.folder / CLOSED).write_bytes(msgspec.json.encode(states))

    def closed(self) -> dict[str, State]:
        try:
            raw = (self.folder / CLOSED).read_bytes()
        except FileNotFoundError:
            return {}
        return {_path(text): state for text, state in msgspec.json.decode(raw, type=dict[str, State]).items()}

    def put_back(self, copy: Copy) -> None:
        full = Path(self.cwd, _path(copy.path))
        if copy.state.kind == "absent":
            full.unlink(missing_ok=True)
            return
        full.parent.mkdir(parents=True, exist_ok=True)
        part = full.with_name(f".{full.name[:100]}.leadrope-part")
        part.unlink(missing_ok=True)
        if copy.state.kind == "link":
            part.symlink_to(_path(copy.state.target))
        else:
            shutil.copyfile(self.folder / copy.name, part)
            part.chmod(copy.state.bits)
        part.replace(full)

    def _name(self, path: str | Path) -> str | None:
        """Relative, and no part of it above the last is a link: what is behind one is not ours to write."""
        root = os.path.realpath(self.cwd)
        joined = Path(self.cwd, path)
        real = Path(os.path.realpath(joined.parent), joined.name)
        if joined.name in ("", "..") or Path(root) not in real.parents:
            return None
        return str(real.relative_to(root))


def look(path: Path, *, digest: bool = True) -> State:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return State(kind="absent")
    if stat.S_ISLNK(found.st_mode):
        return State(kind="link", target=_text(str(path.readlink())))
    if stat.S_ISDIR(found.st_mode):
        return State(kind="folder")
    if not stat.S_ISREG(found.st_mode):
        return State(kind="other")
    bits = stat.S_IMODE(found.st_mode)
    if not digest:
        return State(kind="file", bits=bits, digest=f"{found.st_size} bytes")
    with path.open("rb") as file:
        return State(kind="file", bits=bits, digest=hashlib.file_digest(file, "sha256").hexdigest())


def _text(path: str) -> str:
    """JSON takes no lone surrogates, which stand for bytes of a name that are no UTF-8."""
    return os.fsencode(path).decode("latin-1")


def _path(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))
