"""The newest Python is found wherever it lies, and one that cannot be used is passed over."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from newest_python import candidates, newest

ROOT = Path(__file__).parents[3]


def python(path: Path, version: str, *, level: str = "final", kind: str = "CPython", free: str = "false") -> None:
    """A program that answers as this Python would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = version.replace(".", ",")
    path.write_text(f'#!/bin/sh\necho \'[[{numbers}], "{level}", "{kind}", {free}]\'\n')
    path.chmod(stat.S_IRWXU)


@pytest.mark.parametrize(
    "place",
    [
        "bin/python3",
        "bin/python3.14",
        "home/.pyenv/versions/3.14.2/bin/python3",
        "home/.local/share/uv/python/cpython-3.14.2-linux-x86_64-gnu/bin/python3",
        "home/.asdf/installs/python/3.14.2/bin/python3",
        "home/.local/share/mise/installs/python/3.14.2/bin/python3",
        "home/miniconda3/envs/new/bin/python3",
        "home/miniforge3/bin/python3",
        "usr/bin/python3.14",
    ],
)
def test_each_usual_place_is_looked_at(tmp_path: Path, place: str) -> None:
    python(tmp_path / place, "3.14.2")
    python(tmp_path / "home/.pyenv/versions/3.12.1/bin/python3", "3.12.1")
    environ = {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}
    assert newest(environ, (str(tmp_path / "usr/bin"),)) == ((3, 14, 2), str(tmp_path / place))


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        ("PYENV_ROOT", "versions"),
        ("UV_PYTHON_INSTALL_DIR", ""),
        ("ASDF_DATA_DIR", "installs/python"),
        ("MISE_DATA_DIR", "installs/python"),
    ],
)
def test_a_manager_that_was_moved_is_followed(tmp_path: Path, variable: str, folder: str) -> None:
    python(tmp_path / "moved" / folder / "3.13.0/bin/python3", "3.13.0")
    found = newest({"HOME": str(tmp_path), "PATH": "", variable: str(tmp_path / "moved")}, ())
    assert found is not None
    assert found.version == (3, 13, 0)


def test_what_cannot_be_used_is_passed_over(tmp_path: Path) -> None:
    versions = tmp_path / ".pyenv/versions"
    python(versions / "alpha/bin/python3", "3.16.0", level="alpha")
    python(versions / "pypy/bin/python3", "3.16.0", kind="PyPy")
    python(versions / "free-threaded/bin/python3", "3.16.0", free="true")
    python(versions / "too-old/bin/python3", "3.11.9")
    broken = versions / "broken/bin/python3"
    python(broken, "3.16.0")
    broken.write_text("#!/bin/sh\nexit 127\n")
    (versions / "dangling/bin").mkdir(parents=True)
    (versions / "dangling/bin/python3").symlink_to("/nonexistent")
    environ = {"HOME": str(tmp_path), "PATH": f".:{tmp_path}/missing"}
    assert newest(environ, ()) is None
    python(versions / "good/bin/python3", "3.12.0")
    assert newest(environ, ()) == ((3, 12, 0), str(versions / "good/bin/python3"))


def test_a_program_with_two_names_is_asked_once(tmp_path: Path) -> None:
    python(tmp_path / "bin/python3.13", "3.13.0")
    (tmp_path / "bin/python3").symlink_to("python3.13")
    assert len(list(candidates({"PATH": str(tmp_path / "bin")}, (str(tmp_path / "bin"),)))) == 1


def test_the_script_prints_path_and_version(tmp_path: Path) -> None:
    python(tmp_path / "bin/python3.39", "3.39.0")
    done = subprocess.run(
        [sys.executable, "setup/newest_python.py"],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}/bin:{os.defpath}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"{tmp_path}/bin/python3.39\t3.39.0\n"
