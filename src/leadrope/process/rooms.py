"""The supervisor's side of a room: commands in, what they said and how they ended out. Knows no rule and no walls.

door = Door(folder)                          # before the room is started, so that the walls can show it
room = await door.open(child)                # the child is `python room.py folder`
done = await room.run({"argv": ["git", "status"], "cwd": "/ws", "env": {"PATH": "/usr/bin"}})
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import itertools
import marshal
import os
import shutil
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.process import guardian, room, room_code, room_lane
from leadrope.process.child import Child
from leadrope.process.hold import START_S, is_of
from leadrope.process.room_errors import CommandLost, RoomGone, lane_lost, not_started, room_lost
from leadrope.process.streams import QUIET_S

LIMIT_BYTES = 10 * 1024 * 1024
MOST_AT_ONCE = 128
"""Each holds three pipes on our side; a process often has no more than 1024 descriptors. More commands wait."""

_CHUNK = 256 * 1024
_QUIET_ROUNDS = 10

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
    """What code has given, in the words of room_code."""


def furnish(folder: Path) -> Path:
    """Puts the script of a room, and what it is made of, into a folder that its walls show; gives the script.

    Compiled where that is possible: it starts faster. A copy, because an installation may lie where walls hide it.
    """
    for module in (guardian, room_lane, room):
        source, compiled = str(module.__file__), module.__spec__.cached if module.__spec__ else None
        # Where nothing compiled is written, an old one may lie.
        source = compiled if compiled and is_of(compiled, source) else source
        shutil.copyfile(source, folder / (module.__name__.rpartition(".")[2] + Path(source).suffix))
    shutil.copyfile(room_code.__file__, folder / "room_code.py")
    script = folder / "room.pyc"
    return script if script.exists() else folder / "room.py"


class Door:
    """The socket at which one room may knock, once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / room.SOCKET
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        # Through a handle of the folder: the name of a socket has room for 107 bytes.
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self._listener.bind(f"/proc/self/fd/{handle}/{room.SOCKET}")
        finally:
            os.close(handle)
        self._path.chmod(0o600)
        self._listener.listen(1)

    async def open(self, child: Child) -> Room:
        """The room that `child` has become; SpawnFailed if it does not come."""
        loop = asyncio.get_running_loop()
        knocking = asyncio.ensure_future(self._accept(loop, child.pid))
        leaving = asyncio.ensure_future(child.wait())
        try:
            await asyncio.wait({knocking, leaving}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
            if not knocking.done():
                said = " | ".join(child.stderr_tail[-3:]) or "it said nothing"
                raise errors.SpawnFailed(
                    f"the process that runs commands did not come up: {said}",
                    hint="Check that the Python that runs leadrope can start: its memory, its installation, the walls.",
                )
            return Room(knocking.result(), child)
        finally:
            for task in (knocking, leaving):
                task.cancel()
            self.close()

    def close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)

    async def _accept(self, loop: asyncio.AbstractEventLoop, pid: int) -> socket.socket:
        while True:
            found, _ = await loop.sock_accept(self._listener)
            credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", credentials)[0] == pid:
                return found
            found.close()


WAITS = 'read -r __script; exec </dev/null; IFS= read -rd "" -u 3 __script; exec 3<&-; eval "unset __script;$__script"'
"""What a shell does that is started before its script is known: it waits for the end of its input, and then reads the
script from a file in memory. To the script it looks like `bash -c`; only the last program of it is not exec'd."""


class Spare:
    """A shell that has started and waits for its script: a millisecond that the next command does not take."""

    def __init__(self, room: Room, name: str, command: _Command) -> None:
        self._room = room
        self._name = name
        self._command = command

    @property
    def is_good(self) -> bool:
        """As far as is known nobody has killed it, and its room is open."""
        return not self._room.is_lost and not self._command.ended.done()

    async def run(
        self, script: str, *, timeout_s: float | None, limit_bytes: int, on_output: OnOutput | None
    ) -> Finished | None:
        """None: it was killed while it waited. Nothing of the script has run, another shell may run it."""
        command = self._command
        command.begin(script, limit_bytes, on_output)
        try:
            done = await self._room.follow(self._name, command, timeout_s)
        except CommandLost:
            if command.was_read:
                raise
            return None
        return done if command.was_read or done.timed_out else None

    def drop(self) -> None:
        """Not wanted any more; the end of its input without a script is its end."""
        self._room.forget(self._name)


class Room:
    """Runs any number of commands at once. A command that stalls holds up nobody else."""

    def __init__(self, sock: socket.socket, child: Child) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._child = child
        self._commands: dict[str, _Command] = {}
        self._names = itertools.count(1)
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self.is_lost = False
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._receive)

    async def run(
        self,
        body: Mapping[str, Any],
        *,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        limit_bytes: int = LIMIT_BYTES,
        on_output: OnOutput | None = None,
    ) -> Finished:
        """Runs one command to the end of everything it started, also when it is timed out or this task cancelled.

        `body` has `argv` (behind it a `script` of any length, or a `letter` for room_code) or `code`, and `cwd` and
        `env`, whole.
        """
        async with self._places:
            if self.is_lost:
                raise RoomGone("the process that runs commands has ended")
            name = str(next(self._names))
            command = _Command(self._loop, stdin, limit_bytes, on_output)
            self._commands[name] = command
            try:
                order = "CODE" if "code" in body else "RUN"
                self._send(f"{order} {name}".encode(), command.hand_out(body))
            except BaseException:
                del self._commands[name]
                command.close()
                raise
            return await self.follow(name, command, timeout_s)

    def spare(self, body: Mapping[str, Any]) -> Spare:
        """A shell (`argv`) in that `cwd` with that `env`, which waits for its script."""
        name = str(next(self._names))
        command = _Command(self._loop, b"", LIMIT_BYTES, None)
        self._commands[name] = command
        argv = [*body["argv"], "-c", WAITS]
        self._send(f"RUN {name}".encode(), command.hand_out({**body, "argv": argv, "waits": True}, waits=True))
        return Spare(self, name, command)

    def forget(self, name: str) -> None:
        command = self._commands.pop(name, None)
        if command is not None:
            command.close()

    async def follow(self, name: str, command: _Command, timeout_s: float | None) -> Finished:
        try:
            timed_out = await self._until_ended(name, command, timeout_s)
            await command.until_drained()
            return command.finished(timed_out=timed_out)
        finally:
            del self._commands[name]
            command.close()

    async def _until_ended(self, name: str, command: _Command, timeout_s: float | None) -> bool:
        try:
            done, _ = await asyncio.wait({command.ended}, timeout=timeout_s)
            if not done:
                self._send(f"STOP {name}".encode())
                await asyncio.wait({command.ended})
            return not done
        except asyncio.CancelledError:
            # The order is given before the first await: a second cancellation only ends the waiting.
            self._send(f"STOP {name}".encode())
            await asyncio.wait({command.ended})
            raise

    async def close(self) -> None:
        """Ends the room with all that still runs in it, and returns when nothing is left."""
        self._lose()
        await self._child.end(polite_s=0.5)

    # -- the wire ------------------------------------------------------------------------------------------------------

    def _send(self, words: bytes, handles: tuple[int, ...] = ()) -> None:
        """The handles are ours to close, whatever becomes of the message."""
        self._unsent.append((words, handles))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._unsent and not self.is_lost:
            words, handles = self._unsent[0]
            parts = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))] if handles else []
            try:
                self._sock.sendmsg([words], parts)
            except OSError as error:
                # Not only a full socket: the kernel also bounds the descriptors that are on their way.
                if isinstance(error, BlockingIOError) or error.errno == errno.ETOOMANYREFS:
                    self._loop.add_writer(self._sock.fileno(), self._flush)
                    return
                self._lose()
                return
            self._unsent.popleft()
            for handle in handles:
                os.close(handle)
        if not self.is_lost:
            self._loop.remove_writer(self._sock.fileno())

    def _receive(self) -> None:
        try:
            data = self._sock.recv(256)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        # A command of the same user could have had a hand in it: what makes no sense is taken for nothing.
        words = data.decode(errors="replace").split()
        command = self._commands.get(words[1]) if len(words) > 1 else None
        if command is None or command.ended.done():
            return
        match words[:1] + words[2:]:
            case ["ENDED", status, leftovers, survivors]:
                code = os.waitstatus_to_exitcode(int(status))
                command.ended.set_result((code, int(leftovers), int(survivors)))
            case ["FAILED", number, what]:
                command.ended.set_exception(not_started(what, int(number)))
            case ["LOST", status]:
                command.ended.set_exception(lane_lost(os.waitstatus_to_exitcode(int(status))))

    def _lose(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        while self._unsent:
            for handle in self._unsent.popleft()[1]:
                os.close(handle)
        for command in self._commands.values():
            if not command.ended.done():
                command.ended.set_exception(room_lost())


class _Command:
    """The pipes of one command, and what came out of them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stdin: bytes, limit_bytes: int, on_output: OnOutput | None
    ) -> None:
        self._loop = loop
        self._limit = limit_bytes
        self._on_output = on_output
        self.ended: asyncio.Future[tuple[int, int, int]] = loop.create_future()
        # Whoever waited may have been cancelled twice; asyncio would complain of an error that nobody took.
        self.ended.add_done_callback(lambda ended: ended.exception())
        self._drained: asyncio.Future[None] = loop.create_future()
        self._kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._open: dict[str, int] = {}
        self._received = 0
        self._truncated = False
        self._stdin = memoryview(stdin)
        self._stdin_end = -1
        self._answer = -1
        self._has_answer = True
        self.was_read = False
        """For one that waits: it has begun to read its script. (The place in a file is shared by all who have it.)"""

    def hand_out(self, body: Mapping[str, Any], *, waits: bool = False) -> tuple[int, ...]:
        """Makes everything that the lane needs, and gives its ends: body, stdin, stdout, stderr, answer.

        `waits`: the end of stdin is kept until the script is known.
        """
        with contextlib.ExitStack() as undo:

            def made(*handles: int) -> tuple[int, ...]:
                for handle in handles:
                    undo.callback(os.close, handle)
                return handles

            (letter,) = made(_in_memory(marshal.dumps(dict(body))))
            (self._answer,) = made(_in_memory(b""))
            (answer,) = made(os.dup(self._answer))
            if self._stdin or waits:
                stdin, self._stdin_end = made(*os.pipe())
            else:
                (stdin,) = made(os.open(os.devnull, os.O_RDONLY))
            ends = []
            for stream in self._kept:
                self._open[stream], end = made(*os.pipe())
                ends.append(end)
            undo.pop_all()
        for stream, handle in self._open.items():
            os.set_blocking(handle, False)
            self._loop.add_reader(handle, self._read, stream, handle)
        if self._stdin_end >= 0 and not waits:
            os.set_blocking(self._stdin_end, False)
            self._write()
        return letter, stdin, *ends, answer

    def begin(self, script: str, limit_bytes: int, on_output: OnOutput | None) -> None:
        """For one that waits: its script, and with the end of its input the sign to begin."""
        self._limit = limit_bytes
        self._on_output = on_output
        self._has_answer = False  # the file holds the script
        data = script.encode("utf-8", "surrogateescape")
        at = 0
        while at < len(data):
            at += os.pwrite(self._answer, data[at:], at)
        self._close_stdin()

    def _write(self) -> None:
        """What fits; the rest when there is room. A command that never reads is its own matter."""
        try:
            while self._stdin:
                self._stdin = self._stdin[os.write(self._stdin_end, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            self._loop.add_writer(self._stdin_end, self._write)
            return
        except BrokenPipeError:  # it has closed its input, or has ended
            pass
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_end >= 0:
            self._loop.remove_writer(self._stdin_end)
            os.close(self._stdin_end)
            self._stdin_end = -1

    def _read(self, stream: str, handle: int) -> None:
        try:
            data = os.read(handle, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._end_of(stream)
            return
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

    def _end_of(self, stream: str) -> None:
        handle = self._open.pop(stream)
        self._loop.remove_reader(handle)
        os.close(handle)
        if not self._open and not self._drained.done():
            self._drained.set_result(None)

    async def until_drained(self) -> None:
        """The tree is gone, so its pipes end at once. Somebody outside who was handed one may keep it open: this long
        without a byte and we let go of it.
        """
        for stream, handle in 2 * list(self._open.items()):  # what is in the pipe, and that it ended
            if stream in self._open:
                self._read(stream, handle)
        for _ in range(_QUIET_ROUNDS if self._open else 0):
            before = self._received
            await asyncio.wait({self._drained}, timeout=QUIET_S)
            if self._drained.done() or self._received == before:
                return

    def finished(self, *, timed_out: bool) -> Finished:
        exit_code, leftovers, survivors = self.ended.result()
        size = os.fstat(self._answer).st_size if self._has_answer else 0
        return Finished(
            exit_code=exit_code,
            stdout=bytes(self._kept["stdout"]),
            stderr=bytes(self._kept["stderr"]),
            timed_out=timed_out,
            truncated=self._truncated,
            leftovers=leftovers,
            survivors=survivors,
            answer=os.pread(self._answer, min(size, self._limit), 0) if size else b"",
        )

    def close(self) -> None:
        self._close_stdin()
        for stream in list(self._open):
            self._end_of(stream)
        if self._answer >= 0:
            self.was_read = os.lseek(self._answer, 0, os.SEEK_CUR) > 0
            os.close(self._answer)
            self._answer = -1


def _in_memory(data: bytes) -> int:
    """A file that no folder has: of any length, and gone with its last descriptor."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("leadrope", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
    return handle
