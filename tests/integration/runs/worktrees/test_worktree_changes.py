"""What a run has changed in its worktree: shown, brought home, and refused where something would be lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.process.child import start
from leadrope.process.sandbox import availability
from leadrope.process.sandbox.values import Sandbox
from leadrope.runs.workspace import worktree_changes as changes
from leadrope.runs.workspace import worktrees
from leadrope.runs.workspace.worktrees import Worktree

# -- what changed ------------------------------------------------------------------------------------------------------


def work_in(tree: Worktree, place: Any) -> None:
    """Something of every kind, some of it committed."""
    root = Path(tree.path)
    (root / "one.txt").write_text((root / "one.txt").read_text().replace("line 3", "LINE 3"))
    place.commit("of the agent", cwd=root)
    for name in place.odd_names:
        (root / name).write_text(f"in {name}")
    (root / "sub" / "two.txt").unlink()
    (root / "sub").rmdir()
    (root / "sub").write_text("now a file\n")
    (root / "binary").write_bytes(bytes(range(256)))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("/etc/hostname")
    (root / "ignored.log").write_text("x")


async def test_diff_and_stat_show_committed_and_uncommitted_together(place: Any) -> None:
    tree = await place.create()
    work_in(tree, place)
    text = await place.diff(tree)
    for part in ("+LINE 3", "Binary files /dev/null and b/binary differ", "deleted file mode 100644", "+now a file"):
        assert part in text
    assert "ignored.log" not in text
    told = await changes.stat(tree, environ=place.environ)
    by_name = {change.path: change for change in told.files}
    assert told.commits == 1
    assert by_name.keys() == {"one.txt", "sub/two.txt", "sub", "binary", "run.sh", "link", *place.odd_names}
    assert by_name["binary"].is_binary
    assert (by_name["one.txt"].added, by_name["one.txt"].removed) == (1, 1)
    short = await place.diff(tree, most_bytes=100)
    assert "[cut: " in short
    assert len(short) < 250


async def test_an_edit_of_the_same_length_right_after_the_checkout_is_seen(place: Any, until: Any) -> None:
    """git trusts times to the second; an index that looks younger than the edit would hide it."""
    tree = await place.create()
    path = Path(tree.path, "one.txt")
    before = path.stat()
    path.write_text(path.read_text().replace("line 3", "LINE 3"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await until(lambda: int(time.time()) > int(before.st_mtime) + 1)  # a fresh copy of the index would be younger
    assert "+LINE 3" in await place.diff(tree)


async def test_apply_brings_everything_and_commits_nothing(place: Any) -> None:
    tree = await place.create()
    work_in(tree, place)
    (place.repo / "kept.txt").write_text("the user's own, untracked\n")
    (place.repo / ".gitignore").write_text("*.log\n# an unrelated change\n")
    state = place.state()
    done = await place.apply(tree)
    assert "sub/two.txt" in done.removed
    wanted = place.files(tree.path)
    del wanted["ignored.log"]
    wanted["kept.txt"] = place.files(place.repo)["kept.txt"]
    wanted[".gitignore"] = place.files(place.repo)[".gitignore"]
    assert place.files(place.repo) == wanted
    assert place.state() == state
    assert (await place.apply(tree)).written == (), "a second time changes nothing"


async def test_apply_merges_with_what_the_user_has_committed_since(place: Any) -> None:
    tree = await place.create()
    Path(tree.path, "one.txt").write_text(Path(tree.path, "one.txt").read_text().replace("line 3", "LINE 3"))
    (place.repo / "one.txt").write_text((place.repo / "one.txt").read_text().replace("line 15", "LINE 15"))
    place.commit("the user's")
    assert (await place.apply(tree)).written == ("one.txt",)
    text = (place.repo / "one.txt").read_text()
    assert "LINE 3\n" in text
    assert "LINE 15\n" in text


async def test_apply_refuses_whole_what_would_lose_something(place: Any) -> None:
    tree = await place.create()
    root = Path(tree.path)
    (root / "one.txt").write_text("the run's\n")
    (root / "sub" / "two.txt").write_text("also the run's\n")
    (root / "x.txt").write_text("new\n")

    async def refused(match: str, *paths: str) -> None:
        before, state = place.files(place.repo), place.state()
        with pytest.raises(errors.GitConflict, match=match) as caught:
            await place.apply(tree)
        assert caught.value.paths == paths
        assert place.files(place.repo) == before
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


async def test_apply_never_writes_through_a_link(place: Any) -> None:
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


async def test_apply_with_commits_merges_the_branch(place: Any) -> None:
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
    state, before = place.state(), place.files(place.repo)
    with pytest.raises(errors.GitConflict, match="cannot be merged") as caught:
        await place.apply(other, commits=True)
    assert caught.value.paths == ("one.txt",)
    assert (place.state(), place.files(place.repo)) == (state, before)
    place.git("reset", "-q", "--hard", "HEAD~1")
    (place.repo / "sub" / "two.txt").write_text("by the user\n")
    place.git("commit", "-q", "-am", "of the user")
    done = await place.apply(other, commits=True)
    assert place.git("log", "--format=%s", "-1").strip() == f"Merge {other.branch}"


async def test_apply_belongs_to_the_same_repository(place: Any) -> None:
    tree = await place.create()
    stranger = place.folder / "stranger"
    place.git("clone", "-q", str(place.repo), str(stranger))
    with pytest.raises(errors.BadDirectory, match="is not a checkout of the repository"):
        await place.apply(tree, onto=stranger)
    with pytest.raises(errors.BadDirectory, match="the run's own worktree"):
        await place.apply(tree, onto=Path(tree.path))


async def test_two_thousand_files_are_quick(place: Any) -> None:
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


# -- inside the sandbox ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
async def test_a_commit_made_inside_the_sandbox_is_shown_and_applied(place: Any) -> None:
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
    box = availability.prepare(spec)
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
