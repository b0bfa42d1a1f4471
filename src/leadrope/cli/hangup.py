"""When the terminal of a command is closed: what is written to it may no longer fail, so that the command can end."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys


def let_go() -> bool:
    """Put /dev/null in the place of each standard stream whose terminal was closed; True if there was one.

    A write to a closed terminal fails, also the one that would say that the command is about to stop.
    """
    gone = [number for number in (0, 1, 2) if _is_closed_terminal(number)]
    if gone:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in gone:
            os.dup2(nothing, number)
        os.close(nothing)
    return bool(gone)


def signals() -> tuple[signal.Signals, ...]:
    """The signals that end a command. One that was started with nohup does not hear of a closed terminal."""
    if sys.platform == "win32":
        return (signal.SIGTERM,)
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGHUP)


def _is_closed_terminal(number: int) -> bool:
    if sys.platform == "win32":
        return False
    look = select.poll()
    look.register(number, 0)
    # A pipe without a reader says POLLERR; one without a writer says POLLHUP too, and is not a character device.
    hung_up = any(events & select.POLLHUP for _, events in look.poll(0))
    return hung_up and _is_character_device(number)


def _is_character_device(number: int) -> bool:
    try:
        return stat.S_ISCHR(os.fstat(number).st_mode)
    except OSError:
        return False
