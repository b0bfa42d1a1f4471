"""Finds out who writes into a pipe that this process reads from; possible on Linux only."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_fed(fd: int) -> bool:
    """Whether another command writes into this pipe: the previous one in a shell's pipeline.

    A parent that holds the other end (a CI runner, a cron daemon, a wrapper) does not count: it may have opened the
    pipe for no reason, never write to it and never close it. Returns False if it cannot be determined.
    """
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    if not stat.S_ISFIFO(found.st_mode):
        return False
    above = _ancestors()
    return any(pid not in above and _writes(pid, found) for pid in _processes())


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208  # names alone
    except OSError:
        return []


def _ancestors() -> set[int]:
    """Returns the pids of this process and all its ancestors."""
    above = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in above:
        above.add(pid)
        try:
            # The name of a program may contain spaces and parentheses; the parent is the second field after the last
            # one.
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return above


def _writes(pid: int, pipe: os.stat_result) -> bool:
    """Whether the process has the pipe open for writing; False for processes of other users."""
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  # names alone
            found = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116  # a text is enough
            if (found.st_dev, found.st_ino) == (pipe.st_dev, pipe.st_ino):
                flags = Path(f"/proc/{pid}/fdinfo/{name}").read_text()
                mode = next(line for line in flags.splitlines() if line.startswith("flags:"))
                if int(mode.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    except (OSError, ValueError, StopIteration):
        return False
    return False
