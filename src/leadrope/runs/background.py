"""Starting the background process, also for what is detached and has lost its own: by whoever looks at the store next.

`revive` is for everything that opens the store: commands of the terminal, and programs that stay. It decides from the
store alone, starts at most one process, and waits for nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leadrope import errors
from leadrope.core import home
from leadrope.runs import leases
from leadrope.runs.records import stored_environ

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import ExecutionReads
    from leadrope.runs.records.protocols import RunStore

FOLDER = "background"
WORKING = ("background", "server")
"""Kinds of owners that take runs and executions from the queue, whoever put them there."""
LEAST_FREE = 4 * 1024 * 1024
"""Bytes. An owner that cannot write takes up nothing."""
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 600.0
"""Between two starts of a process that has taken up nothing: `watch -n 1 leadrope runs list` must not start one a
second. Each start that led to nothing doubles the wait."""


class _Starts(msgspec.Struct, frozen=True, array_like=True):
    """Starts since something was last at work."""

    count: int = 0
    at: float = 0.0


def log_path(leadrope_home: Path) -> Path:
    return leadrope_home / FOLDER / "owner.log"


def start(leadrope_home: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process that owns detached runs and executions; it ends by itself where there is one already."""
    folder = home.ensure(leadrope_home / FOLDER)
    path = folder / "owner.log"
    try:
        log_file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise errors.StoreError(
            f"the log of the background process {path} cannot be opened: {error.strerror}",
            hint="Check the owner, the mode and the free space of LEADROPE_HOME.",
        ) from None
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "leadrope.runs.detached"],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            env={**environ, "LEADROPE_HOME": str(leadrope_home)},
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(log_file)
    _CHILDREN.append(process)
    return process


_CHILDREN: list[subprocess.Popen[bytes]] = []
"""Owners that this process has started; they outlive it, and one that ended first is reaped by `poll`."""


def free_bytes(folder: Path) -> int:
    """What this user may still write on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def require_room(leadrope_home: Path) -> None:
    """Raise StoreFull where a background process could not keep what it does."""
    free = free_bytes(home.ensure(leadrope_home))
    if free < LEAST_FREE:
        raise errors.StoreFull(
            f"the disk of {leadrope_home} has {free // 1024} KiB left, too little for a run",
            hint=f"Free at least {LEAST_FREE // 1024**2} MiB there, or set LEADROPE_HOME to a folder on another disk.",
        )


async def revive(store: RunStore, executions: ExecutionReads, leadrope_home: Path) -> str | None:
    """Start a background process if the queue holds what nobody owns; what a person should know, if anything.

    Only the user whose store it is starts one, and only where it could write. The process gets the environment that was
    stored with the first of these runs or executions. It never raises: whoever looks has come for something else.
    """
    for process in list(_CHILDREN):
        if process.poll() is not None:
            _CHILDREN.remove(process)
    left = _Left()
    try:
        now = time.time()
        left = _Left(runs=await store.left_over(now), executions=await executions.left_over(now))
        if not (left.runs or left.executions) or not store.is_for_this_user:
            return None
        owners = await store.owners()
        if any(owner.kind in WORKING and leases.is_alive(leadrope_home, owner) for owner in owners):
            return None
        require_room(leadrope_home)
        with leases.Exclusive(leadrope_home / FOLDER / "starting.lock") as mine:
            return await _start_again(store, executions, leadrope_home, left) if mine else None
    except (errors.LeadropeError, OSError) as error:
        return f"{left.told} for the background process, which cannot be started: {error}"


class _Left(msgspec.Struct, frozen=True):
    """What may start and has no owner."""

    runs: list[str] = []
    executions: list[str] = []

    @property
    def told(self) -> str:
        parts = [_several("run", self.runs), _several("execution", self.executions)]
        found = " and ".join(part for part in parts if part)
        if not found:
            return "a run may wait"
        return f"{found} {'waits' if len(self.runs) + len(self.executions) == 1 else 'wait'}"


def _several(what: str, ids: list[str]) -> str:
    if not ids:
        return ""
    return f"{what} {ids[0][:8]}" if len(ids) == 1 else f"{len(ids)} {what}s"


async def _start_again(store: RunStore, executions: ExecutionReads, leadrope_home: Path, left: _Left) -> str | None:
    before = _starts(leadrope_home)
    now = time.time()
    if before.count and 0 <= now - before.at < _wait_s(before.count):
        return _trouble(leadrope_home, before, left)
    _write_starts(leadrope_home, _Starts(before.count + 1, now))
    kept = (
        (await store.texts(left.runs[0])).place if left.runs else (await executions.texts(left.executions[0])).settings
    )
    environ = stored_environ.restored(kept, leadrope_home)
    start(leadrope_home, environ or stored_environ.bare(leadrope_home))
    return None


def took_up(leadrope_home: Path) -> None:
    """Something is at work, or all that waits has its reason: the next start is the first one again."""
    (leadrope_home / FOLDER / "starts.json").unlink(missing_ok=True)


def _wait_s(count: int) -> float:
    return float(min(FIRST_WAIT_S * 2 ** (count - 1), LONGEST_WAIT_S))


def _trouble(leadrope_home: Path, before: _Starts, left: _Left) -> str | None:
    if before.count < 2:
        return None  # it may still be on its way
    again = time.strftime("%H:%M:%S", time.localtime(before.at + _wait_s(before.count)))
    return (
        f"{left.told} for the background process, which was started {before.count} times and took up nothing.\n"
        f"  See {log_path(leadrope_home)}. leadrope starts it again after {again}."
    )


def _starts(leadrope_home: Path) -> _Starts:
    try:
        return msgspec.json.decode((leadrope_home / FOLDER / "starts.json").read_bytes(), type=_Starts)
    except (OSError, msgspec.MsgspecError):
        return _Starts()


def _write_starts(leadrope_home: Path, starts: _Starts) -> None:
    path = leadrope_home / FOLDER / "starts.json"
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(starts))
    part.replace(path)
