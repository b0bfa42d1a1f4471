"""Whether something exists at a path for this user; what cannot be inspected counts as missing.

`Path.exists` and its siblings raise if a folder on the way cannot be entered. PATH often names such folders, for
instance after `su` without `-`, and then no run could start.
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
