"""A folder that an agent can write, accessed through its descriptor."""

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
    """A folder whose paths are all relative, without `..`; links in them are not followed.

    The path given to `open` is trusted, including its last component: it must be chosen by the supervisor or the user,
    and the agent must not be able to rename anything above the folder. Everything below is untrusted.

    Hard-linked files are refused unless `hard_links` says that they are normal here. They are in a workspace, where
    package managers and `git clone` make them, and where a sandboxed agent cannot link to a file outside: a hard link
    cannot cross a mount. In folders of sessions and runs nobody needs one.
    """

    def __init__(self, handle: int, path: str, *, hard_links: bool = False) -> None:
        """Takes over the descriptor, which `close` closes; use `open` instead where possible."""
        self._handle = handle
        self.path = path
        """As given, for messages."""
        self._hard_links = hard_links

    @classmethod
    def open(cls, path: Relative, *, hard_links: bool = False, follows: bool = True) -> Self:
        """Opens a folder. With `follows=False` a link in place of the folder itself is refused."""
        flags = handles.FOLDER & ~(getattr(os, "O_NOFOLLOW", 0) if follows else 0)
        try:
            handle = os.open(path, flags)
        except OSError as error:
            if follows or error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise errors.UnsafeFile(os.fspath(path), "is not a folder") from None
        return cls(handle, os.fspath(path).rstrip("/") or "/", hard_links=hard_links)

    def folder(self, relative: Relative, *, makes: int | None = None) -> Folder:
        """Opens a folder below this one. With `makes`, missing folders are created with these permissions."""
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
        """The descriptor of the folder, for system calls that take a directory descriptor."""
        return self._handle

    # -- inspecting -----------------------------------------------------------------------------------------------

    def stat(self, relative: Relative) -> os.stat_result:
        """Returns the stat of the entry itself; links are not followed."""
        parts = handles.parts_of(self.path, relative)
        if not parts:
            return os.fstat(self._handle)
        with self._parent(relative) as (parent, name, _):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def kind(self, relative: Relative) -> Kind | None:
        """Returns the kind of an entry; None if it does not exist."""
        try:
            return kind_of(self.stat(relative))
        except FileNotFoundError:
            return None

    def entries(self, relative: Relative = "", *, most: int = 10_000) -> list[FolderEntry]:
        """Lists a folder, sorted by name; UnsafeFile if it has more than `most` entries."""
        with self.folder(relative) as folder:
            prefix = "".join(f"{part}/" for part in handles.parts_of(self.path, relative))
            return trees.entries(folder.fileno(), folder.path, prefix, most)

    def walk(self, relative: Relative = "", *, most: int = 100_000, most_depth: int = 64) -> Iterator[FolderEntry]:
        """Yields everything below a folder, parents first; UnsafeFile if there is more than `most`, or it is deeper."""
        with self.folder(relative) as folder:
            prefix = "".join(f"{part}/" for part in handles.parts_of(self.path, relative))
            yield from trees.Walk(self.path, most=most, most_depth=most_depth).below(folder.fileno(), prefix)

    def resolve(self, relative: Relative) -> str:
        """Resolves the links in a path, as long as they stay below this folder; UnsafeFile if one leads out.

        The result is only a name: opening it follows no link, whatever has changed since.
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
        """Opens a regular file for reading; the caller limits how much is read."""
        with self._parent(relative) as (parent, name, path):
            return os.fdopen(handles.open_file(parent, name, path, hard_links=self._hard_links), "rb")

    def lines(self, relative: Relative, *, most: int, longest: int = 64 * 1024 * 1024) -> Iterator[bytes]:
        """Yields the lines among the first `most` bytes of a file, without line ends; longer lines are left out."""
        with self.open_read(relative) as file:
            yield from handles.lines(file.fileno(), most, longest)

    def read_bytes(self, relative: Relative, *, most: int) -> bytes:
        """Reads a whole file; UnsafeFile if it is larger than `most` bytes."""
        path = f"{self.path}/{os.fspath(relative)}"
        with self.open_read(relative) as file:
            if os.fstat(file.fileno()).st_size > most:
                raise handles.too_large(path, most)
            return b"".join(handles.read_chunks(file.fileno(), most, path))

    def read_text(self, relative: Relative, *, most: int, errors: str = "strict") -> str:
        """Like `read_bytes`, decoded as UTF-8."""
        return self.read_bytes(relative, most=most).decode("utf-8", errors)

    def read_link(self, relative: Relative) -> str:
        """Returns the target of a link as written; UnsafeFile for anything else."""
        with self._parent(relative) as (parent, name, path):
            try:
                return os.readlink(name, dir_fd=parent)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise errors.UnsafeFile(path, "is not a link") from None

    # -- writing ---------------------------------------------------------------------------------------------------

    def write_new(self, relative: Relative, data: bytes, *, mode: int = 0o600) -> None:
        """Creates a file; FileExistsError if anything has that name, including a link."""
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
        """Creates a named pipe and returns a nonblocking descriptor to read it; FileExistsError if the name exists."""
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
        """Replaces a file atomically: readers see the old content or the new content, never a part.

        Without a mode the umask decides. `like` copies the permissions and the owner of that file. FileExistsError
        unless `replaces`.
        """
        with self._parent(relative) as (parent, name, _), handles.temporary(parent, mode) as (file, fresh):
            if like is not None:
                handles.resemble(file, like)
            handles.write_all(file, data)
            if syncs:
                os.fsync(file)
            handles.put(parent, fresh, parent, name, replaces=replaces)

    def append(self, relative: Relative, *, mode: int = 0o600) -> BinaryIO:
        """Opens a regular file for appending, unbuffered, creating it if missing; each write is one system call.

        A hard-linked file is always refused: what is written would also be in the other file.
        """
        with self._parent(relative) as (parent, name, path):
            file = handles.open_file(parent, name, path, hard_links=False, appends=mode)
            return os.fdopen(file, "ab", buffering=0)

    def copy_file(self, relative: Relative, to: Folder, new: Relative, *, most: int, mode: int | None = None) -> int:
        """Copies a regular file into `to`, with its permissions and time, replacing what is there; returns its size.

        Raises UnsafeFile, with nothing changed, if it is larger than `most` bytes.
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
        """Creates a link with this target text, replacing what is there; the target is not checked."""
        with self._parent(relative) as (parent, name, _):
            handles.new_link(parent, name, target)

    def make(self, relative: Relative, *, mode: int = 0o700) -> None:
        """Creates a folder with its parents; does nothing if it exists."""
        self.folder(relative, makes=mode).close()

    def rename(self, relative: Relative, new: Relative, *, replaces: bool = False) -> None:
        """Renames an entry; a link itself is renamed. FileExistsError unless `replaces`."""
        with self._parent(relative) as (source, name, _), self._parent(new) as (target, wanted, _):
            handles.put(source, name, target, wanted, replaces=replaces)

    def move(self, relative: Relative, to: Folder, new: Relative, *, replaces: bool = False) -> None:
        """Like `rename`, but into another folder of the same file system."""
        with self._parent(relative) as (source, name, _), to._parent(new) as (target, wanted, _):
            handles.put(source, name, target, wanted, replaces=replaces)

    def remove(self, relative: Relative, *, missing_ok: bool = True) -> None:
        """Removes a file, a link (not its target) or a whole folder; OSError for what could not be deleted."""
        try:
            with self._parent(relative) as (parent, name, _):
                if not missing_ok:
                    os.stat(name, dir_fd=parent, follow_symlinks=False)
                trees.remove(parent, name)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def give(self, uid: int, gid: int) -> None:
        """Changes the owner of this folder, and of folders and regular files in it; skips links and special files."""
        trees.give(self._handle, self.path, uid, gid, _GIVEN_DEPTH)

    def give_entry(self, name: str, uid: int, gid: int) -> None:
        """Like `give`, for one entry: a folder with its content, a file, a socket, or a link itself."""
        found = self.stat(name)
        if kind_of(found) == "folder":
            with self.folder(name) as folder:
                folder.give(uid, gid)
        elif found.st_nlink == 1:  # otherwise it may be a hard link to another user's file
            with self._parent(name) as (parent, entry, _):
                os.chown(entry, uid, gid, dir_fd=parent, follow_symlinks=False)

    def unlink(self, relative: Relative, *, missing_ok: bool = True) -> None:
        """Removes a file or a link, never a folder."""
        try:
            with self._parent(relative) as (parent, name, _):
                os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_empty(self, relative: Relative) -> bool:
        """Removes an empty folder; returns False for anything else, which is kept."""
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
        """Copies the regular files and folders of a folder into the new folder `new` of `to`; skips everything else.

        Raises UnsafeFile if a limit is reached; the caller removes what was copied until then.
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
    """The parent folder of an entry, the entry's name, and its path for messages."""

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
