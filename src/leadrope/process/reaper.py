"""Finds and kills the processes that a run left behind, by environment tag, session or descent.

The guardian knows its own tree exactly. The reaper handles trees that have no guardian: after a crash of the whole
supervisor, on systems without one, or when it was killed. A process that left its session and cleared its environment
escapes the reaper, which is why the guardian exists.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

TAG = "LEADROPE_RUN"
"""The variable that the agent carries, and every process of its run unless it clears its environment."""

GIVE_UP_S = 2.0
"""SIGKILL takes about a millisecond; what is still there after this is in uninterruptible sleep or not ours to kill."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    parent: int
    session: int
    started: int
    """Clock ticks since boot; together with the pid it identifies a process uniquely."""
    is_dead: bool


def process(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        is_dead=fields[0] in (b"Z", b"X"),
    )


def processes() -> dict[int, Process]:
    """Returns every process that this user can see; empty where there is no /proc."""
    return {found.pid: found for pid in _pids() if (found := process(pid)) is not None}


def tagged(tag: str) -> list[int]:
    """Returns the living processes with LEADROPE_RUN=tag; only root can read the environments of other users."""
    return [pid for pid in _pids() if _has_tag(pid, tag)]


def in_session(session: int) -> list[int]:
    return [found.pid for found in processes().values() if found.session == session and not found.is_dead]


def descendants(root: int) -> list[Process]:
    """Returns the living processes below `root`, without `root` itself."""
    children: dict[int, list[Process]] = {}
    for found in processes().values():
        children.setdefault(found.parent, []).append(found)
    below: list[Process] = []
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), []):
            below.append(child)
            todo.append(child.pid)
    return [child for child in below if not child.is_dead]


def kill(pid: int, *, still: Callable[[int], bool]) -> bool:
    """Sends SIGKILL if `still(pid)` holds once the process is pinned; True if a living process got it.

    The pidfd is opened before `still` is called, so a pid that was reused in between is not hit.
    """
    if pid in _protected():
        return False
    with _pinned(pid) as handle:
        if handle is None or not still(pid):
            return False
        try:
            if handle >= 0:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return False
    return True


def kill_tagged(tag: str) -> int:
    """Kills every process of a run, including those that start meanwhile; returns how many there were."""
    if not tag:
        raise ValueError("an empty tag would match nothing or too much; pass the id of a run")
    killed: set[int] = set()
    give_up = time.monotonic() + GIVE_UP_S
    while (found := [pid for pid in tagged(tag) if pid not in _protected()]) and time.monotonic() < give_up:
        killed.update(pid for pid in found if kill(pid, still=lambda pid: _has_tag(pid, tag)))
        time.sleep(0.005)
    return len(killed)


class Net:
    """Finds the processes of one run without its guardian: by session, tag, and descendants seen earlier."""

    def __init__(self, *, session: int, tag: str) -> None:
        self._session = session
        self._tag = tag
        self._seen: dict[int, int] = {}
        self._killed: set[int] = set()

    @property
    def killed(self) -> int:
        return len(self._killed)

    def note_descendants(self, root: int) -> None:
        """Remembers the tree while the parents are alive; afterwards the parentage is lost."""
        if sys.platform == "win32":  # untested
            import psutil  # noqa: PLC0415

            with contextlib.suppress(psutil.NoSuchProcess):
                self._seen |= {child.pid: 0 for child in psutil.Process(root).children(recursive=True)}
        else:
            self._seen |= {found.pid: found.started for found in descendants(root)}

    def sweep(self) -> int:
        """Kills what it finds and returns how many were alive: repeat until 0."""
        if sys.platform == "win32":  # untested
            return self._kill_by_psutil()
        if not Path("/proc/self/stat").exists():  # a POSIX system without /proc, such as macOS
            return self._sweep_group()
        found = [pid for pid in self._alive() if pid not in _protected()]
        self._killed.update(pid for pid in found if kill(pid, still=self._belongs))
        return len(found)

    def _alive(self) -> set[int]:
        alive = set(in_session(self._session)) if self._session > 1 else set()
        if self._tag:
            alive.update(tagged(self._tag))
        alive.update(pid for pid in self._seen if self._is_seen(pid))
        return alive

    def _is_seen(self, pid: int) -> bool:
        found = process(pid)
        return found is not None and not found.is_dead and found.started == self._seen.get(pid)

    def _belongs(self, pid: int) -> bool:
        found = process(pid)
        if found is None or found.is_dead:
            return False
        in_own_session = self._session > 1 and found.session == self._session
        return in_own_session or self._is_seen(pid) or _has_tag(pid, self._tag)

    def _sweep_group(self) -> int:
        try:
            os.killpg(self._session, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS reports EPERM for a group of zombies
            return 0
        self._killed.add(self._session)
        return 1

    if sys.platform == "win32":  # untested

        def _kill_by_psutil(self) -> int:
            import psutil  # noqa: PLC0415

            found = 0
            for pid in self._seen:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()
                    self._killed.add(pid)
                    found += 1
            return found


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # a third of the time
    except OSError:
        return []


def _has_tag(pid: int, tag: str) -> bool:
    if not tag:
        return False
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{TAG}={tag}".encode() in environment.split(b"\0")


def _protected() -> set[int]:
    """Processes that are never signalled: init, this process and its ancestors.

    A run may start leadrope, which then inherits the run's tag.
    """
    protected = {0, 1}
    pid = os.getpid()
    while pid > 1:
        protected.add(pid)
        found = process(pid)
        pid = found.parent if found is not None else 0
    return protected


@contextlib.contextmanager
def _pinned(pid: int) -> Iterator[int | None]:
    """Yields a pidfd; -1 if the kernel has none (before 5.3); None if the process is gone."""
    if sys.platform != "linux":
        yield -1
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    except OSError:
        yield -1
        return
    try:
        yield handle
    finally:
        os.close(handle)
