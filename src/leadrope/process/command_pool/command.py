"""One command of a pool on the supervisor's side: its pipes, what came out of them, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from leadrope.process.command_pool import worker
from leadrope.process.streams import QUIET_S

LIMIT_BYTES = 10 * 1024 * 1024

_CHUNK = 256 * 1024
_QUIET_ROUNDS = 10
_LISTEN_S = 0.005
"""A command that has ended by then is read once, at its end: watching its pipes costs more than that."""
_MOST_LEFT = 1024 * 1024
"""In a pipe; more is allowed to nobody as a rule."""
_HEAD_BYTES = 64

OnOutput = Callable[[str, bytes], None]
"""`stdout` or `stderr`, and what came. Only what is kept: nothing beyond the limit."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A command that has ended, and everything that it started with it."""

    exit_code: int
    """-n when signal n ended it."""
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    truncated: bool = False
    """More was said than the limit; the rest was read and dropped."""
    leftovers: int = 0
    """Processes that were alive when the command had ended, and are not any more."""
    survivors: int = 0
    """What could not be killed: in uninterruptible sleep, or of another user."""
    answer: bytes = b""
    """What code has given, in the words of code_runner."""
    has_traces: bool = False
    """While it ran, files appeared in the folders that vanish with the box."""
    lost: tuple[str, ...] = ()
    """Files that it wrote there, as far as somebody would miss them."""


class Ended(msgspec.Struct, frozen=True):
    exit_code: int
    leftovers: int
    survivors: int
    has_traces: bool = False


class PoolCommand:
    """Its worker gets one end of each pipe, and we keep both ends of what it writes: that a command closes its
    output, as each does when it ends, is nothing to wake up for. Our end is closed when all has ended, and the rest
    read.
    """

    def __init__(
        self,
        name: str,
        body: Mapping[str, Any],
        *,
        stdin: bytes = b"",
        limit_bytes: int = LIMIT_BYTES,
        on_output: OnOutput | None = None,
    ) -> None:
        """`body`: with `waits` it is a shell whose script comes later, in `begin`."""
        self._loop = asyncio.get_running_loop()
        self.name = name
        self._limit = limit_bytes
        self._on_output = on_output
        self._result: Ended | Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._open: dict[str, int] = {}
        self._received = 0
        self._truncated = False
        self._stdin = memoryview(stdin)
        self._stdin_end = -1
        self._is_fed = False
        """It is written to whenever there is room."""
        self._answer = -1
        self._has_answer = "code" in body or "letter" in body
        self._only_sent: list[int] = []
        """The worker's alone, once it has them."""
        self._write_ends: list[int] = []
        self._clock: asyncio.TimerHandle | None = None
        self._is_heard = False
        self._is_dropped = False
        self.is_closed = False
        self.was_read = False
        """For one that waits: it has begun to read its script. (The place in a file is shared by all who have it.)"""
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.words, self.handles = self._made(body, waits="waits" in body)
            undo.pop_all()
        if "waits" not in body:
            self._listen_soon()
        if stdin:
            os.set_blocking(self._stdin_end, False)
            self._write()

    def _made(self, body: Mapping[str, Any], *, waits: bool) -> tuple[bytes, tuple[int, ...]]:
        """The message to the worker with its descriptors."""
        if self._stdin or waits:
            stdin, self._stdin_end = os.pipe()
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
        self._only_sent.append(stdin)
        handles = [stdin]
        for stream in self._kept:
            self._open[stream], end = os.pipe()
            self._write_ends.append(end)
            handles.append(end)
            os.set_blocking(self._open[stream], False)
        if self._has_answer or waits:
            self._answer = _in_memory(b"")
            handles.append(self._answer)
        text = marshal.dumps(dict(body))
        if len(text) + _HEAD_BYTES <= worker.LONGEST_MESSAGE:
            return b"RUN %s\n" % self.name.encode() + text, tuple(handles)
        letter = _in_memory(text)
        self._only_sent.append(letter)
        return b"FILE " + self.name.encode(), (*handles, letter)

    def sent(self) -> None:
        """The worker has its descriptors."""
        while self._only_sent:
            os.close(self._only_sent.pop())

    # -- its end ------------------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        return self._result is not None

    def end(self, result: Ended | Exception) -> None:
        """The first word counts."""
        if self._result is None:
            self._result = result
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            if self._is_dropped:
                self.close()

    def drop(self) -> None:
        """Nobody wants to know any more. For one that waits the end of its input, without a script, is its end."""
        self._is_dropped = True
        self._close_stdin()
        if self.has_ended:
            self.close()

    async def until_ended(self) -> None:
        """A cancellation ends the waiting alone."""
        while self._result is None:
            self._waiter = self._loop.create_future()
            await self._waiter

    async def finished(self, *, timed_out: bool) -> Finished:
        """What it came to; raises why it came to nothing."""
        if not isinstance(self._result, Ended):
            assert self._result is not None  # noqa: S101  # it has ended
            raise self._result
        await self._drained()
        size = os.fstat(self._answer).st_size if self._has_answer else 0
        return Finished(
            exit_code=self._result.exit_code,
            stdout=bytes(self._kept["stdout"]),
            stderr=bytes(self._kept["stderr"]),
            timed_out=timed_out,
            truncated=self._truncated,
            leftovers=self._result.leftovers,
            survivors=self._result.survivors,
            has_traces=self._result.has_traces,
            answer=os.pread(self._answer, min(size, self._limit), 0) if size else b"",
        )

    async def _drained(self) -> None:
        """The tree is gone, so its pipes end at once. Somebody outside who was handed one may keep it open: this long
        without a byte and we let go of it.
        """
        self._close_write_ends()
        for stream, handle in list(self._open.items()):
            for _ in range(_MOST_LEFT // _CHUNK + 1):
                if not self._read(stream, handle):
                    break
        if self._open:
            self._listen()
        for _ in range(_QUIET_ROUNDS if self._open else 0):
            before = self._received
            await asyncio.sleep(QUIET_S)
            if not self._open or self._received == before:
                return

    def close(self) -> None:
        self.is_closed = True
        if self._clock is not None:
            self._clock.cancel()
        self.sent()
        self._close_stdin()
        self._close_write_ends()
        for stream in list(self._open):
            self._end_of(stream)
        if self._answer >= 0:
            self.was_read = os.lseek(self._answer, 0, os.SEEK_CUR) > 0
            os.close(self._answer)
            self._answer = -1

    # -- its pipes ----------------------------------------------------------------------------------------------------

    def begin(self, script: str, limit_bytes: int, on_output: OnOutput | None) -> None:
        """For one that waits: its script, and with the end of its input the sign to begin."""
        self._limit = limit_bytes
        self._on_output = on_output
        data = script.encode("utf-8", "surrogateescape")
        at = 0
        while at < len(data):
            at += os.pwrite(self._answer, data[at:], at)
        self._close_stdin()
        self._listen_soon()

    def _write(self) -> None:
        """What fits; the rest when there is room. A command that never reads is its own matter."""
        try:
            while self._stdin:
                self._stdin = self._stdin[os.write(self._stdin_end, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            self._is_fed = True
            self._loop.add_writer(self._stdin_end, self._write)
            return
        except BrokenPipeError:  # it has closed its input, or has ended
            pass
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_end >= 0:
            if self._is_fed:
                self._loop.remove_writer(self._stdin_end)
            os.close(self._stdin_end)
            self._stdin_end = -1

    def _close_write_ends(self) -> None:
        while self._write_ends:
            os.close(self._write_ends.pop())

    def _listen_soon(self) -> None:
        self._clock = self._loop.call_later(_LISTEN_S, self._listen)

    def _listen(self) -> None:
        if not self._is_heard:
            self._is_heard = True
            for stream, handle in self._open.items():
                self._loop.add_reader(handle, self._read, stream, handle)

    def _read(self, stream: str, handle: int) -> bool:
        """Whether there was something to read."""
        try:
            data = os.read(handle, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._end_of(stream)
            return False
        self._received += len(data)
        kept = self._kept[stream]
        room_left = self._limit - len(kept)
        if len(data) > room_left:
            self._truncated = True
            data = data[:room_left]
        if data:
            kept += data
            if self._on_output is not None:
                self._on_output(stream, data)
        return True

    def _end_of(self, stream: str) -> None:
        handle = self._open.pop(stream)
        if self._is_heard:
            self._loop.remove_reader(handle)
        os.close(handle)


def _in_memory(data: bytes) -> int:
    """A file that no folder has: of any length, read from its start, and gone with its last descriptor."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("leadrope", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
