"""The way back after a run in a folder without git: copies of what was announced."""

from __future__ import annotations

import os
from typing import Any

import pytest

from leadrope import errors
from leadrope.runs.workspace import checkpoints, file_backups

# -- without git -------------------------------------------------------------------------------------------------------


async def test_outside_of_a_repository_announced_files_come_back(bare_ground: Any) -> None:
    ground, ws = bare_ground, bare_ground.ws
    for name in ground.odd_names:
        (ws / name).write_text(f"in {name}")
    (ws / "secret").write_text("private\n")
    (ws / "secret").chmod(0o600)
    (ws / "target").write_text("target\n")
    (ws / "link").symlink_to("target")
    (ws / os.fsdecode(b"no-utf8-\xff")).write_text("bytes\n")
    before = ground.files()
    checkpoint = await ground.take()
    assert checkpoint.kind == "copies"
    assert "is not in a git repository" in checkpoint.notes[0]
    names = [*ground.odd_names, "secret", "link", "made/new", os.fsdecode(b"no-utf8-\xff")]
    assert all(checkpoints.remember(checkpoint, name) for name in names)
    for name in ground.odd_names:
        (ws / name).write_text("changed")
        assert checkpoints.remember(checkpoint, ws / name), "only the first time counts"
    (ws / "secret").unlink()
    (ws / "link").write_text("through the link\n")
    (ws / "link").unlink()
    (ws / os.fsdecode(b"no-utf8-\xff")).unlink()
    (ws / "made").mkdir()
    (ws / "made" / "new").write_text("new\n")
    checkpoint = await ground.close(checkpoint)
    plan = await ground.describe(checkpoint)
    assert plan.removed == ("made/new",)
    assert {"secret", "link", "target", r"line\nend"} <= set(plan.restored)
    done = await ground.undo(checkpoint)
    assert done.is_done
    assert ground.files() == before
    assert not (ws / "made").exists()
    assert (await ground.describe(checkpoint)).is_empty


async def test_copies_refuse_later_changes_links_and_what_is_too_large(
    bare_ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, ws = bare_ground, bare_ground.ws
    outside = ground.folder / "outside"
    outside.mkdir()
    (outside / "file").write_text("outside\n")
    (ws / "out").symlink_to(outside)
    (ws / "file-link").symlink_to(outside / "file")
    (ws / "a").write_text("a\n")
    (ws / "dir").mkdir()
    (ws / "dir" / "b").write_text("b\n")
    monkeypatch.setattr(file_backups, "MOST_FILE", 100)
    (ws / "large").write_bytes(bytes(1000))
    checkpoint = await ground.take()
    for name in ("out/file", "file-link", "../outside/file", "/etc/hostname", "large", "..", "."):
        assert not checkpoints.remember(checkpoint, name), name
    assert checkpoints.remember(checkpoint, "a")
    assert checkpoints.remember(checkpoint, "dir/b")
    (ws / "a").write_text("by the run\n")
    (ws / "dir" / "b").unlink()
    (ws / "large").write_bytes(b"small")
    checkpoint = await ground.close(checkpoint)
    (ws / "a").write_text("by the user\n")
    (ws / "dir").rmdir()
    (ws / "dir").symlink_to(outside)
    plan = await ground.undo(checkpoint)
    assert (plan.is_done, plan.changed_since) == (False, ("a",))
    assert set(plan.blocked) == {"dir/b", "large"}
    assert (await ground.undo(checkpoint, force=True)).is_done
    assert (ws / "a").read_text() == "a\n"
    assert (ws / "large").read_bytes() == b"small"
    assert [entry.name for entry in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "outside\n"


async def test_a_list_that_a_crash_has_cut_still_serves(bare_ground: Any) -> None:
    (bare_ground.ws / "a").write_text("a\n")
    checkpoint = await bare_ground.take()
    checkpoints.remember(checkpoint, "a")
    with (checkpoint.copies.folder / file_backups.LIST).open("ab") as file:
        file.write(b'{"path":"b","sta')
    (bare_ground.ws / "a").write_text("changed\n")
    assert (await bare_ground.undo(await bare_ground.close(checkpoint))).restored == ("a",)


async def test_a_folder_that_does_not_exist_is_refused(bare_ground: Any) -> None:
    with pytest.raises(errors.BadDirectory, match="does not exist"):
        await bare_ground.take(cwd=bare_ground.folder / "nowhere")
