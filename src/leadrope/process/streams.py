"""The three streams of a child: batches of lines from stdout, bytes to stdin, the kept part of stderr."""

from __future__ import annotations

import asyncio
import select
import sys
from collections import deque
from collections.abc import Callable
from typing import IO, Any, cast

from leadrope import errors
from leadrope.process import lines

PIPE_SIZE = lines.MIB
"""The default pipe size of 64 KiB costs a third of the throughput in wake-ups."""

WRITE_HIGH_WATER = lines.MIB

ENDING_FACTOR = 4
"""While the child is being ended nothing may block it, so reading continues; output beyond this many times the
high-water mark is dropped and counted."""

QUIET_S = 0.5
"""Once the whole tree is gone its pipes end at once. A process outside the tree that was handed one may keep it open;
after this long without a byte we close our end."""

_QUIET_ROUNDS = 10

# glibc returns the top of its heap to the kernel as soon as some 128 KiB of it are free, and requests it again for the
# next chunk: up to 26,000 page faults and a quarter of the CPU time for 50,000 lines. Freeing one large block raises
# that threshold to twice the block's size (mallopt(3)). The block itself is never touched; with other allocators this
# has no effect.
bytes(4 * lines.MIB)


class Streams(asyncio.SubprocessProtocol):
    """The streams of one child, fed by the transports of loop.subprocess_exec or by one Pipe per file descriptor."""

    def __init__(
        self,
        *,
        spool_dir: str,
        high_water: int,
        low_water: int,
        on_stderr_line: Callable[[str], None] | None,
        on_process_exited: Callable[[], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._framer = lines.LineFramer(spool_dir=spool_dir)
        self.stderr = lines.HeadAndTail(on_line=on_stderr_line)
        self._high_water = high_water
        self._low_water = low_water
        self._on_process_exited = on_process_exited
        self._stdin: asyncio.WriteTransport | None = None
        self._outputs: dict[int, asyncio.ReadTransport] = {}
        self._lost: set[int] = set()
        self.all_lost: asyncio.Future[None] = self._loop.create_future()
        # Reading: whole batches, so that the consumer wakes once per chunk and not once per line.
        self._batches: deque[tuple[int, list[lines.Piece]]] = deque()
        self._unbatched = 0
        self._queued = 0
        self._received = 0
        self._is_paused = False
        self._is_ending = False
        self._reader: asyncio.Future[None] | None = None
        self.pauses = 0
        self.last_read_bytes = 0
        self.discarded_bytes = 0
        # Writing.
        self._stdin_closing = False
        self._write_is_paused = False
        self._drainers: list[asyncio.Future[None]] = []

    # Called by the consumer.

    async def read(self) -> list[lines.Piece]:
        """Returns the next batch, at most one chunk; an empty batch is the end of output."""
        while not self._batches:
            if 1 in self._lost:
                return []
            if self._reader is not None:
                raise RuntimeError("two tasks read the same child; give each child one reader")
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        size, batch = self._batches.popleft()
        self.last_read_bytes = size
        self._queued -= size
        if self._is_paused and self._queued < self._low_water:
            self._resume()
        return batch

    def write(self, data: bytes) -> None:
        if self._stdin is None or self._stdin_closing or 0 in self._lost:
            raise self._closed_input()
        self._stdin.write(data)

    async def drain(self) -> None:
        """Waits until the child has read most of what was written; raises if it never will."""
        while self._write_is_paused and 0 not in self._lost:
            waiter = self._loop.create_future()
            self._drainers.append(waiter)
            await waiter
        if 0 in self._lost and not self._stdin_closing:
            raise self._closed_input()

    def close_stdin(self) -> None:
        """Closes stdin; data written before is still delivered."""
        self._stdin_closing = True
        if self._stdin is not None:
            self._stdin.close()

    def _closed_input(self) -> errors.RunClosed:
        return errors.RunClosed(
            "the process no longer reads its input: it has ended, or its input was closed",
            hint="Look at its exit code and at the last lines of its stderr; start a new run to continue.",
        )

    # Called during the ending.

    def begin_ending(self, *, close_stdin: bool = True) -> None:
        """Stops blocking the child: on a full pipe it could not end cleanly."""
        self._is_ending = True
        if close_stdin:
            self.close_stdin()
        self._resume()

    def finish(self, *, quiet_s: float = QUIET_S) -> None:
        """Called when nothing of the tree is left: reads what is still in the pipes, then closes them."""
        self._stdin_closing = True
        if self._stdin is not None and 0 not in self._lost:
            self._stdin.abort()
        self._is_ending = True
        self._resume()
        self._loop.call_later(quiet_s, self._close_if_quiet, self._received, _QUIET_ROUNDS)

    def _close_if_quiet(self, received_before: int, rounds: int) -> None:
        if self.all_lost.done():
            return
        if self._received != received_before and rounds > 0:
            self._loop.call_later(QUIET_S, self._close_if_quiet, self._received, rounds - 1)
            return
        for transport in self._outputs.values():
            transport.close()

    # Called by the transports.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by loop.subprocess_exec only, before any data; the child may have already ended."""
        process = cast("asyncio.SubprocessTransport", transport)
        for fd in (0, 1, 2):
            pipe = process.get_pipe_transport(fd)
            if pipe is not None:
                self.pipe_connected(fd, pipe)

    def pipe_connected(self, fd: int, transport: asyncio.BaseTransport) -> None:
        if fd == 0:
            self._stdin = cast("asyncio.WriteTransport", transport)
            self._stdin.set_write_buffer_limits(high=WRITE_HIGH_WATER)
            if self._stdin_closing:
                self._stdin.close()
        else:
            self._outputs[fd] = cast("asyncio.ReadTransport", transport)
        if fd == 1:
            _enlarge(transport.get_extra_info("pipe"))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._received += len(data)
        if fd == 2:
            self.stderr.feed(data)
            return
        if self.discarded_bytes or (self._is_ending and self._queued > ENDING_FACTOR * self._high_water):
            # Once one piece is dropped the rest is too: lines joined across a gap would be wrong.
            self.discarded_bytes += len(data)
            return
        self._unbatched += len(data)
        self._queue(self._framer.feed_whole(data))

    def _queue(self, batch: list[lines.Piece]) -> None:
        if not batch:
            return
        self._batches.append((self._unbatched, batch))
        self._queued += self._unbatched
        self._unbatched = 0
        may_pause = not (self._is_paused or self._is_ending or 1 in self._lost)
        if self._queued > self._high_water and may_pause:
            self._is_paused = True
            self.pauses += 1
            self._outputs[1].pause_reading()
        self._wake_reader()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if 1 not in self._lost:
                self._outputs[1].resume_reading()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in self._lost:
            return
        self._lost.add(fd)
        if fd == 0:
            self.resume_writing()
        elif fd == 1:
            last = self._framer.close()
            if not self.discarded_bytes:
                self._queue([*last])
            self._wake_reader()
        else:
            self.stderr.close()
        if len(self._lost) == 3 and not self.all_lost.done():
            self.all_lost.set_result(None)

    def pause_writing(self) -> None:
        self._write_is_paused = True

    def resume_writing(self) -> None:
        self._write_is_paused = False
        drainers, self._drainers = self._drainers, []
        for waiter in drainers:
            if not waiter.done():
                waiter.set_result(None)

    def process_exited(self) -> None:
        if self._on_process_exited is not None:
            self._on_process_exited()


class Pipe(asyncio.Protocol):
    """A file descriptor of a child that asyncio did not start itself."""

    def __init__(self, fd: int, streams: Streams) -> None:
        self._fd = fd
        self._streams = streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._streams.pipe_connected(self._fd, transport)

    def data_received(self, data: bytes) -> None:
        self._streams.pipe_data_received(self._fd, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.pipe_connection_lost(self._fd, exc)

    def pause_writing(self) -> None:
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        self._streams.resume_writing()


class InputSocket(Pipe):
    """The socket that is the child's stdin; nothing is received on it except its end."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(0, streams)
        self._socket = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport.get_extra_info("socket").fileno()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Ignores data: a child may write to its stdin, but no program does, and it is not output."""

    def eof_received(self) -> bool:
        """Returns True to keep the socket: a child that has only closed its own side of it still reads."""
        look = select.poll()
        look.register(self._socket, select.POLLHUP)
        return not any(event & select.POLLHUP for _, event in look.poll(0))


def _enlarge(pipe: IO[Any] | None) -> None:
    if sys.platform != "linux" or pipe is None or pipe.closed:
        return
    import fcntl  # noqa: PLC0415  # absent on Windows

    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        # The user's quota of pipe memory is used up, or the system allows less; the small pipe works, but slower.
        return
