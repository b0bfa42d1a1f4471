"""The background processes of one LEADROPE_HOME, as any other program sees them: found in /proc, ended by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from process_tree import children


class Background:
    """The processes of one LEADROPE_HOME, as any other program sees them."""

    def __init__(self, desk: Any) -> None:
        self._mark = f"LEADROPE_HOME={desk.environ['LEADROPE_HOME']}".encode()
        self._folder = str(desk.home.parent).encode()

    def owners(self) -> list[int]:
        return [
            pid
            for pid, argv, environ in self._processes()
            if b"leadrope.runs.detached" in argv and self._mark in environ.split(b"\0")
        ]

    def all(self) -> dict[int, str]:
        """Everything that was started in this test: owners, guardians, agents, commands."""
        return {
            pid: argv.replace(b"\0", b" ").decode(errors="replace")
            for pid, argv, environ in self._processes()
            if self._folder in argv or self._folder in environ
        }

    def _processes(self) -> list[tuple[int, bytes, bytes]]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            if int(entry.name) == os.getpid():
                continue
            try:
                argv, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if argv:  # a zombie has none
                found.append((int(entry.name), argv, environ))
        return found

    def owner(self) -> int:
        (pid,) = self.owners()
        return pid

    async def end(self, how: str) -> None:
        pid = self.owner()
        if how == "reboot":
            everything = self.all()
            for each in everything:
                self._signal(each, signal.SIGSTOP)
            for each in everything:
                self._signal(each, signal.SIGKILL)
        else:
            self._signal(pid, signal.SIGKILL if how == "kill" else signal.SIGTERM)
        await self.until(lambda: pid not in self.owners())

    async def kill(self, pid: int, *, with_tree: bool) -> None:
        """kill -9 of one process, alone or with all that it has started; returns when all of that is gone."""
        tree = [pid]
        if with_tree:
            self._signal(pid, signal.SIGSTOP)  # what is stopped starts nothing more while it is counted
        for one in tree:
            for child in children(one):
                if with_tree:
                    self._signal(child, signal.SIGSTOP)
                tree.append(child)
        for one in tree if with_tree else [pid]:
            self._signal(one, signal.SIGKILL)
        await self.until(lambda: not set(tree) & set(self.all()))

    def _signal(self, pid: int, number: int) -> None:
        if pid in self.all():
            os.kill(pid, number)

    async def until(self, holds: Callable[[], bool], within_s: float = 60) -> None:
        give_up = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < give_up, f"it never came; there are {self.all()}"
            await asyncio.sleep(0.02)
