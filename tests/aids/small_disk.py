"""LEADROPE_HOME on a small disk of its own, which a test can fill up or make read-only."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

END_S = 30


class SmallDisk:
    """LEADROPE_HOME on a small disk of its own, which only the commands that are started through here see."""

    def __init__(self, desk: Any, size_kib: int) -> None:
        self._desk = desk
        self.home = Path(desk.environ["LEADROPE_HOME"])
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        script = 'mount -t tmpfs -o size="$2"k,mode=700 tmpfs "$1" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", script, "sh", str(self.home), str(size_kib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self.is_mounted = self._holder.stdout.readline() == b"mounted\n"

    @property
    def inside(self) -> Path:
        """The disk, as this process sees it."""
        return Path(f"/proc/{self._holder.pid}/root{self.home}")

    def fill(self) -> None:
        handle = os.open(self.inside / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    os.write(handle, b"x" * size)
            except OSError:
                pass
        os.close(handle)

    def empty(self) -> None:
        (self.inside / "filler").unlink()

    def make_read_only(self) -> None:
        enter = ("nsenter", "-t", str(self._holder.pid), "-m")
        subprocess.run([*enter, "mount", "-o", "remount,ro", str(self.home)], check=True)

    def argv(self, *words: str) -> list[str]:
        enter = ("nsenter", "-t", str(self._holder.pid), "-m", f"--wd={self._desk.project}")
        return [*enter, sys.executable, "-m", "leadrope.cli.main", *words]

    async def leadrope(self, *words: str, **environ: str) -> tuple[int, str, str]:
        async with self.started(*words, **environ) as process:
            async with asyncio.timeout(END_S):
                out, err = await process.communicate()
            return process.returncode, out.decode(), err.decode()

    @asynccontextmanager
    async def started(self, *words: str, **environ: str) -> AsyncIterator[Any]:
        process = await asyncio.create_subprocess_exec(
            *self.argv(*words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._desk.environ | environ,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def close(self) -> None:
        self._holder.communicate(b"")
