"""The terminal of this process, opened to ask on it. Knows no question, so that a run without one loads none."""

from __future__ import annotations

import os
import sys


class NoTerminal(OSError):
    """There is no terminal, or this process does not stand in its foreground."""


def open_terminal() -> int:
    """The terminal of this process, opened anew; NoTerminal when there is none, or another program has it."""
    if sys.platform == "win32":
        raise NoTerminal("asking at the terminal works on POSIX systems only")
    try:
        # By its own name where possible: some systems cannot wait for input on /dev/tty.
        name = os.ttyname(0) if sys.stdin is not None and os.isatty(0) else "/dev/tty"
        fd = os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise NoTerminal(f"there is no terminal: {error.strerror}") from None
    try:
        is_ours = os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        is_ours = True  # a terminal without job control
    if not is_ours:
        # Reading from the background would stop the process.
        os.close(fd)
        raise NoTerminal("this process runs in the background of its terminal")
    return fd
