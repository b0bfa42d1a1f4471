"""The private folder of one run, locked while it lives, so that what a killed supervisor left can be told apart.

    leadrope-run-XXXX/       the supervisor's own: sockets, long lines
        agent/               the agent can write here: its TMPDIR, its copies of git's settings
        launch-XXXX/         the files of one start, read-only for the agent; another folder for each start

Nothing that the supervisor opens by name lies in `agent`, so nothing that an agent puts there leads it anywhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import home
from leadrope.process.sandbox import folders as sandbox_folders
from leadrope.providers import base

PREFIX = "leadrope-run-"
# A folder exists for a moment before it is locked; a younger one is nobody's to judge.
YOUNG_S = 60.0


class RunDir:
    """Holds the private files of a run: server configs with their secrets, long prompts, the child's TMPDIR."""

    def __init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        """Nothing of it but `agent` and a launch folder is ever shown to an agent."""
        self._lock = _lock(self.path)
        self.agent = self.path / "agent"
        self.agent.mkdir(mode=0o700)
        self._launch: Path | None = None

    def new_launch(self) -> Path:
        """An empty folder for the files of the next start; that of the start before is removed."""
        if self._launch is not None:
            sandbox_folders.remove(self._launch)
        self._launch = Path(tempfile.mkdtemp(prefix="launch-", dir=self.path))
        if _is_root():
            # The agent may become another user, who has to read it; the folder above lets no other user pass.
            self._launch.chmod(0o755)
        return self._launch

    def make(self, folders: Sequence[str]) -> None:
        """The folders that a start needs. What an agent has put in the place of one of its own is removed."""
        with Folder.open(home.ensure(self.agent)) as agent:
            for name in folders:
                folder = Path(name)
                if not folder.is_relative_to(self.agent):
                    home.ensure(folder)
                    continue
                below = folder.relative_to(self.agent)
                try:
                    agent.make(below)
                except errors.UnsafeFile as error:
                    agent.remove(Path(error.path).relative_to(self.agent))
                    agent.make(below)

    def write(self, files: Sequence[base.LaunchFile]) -> None:
        """Into the launch folder of this start, and nowhere else."""
        if not files:
            return
        launch = self._launch or self.new_launch()
        with Folder.open(launch) as folder:
            for file in files:
                folder.write_new(_in(launch, file.path), file.content, mode=0o644 if _is_root() else 0o600)

    def make_pipes(self, paths: Mapping[str, str]) -> dict[str, int]:
        """Named pipes in the launch folder of this start, each as a descriptor that reads it without waiting.

        Those that the file system refuses are left out.
        """
        made: dict[str, int] = {}
        if not paths:
            return made
        launch = self._launch or self.new_launch()
        try:
            with Folder.open(launch) as folder:
                for name, path in paths.items():
                    with contextlib.suppress(OSError):
                        made[name] = folder.make_pipe(_in(launch, path), mode=0o622 if _is_root() else 0o600)
        except BaseException:
            for handle in made.values():
                os.close(handle)
            raise
        return made

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


def _in(launch: Path, file: str) -> str:
    path = Path(file)
    if path.parent != launch:
        raise errors.BadProvider(
            "launch", f"{path} is not a file in {launch}", hint="A provider puts its files into launch_dir."
        )
    return path.name


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


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
