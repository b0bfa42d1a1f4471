"""The database file itself, for the few tests that must hold it, damage it, or look at every byte of it.

What the store or the terminal can tell is asked of them: another database may stand behind both.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """What is changed is kept at the end."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        yield db


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Nobody else can write meanwhile."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("begin immediate")
        yield
        db.execute("rollback")


def check_sound(path: Path) -> None:
    """Neither the file nor the references between its rows are damaged."""
    with opened(path) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert db.execute("pragma foreign_key_check").fetchall() == []
