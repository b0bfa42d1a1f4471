"""Swaps between a check and the use, as fast as two threads can: no effect outside, no wait."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.confined import Folder, real_path

SECRET = b"the user's own"
ROUNDS = 400


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "file").write_bytes(SECRET)
    (folder / "sub" / "file").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "dir" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "dir" / "file").write_bytes(b"inside")
    (tmp_path / "root" / "dir" / "sub" / "file").write_bytes(b"inside")
    return tmp_path / "root"


@contextlib.contextmanager
def swapping(root: Path, outside: Path) -> Iterator[None]:
    """`dir` and `file` are by turns what they should be, links outside, and a pipe."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                (root / "dir").rename(root / "kept")
            with contextlib.suppress(OSError):
                (root / "dir").symlink_to(outside)
            with contextlib.suppress(OSError):
                (root / "dir").unlink()
            with contextlib.suppress(OSError):
                (root / "kept").rename(root / "dir")
            for make in (
                lambda: (root / "file").symlink_to(outside / "file"),
                lambda: os.mkfifo(root / "file"),
                lambda: (root / "file").write_bytes(b"inside"),
            ):
                with contextlib.suppress(OSError):
                    make()
                with contextlib.suppress(OSError):
                    (root / "file").unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def read(folder: Folder) -> None:
    for path in ("file", "dir/file", "dir/sub/file"):
        with contextlib.suppress(errors.UnsafeFile, OSError):
            assert SECRET not in folder.read_bytes(path, most=100)


def write(folder: Folder) -> None:
    for path in ("file", "dir/file", "dir/new"):
        with contextlib.suppress(errors.UnsafeFile, OSError):
            folder.replace(path, b"inside")
        with contextlib.suppress(errors.UnsafeFile, OSError):
            folder.write_new(path, b"inside")
        with contextlib.suppress(errors.UnsafeFile, OSError), folder.append(path) as file:
            file.write(b"inside")
    with contextlib.suppress(errors.UnsafeFile, OSError):
        folder.make("dir/made/deeper")


def walk(folder: Folder) -> None:
    with contextlib.suppress(errors.UnsafeFile, OSError):
        for entry in folder.walk(most=1000):
            assert entry.stat.st_size != len(SECRET) or entry.kind != "file"


def rename(folder: Folder) -> None:
    with contextlib.suppress(errors.UnsafeFile, OSError):
        folder.rename("dir/file", "dir/other", replaces=True)
    with contextlib.suppress(errors.UnsafeFile, OSError):
        folder.rename("dir/other", "dir/file", replaces=True)


def remove(folder: Folder) -> None:
    for path in ("dir/sub", "dir", "file"):
        with contextlib.suppress(errors.UnsafeFile, OSError):
            folder.remove(path)
    with contextlib.suppress(errors.UnsafeFile, OSError):
        folder.make("dir/sub")
        folder.write_new("dir/sub/file", b"inside")


@pytest.mark.parametrize("act", [read, write, walk, rename, remove])
def test_swaps_lead_nowhere(root: Path, outside: Path, act: Callable[[Folder], None]) -> None:
    began = time.monotonic()
    with Folder.open(root) as folder, swapping(root, outside):
        for _ in range(ROUNDS):
            act(folder)
    assert time.monotonic() - began < 60
    assert sorted(path.relative_to(outside).as_posix() for path in outside.rglob("*")) == ["file", "sub", "sub/file"]
    assert (outside / "file").read_bytes() == SECRET
    assert (outside / "sub" / "file").read_bytes() == SECRET


def test_a_copy_during_swaps_has_nothing_of_the_outside(root: Path, outside: Path, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    with Folder.open(root) as folder, Folder.open(tmp_path / "copies") as to, swapping(root, outside):
        for number in range(ROUNDS // 4):
            with contextlib.suppress(errors.UnsafeFile, OSError):
                folder.copy_tree("", to, str(number), most_bytes=1000)
    copied = [path for path in (tmp_path / "copies").rglob("*") if not path.is_dir() or path.is_symlink()]
    assert copied
    assert all(path.is_file() and not path.is_symlink() and path.read_bytes() != SECRET for path in copied)


def test_where_a_path_leads_while_it_changes(root: Path, outside: Path) -> None:
    """Python's own function fails where a link becomes a file between two of its looks."""
    known = {str(root / "file"), str(outside / "file")}
    with swapping(root, outside):
        for _ in range(50 * ROUNDS):
            assert real_path(root / "file") in known
