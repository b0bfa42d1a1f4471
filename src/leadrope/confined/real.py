"""Resolves the real path of a file while somebody may be exchanging links in it."""

from __future__ import annotations

import errno
import os

from leadrope import errors

_TRIES = 20


def real_path(path: str | os.PathLike[str]) -> str:
    """Like `os.path.realpath`, but raises UnsafeFile for a path that keeps changing.

    Python checks whether a name is a link and then reads the link; it fails if that has become a file (EINVAL) or is
    gone.
    """
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                raise
    raise errors.UnsafeFile(os.fspath(path), "is changed all the time", hint="Look for what changes it, and end that.")
