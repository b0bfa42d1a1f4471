"""A run's folder goes with the run; one that a killed supervisor left goes with the next run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.providers import base
from leadrope.runtime import rundir


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def age(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_it_is_private_and_goes_with_the_run() -> None:
    made = rundir.RunDir()
    assert made.path.stat().st_mode & 0o777 == 0o700
    made.remove()
    assert not made.path.exists()


def test_a_living_runs_folder_stays_however_old() -> None:
    made = rundir.RunDir()
    age(made.path)
    assert rundir.sweep() == 0
    assert made.path.exists()
    made.remove()


def test_what_a_dead_supervisor_left_is_removed() -> None:
    code = "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
    code += (
        "from leadrope.runtime.rundir import RunDir; print(RunDir().path); sys.stdout.flush(); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tempfile.gettempdir()], capture_output=True, text=True, check=False
    )
    left = Path(done.stdout.strip())
    assert left.is_dir()
    assert rundir.sweep() == 0, "too young to be judged"
    age(left)
    assert rundir.sweep() == 1
    assert not left.exists()


def test_links_and_other_names_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    link = tmp_path / f"{rundir.PREFIX}link"
    link.symlink_to(target)
    os.utime(link, (0, 0), follow_symlinks=False)
    other = tmp_path / "leadrope-other"
    other.mkdir()
    age(other)
    assert rundir.sweep() == 0
    assert target.exists()
    assert other.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into everything; test_sandbox runs this as a user")
def test_what_nobody_may_look_into_is_removed_too() -> None:
    """Go makes the folders of its modules read-only; the kernel closes a layer's folder of work to all."""
    made = rundir.RunDir()
    (made.path / "modules" / "one").mkdir(parents=True)
    (made.path / "modules" / "one" / "file").touch()
    (made.path / "work" / "work").mkdir(parents=True)
    for folder, mode in (("modules/one", 0o555), ("modules", 0o555), ("work/work", 0)):
        (made.path / folder).chmod(mode)
    made.remove()
    assert not made.path.exists()


def test_each_start_has_a_fresh_folder_outside_of_what_the_agent_can_write() -> None:
    made = rundir.RunDir()
    first = made.new_launch()
    made.write([base.LaunchFile(path=str(first / "mcp.json"), content=b"one")])
    second = made.new_launch()
    made.write([base.LaunchFile(path=str(second / "mcp.json"), content=b"two")])
    assert not first.exists()
    assert first != second
    assert not second.is_relative_to(made.agent)
    assert (second / "mcp.json").read_bytes() == b"two"
    if os.geteuid() != 0:  # the agent of root may be another user; the folder above is closed to all others
        assert second.stat().st_mode & 0o777 == 0o700
        assert (second / "mcp.json").stat().st_mode & 0o777 == 0o600
    made.remove()
    assert not made.path.exists()


def test_a_launch_file_goes_nowhere_else(tmp_path: Path) -> None:
    made = rundir.RunDir()
    launch = made.new_launch()
    (launch / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        made.write([base.LaunchFile(path=str(launch / "link"), content=b"x")])
    for path in (made.agent / "mcp.json", tmp_path / "victim", launch / ".." / "x", launch / "sub" / "x"):
        with pytest.raises(errors.BadProvider, match="launch_dir"):
            made.write([base.LaunchFile(path=str(path), content=b"x")])
    assert not (tmp_path / "victim").exists()
    made.remove()


def test_folders_for_a_start_replace_what_an_agent_put_there(tmp_path: Path) -> None:
    made = rundir.RunDir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (made.agent / "tmp").symlink_to(outside)
    (made.agent / "other").symlink_to(outside)
    made.make([str(made.agent), str(made.agent / "tmp"), str(made.agent / "other" / "deeper"), str(tmp_path / "own")])
    assert not (made.agent / "tmp").is_symlink()
    assert (made.agent / "tmp").is_dir()
    assert (made.agent / "other" / "deeper").is_dir()
    assert (tmp_path / "own").is_dir()
    assert list(outside.iterdir()) == []
    made.remove()


def test_pipes_of_a_start_are_made_in_its_folder_and_reading_them_never_waits(tmp_path: Path) -> None:
    made = rundir.RunDir()
    launch = made.new_launch()
    (launch / "stderr-2").symlink_to(tmp_path / "victim")
    pipes = made.make_pipes({"docs": str(launch / "stderr-1"), "taken": str(launch / "stderr-2")})
    assert list(pipes) == ["docs"], "what is there already is not used"
    (handle,) = pipes.values()
    assert (launch / "stderr-1").is_fifo()
    with pytest.raises(BlockingIOError):
        os.read(handle, 1)
    with (launch / "stderr-1").open("wb") as writer:
        writer.write(b"words")
    assert os.read(handle, 10) == b"words"
    with pytest.raises(BlockingIOError):
        os.read(handle, 1)
    os.close(handle)
    with pytest.raises(errors.BadProvider, match="launch_dir"):
        made.make_pipes({"docs": str(tmp_path / "stderr-1")})
    assert list(tmp_path.iterdir()) == [made.path]
    made.remove()
