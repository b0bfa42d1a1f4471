"""`make run` says what it downloads before it downloads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_size_is_told_before_the_download(tmp_path: Path) -> None:
    """pip is a script here that only leaves its arguments, and fails as it would without a network."""
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *pip*) echo "PIP $*"; exit 1 ;; esac\nexec {sys.executable} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "setup/venv.sh", "requirements.lock"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "VENV": str(tmp_path / "venv"),
            "SYSTEM_PACKAGES": "no",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    told, _, rest = done.stdout.partition("PIP ")
    assert "downloads about 170 MB" in told
    assert "--require-hashes -r requirements.lock" in rest
