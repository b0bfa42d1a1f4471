"""Whether a path lies inside a workspace, with links resolved. Knows nothing of tools or modes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

Resolve = Callable[[str], str]


def is_inside(path: str, roots: Iterable[str], *, cwd: str, resolve: Resolve = os.path.realpath) -> bool:
    """True if `path`, as seen from `cwd` and with every link followed, is one of `roots` or below one.

    A path that cannot be understood (empty, a NUL byte, a `~` that only a shell would expand) is outside.
    """
    if not path or "\0" in path or path.startswith("~"):
        return False
    real = resolve(path if os.path.isabs(path) else os.path.join(cwd, path))
    return any(_below(real, resolve(root)) for root in roots)


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
