"""Files inside a workspace: found with every link followed, then opened so that no link is. Asks no policy.

A path is resolved once. What was found is opened folder by folder, each from the handle of the one before and without
following links: whoever swaps a folder for a link in between gets an error, not a file outside. Only plain files are
opened, and never in a way that waits: a pipe without a writer would hold the step for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from leadrope.workflows.steps.base import StepFailed

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MOVE_BYTES = 1024 * 1024 * 1024
"""Moved at most from one disk to another, which needs as much memory; on one disk a file only gets another name."""
_CHUNK = 1024 * 1024
_NAME_BYTES = 255
_PATH_CHARS = 4096

Mode = Literal["overwrite", "append", "create"]

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_REASONS = {
    errno.ENOENT: ("not_found", "does not exist", "Look at the name; a step before this one may not have written it."),
    errno.ELOOP: ("changed", "is a link in a circle, or became a link just now", "Look at the links in its path."),
    errno.ENOTDIR: ("not_found", "lies below something that is no folder", "Look at the folders in its path."),
    errno.EEXIST: ("exists", "is there already", "Choose another name, or allow that it is replaced."),
    errno.EACCES: ("no_access", "may not be opened by this user", "Look at its permissions."),
    errno.EPERM: ("no_access", "may not be changed by this user", "Look at its permissions."),
    errno.EROFS: ("no_access", "lies on a disk that cannot be written", "Use a folder that can be written."),
    errno.ENOSPC: ("no_space", "does not fit on the disk", "Make room on the disk."),
    errno.EDQUOT: ("no_space", "is more than this user may store", "Make room on the disk."),
    errno.EFBIG: ("no_space", "is larger than a file may be here", "Write less."),
    errno.ENAMETOOLONG: ("bad_input", "has a name that is too long", "Use a shorter name."),
    errno.EISDIR: ("not_a_file", "is a folder", "Name a file."),
}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a file is, or would be, in its workspace."""

    workspace: Path
    parts: tuple[str, ...]
    """From the workspace down, every link followed."""
    written: str
    """Absolute, as the path was written: the other name of the file, where links lead to it."""

    @property
    def relative(self) -> str:
        return "/".join(self.parts)

    @property
    def real(self) -> str:
        return str(self.workspace.joinpath(*self.parts))


class Content(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    mode: int


def find(workspace: Path, path: str, *, parameter: str = "file_path") -> Place:
    """The place that a path means, seen from the workspace; StepFailed for one that is outside of it."""
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
            hint="Write the path from the workspace on.",
        )
    base = os.path.realpath(workspace)
    joined = str(Path(base) / path)
    try:
        real = os.path.realpath(joined)
    except OSError as error:
        raise failed(path, error) from None
    if real != base and not real.startswith(base.rstrip("/") + "/"):
        through = "" if os.path.normpath(joined) == real else f": it leads to {real}"
        raise StepFailed(
            f"{parameter}: {path!r} is outside of the workspace {base}{through}",
            kind="outside_workspace",
            hint="File steps work in the workspace only; copy the file into it, or start the workflow in another one.",
        )
    parts = tuple(Path(real).relative_to(base).parts)
    if not parts or path.endswith(("/", "/.", "/..")):
        raise StepFailed(f"{parameter}: {path!r} is a folder", kind="not_a_file", hint="Name a file in it.")
    return Place(workspace=Path(base), parts=parts, written=os.path.normpath(joined))


def read(place: Place, limit_bytes: int) -> Content:
    """All of a file; StepFailed where it is larger than `limit_bytes`."""
    with _told(place), _folder(place) as folder:
        _plain(place, folder, must_exist=True)
        with os.fdopen(os.open(place.parts[-1], _READ, dir_fd=folder), "rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            _check_plain(place, found)
            chunks: list[bytes] = []
            left = limit_bytes + 1
            # Read to the end and not to the size it had: a file may grow, and some say they have none.
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                chunks.append(chunk)
                left -= len(chunk)
    if left <= 0:
        raise StepFailed(
            f"{place.relative} is larger than {limit_bytes} bytes",
            kind="too_large",
            hint="Raise max_bytes (at most 50 MiB), or take the part that is needed with a shell step.",
        )
    return Content(data=b"".join(chunks), mode=stat.S_IMODE(found.st_mode))


def write(place: Place, data: bytes, mode: Mode, *, permissions: int | None = None) -> None:
    """The bytes in the file, with the folders above it. Readers see the old file or the new one, never a half."""
    with _told(place), _folder(place, creates=True) as folder:
        name = place.parts[-1]
        if mode == "append":
            _append(place, folder, data)
            return
        before = _plain(place, folder, must_exist=False)
        if before is not None and mode == "create":
            raise FileExistsError(errno.EEXIST, "exists")
        temporary = _temporary(place, folder, data, before, permissions)
        try:
            _put(folder, temporary, folder, name, replaces=mode == "overwrite")
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise


def move(source: Place, destination: Place, *, overwrites: bool) -> None:
    with _told(destination), _folder(destination, creates=True) as target:
        after = _plain(destination, target, must_exist=False)
        if after is not None and not overwrites:
            raise FileExistsError(errno.EEXIST, "exists")
        with _told(source), _folder(source) as folder:
            before = _plain(source, folder, must_exist=True)
            if after is not None and before is not None and os.path.samestat(before, after):
                return
            try:
                _put(folder, source.parts[-1], target, destination.parts[-1], replaces=overwrites)
                return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
    # Another disk is mounted inside the workspace.
    content = read(source, MOVE_BYTES)
    write(destination, content.data, "overwrite" if overwrites else "create", permissions=content.mode)
    delete(source, missing_ok=True)


def delete(place: Place, *, missing_ok: bool) -> bool:
    """True if there was a file."""
    try:
        with _told(place), _folder(place) as folder:
            _plain(place, folder, must_exist=True)
            os.unlink(place.parts[-1], dir_fd=folder)
            return True
    except StepFailed as error:
        if missing_ok and error.kind == "not_found":
            return False
        raise


def exists(place: Place) -> bool:
    return os.path.lexists(place.real)


def failed(name: str, error: OSError) -> StepFailed:
    kind, reason, hint = _REASONS.get(error.errno or 0, ("file_error", error.strerror or str(error), None))
    return StepFailed(f"{name} {reason}", kind=kind, hint=hint, can_heal=kind in ("changed", "no_space"))


@contextlib.contextmanager
def _told(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise failed(place.relative, error) from None


@contextlib.contextmanager
def _folder(place: Place, *, creates: bool = False) -> Iterator[int]:
    """The handle of the folder that the file is in, reached without following a link."""
    handle = os.open(place.workspace, _FOLDER)
    try:
        for part in place.parts[:-1]:
            try:
                below = os.open(part, _FOLDER, dir_fd=handle)
            except FileNotFoundError:
                if not creates:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
                    _give(os.fstat(handle), part, handle)
                below = os.open(part, _FOLDER, dir_fd=handle)
            except NotADirectoryError:
                # What Linux says of a link where a folder must be.
                if stat.S_ISLNK(os.stat(part, dir_fd=handle, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, "link") from None
                raise
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _plain(place: Place, folder: int, *, must_exist: bool) -> os.stat_result | None:
    """What is there, if it is a plain file. Looked at before it is opened: that alone can set a device going."""
    try:
        found = os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if must_exist:
            raise
        return None
    _check_plain(place, found)
    return found


def _check_plain(place: Place, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = next((name for test, name in _KINDS if test(found.st_mode)), "no plain file")
    raise StepFailed(
        f"{place.relative} is {kind}", kind="not_a_file", hint="File steps read and write plain files only."
    )


def _temporary(place: Place, folder: int, data: bytes, before: os.stat_result | None, permissions: int | None) -> str:
    """A new file beside the other one, with all of the bytes."""
    temporary = f".leadrope-{secrets.token_hex(8)}.tmp"
    handle = os.open(temporary, _NEW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            if before is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            elif permissions is not None:
                # Those of a copied file, without the bits that lend somebody's rights.
                os.fchmod(file.fileno(), permissions & 0o777)
            _give(before or os.fstat(folder), temporary, folder)
            _write_all(file.fileno(), data)
            os.fsync(file.fileno())
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise
    return temporary


def _append(place: Place, folder: int, data: bytes) -> None:
    before = _plain(place, folder, must_exist=False)
    handle = os.open(place.parts[-1], _APPEND, 0o666, dir_fd=folder)
    try:
        _check_plain(place, os.fstat(handle))
        if before is None:
            _give(os.fstat(folder), place.parts[-1], folder)
        _write_all(handle, data)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view[:_CHUNK]) :]


def _put(folder: int, name: str, target: int, new: str, *, replaces: bool) -> None:
    if not replaces:
        # The name is taken first, so that nobody's file is lost who takes it at the same moment.
        os.close(os.open(new, _NEW, 0o600, dir_fd=target))
    try:
        os.replace(name, new, src_dir_fd=folder, dst_dir_fd=target)
    except OSError:
        if not replaces:
            os.unlink(new, dir_fd=target)
        raise


def _give(owner: os.stat_result, name: str, folder: int) -> None:
    """Root makes files for whoever owns the workspace: an agent there runs as that user, and has to change them."""
    if os.geteuid() == 0 and (owner.st_uid, owner.st_gid) != (0, 0):
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)
