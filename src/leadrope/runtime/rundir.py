"""The private folder of one run, locked while it lives, so that what a killed supervisor left can be told apart."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

from leadrope.process import sandbox_folders

PREFIX = "leadrope-run-"
# A folder exists for a moment before it is locked; a younger one is nobody's to judge.
YOUNG_S = 60.0


class RunDir:
    """Holds the private files of a run: server configs with their secrets, long prompts, the child's TMPDIR."""

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _lock(self.path)

    def remove(self) -> None:
        sandbox_folders.remove(self.path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep() -> int:
    """Remove the folders of runs whose supervisor is dead; how many there were."""
    if sys.platform == "win32" or not hasattr(os, "geteuid"):
        return 0
    removed = 0
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_dead(entry):
                sandbox_folders.remove(entry.path)
                removed += 1
    return removed


def _is_dead(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or time.time() - found.st_mtime < YOUNG_S:
        return False
    handle = _lock(Path(entry.path))
    if handle is None:
        return False
    os.close(handle)
    return True


def _lock(folder: Path) -> int | None:
    """The lock goes with its process, whatever ends it. None: somebody else holds it, or locks do not exist here."""
    if sys.platform == "win32":
        return None
    import fcntl  # noqa: PLC0415  # absent on Windows

    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
