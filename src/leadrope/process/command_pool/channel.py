"""Messages with file descriptors to a pool and to each of its workers, and the state of each worker."""

from __future__ import annotations

import array
import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable

from leadrope.process.command_pool.command import Ended, PoolCommand
from leadrope.process.command_pool.failures import not_started

FULL_S = 0.005
"""Delay before a message is sent again after the kernel had no room for it."""


class Channel:
    """Sends messages in order.

    Messages that can no longer be sent are dropped: the reader of the channel sees its end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self._sock = sock
        self._unsent: deque[tuple[bytes, Callable[[], tuple[int, ...]], Callable[[], None]]] = deque()
        self.is_broken = False
        sock.setblocking(False)

    def send(
        self,
        words: bytes,
        handles: Callable[[], tuple[int, ...]] = tuple,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        """`handles` is called at the time of sending; `on_sent` is called even if the message can never be sent."""
        self._unsent.append((words, handles, on_sent))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._unsent:
            words, handles, on_sent = self._unsent[0]
            if not self.is_broken and not self._has_sent(words, handles()):
                self._loop.call_later(FULL_S, self._flush)
                return
            self._unsent.popleft()
            on_sent()

    def _has_sent(self, words: bytes, handles: tuple[int, ...]) -> bool:
        parts = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))] if handles else []
        try:
            self._sock.sendmsg([words], parts)
        except OSError as error:
            # Not only a full socket: the kernel also limits the number of descriptors in flight.
            if isinstance(error, BlockingIOError) or error.errno == errno.ETOOMANYREFS:
                return False
            self.is_broken = True
        return True

    def close(self) -> None:
        self.is_broken = True
        self._flush()
        self._sock.close()


def received(sock: socket.socket) -> bytes | None:
    """Returns a message; empty at the end of the channel, None if there is none yet."""
    try:
        return sock.recv(256)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class WorkerChannel:
    """The supervisor's view of a worker process, which runs one command after another."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        number: str,
        *,
        knows_code: bool,
        on_rest: Callable[[WorkerChannel, Ended | Exception], None],
    ) -> None:
        """`on_rest` is called when the command has ended and the worker can take another."""
        self._loop = loop
        self._sock = sock
        self._channel = Channel(loop, sock)
        self._on_rest = on_rest
        self._is_heard = True
        self.number = number
        self.knows_code = knows_code
        self.command: PoolCommand | None = None
        loop.add_reader(sock.fileno(), self._receive)

    def take(self, command: PoolCommand) -> bool:
        """Sends the command to the worker; False if the worker is gone."""

        def handles() -> tuple[int, ...]:
            """Returns none for a command that was closed while it waited; the worker then reports a failure."""
            return () if command.is_closed else command.handles

        def on_sent() -> None:
            if not self._channel.is_broken:
                command.sent()

        self._channel.send(command.words, handles, on_sent)
        if self._channel.is_broken:
            return False
        self.command = command
        return True

    def say_stop(self, on_sent: Callable[[], None]) -> None:
        """Sends only the message; the worker reads it when it gets a signal."""
        if self.command is not None:
            self._channel.send(b"STOP " + self.command.name.encode(), on_sent=on_sent)

    def lose(self, error: Exception) -> None:
        """Marks the worker as ended. A report that it sent before still counts."""
        while self.command is not None and self._receive():
            pass
        if self.command is not None:
            self.command.end(error)
        self.close()

    def close(self) -> None:
        self._hang_up()
        self._channel.close()

    def _hang_up(self) -> None:
        if self._is_heard:
            self._is_heard = False
            self._loop.remove_reader(self._sock.fileno())

    def _receive(self) -> bool:
        """Reads one message; returns whether there was one."""
        data = received(self._sock) if self._is_heard else None
        if data is None:
            return False
        if not data:  # the pool reports how the worker ended
            self._hang_up()
            return False
        # A command of the same user could have tampered with it: ignore what cannot be parsed.
        words = data.decode(errors="replace").split()
        command = self.command
        if command is None or words[1:2] != [command.name]:
            return True
        ended: Ended | Exception
        match words[:1] + words[2:]:
            case ["ENDED", status, leftovers, survivors, *traces] if all(word.isdecimal() for word in words[2:]):
                has_traces = traces == ["1"]
                ended = Ended(os.waitstatus_to_exitcode(int(status)), int(leftovers), int(survivors), has_traces)
            case ["FAILED", number, what] if number.isdecimal():
                ended = not_started(what, int(number))
            case _:
                return True
        self.command = None
        command.end(ended)
        self._on_rest(self, ended)
        return True
