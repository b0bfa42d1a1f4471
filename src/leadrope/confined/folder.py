"""A folder that an agent can write, held by its descriptor."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Self

from leadrope import errors
from leadrope.confined import handles, trees
from leadrope.confined.real import real_path
from leadrope.confined.values import FolderEntry, Kind, kind_of

Relative = str | os.PathLike[str]

_MOST_LINKS = 16
_GIVEN_DEPTH = 128


class Folder:
    """Every path is relative to this folder, without `..`, and no link in it is followed.

    The path of `open` is trusted, its last component included: it must be the supervisor's (or the user's) own choice,
    and nothing above the folder may be the agent's to rename. Everything below is not.

    Files with a second name (hard links) are refused unless `hard_links` says that they are ordinary here. They are in
    a workspace, where package managers and `git clone` make them, and where an agent behind a sandbox cannot make one
    to a file outside: a link cannot cross a mount. In folders of sessions and runs nobody needs one.
    """

    def __init__(self, handle: int, path: str, *, hard_links: bool = False) -> None:
        """`open` is the usual way here. The descriptor is closed by `close`."""
        self._handle = handle
        self.path = path
        """As it was given, for messages."""
        self._hard_links = hard_links

    @classmethod
    def open(cls, path: Relative, *, hard_links: bool = False, follows: bool = True) -> Self:
        """`follows=False`: where somebody may have put a link in the place of the folder itself, which is refused."""
        flags = handles.FOLDER & ~(getattr(os, "O_NOFOLLOW", 0) if follows else 0)
        try:
            handle = os.open(path, flags)
        except OSError as error:
            if follows or error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise errors.UnsafeFile(os.fspath(path), "is not a folder") from None
        return cls(handle, os.fspath(path).rstrip("/") or "/", hard_links=hard_links)

    def folder(self, relative: Relative, *, makes: int | None = None) -> Folder:
        """A folder below this one. `makes`: missing folders are made with these permissions."""
        parts = handles.parts_of(self.path, relative)
        handle = handles.open_folder(self._handle, parts, self.path, makes=makes)
        return Folder(handle, "/".join((self.path, *parts)), hard_links=self._hard_links)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """Of the folder, for a system call that takes a directory descriptor."""
        return self._handle

    # -- looking --------------------------------------------------------------------------------------------------

    def stat(self, relative: Relative) -> os.stat_result:
        """Of the entry itself: a link is described, not followed."""
        parts = handles.parts_of(self.path, relative)
        if not parts:
            return os.fstat(self._handle)
        with self._parent(relative) as (parent, name, _):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def kind(self, relative: Relative) -> Kind | None:
        """None: there is nothing."""
        try:
            return kind_of(self.stat(relative))
        except FileNotFoundError:
            return None

    def entries(self, relative: Relative = "", *, most: int = 10_000) -> list[FolderEntry]:
        """What is in a folder, by name; UnsafeFile if there is more than `most`."""
        with self.folder(relative) as folder:
            prefix = "".join(f"{part}/" for part in handles.parts_of(self.path, relative))
            return trees.entries(folder.fileno(), folder.path, prefix, most)

    def walk(self, relative: Relative = "", *, most: int = 100_000, most_depth: int = 64) -> Iterator[FolderEntry]:
        """Everything below a folder, parents first; UnsafeFile if there is more than `most`, or if it is deeper."""
        with self.folder(relative) as folder:
            prefix = "".join(f"{part}/" for part in handles.parts_of(self.path, relative))
            yield from trees.Walk(self.path, most=most, most_depth=most_depth).below(folder.fileno(), prefix)

    def resolve(self, relative: Relative) -> str:
        """The path with its links followed, as long as they stay below this folder; UnsafeFile if one leads out.

        The result is a name and no promise: opening it follows no link, whatever has changed since.
        """
        todo = list(reversed(handles.parts_of(self.path, relative)))
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                if not done:
                    raise self._leads_out(relative)
                done.pop()
                continue
            here = "/".join((*done, part))
            if self.kind(here) != "link":
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise errors.UnsafeFile(f"{self.path}/{os.fspath(relative)}", "is a link in a circle")
            target = self.read_link(here)
            if target.startswith("/"):
                target = self._inside(target, relative)
                done = []
            todo += [step for step in reversed(target.split("/")) if step not in ("", ".")]
        return "/".join(done)

    def _inside(self, target: str, relative: Relative) -> str:
        for root in dict.fromkeys((os.path.abspath(self.path), real_path(self.path))):  # noqa: PTH100
            if target.startswith(f"{root.rstrip('/')}/"):
                return target[len(root.rstrip("/")) + 1 :]
        raise self._leads_out(relative)

    def _leads_out(self, relative: Relative) -> errors.UnsafeFile:
        return errors.UnsafeFile(f"{self.path}/{os.fspath(relative)}", "is a link that leads out of the folder")

    # -- reading ---------------------------------------------------------------------------------------------------

    def open_read(self, relative: Relative) -> BinaryIO:
        """A regular file, for reading; the caller bounds how much."""
        with self._parent(relative) as (parent, name, path):
            return os.fdopen(handles.open_file(parent, name, path, hard_links=self._hard_links), "rb")

    def lines(self, relative: Relative, *, most: int, longest: int = 64 * 1024 * 1024) -> Iterator[bytes]:
        """The lines of a file without their ends, as far as its first `most` bytes go; a longer line is left out."""
        with self.open_read(relative) as file:
            yield from handles.lines(file.fileno(), most, longest)

    def read_bytes(self, relative: Relative, *, most: int) -> bytes:
        """All of a file; UnsafeFile if it is larger than `most` bytes."""
        path = f"{self.path}/{os.fspath(relative)}"
        with self.open_read(relative) as file:
            if os.fstat(file.fileno()).st_size > most:
                raise handles.too_large(path, most)
            return b"".join(handles.read_chunks(file.fileno(), most, path))

    def read_text(self, relative: Relative, *, most: int, errors: str = "strict") -> str:
        """The same, as UTF-8."""
        return self.read_bytes(relative, most=most).decode("utf-8", errors)

    def read_link(self, relative: Relative) -> str:
        """Where a link leads, as it is written; UnsafeFile for anything else."""
        with self._parent(relative) as (parent, name, path):
            try:
                return os.readlink(name, dir_fd=parent)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise errors.UnsafeFile(path, "is not a link") from None

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_new(self, relative: Relative, data: bytes, *, mode: int = 0o600) -> None:
        """FileExistsError if there is anything, a link included."""
        with self._parent(relative) as (parent, name, path):
            try:
                file = handles.new_file(parent, name, mode)
            except FileExistsError as error:
                error.filename = path
                raise
            try:
                handles.write_all(file, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=parent)
                raise
            finally:
                os.close(file)

    def make_pipe(self, relative: Relative, *, mode: int = 0o600) -> int:
        """A new named pipe; gives a descriptor that reads it without waiting. FileExistsError if there is anything."""
        with self._parent(relative) as (parent, name, path):
            return handles.new_pipe(parent, name, path, mode)

    def replace(
        self,
        relative: Relative,
        data: bytes,
        *,
        mode: int | None = 0o600,
        syncs: bool = False,
        like: os.stat_result | None = None,
        replaces: bool = True,
    ) -> None:
        """Readers see the old content or the new one, never a part. What was there is replaced, not written to.

        Without a mode the umask decides. `like`: with the permissions and the owner of that file. FileExistsError
        unless it `replaces`.
        """
        with self._parent(relative) as (parent, name, _), handles.temporary(parent, mode) as (file, fresh):
            if like is not None:
                handles.resemble(file, like)
            handles.write_all(file, data)
            if syncs:
                os.fsync(file)
            handles.put(parent, fresh, parent, name, replaces=replaces)

    def append(self, relative: Relative, *, mode: int = 0o600) -> BinaryIO:
        """A regular file for writing at its end, made if it is missing; unbuffered, so that a write is one write.

        One with a second name is refused everywhere: what is written would be in the other file too.
        """
        with self._parent(relative) as (parent, name, path):
            file = handles.open_file(parent, name, path, hard_links=False, appends=mode)
            return os.fdopen(file, "ab", buffering=0)

    def copy_file(self, relative: Relative, to: Folder, new: Relative, *, most: int, mode: int | None = None) -> int:
        """One regular file into `to`, in place of what is there, with its permissions and time; gives its size.

        UnsafeFile, and nothing is changed, if it is larger than `most` bytes.
        """
        with self.open_read(relative) as source, to._parent(new) as (parent, name, _):
            found = os.fstat(source.fileno())
            if found.st_size > most:
                raise handles.too_large(f"{self.path}/{os.fspath(relative)}", most)
            bits = found.st_mode & 0o777 if mode is None else mode
            with handles.temporary(parent, bits) as (file, fresh):
                size = 0
                for chunk in handles.read_chunks(source.fileno(), most, f"{self.path}/{os.fspath(relative)}"):
                    handles.write_all(file, chunk)
                    size += len(chunk)
                os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
                os.replace(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
            return size

    def link(self, relative: Relative, target: str) -> None:
        """A link with this text in place of what is there; nothing looks at where it leads."""
        with self._parent(relative) as (parent, name, _):
            handles.new_link(parent, name, target)

    def make(self, relative: Relative, *, mode: int = 0o700) -> None:
        """A folder, with those above it; nothing happens if it is there."""
        self.folder(relative, makes=mode).close()

    def rename(self, relative: Relative, new: Relative, *, replaces: bool = False) -> None:
        """The entry itself, also if it is a link. FileExistsError unless `replaces`."""
        with self._parent(relative) as (source, name, _), self._parent(new) as (target, wanted, _):
            handles.put(source, name, target, wanted, replaces=replaces)

    def move(self, relative: Relative, to: Folder, new: Relative, *, replaces: bool = False) -> None:
        """The same into another folder of this file system."""
        with self._parent(relative) as (source, name, _), to._parent(new) as (target, wanted, _):
            handles.put(source, name, target, wanted, replaces=replaces)

    def remove(self, relative: Relative, *, missing_ok: bool = True) -> None:
        """A file, a link (not what it leads to) or a whole folder; OSError for what could not be deleted."""
        try:
            with self._parent(relative) as (parent, name, _):
                if not missing_ok:
                    os.stat(name, dir_fd=parent, follow_symlinks=False)
                trees.remove(parent, name)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def give(self, uid: int, gid: int) -> None:
        """This folder with the folders and regular files in it, to a user; links and special files stay as they are."""
        trees.give(self._handle, self.path, uid, gid, _GIVEN_DEPTH)

    def give_entry(self, name: str, uid: int, gid: int) -> None:
        """The same of one entry: a folder with what is in it, a file, a socket, or a link itself."""
        found = self.stat(name)
        if kind_of(found) == "folder":
            with self.folder(name) as folder:
                folder.give(uid, gid)
        elif found.st_nlink == 1:  # else a hard link to somebody's file
            with self._parent(name) as (parent, entry, _):
                os.chown(entry, uid, gid, dir_fd=parent, follow_symlinks=False)

    def unlink(self, relative: Relative, *, missing_ok: bool = True) -> None:
        """A file or a link, never a folder."""
        try:
            with self._parent(relative) as (parent, name, _):
                os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_empty(self, relative: Relative) -> bool:
        """A folder with nothing in it; False for anything else, which stays."""
        try:
            with self._parent(relative) as (parent, name, _):
                os.rmdir(name, dir_fd=parent)
        except (OSError, errors.UnsafeFile):
            return False
        return True

    def copy_tree(
        self,
        relative: Relative,
        to: Folder,
        new: Relative,
        *,
        most_bytes: int,
        most_files: int = 100_000,
        most_depth: int = 64,
    ) -> trees.Copied:
        """A folder's regular files and folders into the new folder `new` of `to`; everything else is dropped.

        UnsafeFile if a limit is reached; what was copied until then is left for the caller to remove.
        """
        with self.folder(relative) as source, to._parent(new) as (parent, name, path):
            os.mkdir(name, 0o700, dir_fd=parent)
            target = handles.step(parent, name, path)
            try:
                handles.give(target, os.fstat(parent))
                return trees.Copying(
                    source.path,
                    most_bytes=most_bytes,
                    most_files=most_files,
                    most_depth=most_depth,
                    hard_links=self._hard_links,
                ).run(source.fileno(), target)
            finally:
                os.close(target)

    def _parent(self, relative: Relative) -> _Parent:
        return _Parent(self._handle, handles.parts_of(self.path, relative), self.path)


class _Parent:
    """The folder that an entry is in, its name there, and its path for messages."""

    def __init__(self, handle: int, parts: tuple[str, ...], root: str) -> None:
        if not parts:
            raise errors.UnsafeFile(root, "is the folder itself", hint="Name something in it.")
        self._handle, self._parts, self._root = handle, parts, root
        self._folder = -1

    def __enter__(self) -> tuple[int, str, str]:
        self._folder = handles.open_folder(self._handle, self._parts[:-1], self._root)
        return self._folder, self._parts[-1], "/".join((self._root, *self._parts))

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)
