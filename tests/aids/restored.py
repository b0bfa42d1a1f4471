"""A folder that is brought back to its template, again and again, by replacing only what has changed.

Removing and copying the whole folder takes longer than most of the commands that are tried in it. A file whose inode
and time of change (which no program can set) are those of the last restoration still is what it was then.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

Signature = tuple[int, ...]
TOP = ""
RESTORED_S = 30.0
"""On a busy machine what the last command left behind may still be writing while it is ended."""


class Restored:
    """Its paths are texts, with a slash before each name: making a `Path` of each takes longer than looking at it."""

    def __init__(self, template: Path, folder: Path) -> None:
        self._template, self._folder = str(template), str(folder)
        self._known: dict[str, Signature] = {}
        """What was there after the last restoration."""

    def restore(self) -> None:
        until = time.monotonic() + RESTORED_S
        while changed := list(self._changed()):
            if time.monotonic() > until:
                raise RuntimeError(f"{self._folder} could not be restored: {changed[:5]}")
            self._replace(changed)

    def _changed(self) -> Iterator[str]:
        """The topmost paths that differ from the template."""
        same: set[str] = set()
        waiting = [TOP]
        while waiting:
            path = waiting.pop()
            try:
                found = self._signature(path)
            except FileNotFoundError:
                continue
            if found != self._known.get(path):
                yield path
                continue
            same.add(path)
            if stat.S_ISDIR(found[0]):
                waiting += self._below(path)
        for path in (self._known.keys() | {TOP}) - same:
            if path == TOP or path.rpartition("/")[0] in same:
                yield path

    def _replace(self, paths: list[str]) -> None:
        there = [f"{self._folder}{path}" for path in paths]
        removed = subprocess.run(["rm", "-rf", "--", *there], check=False, capture_output=True)
        if removed.returncode:
            subprocess.run(["chmod", "-R", "u+rwx", "--", *there], check=False, capture_output=True)
            return  # and again
        wanted = sorted({path for path in paths if os.path.lexists(f"{self._template}{path}")})
        if TOP in wanted:
            subprocess.run(["cp", "-a", self._template, self._folder], check=True)
        elif wanted:
            command = ["cp", "-a", "--parents", "-t", self._folder, "--", *(f".{path}" for path in wanted)]
            subprocess.run(command, cwd=self._template, check=True)
        for path in wanted:
            self._learn(path)

    def _learn(self, path: str) -> None:
        self._known[path] = found = self._signature(path)
        if stat.S_ISDIR(found[0]):
            for below in self._below(path):
                self._learn(below)

    def _below(self, path: str) -> list[str]:
        with os.scandir(f"{self._folder}{path}") as entries:
            return [f"{path}/{entry.name}" for entry in entries]

    def _signature(self, path: str) -> Signature:
        about = os.lstat(f"{self._folder}{path}")
        same = (about.st_mode, about.st_uid, about.st_gid, about.st_ino)
        # A folder's times change with every entry, and its entries are looked at themselves.
        return same if stat.S_ISDIR(about.st_mode) else (*same, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
