"""A run's own git worktree and branch: creation, removal, and clearing leftovers. Independent of the store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder, real_path
from leadrope.core import home as homes
from leadrope.regex import regex
from leadrope.runs.settings import SETUP_TIMEOUT_S
from leadrope.runs.workspace import git as gits
from leadrope.runs.workspace import git_folder, snapshots, worktree_setup
from leadrope.runs.workspace.git import Git

FOLDER = "worktrees"
RECORD = "worktree.json"
INDEX = "index"
MOST_WORKTREES = 100_000
MOST_RECORD = 16 * 1024 * 1024
YOUNG_S = 600.0
"""Prune keeps younger ones: their run may not have been stored yet."""

_GITLINK = b"160000 "
_ODD = regex(r"[^A-Za-z0-9._-]+")
_RUN_ID = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Worktree(msgspec.Struct, frozen=True, kw_only=True):
    """A worktree's record; converts to and from builtins. A copy lies next to the tree, out of the agent's reach, for
    `prune`.
    """

    run_id: str
    repo: str
    """The root of the user's checkout."""
    common_dir: str
    folder: str
    """LEADROPE_HOME/worktrees/RUN: contains the tree, the record and the initial index."""
    path: str
    """The root of the new tree."""
    cwd: str
    """The agent's folder: the same path below `path` as the requested one below `repo`."""
    branch: str
    base: str
    """The commit that the branch started at."""
    start: str
    """The base for diffs: `base`, or a commit that includes the carried uncommitted changes."""
    git_dir: str = ""
    """The worktree's own folder in the repository; "" during creation."""
    created: float = 0.0
    notes: tuple[str, ...] = ()
    """Notices for the user: empty submodules, disabled filters."""

    @property
    def is_carried(self) -> bool:
        return self.start != self.base


class Discarded(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    branch: str
    tip: str
    """The branch's last commit: `git branch NAME TIP` restores it until git removes the objects. "" if gone."""
    notes: tuple[str, ...] = ()


async def create(
    repo: Path,
    run_id: str,
    *,
    home: Path,
    folder: Path | None = None,
    branch: str | None = None,
    base: str = "HEAD",
    carry: bool = False,
    setup: Sequence[Sequence[str]] = (),
    setup_env: Mapping[str, str] | None = None,
    setup_timeout_s: float = SETUP_TIMEOUT_S,
    environ: Mapping[str, str] | None = None,
) -> Worktree:
    """Create a branch and check it out below `folder` (default: LEADROPE_HOME/worktrees). A failure leaves nothing
    behind.

    `carry` includes the user's uncommitted changes and untracked files; they do not count as the run's.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise errors.BadValue("run_id", f"{run_id!r} cannot be the name of a folder")
    plain = Git(environ)
    found = await gits.find(plain, repo)
    git = await plain.within(GIT_DIR=found.git_dir, GIT_WORK_TREE=found.top).distrust(found.top)
    commit = await _commit(git, found, base)
    if carry and commit != await _commit(git, found, "HEAD"):
        raise errors.BadValue("base", f"uncommitted changes belong to HEAD, not to {base}", hint="Leave out one.")
    place = Path(real_path(homes.ensure((folder or home / FOLDER) / run_id)))
    path = place / (_ODD.sub("-", Path(found.top).name).strip("-.") or "tree")
    if os.path.lexists(path) or (place / RECORD).exists():
        raise errors.WrongState(f"run {run_id} has a worktree already: {path}", hint="Discard it first.")
    git = git.limited(found.common_dir, place)
    tree = Worktree(
        run_id=run_id,
        repo=found.top,
        common_dir=found.common_dir,
        folder=str(place),
        path=str(path),
        cwd=str(path),
        branch="",
        base=commit,
        start=commit,
        created=time.time(),
    )
    try:
        async with gits.alone(home, found.common_dir):
            tree = msgspec.structs.replace(tree, branch=await _branch(git, found.top, run_id, branch))
            _write_record(tree)
            await git.within().run(
                *("worktree", "add", "-q", "--no-track", "-b", tree.branch, "--", str(path), commit), cwd=found.top
            )
            tree = await _settled(git, tree, found.prefix, carry=carry)
            _write_record(tree)
        if setup:
            # Not under the lock: it may take minutes, and affects only this tree.
            await worktree_setup.run(
                setup, cwd=tree.cwd, env=setup_env or {}, timeout_s=setup_timeout_s, spool_dir=tree.folder
            )
    except BaseException:
        await asyncio.shield(_undo_create(tree, home, environ))
        raise
    return tree


async def discard(tree: Worktree, *, home: Path, environ: Mapping[str, str] | None = None) -> Discarded:
    """Remove tree and branch, even if it is locked, incomplete, or was deleted by hand. Work in it is lost."""
    return await _discard(tree, home, environ, is_new=False)


async def _discard(tree: Worktree, home: Path, environ: Mapping[str, str] | None, *, is_new: bool) -> Discarded:
    notes: list[str] = []
    tip = ""
    if Path(tree.common_dir, "HEAD").exists():
        git_folder.check_folder(tree.common_dir)
        git = Git(environ).within(GIT_DIR=tree.common_dir).limited(tree.common_dir)
        async with gits.alone(home, tree.common_dir):
            _remove_admin(tree, notes)
            await asyncio.to_thread(remove, Path(tree.path))
            tip = await _remove_branch(git, tree, notes, is_new=is_new)
            await git.run("update-ref", "-d", f"refs/leadrope/{tree.run_id}/carried", cwd=tree.common_dir)
    else:
        notes.append(f"the repository {tree.common_dir} is gone")
    await asyncio.to_thread(remove, Path(tree.folder))
    return Discarded(run_id=tree.run_id, branch=tree.branch, tip=tip, notes=tuple(notes))


async def prune(
    home: Path,
    known: Collection[str],
    *,
    folder: Path | None = None,
    older_than_s: float = YOUNG_S,
    environ: Mapping[str, str] | None = None,
) -> list[Discarded]:
    """Discard the worktrees of runs that are not `known`; a folder without a readable record is only named."""
    removed: list[Discarded] = []
    place = folder or home / FOLDER
    if not place.is_dir():
        return removed
    with Folder.open(place) as store:
        names = [entry.name for entry in store.entries(most=1_000_000) if entry.kind == "folder"]
        for name in names:
            if name in known:
                continue
            try:
                tree = _recorded(store, name, older_than_s)
            except (msgspec.DecodeError, errors.UnsafeFile, OSError) as error:
                note = f"{place / name} was left alone: its record cannot be read ({error})"
                removed.append(Discarded(run_id=name, branch="", tip="", notes=(note,)))
                continue
            if tree is not None and tree.run_id == name and tree.folder == real_path(place / name):
                removed.append(await discard(tree, home=home, environ=environ))
    return removed


def _recorded(store: Folder, name: str, older_than_s: float) -> Worktree | None:
    """Return the record; None for one that is young or missing. An empty folder is removed."""
    try:
        newest = store.stat(name).st_mtime
        if store.kind(f"{name}/{RECORD}") is not None:
            newest = max(newest, store.stat(f"{name}/{RECORD}").st_mtime)
        if time.time() - newest < older_than_s:
            return None
        return msgspec.json.decode(store.read_bytes(f"{name}/{RECORD}", most=MOST_RECORD), type=Worktree)
    except FileNotFoundError:
        store.remove_empty(name)
        return None


def bound(tree: Worktree, environ: Mapping[str, str] | None) -> Git:
    """Bind git by the recorded folders: the agent can change the `.git` file and `commondir`."""
    git = Git(environ).within(GIT_DIR=tree.common_dir, GIT_WORK_TREE=tree.path)
    return git.limited(tree.common_dir, tree.folder)


async def head(tree: Worktree, git: Git) -> str:
    """Return the commit that the agent left checked out, on whatever branch."""
    own = git.within(GIT_DIR=tree.git_dir, GIT_COMMON_DIR=tree.common_dir)
    return (await own.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=tree.common_dir)).text


def remove(path: Path) -> None:
    """Remove a tree, including read-only folders; links are removed, not followed."""
    try:
        with Folder.open(path.parent) as folder:
            folder.remove(path.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.GitFailed(
            f"{path} cannot be removed: {error.strerror or error}",
            hint="Its files may belong to another user, or to a program that still runs. Remove it by hand.",
        ) from error


async def _commit(git: Git, found: gits.Repository, name: str) -> str:
    if name.startswith("-") or not name:
        raise errors.BadValue("base", f"{name!r} is not a commit")
    asked = await git.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", cwd=found.top, codes=(0, 1, 128))
    if asked.code == 0:
        return asked.text
    if name == "HEAD":
        raise errors.BadDirectory(
            f"{found.top} has no commit yet, so there is nothing to branch from",
            hint='Make the first one: git commit --allow-empty -m "Begin".',
        )
    raise errors.BadValue("base", f"{found.top} has no commit {name!r}", hint="Name a branch, a tag or a commit.")


async def _branch(git: Git, top: str, run_id: str, wanted: str | None) -> str:
    """Return the first free branch name; a name chosen by the user is used unchanged."""
    names = [wanted] if wanted else [f"leadrope/{run_id[:8]}", f"leadrope/{run_id}", f"leadrope-{run_id}"]
    listed = await git.run("for-each-ref", "--format=%(refname)", "refs/heads", cwd=top)
    taken = {os.fsdecode(line.removeprefix(b"refs/heads/")) for line in listed.out.splitlines()}
    folders = {str(parent) for name in taken for parent in Path(name).parents}
    for name in names:
        checked = await git.run("check-ref-format", f"refs/heads/{name}", cwd=top, codes=(0, 1))
        if checked.code or name.startswith("-") or name == "HEAD":
            raise errors.BadValue("branch", f"{name!r} cannot be the name of a branch")
        if name not in taken | folders and not taken.intersection(map(str, Path(name).parents)):
            return name
    raise errors.BadValue("branch", f"{names[-1]} exists already", hint="Choose another name, or delete that branch.")


async def _settled(git: Git, tree: Worktree, prefix: str, *, carry: bool) -> Worktree:
    """Complete the record after git created the tree: its git folder, carried changes, and the initial index."""
    inside = Git(git.env).within(GIT_DIR=str(Path(tree.path, ".git")))
    git_dir = (await inside.run("rev-parse", "--absolute-git-dir", cwd=tree.path)).text
    own = git.within(GIT_DIR=git_dir, GIT_WORK_TREE=tree.path)
    notes = [f"{name} of the repository's own configuration is not used" for name in git.switched_off]
    start = tree.start
    if carry:
        start, more = await _carried(git, own, tree)
        notes += more
    listed = (await own.run("ls-files", "-s", "-z", cwd=tree.path)).items
    modules = [line.partition(b"\t")[2] for line in listed if line.startswith(_GITLINK)]
    if modules:
        notes.append(
            f"submodules are empty in the new tree: {gits.names(modules)};"
            ' add "git submodule update --init" to [worktree] setup if the run needs them'
        )
    snapshots.copy_index(Path(git_dir, "index"), Path(tree.folder, INDEX))
    cwd = Path(tree.path, prefix)
    return msgspec.structs.replace(
        tree, git_dir=git_dir, start=start, cwd=str(cwd if cwd.is_dir() else tree.path), notes=tuple(notes)
    )


async def _carried(git: Git, own: Git, tree: Worktree) -> tuple[str, list[str]]:
    seed = Path((await git.run("rev-parse", "--absolute-git-dir", cwd=tree.repo)).text, "index")
    place = homes.ensure(Path(tree.folder, "carry"))
    state = await snapshots.as_git(git, top=tree.repo, seed=seed, folder=place)
    remove(place)
    notes = [f"not carried over: {gits.names(state.left_out)}"] if state.left_out else []
    if state.tree == (await git.run("rev-parse", f"{tree.base}^{{tree}}", cwd=tree.repo)).text:
        return tree.base, notes
    made = await git.run(
        *("commit-tree", state.tree, "-p", tree.base, "-m", f"Uncommitted changes before run {tree.run_id}"),
        cwd=tree.repo,
        env=snapshots.IDENTITY,
    )
    await git.run("update-ref", f"refs/leadrope/{tree.run_id}/carried", made.text, cwd=tree.repo)
    # First the files, then the index back to HEAD: as in the user's checkout, the changes are not staged.
    await own.run("read-tree", "-m", "-u", tree.base, made.text, cwd=tree.path)
    await own.run("read-tree", tree.base, cwd=tree.path)
    await own.run("update-index", "-q", "--refresh", cwd=tree.path, codes=(0, 1))
    return made.text, notes


def _write_record(tree: Worktree) -> None:
    with Folder.open(tree.folder) as folder:
        folder.replace(RECORD, msgspec.json.encode(tree))


async def _undo_create(tree: Worktree, home: Path, environ: Mapping[str, str] | None) -> None:
    """Undo a failed creation; before a branch was named, only the folder is ours."""
    if tree.branch:
        await _discard(tree, home, environ, is_new=True)
    else:
        remove(Path(tree.folder))


def _remove_admin(tree: Worktree, notes: list[str]) -> None:
    """Remove the repository's record of this tree only: `git worktree prune` would also remove the user's."""
    with contextlib.suppress(FileNotFoundError), Folder.open(tree.common_dir, hard_links=True) as common:
        for entry in common.entries("worktrees", most=MOST_WORKTREES):
            if entry.kind != "folder":
                continue
            told = ""
            with contextlib.suppress(OSError, errors.UnsafeFile, UnicodeDecodeError):
                told = common.read_text(f"{entry.path}/gitdir", most=64 * 1024).strip()
            if told == f"{tree.path}/.git":
                common.remove(entry.path)
            elif f"{tree.common_dir}/{entry.path}" == tree.git_dir:
                notes.append(f"{tree.git_dir} does not name this tree any more and was left alone")
        common.remove_empty("worktrees")


async def _remove_branch(git: Git, tree: Worktree, notes: list[str], *, is_new: bool) -> str:
    ref = f"refs/heads/{tree.branch}"
    asked = await git.run("rev-parse", "--verify", "--quiet", ref, cwd=tree.common_dir, codes=(0, 1))
    # A failed creation may have met a branch that somebody created at the same moment: not ours to remove.
    if asked.code or (is_new and asked.text != tree.base):
        return ""
    done = await git.run("branch", "-q", "-D", "--", tree.branch, cwd=tree.common_dir, codes=(0, 1))
    if done.code:
        notes.append(f"the branch {tree.branch} was kept: {done.err}")
    return asked.text
