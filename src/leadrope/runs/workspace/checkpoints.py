"""Snapshots a folder before a run and restores it; for runs that work in the user's own checkout.

In a git repository the snapshot is a commit referenced only below refs/leadrope/; elsewhere, and for files that git
ignores, files are copied before they are edited. Nothing outside of the run's folder is ever written.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.confined import Folder, real_path
from leadrope.core import home as homes
from leadrope.runs.workspace import git as gits
from leadrope.runs.workspace import git_folder
from leadrope.runs.workspace.file_backups import Copies, look
from leadrope.runs.workspace.git import Git, Repository
from leadrope.runs.workspace.snapshots import Files, Shadow, TreeEntry

RECORD = "checkpoint.json"
MOST_RECORD = 64 * 1024 * 1024
MOST_ASIDE = 1024 * 1024 * 1024
MOST_BELOW = 100_000
_SHADOWS = "shadows"
_ASIDE = "aside"
"""Files that existed before but are not in the snapshot, mostly ignored ones. A run that changes .gitignore makes them
appear, and they must not be mistaken for files that it created.
"""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint's record; converts to and from builtins."""

    run_id: str
    cwd: str
    store: str
    """The folder that was passed to `take`."""
    kind: Literal["git", "copies"]
    repository: Repository | None = None
    before: str = ""
    """The commit, in a git repository."""
    after: str = ""
    """The commit at the run's end."""
    is_closed: bool = False
    notes: tuple[str, ...] = ()
    """Why it consists of copies only."""
    left_out: tuple[str, ...] = ()
    """Not covered: too large, unreadable, or a repository of its own. For display."""

    @property
    def folder(self) -> Path:
        return Path(self.store, self.run_id)

    @property
    def copies(self) -> Copies:
        return Copies(self.cwd, self.folder / "copies")


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo will do, or did. Paths are relative to the run's folder, for display."""

    restored: tuple[str, ...] = ()
    """Changed or deleted by the run; restored to their earlier content."""
    removed: tuple[str, ...] = ()
    """Created by the run."""
    changed_since: tuple[str, ...] = ()
    """Changed again after the run's end; these stop an undo without `force`."""
    blocked: tuple[str, ...] = ()
    """Cannot be restored: an unknown file is in the way, or the file was too large to copy."""
    is_done: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.restored or self.removed or self.changed_since or self.blocked)


async def take(cwd: Path, store_dir: Path, run_id: str, *, environ: Mapping[str, str] | None = None) -> Checkpoint:
    """Take a checkpoint before the first edit. Outside of a repository it is empty, and `remember` fills it."""
    root = real_path(cwd)
    git = Git(environ)
    plain = Checkpoint(run_id=run_id, cwd=root, store=str(store_dir), kind="copies")
    try:
        repository = await gits.find(git, root)
    except (errors.BadDirectory, errors.CliNotFound) as error:
        if not Path(root).is_dir():
            raise
        plain = msgspec.structs.replace(plain, notes=(error.message,))
        _record(plain)
        return plain
    checkpoint = msgspec.structs.replace(plain, kind="git", repository=repository)
    async with gits.alone(store_dir, root):
        shadow = await shadow_of(checkpoint, environ)
        state = await shadow.as_is()
        await _hold(shadow, checkpoint, "before", state.tree)
        aside = [*state.left_out, *await shadow.ignored()]
    with Folder.open(homes.ensure(checkpoint.folder)) as own:
        own.replace(_ASIDE, b"\0".join(aside))
    left_out = tuple(gits.show(path) for path in state.left_out)
    checkpoint = msgspec.structs.replace(checkpoint, before=state.tree, left_out=left_out)
    _record(checkpoint)
    return checkpoint


def remember(checkpoint: Checkpoint, path: str | Path) -> bool:
    """Copy a file once, before its first edit by name. Returns False if it cannot be restored."""
    return checkpoint.copies.remember(path)


async def close(checkpoint: Checkpoint, *, environ: Mapping[str, str] | None = None) -> Checkpoint:
    """Record the state at the run's end, so that an undo can tell the run's changes from later ones."""
    await asyncio.to_thread(checkpoint.copies.close)
    after = ""
    if checkpoint.kind == "git":
        async with gits.alone(Path(checkpoint.store), checkpoint.cwd):
            shadow = await shadow_of(checkpoint, environ)
            # Files that existed at first are checked again even if the run has added them to .gitignore.
            after = (await shadow.as_is(await shadow.entries(checkpoint.before))).tree
            await _hold(shadow, checkpoint, "after", after)
    closed = msgspec.structs.replace(checkpoint, after=after, is_closed=True)
    _record(closed)
    return closed


def reopen(checkpoint: Checkpoint) -> Checkpoint:
    """Reopen a closed checkpoint because the run continues; `close` records its end again."""
    opened = msgspec.structs.replace(checkpoint, after="", is_closed=False)
    _record(opened)
    return opened


async def describe(checkpoint: Checkpoint, *, environ: Mapping[str, str] | None = None) -> RestorePlan:
    """Return what an undo would do now."""
    async with gits.alone(Path(checkpoint.store), checkpoint.cwd):
        return (await _plan(checkpoint, environ)).shown(is_done=False)


async def undo(checkpoint: Checkpoint, *, force: bool = False, environ: Mapping[str, str] | None = None) -> RestorePlan:
    """Undo all changes or none: files that changed after the run's end, or cannot be restored, stop it.

    With `force` the former are overwritten too and the latter left as they are; the plan names both.
    """
    async with gits.alone(Path(checkpoint.store), checkpoint.cwd):
        plan = await _plan(checkpoint, environ)
        if (plan.changed_since or plan.blocked) and not force:
            return plan.shown(is_done=False)
        await plan.carry_out()
        return plan.shown(is_done=True)


async def drop(checkpoint: Checkpoint, *, environ: Mapping[str, str] | None = None) -> None:
    """Delete a checkpoint; git removes the objects with its next garbage collection."""
    repository = checkpoint.repository
    if repository is not None and Path(repository.common_dir, "HEAD").exists():
        git_folder.check_folder(repository.common_dir)
        git = Git(environ).within(GIT_DIR=repository.common_dir)
        for name in ("before", "after"):
            await git.run("update-ref", "-d", f"refs/leadrope/{checkpoint.run_id}/{name}", cwd=repository.common_dir)
    if checkpoint.folder.is_dir():
        with Folder.open(checkpoint.store) as store:
            store.remove(checkpoint.run_id)


async def prune(store_dir: Path, known: Collection[str], *, environ: Mapping[str, str] | None = None) -> list[str]:
    """Delete the checkpoints of runs that are not `known`, and return their ids."""
    dropped: list[str] = []
    if not store_dir.is_dir():
        return dropped
    with Folder.open(store_dir) as store:
        names = [entry.name for entry in store.entries(most=1_000_000) if entry.kind == "folder"]
        records = {name: _recorded(store, name) for name in names if name not in known}
    for name, checkpoint in records.items():
        if checkpoint is not None and checkpoint.run_id == name and Path(checkpoint.store) == store_dir:
            await drop(checkpoint, environ=environ)
            dropped.append(checkpoint.run_id)
    return dropped


def _recorded(store: Folder, name: str) -> Checkpoint | None:
    try:
        return msgspec.json.decode(store.read_bytes(f"{name}/{RECORD}", most=MOST_RECORD), type=Checkpoint)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise errors.StoreUnreadable(
            f"{store.path}/{name}/{RECORD} cannot be read: {error}",
            hint=f"If no run needs it, remove {store.path}/{name}.",
        ) from error


class _Work:
    """A plan with everything needed to carry it out."""

    def __init__(self, checkpoint: Checkpoint, shadow: Shadow | None) -> None:
        self.checkpoint = checkpoint
        self.shadow = shadow
        self.before: dict[bytes, TreeEntry] = {}
        self.restored: list[bytes] = []
        self.removed: list[bytes] = []
        self.copied: list[str] = []
        self.changed_since: list[bytes] = []
        self.blocked: list[bytes] = []

    def shown(self, *, is_done: bool) -> RestorePlan:
        copies = self.checkpoint.copies.all()
        back = [os.fsencode(path) for path in self.copied if copies[path].state.kind != "absent"]
        gone = [os.fsencode(path) for path in self.copied if copies[path].state.kind == "absent"]
        return RestorePlan(
            restored=_shown([*self.restored, *back]),
            removed=_shown([*self.removed, *gone]),
            changed_since=_shown(self.changed_since),
            blocked=_shown(self.blocked),
            is_done=is_done,
        )

    async def carry_out(self) -> None:
        blocked = set(self.blocked)
        cwd = self.checkpoint.cwd
        files = Files(cwd)
        with Folder.open(cwd, hard_links=True) as there:
            for path in self.removed:
                if path not in blocked and files.look(path) is not None:
                    there.unlink(os.fsdecode(path))
                    clear_folders(there, path)
            restored = [path for path in self.restored if path not in blocked]
            if self.shadow is not None and restored:
                with _scratch(self.checkpoint) as folder:
                    bits = {path: self.before[path].permissions for path in restored}
                    await self.shadow.write(self.checkpoint.before, bits, folder)
            copies = self.checkpoint.copies
            known = copies.all()
            for name in self.copied:
                if os.fsencode(name) not in blocked:
                    copies.put_back(known[name])
                    if known[name].state.kind == "absent":
                        clear_folders(there, os.fsencode(name))


async def _plan(checkpoint: Checkpoint, environ: Mapping[str, str] | None) -> _Work:
    shadow = await shadow_of(checkpoint, environ) if checkpoint.kind == "git" else None
    work = _Work(checkpoint, shadow)
    covered: set[bytes] = set()
    if shadow is not None:
        work.before = before = await shadow.entries(checkpoint.before)
        left = await shadow.entries(checkpoint.after) if checkpoint.after else {}
        now = await shadow.entries((await shadow.as_is(before.keys() | left.keys())).tree)
        after = left if checkpoint.after else now
        aside = aside_of(checkpoint)
        covered = before.keys() | after.keys() | now.keys()
        for path in sorted(before.keys() | after.keys()):
            was, end, here = before.get(path), after.get(path), now.get(path)
            if was in (end, here) or (was is None and is_aside(path, aside)):
                continue
            if here != end or not checkpoint.is_closed:
                work.changed_since.append(path)
            (work.removed if was is None else work.restored).append(path)
    closed = checkpoint.copies.closed()
    with Folder.open(checkpoint.cwd, hard_links=True) as there:
        for name, copy in sorted(checkpoint.copies.all().items()):
            path = os.fsencode(name)
            if path in covered:
                continue
            found = look(there, name)
            if found == copy.state:
                continue
            if not copy.is_covered:
                work.blocked.append(path)
            elif found != closed.get(name):
                work.changed_since.append(path)
            work.copied.append(name)
        _find_blocked(work, there)
    return work


def _find_blocked(work: _Work, there: Folder) -> None:
    """Keep folders that contain unknown files, even where a file used to be; links are never followed."""
    files = Files(work.checkpoint.cwd)
    going = set(work.removed)
    known = work.checkpoint.copies.all()
    going |= {os.fsencode(name) for name in work.copied if known[name].state.kind == "absent"}
    for path in [*work.restored, *(os.fsencode(name) for name in work.copied)]:
        bad_parent = any(files.is_other(parent) and parent not in going for parent in gits.above(path))
        if bad_parent or (files.is_folder(path) and not is_all(there, path, going)):
            work.blocked.append(path)


def is_all(there: Folder, folder: bytes, going: Collection[bytes]) -> bool:
    """Return whether everything in the folder is among `going`; False if it is too deep or too large to check."""
    prefix = os.fsdecode(folder)
    filled = {prefix}
    empty: set[str] = set()
    try:
        for entry in there.walk(prefix, most=MOST_BELOW):
            filled.add(os.path.dirname(entry.path))  # noqa: PTH120  # a text, which Path would tidy
            if entry.kind == "folder":
                empty.add(entry.path)
            elif os.fsencode(entry.path) not in going:
                return False
    except (errors.UnsafeFile, OSError):
        return False
    return empty <= filled  # an empty folder belongs to no file, so it is not removed


def clear_folders(there: Folder, path: bytes) -> None:
    """Remove the parent folders that a removed file leaves empty."""
    for parent in gits.above(path):
        if not there.remove_empty(os.fsdecode(parent)):
            return


def aside_of(checkpoint: Checkpoint) -> set[bytes]:
    with Folder.open(checkpoint.folder) as own:
        return set(own.read_bytes(_ASIDE, most=MOST_ASIDE).split(b"\0"))


def is_aside(path: bytes, aside: Collection[bytes]) -> bool:
    parts = path.split(b"/")
    return path in aside or any(b"/".join(parts[:count]) + b"/" in aside for count in range(1, len(parts)))


async def shadow_of(checkpoint: Checkpoint, environ: Mapping[str, str] | None) -> Shadow:
    repository = checkpoint.repository
    if repository is None or not Path(repository.common_dir, "objects").is_dir():
        raise errors.GitFailed(
            f"the repository of {checkpoint.cwd} is gone, and the checkpoint of run {checkpoint.run_id} with it",
            hint="Bring its .git folder back, or drop the checkpoint.",
        )
    git_folder.check(repository.top, repository.git_dir, repository.common_dir)
    name = hashlib.sha256(os.fsencode(checkpoint.cwd)).hexdigest()[:24]
    shadow = Shadow(
        Git(environ),
        repository,
        checkpoint.cwd,
        homes.ensure(Path(checkpoint.store, _SHADOWS)) / name,
        checkpoint.store,
    )
    await shadow.prepare()
    return shadow


async def _hold(shadow: Shadow, checkpoint: Checkpoint, name: str, commit: str) -> None:
    ref = f"refs/leadrope/{checkpoint.run_id}/{name}"
    await shadow.user.run("update-ref", ref, commit, cwd=checkpoint.cwd)


@contextlib.contextmanager
def _scratch(checkpoint: Checkpoint) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="look-", dir=homes.ensure(checkpoint.folder)) as folder:
        yield Path(folder)


def _record(checkpoint: Checkpoint) -> None:
    with Folder.open(homes.ensure(checkpoint.folder)) as own:
        own.replace(RECORD, msgspec.json.encode(checkpoint))


def _shown(paths: list[bytes]) -> tuple[str, ...]:
    return tuple(gits.show(path) for path in sorted(set(paths)))
