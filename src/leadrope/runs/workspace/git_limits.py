"""Limits where a git started by leadrope may write: only below given folders, whatever links say (Landlock).

git opens files of a repository by path, and an agent working there can swap a folder for a link at any moment. The
kernel checks the folders themselves, not their names. Without Landlock (before Linux 5.19) only the check for links
before each command remains.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leadrope.confined import Folder
from leadrope.process import guardian

_ADD_RULE = 445
_PATH_BENEATH = 1
_OLDEST = 2
"""Minimum Landlock version. The first one forbids every rename into another folder."""
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 14))
"""Write to files; create, delete, rename and link entries of any type."""
_NO_NEW_PRIVS = 38


_SCRIPT = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
if libc.prctl({_NO_NEW_PRIVS}, 1, 0, 0, 0) or libc.syscall({guardian.LANDLOCK_RESTRICT_SELF}, int(sys.argv[1]), 0):
    sys.exit("the kernel refuses its own rules")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Run in a process of its own: code between fork and exec is not safe in a program with threads."""


class Start(NamedTuple):
    words: tuple[str, ...] = ()
    """Words to prepend to the command."""
    handles: tuple[int, ...] = ()
    """File descriptors for the process to inherit."""


@contextlib.contextmanager
def only_below(folders: Sequence[str]) -> Iterator[Start]:
    """Yield how to start a program that may write only below these folders. It costs some 20 ms."""
    version = guardian.call_libc("syscall", guardian.LANDLOCK_CREATE_RULESET, 0, 0, 1) if _is_linux() else 0
    if version < _OLDEST or not folders:
        yield Start()
        return
    changes = _CHANGES | (_TRUNCATE if version > _OLDEST else 0)
    rules = guardian.call_libc("syscall", guardian.LANDLOCK_CREATE_RULESET, _bytes(changes, 8), 8, 0)
    try:
        # A filter of the user may need temporary files.
        for folder in (*folders, tempfile.gettempdir(), "/dev"):
            with contextlib.suppress(FileNotFoundError), Folder.open(folder) as opened:
                allowed = changes if folder != "/dev" else changes & (_WRITE_FILE | _TRUNCATE)
                rule = _bytes(allowed, 8) + _bytes(opened.fileno(), 4)
                if guardian.call_libc("syscall", _ADD_RULE, rules, _PATH_BENEATH, rule, 0) != 0:
                    raise OSError("the kernel refuses its own rules")
        yield Start((sys.executable, "-I", "-S", "-c", _SCRIPT, str(rules)), (rules,))
    finally:
        os.close(rules)


def _bytes(number: int, size: int) -> bytes:
    return number.to_bytes(size, sys.byteorder)


def _is_linux() -> bool:
    return sys.platform == "linux"
