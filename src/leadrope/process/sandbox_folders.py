"""Removes a folder that a box had for its own, whatever was left in there; knows no box."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def remove(folder: str | Path) -> None:
    """Also what nobody may look into: Go makes its modules read-only, a kernel its folder of work closed to all."""
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        for parent, names, _ in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):  # then it stays, and what lies in it
                    path = Path(parent, name)
                    if not path.is_symlink() and path.stat().st_mode & 0o700 != 0o700:
                        path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
