"""Worktrees of runs, with real git in scratch repositories: made, set up, removed."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.runs.workspace import git as gits
from leadrope.runs.workspace import worktree_changes as changes
from leadrope.runs.workspace import worktree_setup, worktrees
from leadrope.runs.workspace.worktrees import Worktree

# -- making one --------------------------------------------------------------------------------------------------------


async def test_a_worktree_has_its_own_branch_and_leaves_the_checkout_alone(place: Any) -> None:
    (place.repo / "one.txt").write_text("not committed\n")
    (place.repo / "new.txt").write_text("untracked\n")
    before, state = place.files(place.repo), place.state()
    tree = await place.create(repo=place.repo / "sub")
    assert tree.branch == "leadrope/01234567"
    assert Path(tree.path) == (place.home / "worktrees" / place.run / "my-project").resolve()
    assert Path(tree.cwd) == Path(tree.path) / "sub"
    assert place.git("symbolic-ref", "HEAD", cwd=tree.path).strip() == "refs/heads/leadrope/01234567"
    assert (Path(tree.path) / "one.txt").read_text().startswith("line 0")
    assert not (Path(tree.path) / "new.txt").exists()
    assert place.files(place.repo) == before
    after = place.state()
    assert {key: after[key] for key in ("head", "branch", "index")} == {
        key: state[key] for key in ("head", "branch", "index")
    }
    again = msgspec.convert(msgspec.to_builtins(tree), Worktree)
    assert again == tree
    assert await place.diff(tree) == ""


async def test_carried_changes_are_there_but_are_not_the_runs(place: Any) -> None:
    (place.repo / "one.txt").write_text("mine\n")
    (place.repo / "sub" / "two.txt").unlink()
    (place.repo / "new.txt").write_text("untracked\n")
    (place.repo / "x.log").write_text("ignored\n")
    place.git("add", "one.txt")
    state = place.state()
    tree = await place.create(carry=True)
    assert tree.is_carried
    wanted = place.files(place.repo)
    del wanted["x.log"]
    assert place.files(tree.path) == wanted
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


async def test_a_base_and_a_branch_can_be_named(place: Any) -> None:
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
    assert [entry.name for entry in (place.home / "worktrees").iterdir()] == [place.run]
    assert place.git("branch", "--list", "feature/x") != ""


async def test_a_branch_that_is_taken_gives_way_to_a_longer_name(place: Any) -> None:
    place.git("branch", "leadrope/01234567")
    assert (await place.create()).branch == f"leadrope/{place.run}"
    other = "0123456799"
    place.git("branch", "-D", "-q", "leadrope/01234567", f"leadrope/{place.run}", check=False)
    shutil.rmtree(place.home / "worktrees" / place.run)
    place.git("worktree", "prune")
    place.git("branch", "-D", "-q", f"leadrope/{place.run}")
    place.git("branch", "leadrope")
    assert (await place.create(other)).branch == f"leadrope-{other}"


async def test_errors_say_what_is_missing(place: Any) -> None:
    outside = place.folder / "outside"
    outside.mkdir()
    with pytest.raises(errors.BadDirectory, match="is not in a git repository"):
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
        await worktrees.create(place.repo, place.run, home=place.home, environ={"PATH": str(outside)})
    assert not (place.home / "worktrees").exists()


async def test_sixteen_at_once(place: Any) -> None:
    trees = await asyncio.gather(*(place.create(f"{n:08x}-run") for n in range(16)))
    assert len({tree.branch for tree in trees}) == len({tree.git_dir for tree in trees}) == 16
    for tree in trees:
        assert place.files(tree.path) == place.files(place.repo)
    gone = await asyncio.gather(*(place.discard(tree) for tree in trees))
    assert all(not done.notes for done in gone)
    assert place.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert place.git("branch", "--list", "leadrope/*") == ""
    assert list((place.home / "worktrees").iterdir()) == []


async def test_submodules_are_said_to_be_empty(place: Any) -> None:
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


async def test_no_program_of_the_repository_is_started(place: Any) -> None:
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


async def test_what_an_agent_writes_into_its_git_files_is_not_believed(place: Any) -> None:
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


async def test_set_up_runs_in_the_new_tree_with_the_given_environment_only(place: Any) -> None:
    setup = worktree_setup.commands(
        ["env | grep -c ^SECRET > seen; echo $GIVEN > given; pwd > where", ["touch", "a b"]]
    )
    tree = await place.create(setup=setup, setup_env={"PATH": os.environ["PATH"], "GIVEN": "yes"})
    assert Path(tree.path, "given").read_text() == "yes\n"
    assert Path(tree.path, "where").read_text().strip() == tree.path
    assert Path(tree.path, "a b").exists()


async def test_a_set_up_that_fails_tells_its_output_and_leaves_nothing(place: Any) -> None:
    setup = worktree_setup.commands(["echo fine", "echo to stdout; echo to stderr >&2; exit 3", "touch never"])
    with pytest.raises(errors.BadConfig, match=r"ended with 3") as caught:
        await place.create(setup=setup, setup_env={"PATH": os.environ["PATH"]})
    assert "to stdout" in str(caught.value)
    assert "to stderr" in str(caught.value)
    assert list((place.home / "worktrees").iterdir()) == []
    assert place.git("branch", "--list", "leadrope/*") == ""
    assert not (place.repo / ".git" / "worktrees").exists()


async def test_a_set_up_that_hangs_is_ended_with_everything_below(
    place: Any, marker: str, survivors: Callable[[], dict[int, str]]
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
    place: Any, marker: str, survivors: Callable[[], dict[int, str]], until: Any
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


async def test_a_git_that_hangs_is_ended(place: Any, marker: str, survivors: Callable[[], dict[int, str]]) -> None:
    """A filter of the user's own is trusted and started; one that hangs goes with its git."""
    place.git("config", "--global", "filter.slow.smudge", f"sleep 1000 # {marker}")
    (place.repo / ".gitattributes").write_text("one.txt filter=slow\n")
    place.commit("attributes")
    git = gits.Git(place.environ, timeout_s=0.5)
    with pytest.raises(errors.GitFailed, match="did not end within"):
        await git.run("worktree", "add", "--detach", str(place.folder / "t"), cwd=place.repo)
    assert survivors() == {}


# -- its end -----------------------------------------------------------------------------------------------------------


async def test_discard_tells_where_the_branch_stood(place: Any) -> None:
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


async def test_discard_copes_with_what_was_done_to_the_tree(place: Any) -> None:
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


async def test_prune_removes_leftovers_and_keeps_what_it_must(place: Any) -> None:
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
