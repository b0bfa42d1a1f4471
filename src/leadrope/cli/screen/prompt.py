"""A line that is typed at a terminal, with history, while the event loop goes on. Knows nothing of what it is for.

Python's own readline holds the whole process until Enter; here an agent may be working in the background.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shutil
import termios
import tty
import unicodedata
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

Done = Literal["enter", "interrupt", "eof", "editor"]

_SEQUENCES = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[C": "right",
    "OC": "right",
    "[D": "left",
    "OD": "left",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
    "[3~": "delete",
    # Shift-Enter, where a terminal tells it from Enter.
    "[13;2u": "newline",
    "[27;2;13~": "newline",
    "[200~": "paste",
    "[201~": "pasted",
}
_CONTROLS = {
    "\x01": "home",
    "\x02": "left",
    "\x03": "interrupt",
    "\x04": "delete-or-eof",
    "\x05": "end",
    "\x06": "right",
    "\x08": "backspace",
    "\x0b": "cut-right",
    "\x0e": "down",
    "\x10": "up",
    "\x15": "cut-left",
    "\x17": "cut-word",
    "\x18": "editor",
    "\x7f": "backspace",
    "\r": "enter",
    "\n": "enter",
}
ESCAPE = "\x1b"
_READ_BYTES = 4096


class LineEditor:
    """The text, the cursor and the history: keys in, a changed line out."""

    def __init__(self, history: list[str], text: str = "", *, is_edited: bool = False, can_leave: bool = False) -> None:
        """`is_edited`: a backslash before Enter is part of the text. `can_leave`: Ctrl-X ends it, for an editor."""
        self.text = text
        self.cursor = len(text)
        self._is_edited = is_edited
        self._can_leave = can_leave
        self._history = history
        self._place = len(history)
        self._typed = ""
        self._is_pasted = False

    def take(self, keys: str) -> tuple[Done | None, str]:
        """What the keys came to, and those behind an end, which belong to the next line."""
        at = 0
        while at < len(keys):
            if keys[at] == ESCAPE:
                name, at = _sequence(keys, at)
            else:
                char = keys[at]
                name = _CONTROLS.get(char, "")
                at += 1
                if self._is_pasted and char in "\r\n":
                    name, char = "", "\n"
                if not name:
                    self._insert(char)
                    continue
            done = self._do(name)
            if done is not None:
                return done, keys[at:]
        return None, ""

    def _do(self, name: str) -> Done | None:
        match name:
            case "enter" if self.text[: self.cursor].endswith("\\") and not self._is_edited:
                # As in a shell: the line continues.
                self.text = self.text[: self.cursor - 1] + "\n" + self.text[self.cursor :]
            case "enter":
                return "enter"
            case "newline":
                self._insert("\n")
            case "editor" if self._can_leave:
                return "editor"
            case "interrupt":
                return "interrupt"
            case "delete-or-eof" if not self.text:
                return "eof"
            case "delete" | "delete-or-eof":
                self.text = self.text[: self.cursor] + self.text[self.cursor + 1 :]
            case "backspace" if self.cursor:
                self.text = self.text[: self.cursor - 1] + self.text[self.cursor :]
                self.cursor -= 1
            case "left":
                self.cursor = max(0, self.cursor - 1)
            case "right":
                self.cursor = min(len(self.text), self.cursor + 1)
            case "home":
                self.cursor = 0
            case "end":
                self.cursor = len(self.text)
            case "cut-left":
                self.text, self.cursor = self.text[self.cursor :], 0
            case "cut-right":
                self.text = self.text[: self.cursor]
            case "cut-word":
                start = len(self.text[: self.cursor].rstrip().rpartition(" ")[0])
                start += 1 if start else 0
                self.text, self.cursor = self.text[:start] + self.text[self.cursor :], start
            case "up" | "down":
                self._recall(-1 if name == "up" else 1)
            case "paste" | "pasted":
                self._is_pasted = name == "paste"
            case _:
                pass
        return None

    def _insert(self, char: str) -> None:
        if char.isprintable() or char in "\n\t":
            self.text = self.text[: self.cursor] + char + self.text[self.cursor :]
            self.cursor += 1

    def _recall(self, step: int) -> None:
        place = self._place + step
        if not 0 <= place <= len(self._history):
            return
        if self._place == len(self._history):
            self._typed = self.text
        self._place = place
        self.text = self._typed if place == len(self._history) else self._history[place]
        self.cursor = len(self.text)

    def clear(self) -> None:
        self.text, self.cursor, self._place = "", 0, len(self._history)


def _sequence(keys: str, at: int) -> tuple[str, int]:
    """The name of the key that an escape begins, and where the next one stands; a bare escape is nothing."""
    end = at + 1
    if end < len(keys) and keys[end] in "\r\n":
        return "newline", end + 1  # Alt-Enter
    if end < len(keys) and keys[end] in "[O":
        end += 1
        while end < len(keys) and (keys[end].isdigit() or keys[end] in ";?"):
            end += 1
        end += 1
        return _SEQUENCES.get(keys[at + 1 : end], ""), end
    return "", min(len(keys), end + 1)


def width_of(text: str) -> int:
    """Cells on a terminal."""
    wide = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return wide - sum(1 for char in text if unicodedata.combining(char))


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Prompt:
    """The terminal of a conversation: reads lines, and while the agent works looks out for Esc.

    with Prompt(fd) as prompt:
        text = await prompt.read("> ")
    """

    def __init__(self, terminal: int, history: list[str] | None = None) -> None:
        """`terminal` is a file descriptor to read and write; it stays the caller's."""
        self._fd = terminal
        self.history = history if history is not None else []
        self._before = termios.tcgetattr(terminal)
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._ahead = ""
        """Typed while the agent was working."""
        self._readable: asyncio.Future[None] | None = None
        self._row = 0
        self._on_escape: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_watching()
        self._restore()

    # -- reading a line -----------------------------------------------------------------------------------------------

    async def read(self, label: str) -> str:
        """One line. EOFError for Ctrl-D on an empty one or a closed terminal, KeyboardInterrupt for Ctrl-C."""
        line = LineEditor(self.history)
        done = await self._typed_into(line, label)
        if done == "eof":
            raise EOFError
        if done == "interrupt":
            raise KeyboardInterrupt(line.text)
        if line.text.strip() and (not self.history or self.history[-1] != line.text):
            self.history.append(line.text)
        return line.text

    async def edit(self, label: str, text: str, *, can_leave: bool = False) -> tuple[str, bool]:
        """A text that is there already; False with it if Ctrl-X asked for an editor. Raises as `read` does."""
        line = LineEditor([], text, is_edited=True, can_leave=can_leave)
        done = await self._typed_into(line, label)
        if done == "eof":
            raise EOFError
        if done == "interrupt":
            raise KeyboardInterrupt(line.text)
        return line.text, done != "editor"

    async def _typed_into(self, line: LineEditor, label: str) -> Done:
        keys, self._ahead = self._ahead, ""
        self._set(raw=True)
        self._write("\x1b[?2004h")
        try:
            self._row = 0
            while True:
                done, rest = line.take(keys)
                self._draw(label, line)
                if done is not None:
                    self._ahead = rest
                    break
                keys = await self._keys()
        finally:
            line.cursor = len(line.text)
            self._draw(label, line)
            self._write("\x1b[?2004l\r\n")
            self._restore()
        return done

    def _draw(self, label: str, line: LineEditor) -> None:
        columns = max(20, self._columns())
        shown = line.text.replace("\n", "↵").replace("\t", " ")
        whole = width_of(label) + width_of(shown)
        place = width_of(label) + width_of(shown[: line.cursor])
        out = (f"\x1b[{self._row}A" if self._row else "") + "\r\x1b[J" + label + shown
        if whole and whole % columns == 0:
            out += "\r\n"  # the terminal waits with the wrap until another character comes
        up = whole // columns - place // columns
        out += (f"\x1b[{up}A" if up else "") + "\r" + (f"\x1b[{place % columns}C" if place % columns else "")
        self._row = place // columns
        self._write(out)

    def _columns(self) -> int:
        """Of this terminal: stdout may be a pipe."""
        with contextlib.suppress(OSError):
            if found := os.get_terminal_size(self._fd).columns:
                return found
        return shutil.get_terminal_size().columns

    async def _keys(self) -> str:
        loop = asyncio.get_running_loop()
        self._readable = loop.create_future()
        loop.add_reader(self._fd, _wake, self._readable)
        try:
            await self._readable
        finally:
            loop.remove_reader(self._fd)
            self._readable = None
        if self._ahead:
            keys, self._ahead = self._ahead, ""
            return keys
        return self._read()

    def interrupt(self) -> None:
        """Ctrl-C as a signal: sent from elsewhere, or pressed between two lines, where keys are not ours."""
        self._ahead += "\x03"
        if self._readable is not None:
            _wake(self._readable)

    def _read(self) -> str:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except OSError:
            data = b""  # hung up
        if not data:
            raise EOFError
        return self._decode(data)

    # -- while the agent works ----------------------------------------------------------------------------------------

    def watch(self, on_escape: Callable[[], None]) -> None:
        """Call back for a bare Esc; what else is typed waits for the next line."""
        self._on_escape = on_escape
        self._set(raw=False)
        asyncio.get_running_loop().add_reader(self._fd, self._typed)

    def _typed(self) -> None:
        try:
            keys = self._read()
        except EOFError:
            self.stop_watching()
            return
        if keys == ESCAPE:
            if self._on_escape is not None:
                self._on_escape()
        elif not keys.startswith(ESCAPE):
            self._ahead += keys

    def stop_watching(self) -> None:
        if self._on_escape is not None:
            self._on_escape = None
            asyncio.get_running_loop().remove_reader(self._fd)
            self._restore()

    def hold(self) -> None:
        """Somebody else asks something on this terminal."""
        if self._on_escape is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._restore()

    def release(self) -> None:
        if self._on_escape is not None:
            self.watch(self._on_escape)

    # -- the terminal -------------------------------------------------------------------------------------------------

    def _set(self, *, raw: bool) -> None:
        """`raw`: every key comes to us, Ctrl-C too. Else Ctrl-C stays a signal; nothing is echoed either way."""
        mode: list[Any] = termios.tcgetattr(self._fd)
        mode[tty.LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        mode[tty.LFLAG] |= termios.ISIG
        if raw:
            mode[tty.LFLAG] &= ~termios.ISIG
            mode[tty.IFLAG] &= ~(termios.ICRNL | termios.IXON)
        mode[tty.CC][termios.VMIN] = 1
        mode[tty.CC][termios.VTIME] = 0
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)

    def _restore(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        # A terminal that has gone away: the read that follows finds it closed.
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]
