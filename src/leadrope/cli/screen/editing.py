"""Changing a text at the terminal: one line in place, a longer text in $VISUAL or $EDITOR."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from leadrope import errors
from leadrope.cli.screen.screen import Screen
from leadrope.confined import Folder
from leadrope.core import home

MOST_BYTES = 16 * 1024 * 1024
_NAME = "edit"


class TerminalEditor:
    """Of the terminal behind a file descriptor that stays the caller's."""

    def __init__(self, terminal: int, screen: Screen, environ: Mapping[str, str]) -> None:
        self._fd = terminal
        self._screen = screen
        self._environ = dict(environ)
        self._command = _editor(environ)

    @property
    def has_program(self) -> bool:
        """The user has named an editor, and it is there."""
        return self._command is not None

    async def line(self, label: str, text: str, *, suffix: str = "") -> str | None:
        """The text as it is after Enter; None after Ctrl-C or Ctrl-D. Ctrl-X opens the editor, if there is one."""
        from leadrope.cli.screen.prompt import Prompt  # noqa: PLC0415  # POSIX alone has it

        with Prompt(self._fd) as prompt:
            try:
                found, is_done = await prompt.edit(label, text, can_leave=self.has_program)
            except (EOFError, KeyboardInterrupt):
                return None
        return found if is_done else await self.text(found, suffix=suffix)

    async def text(self, text: str, *, suffix: str = "") -> str | None:
        """What is in the editor's file when it ends; None if nothing was changed, or the editor has failed."""
        if self._command is None:
            return None
        # Beside the store: no sandbox shows an agent this folder.
        folder = tempfile.mkdtemp(prefix="edit-", dir=home.ensure(home.leadrope_home(self._environ)))
        name = _NAME + suffix
        try:
            with Folder.open(folder) as own:
                own.replace(name, text.encode())
                code = await self._run(str(Path(folder, name)))
                after = own.read_bytes(name, most=MOST_BYTES).decode(errors="replace")
        except (OSError, errors.UnsafeFile) as error:
            raise errors.RequestError(f"{self._command[0]} could not be used: {error}") from None
        finally:
            with contextlib.suppress(OSError), Folder.open(Path(folder).parent) as above:
                above.remove(Path(folder).name)
        if code != 0:
            raise errors.RequestError(f"{self._command[0]} ended with exit code {code}")
        # Editors end the last line.
        after = after if text.endswith("\n") else after.removesuffix("\n")
        return after if after != text else None

    async def _run(self, path: str) -> int:
        assert self._command is not None  # noqa: S101  # the caller has looked
        with self._lent():
            process = await asyncio.create_subprocess_exec(
                *self._command, path, stdin=self._fd, stdout=self._fd, stderr=self._fd, env=self._environ
            )
            try:
                return await process.wait()
            except asyncio.CancelledError:
                # The question is no longer asked: somebody else has answered it, or its time is over.
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
                raise

    @contextlib.contextmanager
    def _lent(self) -> Iterator[None]:
        """The editor has the terminal: its Ctrl-C is not ours, and how it leaves the terminal does not matter."""
        if sys.platform == "win32":
            yield
            return
        import termios  # noqa: PLC0415  # POSIX alone has it

        before = termios.tcgetattr(self._fd)
        self._screen.is_lent = True
        try:
            yield
        finally:
            self._screen.is_lent = False
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)


def _editor(environ: Mapping[str, str]) -> list[str] | None:
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(environ.get(name, ""))
        except ValueError:
            continue
        if words and shutil.which(words[0], path=environ.get("PATH")):
            return words
    return None
