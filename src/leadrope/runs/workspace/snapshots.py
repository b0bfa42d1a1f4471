"""Snapshots a folder as a git tree, using our own index: the user's index, HEAD, branches and stash do not change.

There are two kinds. `as_git` is what `git add` would store, and can be compared with commits. `as_is` is the exact
bytes on disk, without line end conversion or filters, and can be restored.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import home as homes
from leadrope.runs.workspace.git import Git, Repository, show

MOST_FILE = 64 * 1024 * 1024
MOST_TOTAL = 1024 * 1024 * 1024
"""Limit for all untracked files: a data set that somebody forgot to ignore must not fill the disk twice."""

MOST_LEFT_OUT = 1000
MOST_INDEX = 1024 * 1024 * 1024
MOST_TRACKED = 4 * 1024 * 1024 * 1024
"""Limit for one tracked file; larger ones are usually stored with a filter."""
_BATCH_FILES = 2000
_BATCH_BYTES = 64 * 1024 * 1024
"""Bytes staged at once: the extra disk space used while a snapshot is taken."""

_AS_IS = "* -text !eol -filter -ident -working-tree-encoding -crlf\n"
_USUAL_MODES = (0o644, 0o755)

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "leadrope"), ("EMAIL", "leadrope@localhost"))
}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    tree: str
    left_out: tuple[bytes, ...] = ()
    """Files that are too large or unreadable, and nested repositories."""


class TreeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a snapshot; equal entries mean the same file."""

    mode: str
    """git's mode: 100644, 100755, 120000 for a link."""
    object: str
    bits: int = 0
    """The permissions, if they are not the usual ones."""

    @property
    def permissions(self) -> int:
        return self.bits or (0o755 if self.mode == "100755" else 0o644)


async def as_git(
    git: Git, *, top: str, seed: Path, folder: Path, only_others: Collection[bytes] | None = None
) -> Snapshot:
    """Snapshot a checkout as git stores it. `git` is bound to the git folder and to `top`.

    `seed` is an index of that tree, read for its file times. `only_others` limits which untracked files are considered.
    The index that is created stays in `folder`.
    """
    index = folder / "index"
    copy_index(seed, index)
    git = git.within(GIT_INDEX_FILE=index)
    # "Assume unchanged" and "skip" are promises about a file; here the file itself is checked.
    await git.run("update-index", "-q", "--really-refresh", cwd=top, codes=(0, 1))
    flagged = (await git.run("ls-files", "-t", "-z", cwd=top)).items
    skipped = [line[2:] for line in flagged if line.startswith(b"S ") and os.path.lexists(_below(top, line[2:]))]
    if skipped:
        await _feed(git, skipped, "--no-skip-worktree", cwd=top)
    changed = (
        await git.run("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=dirty", cwd=top)
    ).items
    others = (await git.run("ls-files", "-z", "--others", "--exclude-standard", cwd=top)).items
    if only_others is not None:
        others = [path for path in others if path in only_others]
    files = Files(top)
    kept, left_out = files.bounded(others)
    modified = set(changed[1::2])
    present = [path for path in modified if files.look(path) is not None]
    await _feed(git, modified.difference(present), "--force-remove", cwd=top)
    await _add(git, top, [*present, *kept], folder)
    tree = (await git.run("write-tree", cwd=top)).text
    return Snapshot(tree=tree, left_out=tuple(left_out))


def copy_index(seed: Path, index: Path) -> None:
    """Copy the index of a git folder that an agent may write to; nothing if there is none.

    The copy keeps its time: git compares the content of files that are as new as their index, and with a newer time it
    would compare none. An edit of the same length within the second of the checkout was missed that way.
    """
    try:
        with Folder.open(seed.parent, hard_links=True) as source, Folder.open(index.parent) as target:
            source.copy_file(seed.name, target, index.name, most=MOST_INDEX)
    except FileNotFoundError:
        return


class Shadow:
    """Our own git folder for one folder of the user: attributes and settings are ours, and its objects go to the user's
    repository, referenced by a ref. It keeps an index, so that a second snapshot reads only changed files.
    """

    def __init__(self, git: Git, repository: Repository, cwd: str, folder: Path, store: str) -> None:
        """`store` contains the folder and everything else that is written for a checkpoint."""
        self.cwd = cwd
        self.folder = folder
        git = git.limited(repository.common_dir, repository.git_dir, store)
        self.user = git.within(GIT_DIR=repository.git_dir, GIT_WORK_TREE=repository.top)
        self.git = git.within(
            GIT_DIR=folder,
            GIT_WORK_TREE=cwd,
            GIT_OBJECT_DIRECTORY=str(Path(repository.common_dir, "objects")),
            GIT_CONFIG_GLOBAL=os.devnull,
            GIT_CONFIG_NOSYSTEM="1",
        )
        self.git.settings |= {"core.fileMode": "true", "core.symlinks": "true", "core.ignoreCase": "false"}

    async def prepare(self) -> None:
        if (self.folder / "info" / "attributes").exists():
            return
        homes.ensure(self.folder)
        kind = (await self.user.run("rev-parse", "--show-object-format", cwd=self.cwd)).text
        plain = self.git.within()
        del plain.env["GIT_DIR"], plain.env["GIT_WORK_TREE"], plain.env["GIT_OBJECT_DIRECTORY"]
        arguments = ("init", "-q", "--bare", "--template=", f"--object-format={kind}", str(self.folder))
        await plain.run(*arguments, cwd=self.folder)
        homes.ensure(self.folder / "info")
        with Folder.open(self.folder) as own:
            own.replace("info/attributes", _AS_IS.encode())

    async def as_is(self, also: Collection[bytes] = ()) -> Snapshot:
        """Snapshot tracked files, untracked ones that are not ignored, and `also`, as a commit that includes
        permissions.
        """
        await self.prepare()
        listed = await self.user.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=self.cwd)
        tracked = set((await self.user.run("ls-files", "-z", "--cached", cwd=self.cwd)).items)
        files = Files(self.cwd)
        paths = {*listed.items, *also}
        kept, left_out = files.bounded(sorted(paths - tracked))
        links = [path for path in sorted(paths & tracked) if files.is_folder(path)]
        kept += [path for path in sorted(paths & tracked) if files.look(path) is not None]
        left_out += links
        try:
            await self._index(kept)
        except errors.GitFailed:
            # An index that a crash truncated is ours alone, and is rebuilt from the files.
            with Folder.open(self.folder) as own:
                for name in ("index", "index.lock"):
                    own.unlink(name)
            await self._index(kept)
        tree = (await self.git.run("write-tree", cwd=self.cwd)).text
        modes = {path.decode("latin-1"): bits for path in kept if (bits := files.unusual_bits(path))}
        commit = await self.git.run(
            *("commit-tree", tree, "-F", "-"), cwd=self.cwd, stdin=msgspec.json.encode(modes), env=IDENTITY
        )
        return Snapshot(tree=commit.text, left_out=tuple(left_out))

    async def _index(self, kept: list[bytes]) -> None:
        known = set((await self.git.run("ls-files", "-z", "--cached", cwd=self.cwd)).items)
        await _feed(self.git, known.difference(kept), "--force-remove", cwd=self.cwd)
        await self._refresh()
        changed = set((await self.git.run("diff-files", "-z", "--name-only", cwd=self.cwd)).items)
        added = await _add(
            self.git, self.cwd, [path for path in kept if path in changed or path not in known], self.folder
        )
        if added:
            await self._refresh()

    async def _refresh(self) -> None:
        """Update the file times in the index, where git finds the content unchanged."""
        await self.git.run("update-index", "-q", "--really-refresh", cwd=self.cwd, codes=(0, 1))

    async def ignored(self) -> list[bytes]:
        """Return ignored files, and with a trailing slash folders that are ignored completely."""
        options = ("--others", "--ignored", "--exclude-standard", "--directory")
        return (await self.user.run("ls-files", "-z", *options, cwd=self.cwd)).items

    async def entries(self, commit: str) -> dict[bytes, TreeEntry]:
        listed = (await self.git.run("ls-tree", "-r", "-z", "--full-tree", commit, cwd=self.folder)).items
        raw = (await self.git.run("cat-file", "commit", commit, cwd=self.folder)).out
        modes = msgspec.json.decode(raw.partition(b"\n\n")[2] or b"{}", type=dict[str, int])
        found: dict[bytes, TreeEntry] = {}
        for line in listed:
            about, _, path = line.partition(b"\t")
            mode, _, name = about.decode().split(" ")
            found[path] = TreeEntry(mode=mode, object=name, bits=modes.get(path.decode("latin-1"), 0))
        return found

    async def write(self, commit: str, paths: Mapping[bytes, int | None], folder: Path) -> None:
        """Restore files with these permissions; the caller has checked that nothing else is in the way."""
        git = self.git.within(GIT_INDEX_FILE=folder / "index")
        await git.run("read-tree", commit, cwd=self.cwd)
        await write_files(git, self.cwd, paths, folder)


async def write_files(git: Git, top: str, paths: Mapping[bytes, int | None], folder: Path) -> None:
    """Write files of the index of `git` to the checkout at `top`; None: with git's permissions.

    git writes them to `folder`, which is ours: in the checkout a folder may become a link at any moment, and git would
    follow it. From there they are moved without following links.
    """
    out = homes.ensure(folder / "out")
    await git.run("checkout-index", "-f", "-q", "-z", "--stdin", f"--prefix={out}/", cwd=top, stdin=_lines(paths))

    def move() -> None:
        with Folder.open(out) as source, Folder.open(top, hard_links=True) as target:
            for path, bits in paths.items():
                _put(source, target, os.fsdecode(path), bits)
        with Folder.open(folder) as own:
            own.remove("out")

    await asyncio.to_thread(move)


def _put(source: Folder, target: Folder, name: str, bits: int | None) -> None:
    kind = source.kind(name)
    if kind is None:  # a nested repository: git writes none
        return
    target.make(os.path.dirname(name), mode=0o777)  # noqa: PTH120  # a text, which Path would tidy
    if target.kind(name) == "folder":
        target.remove_empty(name)
    if kind == "link":
        target.link(name, source.read_link(name))
    elif kind == "file":
        source.copy_file(name, target, name, most=2**63, mode=bits)


class Files:
    """Inspects files below a root, never through a link."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(root)
        self._folders: dict[bytes, bool] = {b"": True}

    def look(self, path: bytes) -> os.stat_result | None:
        """Return the stat of a file or link that is really at this path; None for everything else."""
        found = self._lstat(path)
        return found if found is not None and not stat.S_ISDIR(found.st_mode) else None

    def is_folder(self, path: bytes) -> bool:
        found = self._lstat(path.rstrip(b"/"))
        return found is not None and stat.S_ISDIR(found.st_mode)

    def is_other(self, path: bytes) -> bool:
        """Return whether the path is not a folder: a file, a link, or below one of them."""
        found = self._lstat(path)
        return found is not None and not stat.S_ISDIR(found.st_mode)

    def unusual_bits(self, path: bytes) -> int:
        found = self.look(path)
        if found is None or not stat.S_ISREG(found.st_mode):
            return 0
        bits = stat.S_IMODE(found.st_mode)
        return 0 if bits in _USUAL_MODES else bits

    def bounded(self, paths: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
        kept: list[bytes] = []
        left_out: list[bytes] = []
        total = 0
        for path in paths:
            found = None if path.endswith(b"/") else self.look(path)
            if found is None:
                if path.endswith(b"/"):
                    left_out.append(path)
                continue
            is_link = stat.S_ISLNK(found.st_mode)
            fits = found.st_size <= MOST_FILE and total + found.st_size <= MOST_TOTAL
            if fits and (is_link or os.access(os.path.join(self._root, path), os.R_OK)):  # noqa: PTH118  # bytes
                kept.append(path)
                total += found.st_size
            else:
                left_out.append(path)
        if len(left_out) > MOST_LEFT_OUT:
            raise errors.GitFailed(
                f"{len(left_out)} untracked files in {os.fsdecode(self._root)} are too large, together or alone",
                hint="Put them into .gitignore.",
            )
        return kept, left_out

    def _lstat(self, path: bytes) -> os.stat_result | None:
        return self._found(path) if self._is_real(os.path.dirname(path)) else None  # noqa: PTH120  # bytes

    def _is_real(self, folder: bytes) -> bool:
        """Return whether no part of the path is a link. A loop: a tree may be deeper than Python's recursion limit."""
        unknown: list[bytes] = []
        while (known := self._folders.get(folder)) is None:
            unknown.append(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120  # bytes
        for below in reversed(unknown):
            found = self._found(below) if known else None
            known = self._folders[below] = found is not None and stat.S_ISDIR(found.st_mode)
        return known

    def _found(self, path: bytes) -> os.stat_result | None:
        try:
            return os.lstat(os.path.join(self._root, path))  # noqa: PTH118  # bytes
        except PermissionError as error:
            raise _closed(os.fsdecode(self._root), path, error) from None
        except OSError:  # nothing there, or the path is too long
            return None


def _below(root: str, path: bytes) -> bytes:
    return os.path.join(os.fsencode(root), path)  # noqa: PTH118  # bytes


async def _add(git: Git, top: str, paths: Iterable[bytes], folder: Path) -> bool:
    """Add files of the checkout at `top` to the index of `git`; False if there are none.

    git opens a file by name and follows whatever is there by then: a file outside would become an object that the agent
    can read. So files are first copied, without following links, into a folder of ours, and git reads those.
    """
    todo = sorted(set(paths))
    at = 0
    while at < len(todo):
        stage = homes.ensure(folder / "stage")
        staged, count = await asyncio.to_thread(_stage, top, todo[at:], stage)
        at += count
        await _feed(git.within(GIT_WORK_TREE=stage), staged, "--add", "--replace", cwd=str(stage))
        with Folder.open(folder) as own:
            own.remove("stage")
    return bool(todo)


def _stage(top: str, paths: list[bytes], stage: Path) -> tuple[list[bytes], int]:
    """Copy one batch; returns what was copied, and how many of the paths were handled."""
    staged: list[bytes] = []
    left = _BATCH_BYTES
    count = 0
    made = {""}
    with Folder.open(top, hard_links=True) as source, Folder.open(stage) as target:
        for path in paths[:_BATCH_FILES]:
            count += 1
            name = os.fsdecode(path)
            parent = os.path.dirname(name)  # noqa: PTH120  # a text, which Path would tidy
            if parent not in made:
                target.make(parent)
                made.add(parent)
            try:
                if source.kind(name) == "link":
                    target.link(name, source.read_link(name))
                else:
                    left -= source.copy_file(name, target, name, most=MOST_TRACKED)
            except (errors.UnsafeFile, FileNotFoundError):
                continue  # no longer a file of this folder: it counts as deleted
            except PermissionError as error:
                raise _closed(top, path, error) from None
            staged.append(path)
            if left < 0:
                break
    return staged, count


def _closed(top: str, path: bytes, error: OSError) -> errors.GitFailed:
    """Return an error instead of treating the file as deleted: applying or undoing would delete it."""
    return errors.GitFailed(
        f"{show(path)} in {top} cannot be looked at: {error.strerror}",
        hint="Change its permissions (chmod u+rwX), then try again.",
    )


async def _feed(git: Git, paths: Iterable[bytes], *options: str, cwd: str) -> None:
    if lines := _lines(paths):
        await git.run("update-index", *options, "-z", "--stdin", cwd=cwd, stdin=lines)


def _lines(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)
