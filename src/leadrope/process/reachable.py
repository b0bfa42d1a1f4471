"""Whether there is something at a path, for this user: what may not be looked at is as good as missing.

`Path.exists` and its siblings raise where a folder on the way may not be entered. PATH often names such folders, after
`su` without `-` for one, and no run could start then.
"""

from __future__ import annotations

from pathlib import Path


def exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def is_file(path: str | Path) -> bool:
    try:
        return Path(path).is_file()
    except OSError:
        return False


def is_dir(path: str | Path) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:
        return False


def is_symlink(path: str | Path) -> bool:
    try:
        return Path(path).is_symlink()
    except OSError:
        return False
