"""Removes a private folder of a sandbox with whatever was left in it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from leadrope.confined import Folder


def remove(folder: str | Path) -> None:
    """Removes the folder, including parts that are not accessible.

    Go makes its modules read-only, and the kernel closes the work folder of an overlay to everybody.
    """
    path = Path(folder)
    # What cannot be deleted stays; it must not change how the run ends.
    with contextlib.suppress(OSError), Folder.open(path.parent) as parent:
        parent.remove(path.name)
