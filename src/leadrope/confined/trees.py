"""Lists, copies and deletes whole trees through descriptors, so that a folder swapped meanwhile leads nowhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
from collections.abc import Iterator
from typing import NamedTuple

from leadrope import errors
from leadrope.confined import handles
from leadrope.confined.values import Dropped, FolderEntry, kind_of, objection

_DEEPEST = 32
"""Folders open at once while deleting; deeper ones are moved up first."""
_MOST_ROUNDS = 10_000
"""Each round removes that many levels of the deepest branch; a process that keeps creating more is not waited for."""


class Copied(NamedTuple):
    files: int
    bytes: int
    dropped: tuple[Dropped, ...]
    """Links, special files and hard-linked files; none of them was opened."""


def entries(handle: int, path: str, prefix: str, most: int) -> list[FolderEntry]:
    """Lists a folder, sorted by name. UnsafeFile if it has more than `most` entries."""
    found: list[FolderEntry] = []
    with os.scandir(handle) as names:
        for entry in names:
            if len(found) == most:
                raise errors.UnsafeFile(path, f"holds more than {most} entries")
            try:
                known = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            found.append(FolderEntry(f"{prefix}{entry.name}", kind_of(known), known))
    return sorted(found, key=lambda entry: entry.path)


class Walk:
    """Yields every entry below a folder, parents first; skips what is removed meanwhile."""

    def __init__(self, path: str, *, most: int, most_depth: int) -> None:
        self._path = path
        self._most = self._left = most
        self._depth = most_depth

    def below(self, handle: int, prefix: str = "", depth: int = 1) -> Iterator[FolderEntry]:
        if depth > self._depth:
            raise errors.UnsafeFile(f"{self._path}/{prefix}", f"lies more than {self._depth} folders deep")
        try:
            found = entries(handle, f"{self._path}/{prefix}", prefix, self._left)
        except errors.UnsafeFile:
            raise errors.UnsafeFile(self._path, f"holds more than {self._most} entries") from None
        self._left -= len(found)
        for entry in found:
            yield entry
            if entry.kind == "folder":
                try:
                    below = handles.step(handle, entry.name, f"{self._path}/{entry.path}")
                except (errors.UnsafeFile, FileNotFoundError):  # not a folder any more
                    continue
                try:
                    yield from self.below(below, f"{entry.path}/", depth + 1)
                finally:
                    os.close(below)


class _Limit(errors.UnsafeFile):
    """A limit of the whole copy was reached, not one of a single entry."""


class Copying:
    """A copy of a tree into a folder that nobody else writes."""

    def __init__(self, path: str, *, most_bytes: int, most_files: int, most_depth: int, hard_links: bool) -> None:
        self._path = path
        self._most_bytes, self._most_files, self._most_depth = most_bytes, most_files, most_depth
        self._hard_links = hard_links
        self._files = self._bytes = self._entries = 0
        self._dropped: list[Dropped] = []

    def run(self, source: int, target: int) -> Copied:
        self._folder(source, target, "", 1)
        return Copied(self._files, self._bytes, tuple(self._dropped))

    def _folder(self, source: int, target: int, prefix: str, depth: int) -> None:
        path = f"{self._path}/{prefix}"
        if depth > self._most_depth:
            raise _Limit(path, f"lies more than {self._most_depth} folders deep")
        try:
            found = entries(source, path, prefix, self._most_files - self._entries)
        except errors.UnsafeFile:
            raise _Limit(self._path, f"holds more than {self._most_files} entries") from None
        self._entries += len(found)
        for entry in found:
            try:
                self._entry(source, target, entry, depth)
            except _Limit:
                raise
            except errors.UnsafeFile as error:
                self._dropped.append(Dropped(entry.path, error.reason))
            except FileNotFoundError:
                continue

    def _entry(self, source: int, target: int, entry: FolderEntry, depth: int) -> None:
        path = f"{self._path}/{entry.path}"
        if entry.kind == "folder":
            below = handles.step(source, entry.name, path)
            try:
                os.mkdir(entry.name, 0o700, dir_fd=target)
                made = handles.step(target, entry.name, entry.path)
                try:
                    handles.give(made, os.fstat(target))
                    self._folder(below, made, f"{entry.path}/", depth + 1)
                finally:
                    os.close(made)
            finally:
                os.close(below)
            return
        reason = objection(entry.stat, hard_links=self._hard_links)
        if reason is not None:
            raise errors.UnsafeFile(path, reason)
        file = handles.open_file(source, entry.name, path, hard_links=self._hard_links)
        try:
            self._file(file, target, entry.name)
        finally:
            os.close(file)

    def _file(self, file: int, target: int, name: str) -> None:
        found = os.fstat(file)
        # Without the setuid and setgid bits.
        made = handles.new_file(target, name, found.st_mode & 0o777 | 0o600)
        try:
            try:
                for chunk in handles.read_chunks(file, self._most_bytes - self._bytes, self._path):
                    handles.write_all(made, chunk)
                    self._bytes += len(chunk)
            except errors.UnsafeFile:
                raise _Limit(self._path, f"holds more than {self._most_bytes} bytes") from None
            os.utime(made, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(made)
        self._files += 1


def give(handle: int, path: str, uid: int, gid: int, depth: int) -> None:
    """Gives the folder and its regular files to this user; hard-linked files may be somebody else's and are skipped.

    What lies deeper than `depth` was created by the user of an earlier run and is left as it is.
    """
    os.fchown(handle, uid, gid)
    for entry in entries(handle, path, "", sys.maxsize):
        if (entry.stat.st_uid, entry.stat.st_gid) == (uid, gid) and entry.kind != "folder":
            continue
        with contextlib.suppress(errors.UnsafeFile, FileNotFoundError):
            if entry.kind == "folder" and depth:
                below = handles.step(handle, entry.name, entry.path)
                try:
                    give(below, f"{path}/{entry.name}", uid, gid, depth - 1)
                finally:
                    os.close(below)
            elif entry.kind == "file":
                file = handles.open_file(handle, entry.name, entry.path, hard_links=False)
                try:
                    os.fchown(file, uid, gid)
                finally:
                    os.close(file)


def remove(handle: int, name: str) -> None:
    """Removes a file, a link or a whole folder. Deletes as much as possible and raises the first failure at the end.

    Nothing is followed: a name is unlinked where it is, and a folder is entered through its descriptor.
    """
    removal = _Removal()
    removal.entry(handle, name)
    if removal.failures:
        raise removal.failures[0]


class _Removal:
    def __init__(self) -> None:
        self.failures: list[OSError] = []
        self._has_moved = False

    def entry(self, handle: int, name: str) -> None:
        if self._unlinked(handle, name):
            return
        top = self._entered(handle, name)
        if top is not None:
            try:
                for _ in range(_MOST_ROUNDS):
                    self._has_moved = False
                    self._empty(top, top, 1)
                    if not self._has_moved:
                        break
            finally:
                os.close(top)
        self._rmdir(handle, name)

    def _empty(self, handle: int, top: int, depth: int) -> None:
        with os.scandir(handle) as found:
            names = [entry.name for entry in found]
        for name in names:
            if self._unlinked(handle, name):
                continue
            below = self._entered(handle, name)
            if below is None:
                continue
            try:
                if depth < _DEEPEST:
                    self._empty(below, top, depth + 1)
                else:
                    self._move_up(handle, name, top)
                    continue
            finally:
                os.close(below)
            self._rmdir(handle, name)

    def _move_up(self, handle: int, name: str, top: int) -> None:
        """Moves up a folder that is too deep to keep all of its parents open; the next round deletes it."""
        try:
            os.rename(name, f".leadrope-{secrets.token_hex(8)}", src_dir_fd=handle, dst_dir_fd=top)
            self._has_moved = True
        except FileNotFoundError:
            return
        except OSError as error:
            self.failures.append(error)

    def _unlinked(self, handle: int, name: str) -> bool:
        """Unlinks an entry; False if it is a folder."""
        try:
            os.unlink(name, dir_fd=handle)
        except FileNotFoundError:
            return True
        except OSError as error:
            # For a folder Linux reports EISDIR, macOS EPERM.
            if error.errno in (errno.EISDIR, errno.EPERM, errno.EACCES):
                with contextlib.suppress(OSError):
                    if kind_of(os.stat(name, dir_fd=handle, follow_symlinks=False)) == "folder":
                        return False
            self.failures.append(error)
        return True

    def _entered(self, handle: int, name: str) -> int | None:
        """Opens the folder, after making it accessible if its permissions exclude its owner."""
        try:
            try:
                below = os.open(name, handles.FOLDER, dir_fd=handle)
            except PermissionError:
                _open_up(handle, name)
                below = os.open(name, handles.FOLDER, dir_fd=handle)
        except OSError as error:
            # Gone, or replaced by a link.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
                self.failures.append(error)
            return None
        if os.fstat(below).st_mode & 0o700 != 0o700:
            with contextlib.suppress(OSError):  # not ours: then deleting fails and reports it
                os.fchmod(below, 0o700)
        return below

    def _rmdir(self, handle: int, name: str) -> None:
        try:
            os.rmdir(name, dir_fd=handle)
        except FileNotFoundError:
            return
        except NotADirectoryError:  # swapped meanwhile
            self._unlinked(handle, name)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not (self.failures or self._has_moved):
                self.failures.append(error)


def _open_up(handle: int, name: str) -> None:
    """Makes the folder itself accessible; a chmod by name would follow a link that was just put there."""
    if sys.platform != "linux":
        os.chmod(name, 0o700, dir_fd=handle, follow_symlinks=False)
        return
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    try:
        os.chmod(f"/proc/self/fd/{found}", 0o700)  # noqa: PTH101
    finally:
        os.close(found)
