"""The suite of CI: what is run a second time, and what then counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rerun_failed

STEADY = "def test_steady():\n    pass\n"
WRONG = "def test_wrong():\n    assert False\n"
UNSTABLE = """from pathlib import Path

def test_unstable():
    seen = Path(__file__).with_name("seen")
    was_seen = seen.exists()
    seen.touch()
    assert was_seen
"""


def run(folder: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text("\n\n".join(tests))
    command = [sys.executable, rerun_failed.__file__, "-q", "test_it.py"]
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take seconds to import
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("tests", "code", "is_rerun", "is_unstable"),
    [
        ([STEADY], 0, False, False),
        ([STEADY, UNSTABLE], 0, True, True),
        ([STEADY, WRONG], 1, True, False),
        ([UNSTABLE, WRONG], 1, True, False),
        ([f"def test_{n}():\n    assert False" for n in range(rerun_failed.MOST + 1)], 1, False, False),
        (["def broken(:"], 2, False, False),
        ([], 5, False, False),
    ],
    ids=["green", "unstable", "wrong", "both", "too many", "not collected", "no test"],
)
def test_what_a_second_run_changes(
    tmp_path: Path, tests: list[str], code: int, is_rerun: bool, is_unstable: bool
) -> None:
    done = run(tmp_path, *tests)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("now run alone: test_it.py::" in done.stdout) is is_rerun
    assert ("UNSTABLE" in done.stdout) is is_unstable


def test_only_what_failed_is_run_again(tmp_path: Path) -> None:
    done = run(tmp_path, STEADY, UNSTABLE)
    assert "1 failed, 1 passed" in done.stdout
    assert done.stdout.rstrip().endswith("test_it.py::test_unstable")
    assert "= 1 passed in " in done.stdout
