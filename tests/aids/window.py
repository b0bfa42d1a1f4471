"""A program on a terminal that a test can close, as a person closes a window."""

from __future__ import annotations

import asyncio
import os
import pty
from pathlib import Path

END_S = 30


class Window:
    """A program on a terminal that can be closed."""

    def __init__(self, argv: list[str], *, cwd: Path, env: dict[str, str]) -> None:
        self.shown = b""
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)  # never comes back

        # Somebody has to read, or the program waits for room on its screen. No thread: one that is in a read would keep
        # the terminal open.
        asyncio.get_running_loop().add_reader(self._master, self._drain)

    def _drain(self) -> None:
        try:
            self.shown += os.read(self._master, 65536)
        except OSError:  # the program has ended
            asyncio.get_running_loop().remove_reader(self._master)

    async def shows(self, text: str) -> None:
        async with asyncio.timeout(60):
            while text.encode() not in self.shown:  # noqa: ASYNC110  # the reader above fills it
                await asyncio.sleep(0.02)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    async def ended(self) -> None:
        async with asyncio.timeout(END_S):
            await asyncio.to_thread(os.waitpid, self.pid, 0)
