"""git run by the supervisor in a repository that an agent has written to: no program of the agent's is started, and
nothing outside of the repository is written or copied, whatever git's own files say or lead to.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostile_folders import Outside
from leadrope import errors
from leadrope.runs.workspace import checkpoints

LIMIT_S = 60.0


class Hostile:
    """A repository of a user with somebody's settings in it; each program that they name leaves a marker."""

    def __init__(self, place: Any) -> None:
        self.place = place
        self.repo: Path = place.repo
        self.outside = Outside(place.folder / "outside")
        self.marker = place.folder / "MARKER"
        self.script = place.folder / "evil.sh"
        self.script.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{self.marker}'\ncat\n")
        self.script.chmod(0o755)

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            self.place.git("config", name.replace("__", ".").replace("_0_", "-"), value)

    async def every_door(self) -> dict[str, str]:
        """All that the supervisor does with git in this repository, one after the other; what each said."""
        said: dict[str, str] = {}
        place = self.place

        async def door(name: str, work: Any) -> Any:
            try:
                async with asyncio.timeout(LIMIT_S):
                    done = await work
            except errors.LeadropeError as error:
                said[name] = f"{error.message} {error.hint or ''}"
                return None
            said[name] = str(done)
            return done

        store = place.home / "checkpoints"
        taken = await door("take", checkpoints.take(self.repo, store, "run-1", environ=place.environ))
        (self.repo / "one.txt").write_text("changed\n")
        if taken is not None:
            closed = await door("close", checkpoints.close(taken, environ=place.environ)) or taken
            await door("describe", checkpoints.describe(closed, environ=place.environ))
            await door("undo", checkpoints.undo(closed, force=True, environ=place.environ))
            await door("drop", checkpoints.drop(closed, environ=place.environ))
        for number, commits in enumerate((False, True)):
            tree = await door(f"create {number}", place.create(f"{number}123456789abcdef", carry=not commits))
            if tree is None:
                continue
            Path(tree.path, "one.txt").write_text(f"changed in {number}\n")
            Path(tree.path, "sub", "two.txt").write_text(f"two {number}\n")
            if commits:
                self._commit(tree)
            await door(f"diff {number}", place.diff(tree))
            await door(f"apply {number}", place.apply(tree, commits=commits))
            await door(f"discard {number}", place.discard(tree))
            self._reset()
        return said

    def _commit(self, tree: Any) -> None:
        """As the agent does it, with a signature that somebody would have to check. Our own git calls do not count."""
        quiet = [word for name in self.quiet for word in ("-c", name)]
        self.place.git(*quiet, "commit", "-q", "-a", "-m", "theirs", cwd=tree.path, check=False)
        raw = self.place.git("cat-file", "commit", "HEAD", cwd=tree.path, check=False)
        head, _, rest = raw.partition("\n\n")
        signed = f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n{rest}"
        (self.place.folder / "commit").write_text(signed)
        made = self.place.git(
            "hash-object", "-t", "commit", "-w", str(self.place.folder / "commit"), cwd=tree.path, check=False
        ).strip()
        if made:
            self.place.git(*quiet, "update-ref", "HEAD", made, cwd=tree.path, check=False)

    def _reset(self) -> None:
        """A clean checkout for the next door, without starting what is planted."""
        quiet = [word for name in self.quiet for word in ("-c", name)]
        self.place.git(*quiet, "reset", "-q", "--hard", check=False)

    quiet = (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=",
        "commit.gpgSign=false",
        "filter.evil.clean=",
        "filter.evil.smudge=",
        "filter.evil.process=",
        "filter.evil.required=false",
        "hook.evil.enabled=false",
    )

    def check(self, said: dict[str, str]) -> None:
        assert not self.marker.exists(), self.marker.read_text()
        assert self.outside.changes() == []
        assert self.outside.secret not in str(said)
        assert self.outside.leaks_in(self.place.repo, self.place.home) == []


@pytest.fixture
def hostile(place: Any) -> Hostile:
    return Hostile(place)


def _merge_strategy(it: Hostile) -> None:
    it.set(pull__twohead="evil", **{"alias.merge-evil": f"!{it.script}"})


def _merge_options(it: Hostile) -> None:
    it.set(gpg__program=str(it.script), **{"branch.main.mergeOptions": "-S --no-ff"})


def _merge_options_strategy(it: Hostile) -> None:
    it.set(**{"branch.main.mergeOptions": "-s evil", "alias.merge-evil": f"!{it.script}"})


def _signatures(it: Hostile) -> None:
    """The agent's commits carry a signature, so that somebody has to look at it."""
    it.set(merge__verifySignatures="true", log__showSignature="true", gpg__program=str(it.script))
    it.set(**{"gpg.ssh.program": str(it.script), "gpg.format": "ssh"})


def _included(it: Hostile) -> None:
    (it.repo / ".git" / "more").write_text(
        f'[filter "evil"]\nclean = {it.script}\nsmudge = {it.script}\n[core]\nfsmonitor = {it.script}\n'
        f'[diff]\nexternal = {it.script}\n[merge "evil"]\ndriver = {it.script}\n[merge]\ndefault = evil\n'
    )
    it.set(include__path="more")
    (it.repo / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")


def _programs(it: Hostile) -> None:
    names = "core.sshCommand core.askPass core.gitProxy core.editor sequence.editor core.alternateRefsCommand"
    names += " credential.helper diff.external diff.evil.command diff.evil.textconv merge.evil.driver"
    names += " filter.evil.clean filter.evil.smudge filter.evil.process gpg.program interactive.diffFilter"
    names += " uploadpack.packObjectsHook remote.origin.vcs remote.origin.uploadpack trailer.x.command"
    names += " hook.evil.command alias.status alias.diff alias.merge"
    for name in names.split():
        it.place.git("config", name, str(it.script))
    for event in ("post-checkout", "reference-transaction", "post-merge", "post-index-change"):
        it.place.git("config", "--add", "hook.evil.event", event)
    it.set(commit__gpgSign="true", merge__default="evil", core__fsmonitor=str(it.script))
    info = it.repo / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text("* filter=evil diff=evil merge=evil\n")


def _submodule(it: Hostile) -> None:
    """A repository inside, whose own settings name a program; the settings that we give git do not reach it."""
    inner = it.repo / "inner"
    inner.mkdir()
    it.place.git("init", "-q", cwd=inner)
    (inner / "file").write_text("x")
    it.place.commit("inner", cwd=inner)
    it.place.git("add", "inner", check=False)
    (it.repo / ".gitmodules").write_text('[submodule "inner"]\npath = inner\nurl = ./inner\nignore = none\n')
    it.place.commit("with a module")
    it.place.git("config", "core.fsmonitor", str(it.script), cwd=inner)
    it.set(**{"submodule.inner.ignore": "none", "status.submoduleSummary": "true", "diff.submodule": "log"})
    (inner / "file").write_text("changed")


@pytest.mark.parametrize(
    "plant",
    [_merge_strategy, _merge_options, _merge_options_strategy, _signatures, _included, _programs, _submodule],
    ids=lambda plant: plant.__name__.strip("_"),
)
async def test_no_program_that_the_repository_names_is_started(
    hostile: Hostile, plant: Callable[[Hostile], None]
) -> None:
    plant(hostile)
    hostile.marker.unlink(missing_ok=True)
    hostile.outside.remember()
    said = await hostile.every_door()
    hostile.check(said)
    # The doors still work: what is refused whole would show nothing.
    assert "changed in 0" in said["diff 0"]
    assert "leadrope/" in said["create 1"]
    assert "merged='" in said["apply 1"], said["apply 1"]


LINKS = (
    "worktrees",
    "refs/leadrope",
    "refs/heads/leadrope",
    "refs/heads",
    "logs",
    "logs/refs",
    "objects",
    "objects/info",
    "objects/pack",
    "info",
    "info/sparse-checkout",
    "info/exclude",
    "info/attributes",
    "config.worktree",
    "packed-refs",
    "index",
    "HEAD",
    "ORIG_HEAD",
    "commondir",
    "shallow",
    "objects/info/alternates",
)


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("to", ["file", "tree", "new", "pipe"])
async def test_what_git_would_follow_or_wait_for_is_refused(hostile: Hostile, name: str, to: str) -> None:
    """Nothing is written through it, nothing of it is copied, and nobody waits."""
    hostile.set(**{"core.sparseCheckout": "true", "extensions.worktreeConfig": "true"})
    git_dir = hostile.repo / ".git"
    path = git_dir / name
    if os.path.lexists(path):
        path.rename(hostile.place.folder / "was")
        if to == "tree" and (hostile.place.folder / "was").is_dir():
            # A folder outside that looks like the one that was there.
            hostile.outside.tree.rmdir()
            (hostile.place.folder / "was").rename(hostile.outside.tree)
    path.parent.mkdir(parents=True, exist_ok=True)
    if to == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(getattr(hostile.outside, to))
    hostile.outside.remember()
    began = time.monotonic()
    said = await hostile.every_door()
    hostile.check(said)
    assert time.monotonic() - began < LIMIT_S


async def test_a_git_file_that_names_another_repository_is_not_believed(hostile: Hostile) -> None:
    """An agent in a folder without git writes one; the other repository is none of its business."""
    place = hostile.place
    other = place.folder / "other"
    other.mkdir()
    place.git("init", "-q", "-b", "main", cwd=other)
    (other / "private.txt").write_text(hostile.outside.secret)
    place.commit("private", cwd=other)
    before = {str(path): path.lstat().st_mtime_ns for path in other.rglob("*")}
    for form in ("file", "link"):
        work = place.folder / form
        work.mkdir()
        (work / "file.txt").write_text("x")
        if form == "file":
            (work / ".git").write_text(f"gitdir: {other}/.git\n")
        else:
            (work / ".git").symlink_to(other / ".git")
        taken = await checkpoints.take(work, place.home / "checkpoints", f"run-{form}", environ=place.environ)
        assert taken.kind == "copies"
        assert "other" in str(taken.notes)
        with pytest.raises(errors.BadDirectory, match="other"):
            await place.create(f"9{form}", repo=work)
    assert {str(path): path.lstat().st_mtime_ns for path in other.rglob("*")} == before


async def test_worktrees_and_submodules_still_count_as_their_repositorys(place: Any) -> None:
    linked = place.folder / "linked"
    place.git("worktree", "add", "-q", str(linked))
    taken = await checkpoints.take(linked, place.home / "checkpoints", "run-linked", environ=place.environ)
    assert taken.kind == "git"
    library = place.folder / "library"
    library.mkdir()
    place.git("init", "-q", "-b", "main", cwd=library)
    (library / "file").write_text("x")
    place.commit("first", cwd=library)
    place.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "module")
    taken = await checkpoints.take(place.repo / "module", place.home / "checkpoints", "run-m", environ=place.environ)
    assert taken.kind == "git"
