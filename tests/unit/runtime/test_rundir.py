"""A run's folder goes with the run; one that a killed supervisor left goes with the next run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

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
