"""Folders as a hostile agent leaves them: every trick that leads a supervisor out of a folder, or makes it wait.

A `Spot` is a file or folder that the supervisor is about to use in a folder that the agent can write. Each `Case`
plants one trick there. `Outside` holds the canaries: whatever the supervisor does, they stay as they are, and what is
written in them turns up nowhere else. Knows nothing of the package under test.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

HUGE = 1 << 40
"""Of a sparse file: one that is read whole, or copied, does not end in time."""
DEEP = 1200
"""More levels than Python's recursion limit, and far more than a path may have characters."""

CANARY = "canary-"
"""What every secret of `Outside` begins with."""

SpotKind = Literal["file", "folder"]


class Outside:
    """What no agent may reach, with a secret in it; only its owner can look at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = f"{CANARY}{secrets.token_hex(12)}"
        folder.mkdir()
        self._since = folder.stat().st_ctime_ns
        self.file = self._file("secret.txt")
        self.tree = folder / "tree"
        self.tree.mkdir()
        self.new = folder / "made-by-the-door.txt"
        """Does not exist: a dangling link points here."""
        self._before: dict[str, tuple[Any, ...]] = {}

    def mirror(self, name: str, kind: SpotKind) -> None:
        """Below `tree`, something with the name that the door expects, so that a link to `tree` leads to a canary."""
        path = self.tree / name
        if kind == "folder":
            path.mkdir(exist_ok=True)
            path = path / "inner.txt"
        if not path.exists():
            self._file(str(path.relative_to(self.folder)))

    def _file(self, name: str) -> Path:
        path = self.folder / name
        # With the beginning of a transcript and of a settings file: a reader that stops at the first odd line reads on.
        path.write_text(f'{{"type":"user","message":{{"content":"{self.secret}"}}}}\n{self.secret}\n')
        path.chmod(0o600)
        return path

    def remember(self) -> None:
        self._before = self._state()

    def changes(self) -> list[str]:
        after = self._state()
        names = sorted({*self._before, *after})
        return [
            f"{name}: {self._before.get(name)} -> {after.get(name)}"
            for name in names
            if self._before.get(name) != after.get(name)
        ]

    def _state(self) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {}
        for path in (self.folder, *sorted(self.folder.rglob("*"))):
            about = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
            owner = (about.st_uid, about.st_gid)
            found[str(path.relative_to(self.folder))] = (about.st_mode, about.st_ino, owner, about.st_mtime_ns, content)
        return found

    def leaks_in(self, *folders: Path) -> list[str]:
        """Files below, reached without following links, that hold the secret.

        Those that have not changed since the secret was made are not read: no program can set the time of a change.
        """
        wanted = self.secret.encode()
        found: list[str] = []
        todo = [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]
        while todo:
            with contextlib.suppress(PermissionError), os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if len(entry.path) < 3000:
                            todo.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False) and self._may_hold(entry.stat(follow_symlinks=False)):
                        with contextlib.suppress(PermissionError):
                            if wanted in Path(entry.path).read_bytes():
                                found.append(entry.path)
        return found

    def _may_hold(self, about: os.stat_result) -> bool:
        return about.st_ctime_ns >= self._since and about.st_size < HUGE


@dataclass(frozen=True, kw_only=True)
class Spot:
    path: Path
    kind: SpotKind
    root: Path
    """The folder that the agent can write; nothing above it is the agent's."""


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    plant: Callable[[Spot, Outside], contextlib.AbstractContextManager[None]]
    for_kinds: frozenset[SpotKind] = frozenset({"file", "folder"})
    needs_root: bool = False
    has_secret_inside: bool = False
    """The canary's bytes are part of the folder itself: only effects count, not where the bytes turn up."""
    swaps: bool = False


# -- tricks that stay as they are -------------------------------------------------------------------------------------


def _away(path: Path) -> None:
    """Whatever is there gives way; it stays beside, as an agent would leave it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        path.rename(path.with_name(f"was-{secrets.token_hex(4)}"))


def _link(target: Callable[[Spot, Outside], str | Path]) -> Callable[..., contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def plant(spot: Spot, outside: Outside) -> Iterator[None]:
        outside.mirror(spot.path.name, spot.kind)
        _away(spot.path)
        spot.path.symlink_to(target(spot, outside))
        outside.remember()
        yield

    return plant


def _canary(spot: Spot, outside: Outside) -> Path:
    return outside.file if spot.kind == "file" else outside.tree


def _relative(spot: Spot, outside: Outside) -> str:
    return os.path.relpath(_canary(spot, outside), os.path.realpath(spot.path.parent))


def _chain(spot: Spot, outside: Outside) -> str:
    middle = spot.path.with_name("middle-link")
    middle.symlink_to(_canary(spot, outside))
    return middle.name


@contextlib.contextmanager
def _parent_link(spot: Spot, outside: Outside) -> Iterator[None]:
    """The folder that the file is in becomes a link to one outside, which has a file of that name."""
    if spot.path.parent == spot.root:
        folder, name = spot.path, "inner.txt"
        outside.mirror(name, "file")
    else:
        folder = spot.path.parent
        outside.mirror(spot.path.name, spot.kind)
    _away(folder)
    folder.symlink_to(outside.tree)
    outside.remember()
    yield


@contextlib.contextmanager
def _pipe(spot: Spot, outside: Outside) -> Iterator[None]:
    _away(spot.path)
    os.mkfifo(spot.path)
    outside.remember()
    yield


@contextlib.contextmanager
def _socket(spot: Spot, outside: Outside) -> Iterator[None]:
    _away(spot.path)
    with socket.socket(socket.AF_UNIX) as listening:
        handle = os.open(spot.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            listening.bind(f"/proc/self/fd/{handle}/{spot.path.name}")
        finally:
            os.close(handle)
        outside.remember()
        yield


def _device(number: tuple[int, int]) -> Callable[..., contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def plant(spot: Spot, outside: Outside) -> Iterator[None]:
        _away(spot.path)
        os.mknod(spot.path, stat.S_IFCHR | 0o666, os.makedev(*number))
        outside.remember()
        yield

    return plant


@contextlib.contextmanager
def _hard_link(spot: Spot, outside: Outside) -> Iterator[None]:
    _away(spot.path)
    spot.path.hardlink_to(outside.file)
    outside.remember()
    yield


@contextlib.contextmanager
def _other_kind(spot: Spot, outside: Outside) -> Iterator[None]:
    """A folder where a file is expected, and the other way round."""
    _away(spot.path)
    if spot.kind == "file":
        spot.path.mkdir()
        (spot.path / "inner.txt").write_text("x")
    else:
        spot.path.write_text("x")
    outside.remember()
    yield


@contextlib.contextmanager
def _huge(spot: Spot, outside: Outside) -> Iterator[None]:
    path = spot.path if spot.kind == "file" else spot.path / "huge.jsonl"
    if spot.kind == "file":
        _away(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(HUGE)
    outside.remember()
    yield
    # What reads it later would not end either.
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


@contextlib.contextmanager
def _closed(spot: Spot, outside: Outside) -> Iterator[None]:
    """Nobody but root may read it."""
    before = stat.S_IMODE(spot.path.stat().st_mode) if spot.path.exists() else None
    if before is not None:
        spot.path.chmod(0)
    outside.remember()
    yield
    if before is not None and spot.path.exists() and not spot.path.is_symlink():
        spot.path.chmod(before)


ODD_NAMES = ("line\nend.jsonl", "\x1b[2J\x1b]0;title\x07.jsonl", "..  ", "-rf", "$(touch x)", "a\u202eb.jsonl", "%s%n")


@contextlib.contextmanager
def _odd_names(spot: Spot, outside: Outside) -> Iterator[None]:
    folder = spot.path if spot.kind == "folder" else spot.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    for name in ODD_NAMES:
        (folder / name).write_text("x\n")
    (folder / "to\nthe outside").symlink_to(outside.tree)
    with contextlib.suppress(OSError):  # not every file system takes a name that is not text
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.jsonl")).write_text("x\n")
    outside.remember()
    yield


@contextlib.contextmanager
def _deep(spot: Spot, outside: Outside) -> Iterator[None]:
    """A tree that no path reaches the end of, with a link to the outside at its bottom."""
    folder = spot.path if spot.kind == "folder" else spot.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with deep_tree(folder) as bottom:
        os.symlink(outside.tree, "out", dir_fd=bottom)
        outside.remember()
        yield


@contextlib.contextmanager
def deep_tree(folder: Path, levels: int = DEEP) -> Iterator[int]:
    """`d/d/d...` below a folder; gives the lowest one. Taken away again, which the clean-up of pytest cannot do."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(levels):
            os.mkdir("d", dir_fd=handle)
            below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)
        subprocess.run(["rm", "-rf", str(folder / "d")], check=True)


# -- swaps while the door is used -------------------------------------------------------------------------------------

_SWAPPER = """
import ctypes, os, sys
first, second = (os.fsencode(name) for name in sys.argv[1:3])
call = ctypes.CDLL(None).renameat2
os.write(1, b"swaps\\n")
while True:
    for _ in range(200):
        call(-100, first, -100, second, 2)  # RENAME_EXCHANGE
    if os.getppid() == 1:
        break
"""


@contextlib.contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Another process exchanges the two names as fast as it can, until the block is left."""
    argv = [sys.executable, "-I", "-S", "-c", _SWAPPER, str(one), str(other)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"swaps\n"
        try:
            yield
        finally:
            process.kill()


def _swap_file(
    make: Callable[[Path, Spot, Outside], None],
) -> Callable[..., contextlib.AbstractContextManager[None]]:
    @contextlib.contextmanager
    def plant(spot: Spot, outside: Outside) -> Iterator[None]:
        outside.mirror(spot.path.name, spot.kind)
        if not os.path.lexists(spot.path):
            spot.path.parent.mkdir(parents=True, exist_ok=True)
            spot.path.write_text("x\n") if spot.kind == "file" else spot.path.mkdir()
        other = spot.root / f"other-{secrets.token_hex(4)}"
        make(other, spot, outside)
        outside.remember()
        with swapping(spot.path, other):
            yield

    return plant


@contextlib.contextmanager
def _swap_parent(spot: Spot, outside: Outside) -> Iterator[None]:
    folder = _parent_of(spot)
    outside.mirror(spot.path.name, spot.kind)
    other = spot.root / f"other-{secrets.token_hex(4)}"
    other.symlink_to(outside.tree)
    outside.remember()
    with swapping(folder, other):
        yield


@contextlib.contextmanager
def _swap_parents(spot: Spot, outside: Outside) -> Iterator[None]:
    """Two real folders change their names; in the other one links and pipes lie under the names that are expected."""
    folder = _parent_of(spot)
    outside.mirror(spot.path.name, spot.kind)
    other = spot.root / f"other-{secrets.token_hex(4)}"
    other.mkdir()
    (other / spot.path.name).symlink_to(_canary(spot, outside))
    (other / "inner.txt").symlink_to(outside.file)
    os.mkfifo(other / "pipe.txt")
    outside.remember()
    with swapping(folder, other):
        yield


def _parent_of(spot: Spot) -> Path:
    """The folder that the spot is in, if that is the agent's to replace; else the spot itself."""
    folder = spot.path.parent if spot.path.parent != spot.root else spot.path
    if not os.path.lexists(folder):
        folder.mkdir(parents=True)
    return folder


_FILES = frozenset[SpotKind]({"file"})

CASES: tuple[Case, ...] = (
    Case(name="link", plant=_link(_canary)),
    Case(name="relative link", plant=_link(_relative)),
    Case(name="chain of links", plant=_link(_chain)),
    Case(name="link to a folder", plant=_link(lambda _, outside: outside.tree), for_kinds=_FILES),
    Case(name="dangling link", plant=_link(lambda _, outside: outside.new)),
    Case(name="link to itself", plant=_link(lambda spot, _: spot.path)),
    Case(name="link to /proc/self/environ", plant=_link(lambda *_: "/proc/self/environ"), for_kinds=_FILES),
    Case(name="link in place of the parent", plant=_parent_link),
    Case(name="pipe", plant=_pipe),
    Case(name="socket", plant=_socket),
    Case(name="device without end", plant=_device((1, 5)), needs_root=True),
    Case(name="device", plant=_device((1, 3)), needs_root=True),
    Case(name="hard link", plant=_hard_link, for_kinds=_FILES, has_secret_inside=True),
    Case(name="another kind", plant=_other_kind),
    Case(name="huge", plant=_huge),
    Case(name="unreadable", plant=_closed),
    Case(name="odd names", plant=_odd_names),
    Case(name="deep tree", plant=_deep),
    Case(name="swapped with a link", plant=_swap_file(lambda o, s, out: o.symlink_to(_canary(s, out))), swaps=True),
    Case(name="swapped with a pipe", plant=_swap_file(lambda o, *_: os.mkfifo(o)), swaps=True),
    Case(name="parent swapped with a link", plant=_swap_parent, swaps=True),
    Case(name="parent swapped with another folder", plant=_swap_parents, swaps=True),
)


def cases_for(spot: Spot) -> tuple[Case, ...]:
    return tuple(case for case in CASES if spot.kind in case.for_kinds and (os.geteuid() == 0 or not case.needs_root))


# -- a limit for whatever is tried ------------------------------------------------------------------------------------


class Hung(Exception):
    """The door was not through within its time."""


@dataclass
class Watch:
    """Ends the process with a message if a block takes too long: a thread in a blocking call cannot be ended."""

    name: str
    limit_s: float
    _timer: threading.Timer = field(init=False)

    def __enter__(self) -> None:
        def over() -> None:
            os.write(2, f"HUNG {self.name}\n".encode())
            os._exit(3)

        self._timer = threading.Timer(self.limit_s, over)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
