"""`leadrope` as a user starts it: a process of its own, with the real agent and a scripted model."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from background_processes import Background
from leadrope.rehearsal import ModelServer
from small_disk import SmallDisk

TOKEN = "sk-ant-oat01-rehearsal-0000000000"


class Ended:
    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode()
        self.err = err.decode()


class Terminal:
    """A process on a terminal of its own; `reads` waits for what it shows, `types` is the keyboard."""

    def __init__(self, process: asyncio.subprocess.Process, fd: int) -> None:
        self._process = process
        self._fd = fd
        self._read = 0
        self.seen = ""

    async def reads(self, *texts: str) -> None:
        """Each of them, in this order, after what was read before."""
        for text in texts:
            async with asyncio.timeout(60):
                while text not in self.seen[self._read :]:
                    if not await self._more():
                        raise AssertionError(f"the program ended before it said {text!r}:\n{self.seen}")
            self._read = self.seen.index(text, self._read) + len(text)

    async def asks(self, text: str, *answers: str) -> None:
        self.types(text)
        await self.reads(*answers)

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def ends(self) -> int:
        async with asyncio.timeout(60):
            while await self._more():
                pass
            return await self._process.wait()

    async def _more(self) -> bool:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fd, ready.set_result, None)
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux says EIO when the last process has closed its end
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


class Desk:
    """A user's machine: home, project folder, environment."""

    def __init__(self, claude: str, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        self.marker = self.project / "marker"
        self.touch = {"name": "Bash", "input": {"command": f"touch {self.marker}", "description": "make a marker"}}
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LEADROPE_HOME": str(self.home / "leadrope"),
            "TMPDIR": str(self.tmp),
            "LANG": "C.UTF-8",
            "LEADROPE_CLAUDE_BIN": claude,
            "CLAUDE_CODE_OAUTH_TOKEN": TOKEN,
        }

    async def leadrope(self, *args: str, stdin: bytes | None = None, **environ: str) -> Ended:
        """Without a terminal: a session of its own has none, whatever the tests themselves run in."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadrope.cli.main", *args),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ | environ,
            cwd=self.project,
            start_new_session=True,
        )
        async with asyncio.timeout(90):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Ended(process.returncode, out, err)

    @asynccontextmanager
    async def at_terminal(self, *args: str, stdin: Path | None = None, **environ: str) -> AsyncIterator[Terminal]:
        async with self.shell(sys.executable, "-m", "leadrope.cli.main", *args, stdin=stdin, **environ) as terminal:
            yield terminal

    @asynccontextmanager
    async def shell(self, *argv: str, stdin: Path | None = None, **environ: str) -> AsyncIterator[Terminal]:
        """Any program on a terminal of its own."""
        master, slave = pty.openpty()
        if "COLUMNS" in environ:
            termios.tcsetwinsize(slave, (45, int(environ["COLUMNS"])))
        given = os.open(stdin, os.O_RDONLY) if stdin else os.dup(slave)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=given,
                stdout=slave,
                stderr=slave,
                env=self.environ | {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "120"} | environ,
                cwd=self.project,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
            )
        finally:
            os.close(given)
            os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            if process.returncode is None:
                # A shell at its prompt ignores SIGTERM.
                process.send_signal(signal.SIGHUP if argv[0] != sys.executable else signal.SIGTERM)
                await process.wait()
            os.close(master)

    @asynccontextmanager
    async def playing(self, turns: Sequence[Any], *args: str, strict: bool = True) -> AsyncIterator[Terminal]:
        """`leadrope ARGS` on a terminal, with an agent whose model plays the turns."""
        async with (
            ModelServer(list(turns), strict=strict) as model,
            self.at_terminal(*args, "--base-url", model.url) as terminal,
        ):
            yield terminal


@pytest.fixture
def desk(claude: str, tmp_path: Path) -> Desk:
    return Desk(claude, tmp_path)


Playing = Callable[..., AbstractAsyncContextManager[ModelServer]]


@pytest.fixture
def playing() -> Playing:
    @asynccontextmanager
    async def play(*turns: Any, strict: bool = True) -> AsyncIterator[ModelServer]:
        async with ModelServer(list(turns), strict=strict) as model:
            yield model

    return play


@pytest.fixture
def disk(desk: Desk) -> Iterator[SmallDisk]:
    found = SmallDisk(desk, 40 * 1024)
    try:
        if not found.is_mounted:
            pytest.skip("a disk of its own cannot be mounted here: that takes root and mount namespaces")
        yield found
    finally:
        found.close()


@pytest.fixture
async def background(desk: Desk) -> AsyncIterator[Background]:
    """A desk whose login is in leadrope's own .env, and whose background process ends soon after its work."""
    config = desk.home / ".config/leadrope"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[service]\nidle_s = 1\n")
    home = Path(desk.environ["LEADROPE_HOME"])
    home.mkdir(mode=0o700)
    name = "CLAUDE_CODE_OAUTH_TOKEN"
    (home / ".env").write_text(f"{name}={desk.environ.pop(name)}\n")
    found = Background(desk)
    yield found
    await found.until(lambda: not found.all())
