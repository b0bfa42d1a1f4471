"""One command of a pool on the supervisor's side: its pipes, its output and how it ended."""

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
"""A command that ends within this time is read once, at its end: watching its pipes costs more than that."""
_MOST_LEFT = 1024 * 1024
"""In a pipe; larger ones are normally not allowed."""
_HEAD_BYTES = 64

OnOutput = Callable[[str, bytes], None]
"""Called with `stdout` or `stderr` and the data, only for data that is kept: nothing beyond the limit."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command that has ended, including everything that it started."""

    exit_code: int
    """-n if signal n ended it."""
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    truncated: bool = False
    """The output exceeded the limit; the rest was read and dropped."""
    leftovers: int = 0
    """Processes that were still alive after the command had ended and were killed."""
    survivors: int = 0
    """Processes that could not be killed: in uninterruptible sleep, or owned by another user."""
    answer: bytes = b""
    """The answer of code, in the format of code_runner."""
    has_traces: bool = False
    """While it ran, files appeared in the folders that are discarded with the sandbox."""
    lost: tuple[str, ...] = ()
    """Files that it wrote there and that somebody might miss."""


class Ended(msgspec.Struct, frozen=True):
    exit_code: int
    leftovers: int
    survivors: int
    has_traces: bool = False


class PoolCommand:
    """A command, its pipes and its result.

    The worker gets one end of each pipe, and we keep both ends of the output pipes: a command that closes its output,
    as each does when it ends, need not wake us up. Our write end is closed when the whole command has ended, and the
    rest is read.
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
        """With `waits` in `body` it is a shell whose script is passed later, to `begin`."""
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
        """Whether its stdin is watched for room to write."""
        self._answer = -1
        self._has_answer = "code" in body or "letter" in body
        self._only_sent: list[int] = []
        """Descriptors that only the worker needs; closed here once it has them."""
        self._write_ends: list[int] = []
        self._clock: asyncio.TimerHandle | None = None
        self._is_heard = False
        self._is_dropped = False
        self.is_closed = False
        self.was_read = False
        """For a waiting shell: it has begun to read its script. (A file offset is shared by all holders of the
        file.)"""
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
        """Returns the message to the worker and its descriptors."""
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
        """Called when the worker has its descriptors."""
        while self._only_sent:
            os.close(self._only_sent.pop())

    # -- its end ------------------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        return self._result is not None

    def end(self, result: Ended | Exception) -> None:
        """Records the result; the first one counts."""
        if self._result is None:
            self._result = result
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            if self._is_dropped:
                self.close()

    def drop(self) -> None:
        """Discards the command: nobody needs its result. A waiting shell exits when its input ends without a script."""
        self._is_dropped = True
        self._close_stdin()
        if self.has_ended:
            self.close()

    async def until_ended(self) -> None:
        """Waits for the end of the command; cancelling this only ends the waiting."""
        while self._result is None:
            self._waiter = self._loop.create_future()
            await self._waiter

    async def finished(self, *, timed_out: bool) -> Finished:
        """Returns the result, or raises the reason why there is none."""
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
        """Waits until the pipes have ended, which is immediate once the tree is gone.

        A process outside of the tree that was handed a pipe may keep it open: after this long without a byte we close
        it.
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
        """Gives a waiting shell its script; the end of its input is the signal to begin."""
        self._limit = limit_bytes
        self._on_output = on_output
        data = script.encode("utf-8", "surrogateescape")
        at = 0
        while at < len(data):
            at += os.pwrite(self._answer, data[at:], at)
        self._close_stdin()
        self._listen_soon()

    def _write(self) -> None:
        """Writes what fits now, and the rest when there is room. A command that never reads is not an error."""
        try:
            while self._stdin:
                self._stdin = self._stdin[os.write(self._stdin_end, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            self._is_fed = True
            self._loop.add_writer(self._stdin_end, self._write)
            return
        except BrokenPipeError:  # the command has closed its input, or has ended
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
        """Reads once; returns whether there was something to read."""
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
    """Returns a memory file with this content, positioned at its start; closing its last descriptor frees it."""
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
