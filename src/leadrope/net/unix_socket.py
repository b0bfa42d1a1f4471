"""Unix sockets whose path may exceed the kernel's limit (107 bytes)."""

from __future__ import annotations

import os
import socket
from pathlib import Path

LONGEST = 107


def bound(path: Path) -> socket.socket:
    """Bind a stream socket to `path`, which must not exist, for `asyncio` to listen on; only its owner can connect."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        if len(os.fsencode(path)) <= LONGEST:
            made.bind(str(path))
        else:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                made.bind(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
        path.chmod(0o600)
    except BaseException:
        made.close()
        raise
    return made
