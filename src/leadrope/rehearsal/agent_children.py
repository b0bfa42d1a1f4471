"""Processes that a scripted agent leaves behind: a child, one in its own session, forked twice, in the background."""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn

from .agent_bytes import write_all


def spawn(value: dict[str, Any]) -> None:
    """Starts a process that may outlive us; returns when it runs and its pid is in the file."""
    kind = value.get("kind", "child")
    reading, writing = os.pipe()  # closed by exec, which is what the read below waits for
    pid = os.fork()
    if pid == 0:
        try:
            if kind in ("setsid", "double_fork"):
                os.setsid()
            if kind == "background":
                os.setpgid(0, 0)
            if kind == "double_fork" and os.fork():
                os._exit(0)
            _become(value)
        finally:
            os._exit(127)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    if kind == "double_fork":
        os.waitpid(pid, 0)


def _become(value: dict[str, Any]) -> NoReturn:
    if "pid_file" in value:
        record = os.open(value["pid_file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        write_all(record, f"{os.getpid()}\n".encode())
        os.close(record)
    if not value.get("keep_pipes"):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if value.get("ignore_sigterm") else signal.SIG_DFL)
    argv = value.get("argv", ["sleep", "3600"])
    environment = {} if value.get("clear_env") else dict(os.environ)
    os.execvpe(argv[0], argv, environment)  # noqa: S606  # a list, no shell
