"""Files inside a workspace: resolved with every link followed, then opened without following any. Asks no policy.

A path is resolved once. `leadrope.confined` opens the result without following links: swapping a folder for a link in
between causes an error, not access to a file outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.confined import Folder, real_path
from leadrope.workflows.steps.base import StepFailed

MOVE_BYTES = 1024 * 1024 * 1024
"""Maximum size of a move between file systems, which needs as much memory; otherwise a file is only renamed."""
_NAME_BYTES = 255
_PATH_CHARS = 4096

Mode = Literal["overwrite", "append", "create"]

_REASONS = {
    errno.ENOENT: ("not_found", "does not exist", "Look at the name; a step before this one may not have written it."),
    errno.ELOOP: ("changed", "is a link in a circle, or became a link just now", "Check the links in its path."),
    errno.ENOTDIR: ("not_found", "lies below something that is not a folder", "Check the folders in its path."),
    errno.EEXIST: ("exists", "is there already", "Choose another name, or allow that it is replaced."),
    errno.EACCES: ("no_access", "may not be opened by this user", "Check its permissions."),
    errno.EPERM: ("no_access", "may not be changed by this user", "Check its permissions."),
    errno.EROFS: ("no_access", "lies on a disk that cannot be written", "Use a folder that can be written."),
    errno.ENOSPC: ("no_space", "does not fit on the disk", "Free some disk space."),
    errno.EDQUOT: ("no_space", "is more than this user may store", "Free some disk space."),
    errno.EFBIG: ("no_space", "is larger than a file may be here", "Write less."),
    errno.ENAMETOOLONG: ("bad_input", "has a name that is too long", "Use a shorter name."),
    errno.EISDIR: ("not_a_file", "is a folder", "Name a file."),
}


class WorkspaceFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The location of an existing or new file in its workspace."""

    workspace: Path
    parts: tuple[str, ...]
    """Path components below the workspace, with every link resolved."""
    written: str
    """The absolute path as written: the file's other name if links lead to it."""

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def relative(self) -> str:
        return "/".join(self.parts)

    @property
    def real(self) -> str:
        return str(self.workspace.joinpath(*self.parts))


class Content(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    mode: int


def find(workspace: Path, path: str, *, parameter: str = "file_path") -> WorkspaceFiles:
    """Resolve a path relative to the workspace; raises StepFailed if it is outside."""
    if not path.strip():
        raise StepFailed(
            f"{parameter} is empty",
            kind="bad_input",
            hint="Name a file in the workspace; if the path is a template, the step that it names gave nothing.",
        )
    if "\0" in path or len(path) > _PATH_CHARS or any(len(part.encode()) > _NAME_BYTES for part in path.split("/")):
        raise StepFailed(f"{parameter}: {path[:80]!r} cannot be the path of a file", kind="bad_input")
    if path.startswith("~"):
        raise StepFailed(
            f"{parameter}: {path!r} begins with a ~, which only a shell understands",
            kind="bad_input",
            hint="Write the path relative to the workspace.",
        )
    base = real_path(workspace)
    joined = str(Path(base) / path)
    try:
        real = real_path(joined)
    except OSError as error:
        raise failed(path, error) from None
    if real != base and not real.startswith(base.rstrip("/") + "/"):
        through = "" if os.path.normpath(joined) == real else f": it leads to {real}"
        raise StepFailed(
            f"{parameter}: {path!r} is outside of the workspace {base}{through}",
            kind="outside_workspace",
            hint="Steps use files of the workspace only; copy it there, or start the workflow in another folder.",
        )
    parts = tuple(Path(real).relative_to(base).parts)
    if not parts or path.endswith(("/", "/.", "/..")):
        raise StepFailed(f"{parameter}: {path!r} is a folder", kind="not_a_file", hint="Name a file in it.")
    return WorkspaceFiles(workspace=Path(base), parts=parts, written=os.path.normpath(joined))


def read(place: WorkspaceFiles, limit_bytes: int) -> Content:
    """Read a whole file; raises StepFailed if it is larger than `limit_bytes`."""
    with _told(place), _folder(place) as folder, folder.open_read(place.name) as file:
        data = file.read(limit_bytes + 1)
        found = os.fstat(file.fileno())
    if len(data) > limit_bytes:
        raise StepFailed(
            f"{place.relative} is larger than {limit_bytes} bytes",
            kind="too_large",
            hint="Raise max_bytes (at most 50 MiB), or extract the part you need with a shell step.",
        )
    return Content(data=data, mode=stat.S_IMODE(found.st_mode))


def write(place: WorkspaceFiles, data: bytes, mode: Mode, *, permissions: int | None = None) -> None:
    """Write a file atomically, creating parent folders: readers see the old content or the new, never a part."""
    with _told(place), _folder(place, creates=True) as folder:
        before = _plain(place, folder)
        if mode == "append":
            with folder.append(place.name, mode=0o666) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
            return
        if before is not None and mode == "create":
            raise FileExistsError(errno.EEXIST, "exists")
        # A copy keeps the permissions, but not the setuid and setgid bits.
        bits = permissions & 0o777 if permissions is not None else None
        folder.replace(place.name, data, mode=bits, like=before, syncs=True, replaces=mode == "overwrite")


def move(source: WorkspaceFiles, destination: WorkspaceFiles, *, overwrites: bool) -> None:
    with _told(destination), _folder(destination, creates=True) as target:
        after = _plain(destination, target)
        if after is not None and not overwrites:
            raise FileExistsError(errno.EEXIST, "exists")
        with _told(source), _folder(source) as folder:
            before = _plain(source, folder)
            if before is None:
                raise FileNotFoundError(errno.ENOENT, "missing")
            if after is not None and os.path.samestat(before, after):
                return
            try:
                folder.move(source.name, target, destination.name, replaces=overwrites)
                return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
    # Another file system is mounted inside the workspace.
    content = read(source, MOVE_BYTES)
    write(destination, content.data, "overwrite" if overwrites else "create", permissions=content.mode)
    delete(source, missing_ok=True)


def delete(place: WorkspaceFiles, *, missing_ok: bool) -> bool:
    """Delete a file; returns whether there was one."""
    try:
        with _told(place), _folder(place) as folder:
            _plain(place, folder)
            folder.unlink(place.name, missing_ok=False)
            return True
    except StepFailed as error:
        if missing_ok and error.kind == "not_found":
            return False
        raise


def exists(place: WorkspaceFiles) -> bool:
    return os.path.lexists(place.real)


def failed(name: str, error: OSError) -> StepFailed:
    kind, reason, hint = _REASONS.get(error.errno or 0, ("file_error", error.strerror or str(error), None))
    return StepFailed(f"{name} {reason}", kind=kind, hint=hint, can_heal=kind in ("changed", "no_space"))


@contextlib.contextmanager
def _told(place: WorkspaceFiles) -> Iterator[None]:
    try:
        yield
    except errors.UnsafeFile as error:
        raise StepFailed(
            f"{place.relative} {error.reason}", kind="not_a_file", hint="File steps read and write plain files only."
        ) from None
    except OSError as error:
        raise failed(place.relative, error) from None


@contextlib.contextmanager
def _folder(place: WorkspaceFiles, *, creates: bool = False) -> Iterator[Folder]:
    """Open the folder of the file, without following a link."""
    with Folder.open(place.workspace, hard_links=True) as root:
        above = "/".join(place.parts[:-1])
        try:
            folder = root.folder(above, makes=0o777 if creates else None)
        except errors.UnsafeFile as error:
            is_link = "is a link" in error.reason
            raise OSError(errno.ELOOP if is_link else errno.ENOTDIR, error.reason) from None
        with folder:
            yield folder


def _plain(place: WorkspaceFiles, folder: Folder) -> os.stat_result | None:
    """Return the stat of what is there, if anything; raises StepFailed if it is not a regular file."""
    kind = folder.kind(place.name)
    if kind is None:
        return None
    if kind != "file":
        raise errors.UnsafeFile(place.relative, f"is a {kind}")
    return folder.stat(place.name)
