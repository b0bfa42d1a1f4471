"""Entries of a folder, their kinds, and the messages for what is refused."""

from __future__ import annotations

import os
import stat
from typing import Literal, NamedTuple

Kind = Literal["file", "folder", "link", "pipe", "socket", "device"]

_KINDS: tuple[tuple[int, Kind], ...] = (
    (stat.S_IFREG, "file"),
    (stat.S_IFDIR, "folder"),
    (stat.S_IFLNK, "link"),
    (stat.S_IFIFO, "pipe"),
    (stat.S_IFSOCK, "socket"),
)


class FolderEntry(NamedTuple):
    path: str
    """Relative to the folder that was listed."""
    kind: Kind
    stat: os.stat_result
    """Of the entry itself; links are not followed."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Dropped(NamedTuple):
    """Something that was not copied."""

    path: str
    reason: str


def kind_of(found: os.stat_result) -> Kind:
    return next((kind for mode, kind in _KINDS if stat.S_IFMT(found.st_mode) == mode), "device")


def objection(found: os.stat_result, *, hard_links: bool) -> str | None:
    """Returns why this must not be opened as a file; None for a regular file."""
    kind = kind_of(found)
    if kind != "file":
        return f"is a {kind}, not a regular file"
    if found.st_nlink > 1 and not hard_links:
        return "has a second name (a hard link), so it may be somebody else's file"
    return None
