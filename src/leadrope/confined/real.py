"""Where a path leads, while somebody may be exchanging links in it."""

from __future__ import annotations

import errno
import os

from leadrope import errors

_TRIES = 20


def real_path(path: str | os.PathLike[str]) -> str:
    """`os.path.realpath`; UnsafeFile where the path never stays the same for as long as that takes.

    Python looks whether a name is a link and then reads the link: if it is a file by then (EINVAL), or gone, it fails.
    """
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                raise
    raise errors.UnsafeFile(os.fspath(path), "is changed all the time", hint="Look for what changes it, and end that.")
