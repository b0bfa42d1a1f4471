"""Shows a run's changes in its worktree and applies them to the user's checkout; creates and removes no worktree.

Committed, uncommitted and untracked changes count together, relative to the commit the worktree began at. Applying is
computed on trees in the object store first; the user's files are written only if everything merges.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import home as homes
from leadrope.runs.workspace import git as gits
from leadrope.runs.workspace import git_folder, snapshots, worktrees
from leadrope.runs.workspace.checkpoints import clear_folders, is_all
from leadrope.runs.workspace.git import Git, Repository
from leadrope.runs.workspace.worktrees import Worktree

MOST_DIFF = 16 * 1024 * 1024

_NONE = b"000000"
_File = tuple[bytes, bytes]
"""Mode and object id."""
PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    added: int
    removed: int
    is_binary: bool = False


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[FileChange, ...] = ()
    commits: int = 0
    """Number of commits since the worktree was created."""
    left_out: tuple[str, ...] = ()
    """New files that are too large, and nested repositories: not part of diff and apply."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    merged: str = ""
    """The commit that HEAD points to after `commits=True`."""
    notes: tuple[str, ...] = ()


class _Merged(msgspec.Struct, frozen=True, kw_only=True):
    tree: str = ""
    conflicts: tuple[bytes, ...] = ()


async def diff(tree: Worktree, *, environ: Mapping[str, str] | None = None, most_bytes: int = MOST_DIFF) -> str:
    """Return a readable diff; binary files are only named. A longer one is cut, with a note at its end."""
    with _scratch(tree) as folder:
        git, state = await _state(tree, folder, environ)
        with tempfile.TemporaryFile(dir=folder) as file:
            trees = (tree.start, state.tree)
            await git.run("diff-tree", "-p", "-r", "-M", *PLAIN, *trees, cwd=tree.common_dir, into=file)
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            text = file.read(most_bytes).decode(errors="replace")
    if size > most_bytes:
        text += f"\n[cut: {size - most_bytes} more bytes; `leadrope runs apply` brings all of it]\n"
    if state.left_out:
        text += f"[not part of this: {gits.names(state.left_out)}]\n"
    return text


async def stat(tree: Worktree, *, environ: Mapping[str, str] | None = None) -> Stat:
    with _scratch(tree) as folder:
        git, state = await _state(tree, folder, environ)
        listed = await git.run(
            *("diff-tree", "-r", "-z", "--numstat", "--no-renames", *PLAIN, tree.start, state.tree),
            cwd=tree.common_dir,
        )
        tip = await worktrees.head(tree, git)
        count = await git.run("rev-list", "--count", f"{tree.base}..{tip}", cwd=tree.common_dir)
    files = []
    for item in listed.items:
        added, removed, path = item.split(b"\t", 2)
        is_binary = added == b"-"
        counts = (0, 0) if is_binary else (int(added), int(removed))
        files.append(FileChange(path=os.fsdecode(path), added=counts[0], removed=counts[1], is_binary=is_binary))
    left_out = tuple(gits.show(path) for path in state.left_out)
    return Stat(files=tuple(files), commits=int(count.text), left_out=left_out)


async def apply(
    tree: Worktree,
    *,
    home: Path,
    onto: Path | None = None,
    commits: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Applied:
    """Apply the run's changes to the checkout they came from, as uncommitted changes.

    GitConflict names the files where something would be lost; then nothing was changed. With `commits` the branch is
    merged instead, and must contain all changes.
    """
    target = await gits.find(Git(environ), onto or Path(tree.repo))
    if target.common_dir != tree.common_dir:
        raise errors.BadDirectory(
            f"{target.top} is not a checkout of the repository that run {tree.run_id} worked on",
            hint=f"Apply in {tree.repo} or another worktree of it.",
        )
    if target.top == tree.path:
        raise errors.BadDirectory(f"{target.top} is the run's own worktree", hint="Apply in your checkout.")
    async with gits.alone(home, tree.common_dir):
        with _scratch(tree) as folder:
            git, state = await _state(tree, folder, environ)
            user = await Git(environ).within(GIT_DIR=target.git_dir, GIT_WORK_TREE=target.top).distrust(target.top)
            user = user.limited(target.common_dir, target.git_dir, target.top, tree.folder)
            notes = [f"not brought: {gits.names(state.left_out)}"] if state.left_out else []
            if commits:
                return await _merge(tree, git, user, target, state.tree, notes)
            return await _squash(tree, user, target, state.tree, folder, notes)


@contextmanager
def _scratch(tree: Worktree) -> Iterator[Path]:
    if not Path(tree.path).is_dir():
        raise errors.WrongState(
            f"the worktree {tree.path} of run {tree.run_id} is gone",
            hint=f"Commits in it are still on {tree.branch}; `leadrope runs discard` clears the rest.",
        )
    with tempfile.TemporaryDirectory(prefix="look-", dir=tree.folder) as folder:
        yield Path(folder)


async def _state(tree: Worktree, folder: Path, environ: Mapping[str, str] | None) -> tuple[Git, snapshots.Snapshot]:
    git_folder.check_folder(tree.common_dir)
    git = await worktrees.bound(tree, environ).distrust(tree.common_dir)
    # The initial index, not the agent's: flags in that one could hide a file.
    seed = Path(tree.folder, worktrees.INDEX)
    return git, await snapshots.as_git(git, top=tree.path, seed=seed, folder=folder)


async def _squash(
    tree: Worktree, user: Git, target: Repository, changed: str, folder: Path, notes: list[str]
) -> Applied:
    touched = await _paths(user, tree.start, changed, target)
    if not touched:
        return Applied(notes=(*notes, "the run changed nothing"))
    mine = homes.ensure(folder / "mine")
    seed = Path(target.git_dir, "index")
    state = await snapshots.as_git(user, top=target.top, seed=seed, folder=mine, only_others=set(touched))
    await _refuse_unsaved(tree, user, target, state.tree, changed, touched)
    merged = await _three_way(user, target, (tree.start, state.tree, changed), folder)
    if merged.conflicts:
        raise errors.GitConflict(
            f"the changes of run {tree.run_id} do not fit onto {target.top}: {gits.names(merged.conflicts)}",
            tuple(map(gits.show, merged.conflicts)),
            hint=f"Nothing was changed. Merge by hand: git merge {tree.branch} takes what was committed.",
        )
    return await _write(user, target, state.tree, merged.tree, folder, notes)


async def _three_way(user: Git, target: Repository, trees: tuple[str, str, str], folder: Path) -> _Merged:
    """Merge (base, ours, theirs) file by file, on objects only. git's own tree merge reports a conflict for a file that
    became a folder even if only one side did that, and it runs the merge programs that a repository names.
    """
    base, ours, theirs = trees
    listed = (await user.run("ls-tree", "-r", "-z", "--full-tree", ours, cwd=target.top)).items
    mine: dict[bytes, _File] = {}
    for line in listed:
        about, _, path = line.partition(b"\t")
        mode, _, name = about.split(b" ")
        mine[path] = (mode, name)
    result = dict(mine)
    conflicts: set[bytes] = set()
    raw = (
        await user.run("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", base, theirs, cwd=target.top)
    ).items
    for about, path in zip(raw[0::2], raw[1::2], strict=True):
        mode, new_mode, name, new_name, _ = about.lstrip(b":").split(b" ")
        old: _File | None = (mode, name) if mode != _NONE else None
        new: _File | None = (new_mode, new_name) if new_mode != _NONE else None
        here = mine.get(path)
        if here == new:
            continue
        wanted = new if here == old else await _merge_file(user, target, (old, here, new), folder)
        if wanted is None and here != old:
            conflicts.add(path)
        elif wanted is None:
            del result[path]
        else:
            result[path] = wanted
    conflicts |= {path for path in result if any(parent in result for parent in gits.above(path))}
    if conflicts:
        return _Merged(conflicts=tuple(sorted(conflicts)))
    index = user.within(GIT_INDEX_FILE=folder / "merged")
    lines = b"".join(mode + b" " + name + b"\t" + path + b"\0" for path, (mode, name) in result.items())
    await index.run("update-index", "-z", "--index-info", cwd=target.top, stdin=lines)
    return _Merged(tree=(await index.run("write-tree", cwd=target.top)).text)


async def _merge_file(
    user: Git, target: Repository, three: tuple[_File | None, _File | None, _File | None], folder: Path
) -> _File | None:
    """Merge three texts; None if they conflict, or one of them is missing or not text."""
    base, ours, theirs = three
    if base is None or ours is None or theirs is None:
        return None
    if not all(mode.startswith(b"100") for mode, _ in (base, ours, theirs)):
        return None
    files = []
    for place, (_, name) in (("ours", ours), ("base", base), ("theirs", theirs)):
        blob = await user.run("cat-file", "blob", name.decode(), cwd=target.top)
        with Folder.open(folder) as own:
            own.replace(place, blob.out)
        files.append(str(folder / place))
    done = await user.run("merge-file", "-p", "-q", *files, cwd=folder, codes=range(256))
    if done.code:
        return None
    made = await user.run("hash-object", "-w", "--stdin", "--no-filters", cwd=target.top, stdin=done.out)
    return theirs[0] if ours[0] == base[0] else ours[0], made.text.encode()


async def _refuse_unsaved(
    tree: Worktree, user: Git, target: Repository, mine: str, changed: str, touched: Sequence[bytes]
) -> None:
    """Check that a file may be written: it is as the run found it, as the run left it, or as committed."""
    has_head = not (await user.run("rev-parse", "-q", "--verify", "HEAD", cwd=target.top, codes=(0, 1, 128))).code
    same = [tree.start, changed, *(["HEAD"] if has_head else [])]
    unsaved = set(touched)
    for other in same:
        unsaved &= set(await _paths(user, other, mine, target))
    if unsaved:
        paths = sorted(unsaved)
        raise errors.GitConflict(
            f"uncommitted changes in {target.top} would be overwritten: {gits.names(paths)}",
            tuple(map(gits.show, paths)),
            hint="Commit or stash them, then apply again. Nothing was changed.",
        )


async def _write(user: Git, target: Repository, before: str, after: str, folder: Path, notes: list[str]) -> Applied:
    listed = (await user.run("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after, cwd=target.top)).items
    gone: list[bytes] = []
    written: list[bytes] = []
    new: list[bytes] = []
    for about, path in zip(listed[0::2], listed[1::2], strict=True):
        old, mode, _, _, kind = about.split(b" ")
        if b"160000" in (old.lstrip(b":"), mode):
            notes.append(f"submodule {gits.show(path)} is at another commit: bring it with git submodule update")
        elif kind == b"D":
            gone.append(path)
        else:
            written.append(path)
            new += [path] if kind == b"A" else []
    with Folder.open(target.top, hard_links=True) as there:
        _refuse_blocked(there, target, gone, new)
        for path in gone:
            _unlink(there, path)
        try:
            await _checkout(user, target, after, written, folder)
        except (errors.GitFailed, errors.UnsafeFile, OSError):
            # Most likely a full disk: restore the old files and remove the new ones.
            for path in new:
                with suppress(errors.UnsafeFile, OSError):
                    _unlink(there, path)
            await _checkout(user, target, before, [*gone, *(path for path in written if path not in set(new))], folder)
            raise
    show = gits.show
    return Applied(written=tuple(map(show, written)), removed=tuple(map(show, gone)), notes=tuple(notes))


def _refuse_blocked(there: Folder, target: Repository, gone: Sequence[bytes], new: Sequence[bytes]) -> None:
    """Check for ignored files, folders and links in the way of a new file, which git does not list."""
    going = set(gone)
    files = snapshots.Files(target.top)
    blocked = []
    for path in new:
        above = list(gits.above(path))
        in_the_way = any(files.is_other(parent) and parent not in going for parent in above)
        if files.is_folder(path):
            in_the_way = in_the_way or not is_all(there, path, going)
        elif files.is_other(path) and path not in going:
            in_the_way = True
        if in_the_way:
            blocked.append(path)
    if blocked:
        raise errors.GitConflict(
            f"files that git does not track are in the way in {target.top}: {gits.names(blocked)}",
            tuple(map(gits.show, blocked)),
            hint="Move them away, then apply again. Nothing was changed.",
        )


async def _checkout(user: Git, target: Repository, tree: str, paths: Sequence[bytes], folder: Path) -> None:
    if not paths:
        return
    index = user.within(GIT_INDEX_FILE=folder / "writing")
    await index.run("read-tree", tree, cwd=target.top)
    await snapshots.write_files(index, target.top, dict.fromkeys(paths), folder)


async def _merge(tree: Worktree, git: Git, user: Git, target: Repository, changed: str, notes: list[str]) -> Applied:
    if tree.is_carried:
        raise errors.WrongState(
            f"run {tree.run_id} began with your uncommitted changes, which its commits may hold too",
            hint="Apply without --commits.",
        )
    if Path(target.git_dir, "MERGE_HEAD").exists():
        raise errors.WrongState(f"a merge is in progress in {target.top}", hint="Finish or abort it.")
    tip = await worktrees.head(tree, git)
    uncommitted = await _paths(git, tip, changed, target)
    if uncommitted:
        raise errors.GitConflict(
            f"the worktree has changes that are in no commit: {gits.names(uncommitted)}",
            tuple(map(gits.show, uncommitted)),
            hint="Apply without --commits, or commit them in the worktree first.",
        )
    touched = await _paths(git, tree.base, tip, target)
    message = ("-m", f"Merge {tree.branch}")
    done = await user.run(
        "merge", "-q", "--no-edit", "--no-verify", *message, tip, cwd=target.top, codes=(0, 1, 2, 128)
    )
    if done.code:
        # Not with a diff: that starts a git in each submodule, whose own settings apply there.
        listed = (await user.run("ls-files", "-u", "-z", cwd=target.top)).items
        unmerged = {line.partition(b"\t")[2] for line in listed}
        if Path(target.git_dir, "MERGE_HEAD").exists():
            await user.run("merge", "--abort", cwd=target.top)
        raise errors.GitConflict(
            f"{tree.branch} cannot be merged into {target.top}: {done.err or gits.names(sorted(unmerged))}",
            tuple(map(gits.show, sorted(unmerged))),
            hint="Nothing was changed. Merge it by hand, or apply without --commits.",
        )
    now = (await user.run("rev-parse", "HEAD", cwd=target.top)).text
    return Applied(written=tuple(map(gits.show, touched)), merged=now, notes=tuple(notes))


async def _paths(git: Git, one: str, other: str, target: Repository) -> list[bytes]:
    return (await git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", one, other, cwd=target.top)).items


def _unlink(there: Folder, path: bytes) -> None:
    """Remove the file, and the folders that it leaves empty."""
    there.unlink(os.fsdecode(path))
    clear_folders(there, path)
