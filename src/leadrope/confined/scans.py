"""Lists names in folders, for searches: opens nothing but folders, and follows no links.

A search costs a microsecond per name, so it calls no stat and guarantees nothing: what it finds may be something else a
moment later. Open results through `Folder`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from leadrope.confined import handles


class ScannedName(NamedTuple):
    path: str
    """The folder's path as given, with the name."""
    name: str
    is_folder: bool
    is_link: bool


def names(folder: str | os.PathLike[str], *, most: int | None = None, follows: bool = False) -> list[ScannedName]:
    """Lists at most `most` entries of a folder; NotADirectoryError for anything else.

    A link to a folder is refused too, unless `follows` is set because the user has named it.
    """
    start = os.fspath(folder).rstrip("/")
    handle = os.open(folder, handles.FOLDER & ~(getattr(os, "O_NOFOLLOW", 0) if follows else 0))
    found: list[ScannedName] = []
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                if len(found) == most:
                    break
                found.append(
                    ScannedName(
                        f"{start}/{entry.name}", entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()
                    )
                )
    finally:
        os.close(handle)
    return found


def below(folder: str | os.PathLike[str]) -> Iterator[ScannedName]:
    """Yields everything below a folder, nearest first; skips what cannot be listed or has too long a path."""
    todo = deque([os.fspath(folder)])
    while todo:
        try:
            found = names(todo.popleft())
        except OSError:
            continue
        yield from found
        todo.extend(entry.path for entry in found if entry.is_folder)


def is_text(name: str) -> bool:
    """Whether a name is valid UTF-8; JSON cannot hold others."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
