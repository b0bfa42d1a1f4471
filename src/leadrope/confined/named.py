"""Opens files that the user names on a command line or in a request, some of which lie where an agent can write.

The user's own path is followed as usual. But a path inside of a workspace must mean a file of that workspace: an agent
may have replaced it by a link to a key, and the content goes into a prompt.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from leadrope import errors
from leadrope.confined import handles
from leadrope.confined.folder import Folder
from leadrope.confined.real import real_path
from leadrope.confined.values import kind_of

MOST_TEXT = 64 * 1024 * 1024


def open_named(
    path: str | os.PathLike[str], *, workspaces: Iterable[Path] = (), pipes: bool = False, only_there: bool = False
) -> BinaryIO:
    """Opens a regular file. Inside of a workspace, a link that leaves it raises UnsafeFile.

    With `pipes`, a pipe outside of every workspace is opened and waited for, as in `--file <(command)`. With
    `only_there`, a file outside of every workspace is refused.
    """
    full = _full(path)
    for workspace in workspaces:
        relative = _below(full, real_path(workspace))
        if relative is not None:
            with Folder.open(workspace, hard_links=True) as folder:
                return folder.open_read(folder.resolve(relative))
    if only_there:
        raise errors.UnsafeFile(full, "is outside of the workspace", hint="Copy it into the workspace.")
    # Nonblocking, or opening a pipe would wait for its other side.
    file = os.open(full, handles.READ & ~getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    kind = kind_of(os.fstat(file))
    if kind == "file":
        return os.fdopen(file, "rb")
    if pipes and kind in ("pipe", "device"):
        if kind == "pipe":
            waiting = select.poll()
            waiting.register(file, select.POLLIN)
            waiting.poll()  # until the other side has begun to write
        os.set_blocking(file, True)
        return os.fdopen(file, "rb")
    os.close(file)
    raise errors.UnsafeFile(full, f"is a {kind}, not a regular file", hint="Name the file itself.")


def read_named(path: str | os.PathLike[str], *, workspaces: Iterable[Path] = (), most: int = MOST_TEXT) -> bytes:
    """Reads a whole file, pipes included; UnsafeFile if it is larger than `most` bytes."""
    with open_named(path, workspaces=workspaces, pipes=True) as file:
        return b"".join(handles.read_chunks(file.fileno(), most, os.fspath(path)))


@contextlib.contextmanager
def writing_named(
    path: str | os.PathLike[str], *, workspaces: Iterable[Path] = (), mode: int = 0o600, makes: bool = False
) -> Iterator[BinaryIO]:
    """Writes a file that the user has named for output: it appears complete when the block ends, or not at all.

    Inside of a workspace a link in its place is replaced, not followed. With `makes`, missing parent folders are
    created.
    """
    full = _full(path)
    parent, name = os.path.split(full)
    if makes:
        _make(parent, tuple(workspaces))
    for workspace in workspaces:
        relative = _below(full, real_path(workspace))
        if relative is not None:
            with contextlib.ExitStack() as stack:
                root = stack.enter_context(Folder.open(workspace))
                above = root.resolve(os.path.dirname(relative))  # noqa: PTH120
                folder = stack.enter_context(root.folder(above))
                yield stack.enter_context(_fresh(folder, name, mode))
            return
    if os.path.exists(full) and not os.path.isfile(full):  # noqa: PTH110, PTH113
        with open(full, "wb") as file:  # noqa: PTH123  # /dev/stdout, a pipe
            yield file
        return
    parent, name = os.path.split(real_path(full))
    with Folder.open(parent) as folder, _fresh(folder, name, mode) as file:
        yield file


@contextlib.contextmanager
def appending_named(path: str | os.PathLike[str], *, workspaces: Iterable[Path] = ()) -> Iterator[BinaryIO]:
    """Opens a regular file for appending, creating it if missing. Inside of a workspace links are not followed."""
    full = _full(path)
    root, relative = next(
        ((root, found) for root in workspaces if (found := _below(full, real_path(root))) is not None),
        (Path(real_path(os.path.dirname(full))), os.path.basename(full)),  # noqa: PTH119, PTH120
    )
    with Folder.open(root) as folder, folder.append(relative, mode=0o644) as file:
        yield file


@contextlib.contextmanager
def _fresh(folder: Folder, name: str, mode: int) -> Iterator[BinaryIO]:
    with handles.temporary(folder.fileno(), mode) as (made, fresh):
        with os.fdopen(os.dup(made), "wb") as file:
            yield file
        os.replace(fresh, name, src_dir_fd=folder.fileno(), dst_dir_fd=folder.fileno())


def _make(parent: str, workspaces: tuple[Path, ...]) -> None:
    for workspace in workspaces:
        relative = _below(f"{parent}/x", real_path(workspace))
        if relative is not None:
            with Folder.open(workspace) as root:
                root.make(root.resolve(os.path.dirname(relative)), mode=0o777)  # noqa: PTH120
            return
    os.makedirs(parent, exist_ok=True)  # noqa: PTH103


def _full(path: str | os.PathLike[str]) -> str:
    full = os.path.abspath(path)  # noqa: PTH100  # Path.absolute keeps `..`
    if "\0" in full:
        raise ValueError("embedded null byte")
    return full


def _below(full: str, root: str) -> str | None:
    """Returns the part of a path below `root`; None if it is not below."""
    parts = Path(full).parts
    for count in range(1, len(parts)):
        real = real_path(os.path.join(*parts[:count]))  # noqa: PTH118
        if real == root or real.startswith(root.rstrip("/") + "/"):
            return os.path.join(os.path.relpath(real, root), *parts[count:])  # noqa: PTH118
    return None
