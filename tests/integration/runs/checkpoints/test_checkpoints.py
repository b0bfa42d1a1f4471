"""The way back after a run in the user's own repository, with real git."""

from __future__ import annotations

import asyncio
import shutil
import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.runs.workspace import checkpoints, snapshots
from leadrope.runs.workspace.checkpoints import Checkpoint


async def test_a_checkpoint_touches_nothing_of_the_users(ground: Any) -> None:
    before, state = ground.files(), ground.state()
    checkpoint = await ground.take()
    assert (ground.files(), ground.state()) == (before, state)
    assert checkpoint.kind == "git"
    assert msgspec.convert(msgspec.to_builtins(checkpoint), Checkpoint) == checkpoint
    assert ground.git("for-each-ref", "--format=%(refname)", "refs/leadrope").split() == [
        f"refs/leadrope/{ground.run}/before"
    ]
    held = ground.git("show", f"{checkpoint.before}:staged.txt")
    assert held == "and changed again\n"
    # It survives git's own cleaning.
    ground.git("gc", "-q", "--prune=now")
    assert ground.git("show", f"{checkpoint.before}:untracked.txt") == "untracked\n"


async def test_undo_brings_files_links_and_modes_back(ground: Any) -> None:
    before, state = ground.files(), ground.state()
    checkpoint = await ground.take()
    ground.work()
    changed = ground.files()
    checkpoint = await ground.close(checkpoint)
    plan = await ground.describe(checkpoint)
    assert ground.files() == changed, "describing changes nothing"
    assert not plan.is_done
    assert {"one.txt", "staged.txt", "secret", "run.sh", "link", "dir/two.txt", r"line\nend"} <= set(plan.restored)
    assert {"dir", "made/deep/file", "two words new"} <= set(plan.removed)
    done = await ground.undo(checkpoint)
    assert done.is_done
    assert done == msgspec.structs.replace(plan, is_done=True)
    assert ground.files() == before
    assert ground.state() == state
    assert not (ground.ws / "made").exists()
    assert (await ground.describe(checkpoint)).is_empty


async def test_undo_refuses_what_changed_after_the_run_unless_forced(ground: Any) -> None:
    before = ground.files()
    checkpoint = await ground.take()
    ground.work()
    checkpoint = await ground.close(checkpoint)
    (ground.ws / "one.txt").write_text("the user went on\n")
    (ground.ws / "mine.txt").write_text("the user's own\n")
    (ground.ws / "untracked.txt").write_text("untracked\n")  # put back by hand
    later = ground.files()
    plan = await ground.undo(checkpoint)
    assert (plan.is_done, plan.changed_since) == (False, ("one.txt",))
    assert ground.files() == later
    plan = await ground.undo(checkpoint, force=True)
    assert plan.is_done
    mine = ground.files().pop("mine.txt")
    assert ground.files() == before | {"mine.txt": mine}


async def test_without_a_closing_look_only_force_undoes(ground: Any) -> None:
    before = ground.files()
    checkpoint = await ground.take()
    (ground.ws / "one.txt").write_text("changed\n")
    assert (await ground.undo(checkpoint)).changed_since == ("one.txt",)
    assert (await ground.undo(checkpoint, force=True)).is_done
    assert ground.files() == before


async def test_ignored_files_are_not_taken_for_the_runs(ground: Any) -> None:
    """A run that changes .gitignore makes files appear, or disappear, that it never made or deleted."""
    before = ground.files()
    checkpoint = await ground.take()
    (ground.ws / ".gitignore").write_text("untracked.txt\n")
    (ground.ws / "untracked.txt").write_text("changed\n")
    checkpoint = await ground.close(checkpoint)
    plan = await ground.undo(checkpoint)
    assert (plan.restored, plan.removed, plan.is_done) == ((".gitignore", "untracked.txt"), (), True)
    assert ground.files() == before


async def test_an_ignored_file_comes_back_if_its_edit_was_announced(ground: Any) -> None:
    before = ground.files()
    checkpoint = await ground.take()
    assert checkpoints.remember(checkpoint, ground.ws / ".env")
    assert checkpoints.remember(checkpoint, "one.txt"), "the snapshot has it too; that does no harm"
    (ground.ws / ".env").write_text("KEY=2\n")
    (ground.ws / "one.txt").write_text("changed\n")
    checkpoint = await ground.close(checkpoint)
    assert (await ground.undo(checkpoint)).restored == (".env", "one.txt")
    assert ground.files() == before


async def test_bytes_come_back_as_they_were_whatever_git_converts(ground: Any) -> None:
    """Line ends and filters change what git stores; here the disk counts."""
    marker = ground.folder / "MARKER"
    ground.git("config", "core.autocrlf", "input")
    ground.git("config", "filter.evil.clean", f"touch '{marker}'; cat")
    ground.git("config", "filter.evil.smudge", f"touch '{marker}'; cat")
    (ground.ws / "crlf.txt").write_bytes(b"a\r\nb\nc\r\n")
    (ground.ws / "ident.txt").write_bytes(b"$Id$\n")
    ground.git("add", "-A")
    (ground.ws / ".gitattributes").write_text("* text=auto filter=evil\nident.txt ident\n")
    before = ground.files()
    marker.unlink(missing_ok=True)
    checkpoint = await ground.take()
    for name in ("crlf.txt", "ident.txt", "one.txt"):
        (ground.ws / name).write_text("changed\n")
    checkpoint = await ground.close(checkpoint)
    assert (await ground.undo(checkpoint)).is_done
    assert ground.files() == before
    assert not marker.exists()


async def test_no_hook_or_monitor_of_the_repository_is_started(ground: Any) -> None:
    marker = ground.folder / "MARKER"
    script = f"#!/bin/sh\necho $0 >> '{marker}'\n"
    hooks = ground.ws / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-index-change", "post-checkout", "pre-commit", "post-commit"):
        (hooks / name).write_text(script)
        (hooks / name).chmod(0o755)
    evil = hooks / "pre-commit"
    ground.git("config", "core.fsmonitor", str(evil))
    marker.unlink(missing_ok=True)
    checkpoint = await ground.take()
    ground.work()
    checkpoint = await ground.close(checkpoint)
    await ground.undo(checkpoint)
    await checkpoints.drop(checkpoint, environ=ground.environ)
    assert not marker.exists(), marker.read_text()


async def test_links_are_never_gone_through(ground: Any) -> None:
    outside = ground.folder / "outside"
    outside.mkdir()
    (outside / "two.txt").write_text("not the run's\n")
    before = ground.files()
    checkpoint = await ground.take()
    shutil.rmtree(ground.ws / "dir")
    (ground.ws / "dir").symlink_to(outside)
    (ground.ws / "out").symlink_to(outside / "two.txt")
    checkpoint = await ground.close(checkpoint)
    plan = await ground.undo(checkpoint)
    assert (plan.restored, plan.removed) == (("dir/two.txt",), ("dir", "out"))
    assert ground.files() == before
    assert (outside / "two.txt").read_text() == "not the run's\n"

    checkpoint = await ground.take("second")
    (ground.ws / "dir" / "two.txt").unlink()
    (ground.ws / "dir").rmdir()
    checkpoint = await ground.close(checkpoint)
    (ground.ws / "dir").symlink_to(outside)  # by the user, afterwards
    plan = await ground.undo(checkpoint, force=True)
    assert plan.blocked == ("dir/two.txt",)
    assert (ground.ws / "dir").is_symlink()
    assert (outside / "two.txt").read_text() == "not the run's\n"


async def test_a_folder_with_unknown_files_is_not_removed_for_a_file(ground: Any) -> None:
    checkpoint = await ground.take()
    (ground.ws / "one.txt").unlink()
    (ground.ws / "one.txt").mkdir()
    (ground.ws / "one.txt" / "inside").write_text("by the run\n")
    checkpoint = await ground.close(checkpoint)
    (ground.ws / "one.txt" / "x.log").write_text("ignored, and somebody's\n")
    plan = await ground.undo(checkpoint)
    assert (plan.is_done, plan.blocked) == (False, ("one.txt",))
    plan = await ground.undo(checkpoint, force=True)
    assert (ground.ws / "one.txt" / "x.log").exists()
    (ground.ws / "one.txt" / "x.log").unlink()
    (ground.ws / "one.txt").rmdir()
    assert (await ground.undo(checkpoint, force=True)).is_done
    assert (ground.ws / "one.txt").read_text() == "one\n"


async def test_nested_repositories_and_large_files_are_left_alone(ground: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nested = ground.ws / "nested"
    nested.mkdir()
    ground.git("init", "-q", cwd=nested)
    (nested / "inner.txt").write_text("inner\n")
    ground.git("add", "-A", cwd=nested)
    ground.git("commit", "-q", "-m", "x", cwd=nested)
    monkeypatch.setattr(snapshots, "MOST_FILE", 1000)
    (ground.ws / "large").write_bytes(bytes(2000))
    before = ground.files()
    checkpoint = await ground.take()
    assert set(checkpoint.left_out) == {"nested/", "large"}
    # Both would now look like new files.
    shutil.rmtree(nested / ".git")
    (ground.ws / "large").write_bytes(bytes(10))
    (ground.ws / "one.txt").write_text("changed\n")
    checkpoint = await ground.close(checkpoint)
    plan = await ground.undo(checkpoint)
    assert (plan.restored, plan.removed) == (("one.txt",), ())
    assert ground.files() == before | {"large": ground.files()["large"]}


async def test_only_the_runs_own_folder_is_written(ground: Any) -> None:
    checkpoint = await ground.take(cwd=ground.ws / "dir")
    (ground.ws / "one.txt").write_text("outside of the run's folder\n")
    (ground.ws / "dir" / "two.txt").write_text("changed\n")
    (ground.ws / "dir" / "new").write_text("new\n")
    assert not checkpoints.remember(checkpoint, ground.ws / "one.txt")
    assert not checkpoints.remember(checkpoint, "../one.txt")
    checkpoint = await ground.close(checkpoint)
    plan = await ground.undo(checkpoint)
    assert (plan.restored, plan.removed) == (("two.txt",), ("new",))
    assert (ground.ws / "one.txt").read_text() == "outside of the run's folder\n"
    assert (ground.ws / "dir" / "two.txt").read_text() == "two\n"


async def test_commits_of_the_run_do_not_matter_to_the_files(ground: Any) -> None:
    before = ground.files()
    checkpoint = await ground.take()
    ground.work()
    ground.commit("by the run")
    checkpoint = await ground.close(checkpoint)
    assert (await ground.undo(checkpoint)).is_done
    assert ground.files() == before


async def test_flags_in_the_users_index_hide_nothing(ground: Any) -> None:
    ground.git("update-index", "--skip-worktree", "one.txt")
    ground.git("update-index", "--assume-unchanged", "run.sh")
    (ground.ws / "one.txt").write_text("local\n")
    before = ground.files()
    checkpoint = await ground.take()
    (ground.ws / "one.txt").write_text("changed\n")
    (ground.ws / "run.sh").write_text("changed\n")
    checkpoint = await ground.close(checkpoint)
    assert (await ground.undo(checkpoint)).restored == ("one.txt", "run.sh")
    assert ground.files() == before


async def test_a_repository_without_a_commit_or_in_the_middle_of_a_merge(bare_ground: Any) -> None:
    ground = bare_ground
    ground.git("init", "-q", "-b", "main")
    (ground.ws / "a").write_text("a\n")
    checkpoint = await ground.take("unborn")
    (ground.ws / "a").write_text("b\n")
    checkpoint = await ground.close(checkpoint)
    assert (await ground.undo(checkpoint)).restored == ("a",)
    ground.commit("first")
    ground.git("checkout", "-q", "-b", "other")
    (ground.ws / "a").write_text("other\n")
    ground.commit("other")
    ground.git("checkout", "-q", "main")
    (ground.ws / "a").write_text("main\n")
    ground.commit("main")
    ground.git("merge", "other", codes=(1,))
    before, state = ground.files(), ground.state()
    assert "<<<<<<<" in before["a"]
    checkpoint = await ground.take("merging")
    (ground.ws / "a").write_text("resolved\n")
    checkpoint = await ground.close(checkpoint)
    assert (await ground.undo(checkpoint)).is_done
    assert (ground.files(), ground.state()) == (before, state)


async def test_two_thousand_files_are_quick_and_a_second_look_quicker(ground: Any) -> None:
    for n in range(2000):
        folder = ground.ws / f"d{n % 20}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{n}").write_text(f"{n}\n")
    ground.commit("many")
    before = ground.files()
    times = [time.monotonic()]
    checkpoint = await ground.take()
    times.append(time.monotonic())
    await ground.take("second")
    times.append(time.monotonic())
    for n in range(2000):
        (ground.ws / f"d{n % 20}" / f"f{n}").write_text("changed\n")
    checkpoint = await ground.close(checkpoint)
    times.append(time.monotonic())
    assert len((await ground.undo(checkpoint)).restored) == 2000
    times.append(time.monotonic())
    print("2,000 files: take, again, close, undo:", [round(b - a, 2) for a, b in pairwise(times)])
    assert ground.files() == before


async def test_checkpoints_at_once_in_one_folder(ground: Any) -> None:
    before = ground.files()
    found = await asyncio.gather(*(ground.take(f"run-{n}") for n in range(6)))
    ground.work()
    closed = await ground.close(found[3])
    assert (await ground.undo(closed)).is_done
    assert ground.files() == before


async def test_a_broken_index_of_ours_is_made_again(ground: Any) -> None:
    await ground.take()
    for index in ground.store.glob("shadows/*/index"):
        index.write_bytes(b"DIRC broken")
        index.with_name("index.lock").write_bytes(b"")
    before = ground.files()
    checkpoint = await ground.take("second")
    ground.work()
    assert (await ground.undo(await ground.close(checkpoint))).is_done
    assert ground.files() == before


async def test_drop_and_prune_forget(ground: Any) -> None:
    kept, gone = await ground.take("kept"), await ground.take("gone")
    assert await checkpoints.prune(ground.store, {"kept"}, environ=ground.environ) == ["gone"]
    refs = ground.git("for-each-ref", "--format=%(refname)", "refs/leadrope").split()
    assert refs == ["refs/leadrope/kept/before"]
    assert not gone.folder.exists()
    await checkpoints.drop(await ground.close(kept), environ=ground.environ)
    await checkpoints.drop(kept, environ=ground.environ)
    assert ground.git("for-each-ref", "refs/leadrope") == ""


async def test_a_repository_that_is_gone_is_an_error_with_a_name(ground: Any) -> None:
    checkpoint = await ground.close(await ground.take())
    shutil.rmtree(ground.ws / ".git")
    with pytest.raises(errors.GitFailed, match="is gone"):
        await ground.undo(checkpoint)
    await checkpoints.drop(checkpoint, environ=ground.environ)
