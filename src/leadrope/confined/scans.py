"""Names in folders, for searches: nothing that is found is opened but folders, and no link is followed.

A search costs a microsecond for each name, so it stats nothing and gives no promise: what is found may be something
else a moment later. Whoever opens it does that through `Folder`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from leadrope.confined import handles


class ScannedName(NamedTuple):
    path: str
    """The folder's, as it was given, with the name."""
    name: str
    is_folder: bool
    is_link: bool


def names(folder: str | os.PathLike[str], *, most: int | None = None, follows: bool = False) -> list[ScannedName]:
    """What is in a folder, `most` of it; NotADirectoryError if it is anything else.

    So is a link to a folder, unless `follows` says that its name was given by somebody who means where it leads.
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
    """Everything below a folder, the nearest first; what cannot be listed, or has too long a path, is passed over."""
    todo = deque([os.fspath(folder)])
    while todo:
        try:
            found = names(todo.popleft())
        except OSError:
            continue
        yield from found
        todo.extend(entry.path for entry in found if entry.is_folder)


def is_text(name: str) -> bool:
    """Whether a name is UTF-8; else no JSON can hold it."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
