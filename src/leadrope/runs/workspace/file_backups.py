"""Copies single files before their first edit: for folders without git, and for files that git ignores."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.confined import Folder, real_path
from leadrope.core import home as homes

MOST_FILE = 64 * 1024 * 1024
MOST_TOTAL = 256 * 1024 * 1024
MOST_LIST = 64 * 1024 * 1024

LIST = "copies.jsonl"
CLOSED = "closed.json"

Kind = Literal["absent", "file", "link", "folder", "other"]


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """What exists at a path; equal states mean the same content."""

    kind: Kind
    bits: int = 0
    digest: str = ""
    target: str = ""


class FileBackup(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Relative to the folder; bytes that are not text are surrogates, escaped as in JSON."""
    state: FileState
    name: str = ""
    """The name of the copy; "" if there is none: nothing existed, or it was too large."""

    @property
    def is_covered(self) -> bool:
        return bool(self.name) or self.state.kind in ("absent", "link")


class Copies:
    """The copies in one of leadrope's folders; each entry of its list is written before the edit it is for."""

    def __init__(self, cwd: str, folder: Path) -> None:
        self.cwd = cwd
        self.folder = folder

    def remember(self, path: str | Path) -> bool:
        """Return whether the path can be restored. One outside of the folder, or reached through a link, cannot."""
        if Path(self.cwd, path).is_symlink():
            # An edit goes through the link, but the link itself may be replaced too.
            return self._keep(path) and self._keep(real_path(Path(self.cwd, path)))
        return self._keep(path)

    def _keep(self, path: str | Path) -> bool:
        name = self._name(path)
        if name is None:
            return False
        known = self.all()
        if name in known:
            return known[name].is_covered
        with Folder.open(self.cwd, hard_links=True) as there, Folder.open(homes.ensure(self.folder)) as own:
            state, data = _look(there, name)
            total = sum(entry.stat.st_size for entry in own.entries())
            fits = state.kind == "file" and data is not None and total + len(data) <= MOST_TOTAL
            copy = FileBackup(path=_text(name), state=state, name=f"{len(known)}.copy" if fits else "")
            if data is not None and fits:
                own.replace(copy.name, data)
            with own.append(LIST) as file:
                file.write(msgspec.json.encode(copy) + b"\n")
                os.fsync(file.fileno())
        return copy.is_covered

    def all(self) -> dict[str, FileBackup]:
        lines = self._own(LIST).splitlines()
        found = [msgspec.json.decode(line, type=FileBackup) for line in lines if line.endswith(b"}")]
        return {_path(copy.path): copy for copy in found}

    def close(self) -> None:
        """Record the state of each file at the run's end; later differences were made by somebody else."""
        known = self.all()
        if known:
            with Folder.open(self.cwd, hard_links=True) as there, Folder.open(self.folder) as own:
                states = {_text(name): look(there, name) for name in known}
                own.replace(CLOSED, msgspec.json.encode(states))

    def closed(self) -> dict[str, FileState]:
        raw = self._own(CLOSED) or b"{}"
        return {_path(text): state for text, state in msgspec.json.decode(raw, type=dict[str, FileState]).items()}

    def put_back(self, copy: FileBackup) -> None:
        """Restore a file; raises UnsafeFile if a parent folder has become a link."""
        name = _path(copy.path)
        with Folder.open(self.cwd, hard_links=True) as there:
            if copy.state.kind == "absent":
                there.unlink(name)
                return
            there.make(os.path.dirname(name), mode=0o777)  # noqa: PTH120  # a text, which Path would tidy
            if copy.state.kind == "link":
                there.link(name, _path(copy.state.target))
                return
            with Folder.open(self.folder) as own:
                there.replace(name, own.read_bytes(copy.name, most=MOST_FILE), mode=copy.state.bits)

    def _own(self, name: str) -> bytes:
        """Read a file of leadrope's own folder; empty if it does not exist."""
        try:
            with Folder.open(self.folder) as own:
                return own.read_bytes(name, most=MOST_LIST)
        except FileNotFoundError:
            return b""

    def _name(self, path: str | Path) -> str | None:
        """Return the relative path; None if a parent is a link, since what is behind it is not ours to write."""
        root = real_path(self.cwd)
        joined = Path(self.cwd, path)
        real = Path(real_path(joined.parent), joined.name)
        if joined.name in ("", "..") or Path(root) not in real.parents:
            return None
        return str(real.relative_to(root))


def look(there: Folder, name: str) -> FileState:
    return _look(there, name)[0]


def _look(there: Folder, name: str) -> tuple[FileState, bytes | None]:
    """Return the state and, for a file that is not too large, its content, both from the same open file."""
    try:
        kind = there.kind(name)
        if kind == "link":
            return FileState(kind="link", target=_text(there.read_link(name))), None
        if kind == "folder":
            return FileState(kind="folder"), None
        if kind != "file":
            return FileState(kind="absent" if kind is None else "other"), None
        with there.open_read(name) as file:
            found = os.fstat(file.fileno())
            bits = found.st_mode & 0o7777
            data = file.read(MOST_FILE + 1) if found.st_size <= MOST_FILE else None
    except FileNotFoundError:
        return FileState(kind="absent"), None
    except errors.UnsafeFile as error:
        # Nothing exists below a file, and what is below a link is not part of this folder.
        return FileState(kind="absent" if error.reason.endswith("not a folder") else "other"), None
    except OSError:
        return FileState(kind="other"), None
    if data is None or len(data) > MOST_FILE:
        return FileState(kind="file", bits=bits, digest=f"{found.st_size} bytes of {found.st_mtime_ns}"), None
    return FileState(kind="file", bits=bits, digest=hashlib.sha256(data).hexdigest()), data


def _text(path: str) -> str:
    """Escape lone surrogates, which stand for bytes of names that are not UTF-8 and are invalid in JSON."""
    return os.fsencode(path).decode("latin-1")


def _path(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))
