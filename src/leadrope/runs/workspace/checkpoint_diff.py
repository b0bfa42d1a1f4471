"""Computes a patch of a run's changes in the user's own folder, from its checkpoint to its end.

In a git repository both states are commits, and git compares them. Elsewhere, and for ignored files, the copies made
before the first edit are compared with the current files.
"""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from leadrope import errors
from leadrope.confined import Folder
from leadrope.runs.workspace import checkpoints
from leadrope.runs.workspace import git as gits
from leadrope.runs.workspace.checkpoints import Checkpoint
from leadrope.runs.workspace.file_backups import FileBackup, FileState, look
from leadrope.runs.workspace.snapshots import Shadow
from leadrope.runs.workspace.worktree_changes import MOST_DIFF, PLAIN

MOST_COMPARED = 256 * 1024
"""Maximum size of a compared file that git does not track; a larger one is only named, since comparing would take too
long.
"""


async def paths(checkpoint: Checkpoint, *, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the files that differ, for display."""
    async with gits.alone(Path(checkpoint.store), checkpoint.cwd):
        found, covered = await _in_git(checkpoint, environ)
        return tuple(sorted({*map(gits.show, found.changed), *_copied(checkpoint, covered)}))


async def patch(
    checkpoint: Checkpoint, *, environ: Mapping[str, str] | None = None, most_bytes: int = MOST_DIFF
) -> str:
    """Return a readable patch; binary files are only named. A longer one is cut, with a note at its end."""
    async with gits.alone(Path(checkpoint.store), checkpoint.cwd):
        found, covered = await _in_git(checkpoint, environ)
        text = await found.patch(checkpoint, most_bytes)
        return text + "".join(_copied(checkpoint, covered).values())


class _Changes:
    """Changes of files that git tracks."""

    def __init__(self, shadow: Shadow | None = None, trees: tuple[str, str] = ("", "")) -> None:
        self._shadow = shadow
        self._trees = trees
        self.changed: list[bytes] = []
        self.left_out: list[bytes] = []
        """Files that the run did not make: they were there before, and ignored."""

    async def patch(self, checkpoint: Checkpoint, most_bytes: int) -> str:
        if self._shadow is None or not self.changed:
            return ""
        without = [b":(exclude,literal,top)" + path for path in self.left_out]
        limits = ["--", ".", *map(os.fsdecode, without)] if without else []
        with tempfile.TemporaryFile(dir=checkpoint.folder) as file:
            await self._shadow.git.run(
                *("diff-tree", "-p", "-r", "-M", *PLAIN, *self._trees, *limits), cwd=self._shadow.folder, into=file
            )
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            text = file.read(most_bytes).decode(errors="replace")
        return text + (f"\n[cut: {size - most_bytes} more bytes]\n" if size > most_bytes else "")


async def _in_git(checkpoint: Checkpoint, environ: Mapping[str, str] | None) -> tuple[_Changes, set[bytes]]:
    """Return the differences between the two states, and all files that git covers."""
    if checkpoint.kind != "git":
        return _Changes(), set()
    shadow = await checkpoints.shadow_of(checkpoint, environ)
    before = await shadow.entries(checkpoint.before)
    end = checkpoint.after or (await shadow.as_is(before.keys())).tree  # it is still running, or its owner died
    after = await shadow.entries(end)
    aside = checkpoints.aside_of(checkpoint)
    found = _Changes(shadow, (checkpoint.before, end))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        is_old = path not in before and checkpoints.is_aside(path, aside)
        (found.left_out if is_old else found.changed).append(path)
    return found, before.keys() | after.keys()


def _copied(checkpoint: Checkpoint, covered: set[bytes]) -> dict[str, str]:
    """Return the patches of files outside of git that were edited by name."""
    closed = checkpoint.copies.closed()
    found: dict[str, str] = {}
    try:
        with Folder.open(checkpoint.cwd, hard_links=True) as there:
            for name, copy in sorted(checkpoint.copies.all().items()):
                now = look(there, name)
                if os.fsencode(name) in covered or now == copy.state:
                    continue
                part = _part(checkpoint, there, name, copy, now)
                if checkpoint.is_closed and now != closed.get(name):
                    part += f"[{gits.show(os.fsencode(name))} was changed again after the run]\n"
                found[gits.show(os.fsencode(name))] = part
    except FileNotFoundError:
        return found  # the folder itself is gone
    return found


def _part(checkpoint: Checkpoint, there: Folder, name: str, copy: FileBackup, now: FileState) -> str:
    shown = gits.show(os.fsencode(name))
    lines = [f"diff --git a/{shown} b/{shown}"]
    if copy.state.kind == "absent":
        lines.append(f"new file mode 100{now.bits:o}" if now.bits else "new file")
    elif now.kind == "absent":
        lines.append(f"deleted file mode 100{copy.state.bits:o}" if copy.state.bits else "deleted file")
    elif copy.state.bits != now.bits:
        lines += [f"old mode 100{copy.state.bits:o}", f"new mode 100{now.bits:o}"]
    old = b"" if copy.state.kind == "absent" else _kept(checkpoint, copy)
    new = b"" if now.kind == "absent" else _present(there, name, now)
    sides = ("/dev/null" if copy.state.kind == "absent" else f"a/{shown}", _side("b", shown, now))
    if old is None or new is None:
        lines.append(f"[{shown} is not compared: it is too large, or not a regular file]")
    elif old != new:
        lines += _compared(old, new, sides)
    return "\n".join([*lines, ""])


def _side(which: str, shown: str, state: FileState) -> str:
    return "/dev/null" if state.kind == "absent" else f"{which}/{shown}"


def _compared(old: bytes, new: bytes, sides: tuple[str, str]) -> list[str]:
    if b"\0" in old or b"\0" in new:
        return [f"Binary files {sides[0]} and {sides[1]} differ"]
    return list(difflib.unified_diff(_lines(old), _lines(new), *sides, lineterm=""))


def _lines(data: bytes) -> list[str]:
    text = data.decode(errors="replace")
    if not text:
        return []
    lines = text.removesuffix("\n").split("\n")
    if not text.endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _kept(checkpoint: Checkpoint, copy: FileBackup) -> bytes | None:
    if not copy.name:
        return None
    try:
        with Folder.open(checkpoint.copies.folder) as own:
            return own.read_bytes(copy.name, most=MOST_COMPARED)
    except (OSError, errors.UnsafeFile):
        return None


def _present(there: Folder, name: str, state: FileState) -> bytes | None:
    if state.kind != "file":
        return None
    try:
        return there.read_bytes(name, most=MOST_COMPARED)
    except (OSError, errors.UnsafeFile):
        return None
