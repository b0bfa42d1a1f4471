"""Worktrees of runs, with real git in scratch repositories: made, looked at, brought back, removed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.process import sandbox_trial
from leadrope.process.child import start
from leadrope.process.sandbox_values import Sandbox
from leadrope.runs import git as gits
from leadrope.runs import worktree_changes as changes
from leadrope.runs import worktree_setup, worktrees
from leadrope.runs.worktrees import Worktree

RUN = "0123456789abcdef0123456789abcdef"
ODD_NAMES = ("two words", "line\nend", "ümläut-✓", "-dash", "quote\"'", "a\\b", "*", ":(top)x")


class Place:
    """A repository of a user, and leadrope's home beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = folder / "my project"
        self.home = folder / "leadrope"
        self.user_home = folder / "home"
        self.user_home.mkdir()
        (self.user_home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.com\n")
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.user_home)}
        self.repo.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.repo / "one.txt").write_text("".join(f"line {n}\n" for n in range(20)))
        (self.repo / "sub").mkdir()
        (self.repo / "sub" / "two.txt").write_text("two\n")
        (self.repo / ".gitignore").write_text("*.log\n")
        self.commit("first")

    def git(self, *arguments: str, cwd: Path | str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.repo, env=self.environ, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, message: str, cwd: Path | str | None = None) -> str:
        self.git("add", "-A", cwd=cwd)
        self.git("commit", "-q", "-m", message, cwd=cwd)
        return self.git("rev-parse", "HEAD", cwd=cwd).strip()

    def plant_hooks(self) -> Path:
        """Each hook, and every setting that names a program, would leave a marker."""
        marker = self.folder / "MARKER"
        script = self.folder / "evil.sh"
        script.write_text(f"#!/bin/sh\necho $0 $* >> '{marker}'\ncat\n")
        script.chmod(0o755)
        hooks = self.repo / ".git" / "hooks"
        hooks.mkdir(exist_ok=True)
        names = (
            "post-checkout",
            "reference-transaction",
            "pre-commit",
            "post-merge",
            "post-index-change",
            "pre-merge-commit",
        )
        for name in (*names, "post-commit", "commit-msg", "prepare-commit-msg", "fsmonitor-watchman", "pre-auto-gc"):
            shutil.copy(script, hooks / name)
        for key in ("core.fsmonitor", "diff.external", "core.pager", "core.editor", "filter.evil.clean", "gpg.program"):
            self.git("config", key, str(script))
        for key in ("filter.evil.smudge", "diff.evil.textconv", "diff.evil.command", "merge.evil.driver"):
            self.git("config", key, str(script))
        self.git("config", "filter.evil.required", "true")
        self.git("config", "commit.gpgsign", "true")
        (self.repo / ".git" / "info").mkdir(exist_ok=True)
        (self.repo / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil merge=evil\n")
        return marker

    def state(self) -> dict[str, str]:
        """What of the user's must stay as it is."""
        return {
            "head": self.git("rev-parse", "HEAD"),
            "branch": self.git("symbolic-ref", "HEAD"),
            "index": self.git("ls-files", "-s", "-z"),
            "heads": self.git("for-each-ref", "refs/heads", "refs/tags", "refs/stash"),
        }

    async def create(self, run_id: str = RUN, **options: Any) -> Worktree:
        return await worktrees.create(
            options.pop("repo", self.repo), run_id, home=self.home, environ=self.environ, **options
        )

    async def diff(self, tree: Worktree, **options: Any) -> str:
        return await changes.diff(tree, environ=self.environ, **options)

    async def apply(self, tree: Worktree, **options: Any) -> changes.Applied:
        return await changes.apply(tree, home=self.home, environ=self.environ, **options)

    async def discard(self, tree: Worktree) -> worktrees.Discarded:
        return await worktrees.discard(tree, home=self.home, environ=self.environ)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def files(folder: Path | str) -> dict[str, str]:
    """Names, contents, links and modes below a folder, without git's own."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if name == ".git" or name.startswith(".git/"):
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = f"{path.stat().st_mode & 0o777:o} {path.read_bytes()!r}"
    return found


# -- making one --------------------------------------------------------------------------------------------------------


async def test_a_worktree_has_its_own_branch_and_leaves_the_checkout_alone(place: Place) -> None:
    (place.repo / "one.txt").write_text("not committed\n")
    (place.repo / "new.txt").write_text("untracked\n")
    before, state = files(place.repo), place.state()
    tree = await place.create(repo=place.repo / "sub")
    assert tree.branch == "leadrope/01234567"
    assert Path(tree.path) == (place.home / "worktrees" / RUN / "my-project").resolve()
    assert Path(tree.cwd) == Path(tree.path) / "sub"
    assert place.git("symbolic-ref", "HEAD", cwd=tree.path).strip() == "refs/heads/leadrope/01234567"
    assert (Path(tree.path) / "one.txt").read_text().startswith("line 0")
    assert not (Path(tree.path) / "new.txt").exists()
    assert files(place.repo) == before
    after = place.state()
    assert {key: after[key] for key in ("head", "branch", "index")} == {
        key: state[key] for key in ("head", "branch", "index")
    }
    again = msgspec.convert(msgspec.to_builtins(tree), Worktree)
    assert again == tree
    assert await place.diff(tree) == ""


async def test_carried_changes_are_there_but_are_not_the_runs(place: Place) -> None:
    (place.repo / "one.txt").write_text("mine\n")
    (place.repo / "sub" / "two.txt").unlink()
    (place.repo / "new.txt").write_text("untracked\n")
    (place.repo / "x.log").write_text("ignored\n")
    place.git("add", "one.txt")
    state = place.state()
    tree = await place.create(carry=True)
    assert tree.is_carried
    wanted = files(place.repo)
    del wanted["x.log"]
    assert files(tree.path) == wanted
    assert "?? new.txt" in place.git("status", "--porcelain", cwd=tree.path)
    assert await place.diff(tree) == ""
    assert place.state()["index"] == state["index"]
    Path(tree.path, "one.txt").write_text("mine\nand the run's\n")
    assert "+and the run's" in await place.diff(tree)
    assert "line 0" not in await place.diff(tree)
    done = await place.apply(tree)
    assert done.written == ("one.txt",)
    assert (place.repo / "one.txt").read_text() == "mine\nand the run's\n"
    with pytest.raises(errors.WrongState, match="uncommitted changes"):
        await place.apply(tree, commits=True)
    await place.discard(tree)
    assert place.git("for-each-ref", "refs/leadrope") == ""


async def test_a_base_and_a_branch_can_be_named(place: Place) -> None:
    first = place.git("rev-parse", "HEAD").strip()
    (place.repo / "one.txt").write_text("second\n")
    place.commit("second")
    tree = await place.create(base="HEAD~1", branch="feature/x")
    assert (tree.base, tree.branch) == (first, "feature/x")
    with pytest.raises(errors.BadValue, match="exists already"):
        await place.create("run2", branch="feature/x")
    with pytest.raises(errors.BadValue, match="exists already"):
        await place.create("run2", branch="feature")
    with pytest.raises(errors.BadValue, match="HEAD, not to"):
        await place.create("run2", base="HEAD~1", carry=True)
    for bad in ("--force", "a..b", "x y", "HEAD", "@{-1}"):
        with pytest.raises(errors.BadValue, match="branch"):
            await place.create("run2", branch=bad)
    for bad in ("nothing", "-x", ""):
        with pytest.raises(errors.BadValue, match="commit"):
            await place.create("run2", base=bad)
    for bad in ("../x", "", "a/b", "."):
        with pytest.raises(errors.BadValue, match="run_id"):
            await place.create(bad)
    assert [entry.name for entry in (place.home / "worktrees").iterdir()] == [RUN]
    assert place.git("branch", "--list", "feature/x") != ""


async def test_a_branch_that_is_taken_gives_way_to_a_longer_name(place: Place) -> None:
    place.git("branch", "leadrope/01234567")
    assert (await place.create()).branch == f"leadrope/{RUN}"
    other = "0123456799"
    place.git("branch", "-D", "-q", "leadrope/01234567", f"leadrope/{RUN}", check=False)
    shutil.rmtree(place.home / "worktrees" / RUN)
    place.git("worktree", "prune")
    place.git("branch", "-D", "-q", f"leadrope/{RUN}")
    place.git("branch", "leadrope")
    assert (await place.create(other)).branch == f"leadrope-{other}"


async def test_errors_say_what_is_missing(place: Place) -> None:
    outside = place.folder / "outside"
    outside.mkdir()
    with pytest.raises(errors.BadDirectory, match="is in no git repository"):
        await place.create(repo=outside)
    with pytest.raises(errors.BadDirectory, match="does not exist"):
        await place.create(repo=place.folder / "nowhere")
    place.git("init", "-q", "--bare", str(place.folder / "bare"))
    with pytest.raises(errors.BadDirectory, match="bare repository"):
        await place.create(repo=place.folder / "bare")
    with pytest.raises(errors.BadDirectory, match=r"inside of a \.git folder"):
        await place.create(repo=place.repo / ".git")
    place.git("init", "-q", str(outside))
    with pytest.raises(errors.BadDirectory, match="has no commit yet"):
        await place.create(repo=outside)
    place.git("config", "core.worktree", "/", cwd=outside)
    with pytest.raises(errors.BadDirectory, match=r"core\.worktree"):
        await place.create(repo=outside)
    with pytest.raises(errors.CliNotFound, match="git is not on the PATH"):
        await worktrees.create(place.repo, RUN, home=place.home, environ={"PATH": str(outside)})
    assert not (place.home / "worktrees").exists()


async def test_sixteen_at_once(place: Place) -> None:
    trees = await asyncio.gather(*(place.create(f"{n:08x}-run") for n in range(16)))
    assert len({tree.branch for tree in trees}) == len({tree.git_dir for tree in trees}) == 16
    for tree in trees:
        assert files(tree.path) == files(place.repo)
    gone = await asyncio.gather(*(place.discard(tree) for tree in trees))
    assert all(not done.notes for done in gone)
    assert place.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert place.git("branch", "--list", "leadrope/*") == ""
    assert list((place.home / "worktrees").iterdir()) == []


async def test_submodules_are_said_to_be_empty(place: Place) -> None:
    inner = place.folder / "inner"
    inner.mkdir()
    place.git("init", "-q", cwd=inner)
    place.git("commit", "-q", "--allow-empty", "-m", "x", cwd=inner)
    place.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "module")
    place.commit("with a submodule")
    tree = await place.create()
    assert any("module" in note and "git submodule update --init" in note for note in tree.notes)
    Path(tree.path, "one.txt").write_text("changed\n")
    # An agent that fills it in does not make the tree unremovable.
    place.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", cwd=tree.path)
    assert (await changes.stat(tree, environ=place.environ)).files[0].path == "one.txt"
    assert (await place.apply(tree)).written == ("one.txt",)
    await place.discard(tree)
    assert not Path(tree.folder).exists()


async def test_no_program_of_the_repository_is_started(place: Place) -> None:
    """A hostile repository names programs in its hooks and settings, for every step there is."""
    early = await place.create("early-run")
    Path(early.path, "sub", "two.txt").write_text("by the agent\n")
    place.commit("by the agent", cwd=early.path)
    (place.repo / "three.txt").write_text("three\n")
    place.commit("by the user")
    (place.repo / "new.txt").write_text("untracked\n")
    marker = place.plant_hooks()
    await place.apply(early, commits=True)
    tree = await place.create(carry=True)
    assert any("filter.evil" in note for note in tree.notes)
    Path(tree.path, "one.txt").write_text("changed\n")
    (place.repo / "one.txt").write_text("".join(f"line {n}\n" for n in range(21)))
    assert "one.txt" in await place.diff(tree)
    await changes.stat(tree, environ=place.environ)
    with pytest.raises(errors.GitConflict):
        await place.apply(tree)
    other = await place.create("second-run")
    Path(other.path, "sub/two.txt").write_text("TWO\n")
    await place.apply(other)
    await place.discard(other)
    await place.discard(tree)
    assert not marker.exists(), marker.read_text()


async def test_what_an_agent_writes_into_its_git_files_is_not_believed(place: Place) -> None:
    """The .git file and the tree's folder in the repository are the agent's to write."""
    tree = await place.create()
    marker = place.folder / "MARKER"
    fake = Path(tree.path, "fake")
    place.git("init", "-q", str(fake))
    for key in ("core.fsmonitor", "core.hooksPath", "filter.x.clean"):
        place.git("config", key, f"touch '{marker}' #", cwd=fake)
    Path(tree.path, ".gitattributes").write_text("* filter=x\n")
    Path(tree.path, ".git").write_text(f"gitdir: {fake}/.git\n")
    Path(tree.git_dir, "commondir").write_text(f"{fake}/.git\n")
    Path(tree.path, "one.txt").write_text("changed\n")
    place.git("update-index", "--skip-worktree", "one.txt", cwd=place.repo)
    assert "+changed" in await place.diff(tree)
    done = await place.apply(tree)
    assert set(done.written) == {".gitattributes", "one.txt"}
    assert any("fake" in note for note in done.notes)
    assert not marker.exists()
    await place.discard(tree)
    assert not Path(tree.folder).exists()


# -- its set-up --------------------------------------------------------------------------------------------------------


async def test_set_up_runs_in_the_new_tree_with_the_given_environment_only(place: Place) -> None:
    setup = worktree_setup.commands(
        ["env | grep -c ^SECRET > seen; echo $GIVEN > given; pwd > where", ["touch", "a b"]]
    )
    tree = await place.create(setup=setup, setup_env={"PATH": os.environ["PATH"], "GIVEN": "yes"})
    assert Path(tree.path, "given").read_text() == "yes\n"
    assert Path(tree.path, "where").read_text().strip() == tree.path
    assert Path(tree.path, "a b").exists()


async def test_a_set_up_that_fails_tells_its_output_and_leaves_nothing(place: Place) -> None:
    setup = worktree_setup.commands(["echo fine", "echo to stdout; echo to stderr >&2; exit 3", "touch never"])
    with pytest.raises(errors.BadConfig, match=r"ended with 3") as caught:
        await place.create(setup=setup, setup_env={"PATH": os.environ["PATH"]})
    assert "to stdout" in str(caught.value)
    assert "to stderr" in str(caught.value)
    assert list((place.home / "worktrees").iterdir()) == []
    assert place.git("branch", "--list", "leadrope/*") == ""
    assert not (place.repo / ".git" / "worktrees").exists()


async def test_a_set_up_that_hangs_is_ended_with_everything_below(
    place: Place, marker: str, survivors: Callable[[], dict[int, str]]
) -> None:
    script = f"echo began; trap '' TERM; setsid bash -c 'exec -a {marker} sleep 1000' & sleep 1000 # {marker}"
    with pytest.raises(errors.BadConfig, match=r"did not end within 0\.5 s") as caught:
        await place.create(
            setup=worktree_setup.commands([script]), setup_env={"PATH": os.environ["PATH"]}, setup_timeout_s=0.5
        )
    assert "began" in str(caught.value)
    assert survivors() == {}
    assert list((place.home / "worktrees").iterdir()) == []


async def test_a_creation_that_is_cancelled_leaves_nothing(
    place: Place, marker: str, survivors: Callable[[], dict[int, str]], until: Any
) -> None:
    setup = worktree_setup.commands([f"sleep 1000 # {marker}"])
    task = asyncio.ensure_future(place.create(setup=setup, setup_env={"PATH": os.environ["PATH"]}))
    await until(lambda: bool(survivors()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert survivors() == {}
    assert list((place.home / "worktrees").iterdir()) == []
    assert place.git("branch", "--list", "leadrope/*") == ""


async def test_a_git_that_hangs_is_ended(place: Place, marker: str, survivors: Callable[[], dict[int, str]]) -> None:
    """A filter of the user's own is trusted and started; one that hangs goes with its git."""
    place.git("config", "--global", "filter.slow.smudge", f"sleep 1000 # {marker}")
    (place.repo / ".gitattributes").write_text("one.txt filter=slow\n")
    place.commit("attributes")
    git = gits.Git(place.environ, timeout_s=0.5)
    with pytest.raises(errors.GitFailed, match="did not end within"):
        await git.run("worktree", "add", "--detach", str(place.folder / "t"), cwd=place.repo)
    assert survivors() == {}


# -- what changed ------------------------------------------------------------------------------------------------------


def work_in(tree: Worktree, place: Place) -> None:
    """Something of every kind, some of it committed."""
    root = Path(tree.path)
    (root / "one.txt").write_text((root / "one.txt").read_text().replace("line 3", "LINE 3"))
    place.commit("of the agent", cwd=root)
    for name in ODD_NAMES:
        (root / name).write_text(f"in {name}")
    (root / "sub" / "two.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").write_text("now a file\n")
    (root / "binary").write_bytes(bytes(range(256)))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("/etc/hostname")
    (root / "ignored.log").write_text("x")


async def test_diff_and_stat_show_committed_and_uncommitted_together(place: Place) -> None:
    tree = await place.create()
    work_in(tree, place)
    text = await place.diff(tree)
    for part in ("+LINE 3", "Binary files /dev/null and b/binary differ", "deleted file mode 100644", "+now a file"):
        assert part in text
    assert "ignored.log" not in text
    told = await changes.stat(tree, environ=place.environ)
    by_name = {change.path: change for change in told.files}
    assert told.commits == 1
    assert by_name.keys() == {"one.txt", "sub/two.txt", "sub", "binary", "run.sh", "link", *ODD_NAMES}
    assert by_name["binary"].is_binary
    assert (by_name["one.txt"].added, by_name["one.txt"].removed) == (1, 1)
    short = await place.diff(tree, most_bytes=100)
    assert "[cut: " in short
    assert len(short) < 250


async def test_an_edit_of_the_same_length_right_after_the_checkout_is_seen(place: Place, until: Any) -> None:
    """git trusts times to the second; an index that looks younger than the edit would hide it."""
    tree = await place.create()
    path = Path(tree.path, "one.txt")
    before = path.stat()
    path.write_text(path.read_text().replace("line 3", "LINE 3"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await until(lambda: int(time.time()) > int(before.st_mtime) + 1)  # a fresh copy of the index would be younger
    assert "+LINE 3" in await place.diff(tree)


async def test_apply_brings_everything_and_commits_nothing(place: Place) -> None:
    tree = await place.create()
    work_in(tree, place)
    (place.repo / "kept.txt").write_text("the user's own, untracked\n")
    (place.repo / ".gitignore").write_text("*.log\n# an unrelated change\n")
    state = place.state()
    done = await place.apply(tree)
    assert "sub/two.txt" in done.removed
    wanted = files(tree.path)
    del wanted["ignored.log"]
    wanted["kept.txt"] = files(place.repo)["kept.txt"]
    wanted[".gitignore"] = files(place.repo)[".gitignore"]
    assert files(place.repo) == wanted
    assert place.state() == state
    assert (await place.apply(tree)).written == (), "a second time changes nothing"


async def test_apply_merges_with_what_the_user_has_committed_since(place: Place) -> None:
    tree = await place.create()
    Path(tree.path, "one.txt").write_text(Path(tree.path, "one.txt").read_text().replace("line 3", "LINE 3"))
    (place.repo / "one.txt").write_text((place.repo / "one.txt").read_text().replace("line 15", "LINE 15"))
    place.commit("the user's")
    assert (await place.apply(tree)).written == ("one.txt",)
    text = (place.repo / "one.txt").read_text()
    assert "LINE 3\n" in text
    assert "LINE 15\n" in text


async def test_apply_refuses_whole_what_would_lose_something(place: Place) -> None:
    tree = await place.create()
    root = Path(tree.path)
    (root / "one.txt").write_text("the run's\n")
    (root / "sub" / "two.txt").write_text("also the run's\n")
    (root / "x.txt").write_text("new\n")

    async def refused(match: str, *paths: str) -> None:
        before, state = files(place.repo), place.state()
        with pytest.raises(errors.GitConflict, match=match) as caught:
            await place.apply(tree)
        assert caught.value.paths == paths
        assert files(place.repo) == before
        assert place.state() == state

    (place.repo / "one.txt").write_text("unsaved work\n")
    await refused("uncommitted changes", "one.txt")
    place.git("add", "one.txt")
    await refused("uncommitted changes", "one.txt")
    place.commit("now saved, and in conflict")
    await refused("do not fit", "one.txt")
    place.git("reset", "-q", "--hard", "HEAD~1")
    (place.repo / "x.txt").write_text("the user's\n")
    await refused("uncommitted changes", "x.txt")
    (place.repo / ".gitignore").write_text("*.log\nx.txt\n")
    await refused("does not track are in the way", "x.txt")
    (place.repo / "x.txt").unlink()
    (place.repo / "x.txt").mkdir()
    (place.repo / "x.txt" / "inside.log").write_text("x")
    await refused("in the way", "x.txt")
    shutil.rmtree(place.repo / "x.txt")
    (place.repo / "sub" / "two.txt").unlink()
    await refused("uncommitted changes", "sub/two.txt")
    place.git("checkout", "-q", "--", "sub")
    # A promise to git that the file does not matter is none that the file may be lost.
    place.git("update-index", "--skip-worktree", "one.txt")
    (place.repo / "one.txt").write_text("local settings\n")
    await refused("uncommitted changes", "one.txt")


async def test_apply_never_writes_through_a_link(place: Place) -> None:
    outside = place.folder / "outside"
    outside.mkdir()
    tree = await place.create()
    Path(tree.path, "dir").mkdir()
    Path(tree.path, "dir", "file").write_text("x")
    (place.repo / "dir").symlink_to(outside)
    (place.repo / ".gitignore").write_text("dir\n")
    with pytest.raises(errors.GitConflict, match="in the way"):
        await place.apply(tree)
    assert list(outside.iterdir()) == []
    # And one that the agent made comes as a link, and with nothing behind it.
    other = await place.create("other-run")
    Path(other.path, "out").symlink_to(outside)
    await place.apply(other)
    assert (place.repo / "out").is_symlink()


async def test_apply_with_commits_merges_the_branch(place: Place) -> None:
    tree = await place.create()
    Path(tree.path, "sub", "two.txt").write_text("by the agent\n")
    with pytest.raises(errors.GitConflict, match="in no commit"):
        await place.apply(tree, commits=True)
    tip = place.commit("of the agent", cwd=tree.path)
    (place.repo / "unrelated.txt").write_text("untracked\n")
    done = await place.apply(tree, commits=True)
    assert done.merged == tip, "a fast-forward keeps the commits as they are"
    assert (place.repo / "sub" / "two.txt").read_text() == "by the agent\n"

    other = await place.create("other-run")
    Path(other.path, "one.txt").write_text("by the agent\n")
    place.commit("second of the agent", cwd=other.path)
    (place.repo / "one.txt").write_text("by the user\n")
    place.git("commit", "-q", "-am", "of the user")
    state, before = place.state(), files(place.repo)
    with pytest.raises(errors.GitConflict, match="cannot be merged") as caught:
        await place.apply(other, commits=True)
    assert caught.value.paths == ("one.txt",)
    assert (place.state(), files(place.repo)) == (state, before)
    place.git("reset", "-q", "--hard", "HEAD~1")
    (place.repo / "sub" / "two.txt").write_text("by the user\n")
    place.git("commit", "-q", "-am", "of the user")
    done = await place.apply(other, commits=True)
    assert place.git("log", "--format=%s", "-1").strip() == f"Merge {other.branch}"


async def test_apply_belongs_to_the_same_repository(place: Place) -> None:
    tree = await place.create()
    stranger = place.folder / "stranger"
    place.git("clone", "-q", str(place.repo), str(stranger))
    with pytest.raises(errors.BadDirectory, match="is no checkout of the repository"):
        await place.apply(tree, onto=stranger)
    with pytest.raises(errors.BadDirectory, match="the run's own worktree"):
        await place.apply(tree, onto=Path(tree.path))


async def test_two_thousand_files_are_quick(place: Place) -> None:
    for n in range(2000):
        folder = place.repo / f"d{n % 20}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{n}").write_text(f"{n}\n")
    place.commit("many")
    began = time.monotonic()
    tree = await place.create()
    for n in range(2000):
        Path(tree.path, f"d{n % 20}", f"f{n}").write_text(f"{n} changed\n")
    assert len((await changes.stat(tree, environ=place.environ)).files) == 2000
    assert len((await place.apply(tree)).written) == 2000
    await place.discard(tree)
    took = time.monotonic() - began
    print(f"2,000 files: made, counted, applied, discarded in {took:.2f} s")
    assert took < 60


# -- its end -----------------------------------------------------------------------------------------------------------


async def test_discard_tells_where_the_branch_stood(place: Place) -> None:
    tree = await place.create()
    Path(tree.path, "one.txt").write_text("x")
    tip = place.commit("work", cwd=tree.path)
    state = place.state()
    done = await place.discard(tree)
    assert (done.tip, done.notes) == (tip, ())
    assert not Path(tree.folder).exists()
    assert not (place.repo / ".git" / "worktrees").exists()
    assert place.git("cat-file", "-t", tip).strip() == "commit"
    assert place.state()["index"] == state["index"]
    assert (await place.discard(tree)).tip == "", "a second time finds nothing"


async def test_discard_copes_with_what_was_done_to_the_tree(place: Place) -> None:
    mine = place.folder / "mine"
    place.git("worktree", "add", "-q", "--detach", str(mine))
    shutil.rmtree(mine)  # as on a disk that is not there now: not ours to clear
    tree = await place.create()
    place.git("worktree", "lock", tree.path)
    shutil.rmtree(tree.path)
    with pytest.raises(errors.WrongState, match="is gone"):
        await place.diff(tree)
    assert (await place.discard(tree)).notes == ()
    assert place.git("worktree", "list").count("\n") == 2
    other = await place.create("other-run")
    closed = Path(other.path, "closed")
    closed.mkdir()
    (closed / "file").write_text("x")
    closed.chmod(0o000)
    Path(other.path, "out").symlink_to(place.repo)
    place.git("checkout", "-q", "--detach", cwd=other.path)
    place.git("checkout", "-q", other.branch)
    done = await place.discard(other)
    assert any("was kept" in note for note in done.notes), "the user has it checked out"
    assert not Path(other.folder).exists()
    assert (place.repo / "one.txt").exists()
    gone = await place.create("third-run")
    shutil.rmtree(place.repo)
    assert any("is gone" in note for note in (await place.discard(gone)).notes)
    assert not Path(gone.folder).exists()


async def test_prune_removes_leftovers_and_keeps_what_it_must(place: Place) -> None:
    keep, drop, young = [await place.create(name) for name in ("keep-run", "drop-run", "young-run")]
    root = place.home / "worktrees"
    (root / "half").mkdir()
    (root / "half" / worktrees.RECORD).write_bytes(
        msgspec.json.encode(
            msgspec.structs.replace(
                drop,
                run_id="half",
                folder=str(root / "half"),
                path=str(root / "half" / "t"),
                branch="leadrope/half",
                git_dir="",
            )
        )
    )
    (root / "broken").mkdir()
    (root / "broken" / worktrees.RECORD).write_text("{")
    (root / "empty").mkdir()
    (root / "link").symlink_to(place.repo)
    old = time.time() - 7200
    for name in ("keep-run", "drop-run", "half", "broken", "empty"):
        for path in (root / name / worktrees.RECORD, root / name):
            if path.exists():
                os.utime(path, (old, old))
    done = await worktrees.prune(place.home, {"keep-run"}, environ=place.environ)
    assert [item.run_id for item in done] == ["broken", "drop-run", "half"]
    assert "was left alone" in done[0].notes[0]
    assert sorted(entry.name for entry in root.iterdir()) == ["broken", "keep-run", "link", "young-run"]
    assert Path(keep.path, "one.txt").exists()
    assert Path(young.path, "one.txt").exists()
    assert (place.repo / "one.txt").exists()
    assert sorted(place.git("branch", "--list", "leadrope/*", "--format=%(refname:short)").split()) == [
        keep.branch,
        young.branch,
    ]


# -- inside the walls --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
async def test_a_commit_made_inside_the_walls_is_shown_and_applied(place: Place) -> None:
    tree = await place.create()
    run_dir, config = place.folder / "run", place.home / "sessions" / "s1" / "config"
    for folder in (run_dir / "tmp", config):
        folder.mkdir(parents=True)
    (place.home / "leadrope.db").write_text("PRIVATE")
    spec = Sandbox(
        workspace=tree.cwd,
        run_dir=str(run_dir),
        config_dir=str(config),
        home=str(place.user_home),
        hidden=(str(place.home),),
        binary="/bin/bash",
        path="/usr/local/bin:/usr/bin:/bin",
    )
    box = sandbox_trial.prepare(spec)
    script = f"""
    echo inside > made && git add made && git commit -qm 'from the box' && git log --format=%s -1
    echo later > later
    cat {place.home}/leadrope.db {tree.folder}/{worktrees.RECORD} && echo SEEN
    echo x > '{place.repo}/.git/hooks/post-checkout' && echo ESCAPED
    echo x > '{place.repo}/one.txt' && echo ESCAPED
    echo over
    """
    env = {"PATH": spec.path, "HOME": spec.home, "TMPDIR": f"{run_dir}/tmp", **box.env}
    child = await start(["/bin/bash", "-c", script], env=env, cwd=tree.cwd, spool_dir=str(place.folder), box=box.argv)
    said: list[str] = []
    async with asyncio.timeout(60):
        while batch := await child.read():
            said += [bytes(line).decode() for line in batch]  # type: ignore[arg-type]  # short lines are bytes
        await child.wait()
    await child.end(polite_s=20)
    assert said == ["from the box", "over"], child.stderr_tail
    text = await place.diff(tree)
    assert "+inside" in text
    assert "+later" in text
    assert (await changes.stat(tree, environ=place.environ)).commits == 1
    assert (await place.apply(tree)).written == ("later", "made")
    assert (place.repo / "made").read_text() == "inside\n"
    await place.discard(tree)
    assert not (place.repo / ".git" / "worktrees").exists()
