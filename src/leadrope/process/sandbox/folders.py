"""Removes a folder that a box had for its own, whatever was left in there; knows no box."""

from __future__ import annotations

import contextlib
from pathlib import Path

from leadrope.confined import Folder


def remove(folder: str | Path) -> None:
    """Also what nobody may look into: Go makes its modules read-only, a kernel its folder of work closed to all."""
    path = Path(folder)
    # What cannot be deleted stays; a run must not end otherwise because of it.
    with contextlib.suppress(OSError), Folder.open(path.parent) as parent:
        parent.remove(path.name)
