"""Opens folders and files without following links, and returns their descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator

from leadrope import errors
from leadrope.confined.values import kind_of, objection

# Windows has none of these; opening a folder fails there with the system's own error.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NOCTTY = getattr(os, "O_NOCTTY", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE
READ = os.O_RDONLY | _SAFE | _NOCTTY
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE | _NOCTTY
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE | _NOCTTY
CHUNK = 1024 * 1024
_NAME_BYTES = 255


def parts_of(root: str, relative: str | os.PathLike[str]) -> tuple[str, ...]:
    """Splits a relative path into its components; refuses anything that could lead up or elsewhere."""
    text = os.fspath(relative)
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if text.startswith("/") or ".." in parts or "\0" in text:
        raise errors.UnsafeFile(f"{root}/{text!r}", "is not a path below that folder", hint="Use a relative path.")
    if any(len(os.fsencode(part)) > _NAME_BYTES for part in parts):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), f"{root}/{text}")
    return parts


def open_folder(handle: int, parts: tuple[str, ...], root: str, *, makes: int | None = None) -> int:
    """Opens the folder below `handle`. With `makes`, missing folders are created with these permissions."""
    here = os.open(".", FOLDER, dir_fd=handle)  # unlike dup, with its own read position for listing
    try:
        for place, part in enumerate(parts):
            path = "/".join((root, *parts[: place + 1]))
            below = _step(here, part, path, makes)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def _step(handle: int, name: str, path: str, makes: int | None) -> int:
    if makes is not None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, makes, dir_fd=handle)
            below = step(handle, name, path)
            give(below, os.fstat(handle))
            return below
    return step(handle, name, path)


def step(handle: int, name: str, path: str) -> int:
    """Opens the folder `name` in `handle`."""
    try:
        return os.open(name, FOLDER, dir_fd=handle)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            error.filename = path
            raise
        # For a link in place of a folder Linux reports ENOTDIR, other systems ELOOP.
        kind = "link"
        with contextlib.suppress(OSError):
            kind = kind_of(os.stat(name, dir_fd=handle, follow_symlinks=False))
        raise errors.UnsafeFile(path, f"is a {kind}, not a folder") from None


def open_file(handle: int, name: str, path: str, *, hard_links: bool, appends: int | None = None) -> int:
    """Opens a regular file; it is checked before the opening as well, since opening a device can have an effect.

    With `appends` it is opened for appending, and created with these permissions if missing.
    """
    missing = False
    try:
        check(os.stat(name, dir_fd=handle, follow_symlinks=False), path, hard_links=hard_links)
    except FileNotFoundError as error:
        if appends is None:
            error.filename = path
            raise
        missing = True
    try:
        file = os.open(name, READ if appends is None else APPEND, appends or 0, dir_fd=handle)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise errors.UnsafeFile(path, "is not a regular file") from None
        error.filename = path
        raise
    try:
        check(os.fstat(file), path, hard_links=hard_links)
        if missing:
            give(file, os.fstat(handle))
    except BaseException:
        os.close(file)
        raise
    return file


def check(found: os.stat_result, path: str, *, hard_links: bool) -> None:
    reason = objection(found, hard_links=hard_links)
    if reason is not None:
        raise errors.UnsafeFile(path, reason)


def new_file(handle: int, name: str, mode: int | None) -> int:
    """Creates a file; FileExistsError if the name exists, also as a link. Without a mode the umask decides."""
    file = os.open(name, NEW, 0o666 if mode is None else mode, dir_fd=handle)
    try:
        if mode is not None:
            os.fchmod(file, mode)  # independent of the umask
        give(file, os.fstat(handle))
    except BaseException:
        os.close(file)
        raise
    return file


def new_pipe(handle: int, name: str, path: str, mode: int) -> int:
    """Creates a named pipe; FileExistsError if the name exists.

    It is opened for both sides, so that reading never blocks and never ends.
    """
    os.mkfifo(name, 0o600, dir_fd=handle)
    pipe = os.open(name, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
    try:
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            raise errors.UnsafeFile(path, "is not the pipe that was made there")
        os.fchmod(pipe, mode)
        give(pipe, os.fstat(handle))
    except BaseException:
        os.close(pipe)
        raise
    return pipe


@contextlib.contextmanager
def temporary(handle: int, mode: int | None) -> Iterator[tuple[int, str]]:
    """Creates a temporary file in the folder, to be renamed; it is removed if the block fails."""
    name = f".leadrope-{secrets.token_hex(8)}.tmp"
    file = new_file(handle, name, mode)
    try:
        yield file, name
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=handle)
        raise
    finally:
        os.close(file)


def new_link(handle: int, name: str, target: str) -> None:
    """Creates a link, replacing what is there; a folder is kept, and raises OSError."""
    fresh = f".leadrope-{secrets.token_hex(8)}.tmp"
    os.symlink(target, fresh, dir_fd=handle)
    try:
        owner = os.fstat(handle)
        if os.geteuid() == 0 and (owner.st_uid, owner.st_gid) != (0, 0):
            os.chown(fresh, owner.st_uid, owner.st_gid, dir_fd=handle, follow_symlinks=False)
        os.replace(fresh, name, src_dir_fd=handle, dst_dir_fd=handle)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=handle)
        raise


def write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest[:CHUNK]) :]


def read_chunks(file: int, most: int, path: str) -> Iterator[bytes]:
    """Reads to the end, not to the initial size, as a file may grow. UnsafeFile once there is more than `most`."""
    left = most
    while chunk := os.read(file, min(CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise too_large(path, most)
        yield chunk


def too_large(path: str, most: int) -> errors.UnsafeFile:
    return errors.UnsafeFile(path, f"is larger than {most} bytes", hint="Make it smaller.")


def lines(file: int, most: int, longest: int) -> Iterator[bytes]:
    """Yields lines of at most `longest` bytes among the first `most`; the last one may lack a line end."""
    held = bytearray()
    is_too_long = False
    left = most
    while left > 0 and (chunk := os.read(file, min(CHUNK, left))):
        left -= len(chunk)
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            if not is_too_long and len(held) + len(piece) <= longest:
                yield bytes(held) + piece
            held.clear()
            is_too_long = False
        is_too_long = is_too_long or len(held) + len(rest) > longest
        if is_too_long:
            held.clear()
        else:
            held += rest
    if held and left > 0:
        yield bytes(held)


def give(made: int, owner: os.stat_result) -> None:
    """Gives what root creates to the owner of the folder: an agent there runs as that user."""
    if os.geteuid() == 0 and (owner.st_uid, owner.st_gid) != (0, 0):
        os.fchown(made, owner.st_uid, owner.st_gid)


def resemble(made: int, other: os.stat_result) -> None:
    """Copies the permissions and the owner of another file, without the setuid and setgid bits."""
    os.fchmod(made, other.st_mode & 0o777)
    # A hard link may be to another user's file.
    if os.geteuid() == 0 and other.st_nlink == 1:
        os.fchown(made, other.st_uid, other.st_gid)


def put(source: int, name: str, target: int, new: str, *, replaces: bool) -> None:
    """Renames. Without `replaces` the name is reserved first, so that a file created meanwhile is not lost."""
    is_folder = stat.S_ISDIR(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode)
    if not replaces:
        if is_folder:
            os.mkdir(new, 0o700, dir_fd=target)
        else:
            os.close(os.open(new, NEW, 0o600, dir_fd=target))
    try:
        os.replace(name, new, src_dir_fd=source, dst_dir_fd=target)
    except OSError:
        if not replaces:
            (os.rmdir if is_folder else os.unlink)(new, dir_fd=target)
        raise
