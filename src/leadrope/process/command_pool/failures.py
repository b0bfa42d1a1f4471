"""Why a command in a pool failed, as messages for people."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from leadrope import errors


class CommandLost(errors.LeadropeError):
    """The process that ran the command was killed; whether the command completed is unknown."""

    kind = "command_lost"


class PoolGone(CommandLost):
    """The pool was lost before the command was sent to it: another one can run it."""


class NotStarted(errors.LeadropeError):
    """The command could not be started; `what` is `cwd`, `program` or `worker`."""

    kind = "not_started"

    def __init__(self, message: str, *, what: str, number: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.what = what
        self.number = number


def pool_lost() -> CommandLost:
    return CommandLost(
        "the process that runs commands ended while this one ran, and everything in it was ended too",
        hint="A command may have killed it (kill -9 -1, pkill python), or the machine has run out of memory.",
    )


def worker_lost(code: int) -> CommandLost:
    return CommandLost(
        f"the process that held this command was ended (exit code {code}), and the command with it",
        hint="A command may have killed its own parent (kill $PPID, pkill python).",
    )


def not_started(what: str, number: int) -> NotStarted:
    reason = os.strerror(number)
    told = {
        "cwd": (f"its working directory cannot be entered: {reason}", "Make the folder, or name another."),
        "program": (f"it cannot be started: {_program_trouble(number)}", _program_hint(number)),
        "worker": (
            f"the system has no process or descriptor left for it: {reason}",
            "Run fewer commands at once, or look at the limits on processes and open files.",
        ),
    }
    message, hint = told.get(what, (f"it was not started: {reason}", ""))
    return NotStarted(message, what=what, number=number, hint=hint or None)


def _program_trouble(number: int) -> str:
    known: Mapping[int, str] = {
        errno.ENOENT: "there is no such program, or the interpreter in its first line does not exist",
        errno.EACCES: "it may not be executed, or the policy has masked it",
        errno.ENOEXEC: "it is not a program that this system can run",
        errno.E2BIG: "its arguments are too long for the system (128 KiB each)",
    }
    return known.get(number, os.strerror(number))


def _program_hint(number: int) -> str:
    known: Mapping[int, str] = {
        errno.ENOENT: "Install it, or correct its name; in the sandbox only the system and the PATH are visible.",
        errno.EACCES: "Try chmod +x, and look at blocked_commands of the policy.",
        errno.ENOEXEC: "A script needs a first line such as #!/bin/sh.",
        errno.E2BIG: "Pass long texts on stdin.",
    }
    return known.get(number, "Check the limits on processes, files and memory.")
