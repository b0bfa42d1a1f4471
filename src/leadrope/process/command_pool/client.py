"""The supervisor's side of a pool: sends commands, and receives their output and exit codes.

listener = PoolListener(folder)              # before the pool starts, so that the sandbox can show it
pool = await listener.open(child)            # the child is `python server.py folder`
async with pool.places:
    done = await pool.run({"argv": ["git", "status"], "cwd": "/ws", "env": {"PATH": "/usr/bin"}})
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import resource
import shutil
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leadrope import errors
from leadrope.process import guardian
from leadrope.process.child import Child
from leadrope.process.command_pool import server as pool
from leadrope.process.command_pool import worker
from leadrope.process.command_pool.channel import Channel, WorkerChannel, received
from leadrope.process.command_pool.command import LIMIT_BYTES, Ended, Finished, OnOutput, PoolCommand
from leadrope.process.command_pool.failures import CommandLost, PoolGone, not_started, pool_lost, worker_lost
from leadrope.process.process_tree import START_S, is_of

MOST_AT_ONCE = 128
"""Further commands wait, assuming the usual limit of 1024 descriptors per process; fewer run where it is lower."""
UNHEARD_S = worker.STOP_S + 2 * guardian.SWEEP_S + 5.0
"""A worker that was told to stop its command has answered by then, whatever the command does."""
DESCRIPTORS = 7
"""Descriptors that a command holds on our side: both ends of two pipes, one end of its input, its script or answer, its
worker."""
OTHER_DESCRIPTORS = 100
MOST_IDLE = 16
"""Idle workers kept for later commands: a batch that runs more at once forks one for each of the others."""


def install_scripts(folder: Path) -> Path:
    """Copies the pool's script and its modules into a folder that the sandbox shows; returns the path of the script.

    Compiled files are used where possible, since they start faster. They are copied because the sandbox may hide the
    installation.
    """
    for module in (guardian, worker, pool):
        source, compiled = str(module.__file__), module.__spec__.cached if module.__spec__ else None
        # Where bytecode is not written, an outdated compiled file may be left.
        source = compiled if compiled and is_of(compiled, source) else source
        shutil.copyfile(source, folder / (module.__name__.rpartition(".")[2] + Path(source).suffix))
    shutil.copyfile(Path(__file__).with_name("code_runner.py"), folder / "code_runner.py")
    script = folder / "server.pyc"
    return script if script.exists() else folder / "server.py"


class PoolListener:
    """The socket on which one pool connects, once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / pool.SOCKET
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        # Opened through a descriptor of the folder: the path of a Unix socket is limited to 107 bytes.
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self._listener.bind(f"/proc/self/fd/{handle}/{pool.SOCKET}")
        finally:
            os.close(handle)
        # The folder is accessible only to the user that the pool runs as, who may differ from the user of this process.
        self._path.chmod(0o666)
        self._listener.listen(1)

    async def open(self, child: Child) -> CommandPool:
        """Waits for the pool started as `child` to connect; raises SpawnFailed if it does not."""
        loop = asyncio.get_running_loop()
        knocking = asyncio.ensure_future(self._accept(loop, child.pid))
        leaving = asyncio.ensure_future(child.wait())
        try:
            await asyncio.wait({knocking, leaving}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
            if not knocking.done():
                said = " | ".join(child.stderr_tail[-3:]) or "it said nothing"
                raise errors.SpawnFailed(
                    f"the process that runs commands did not come up: {said}",
                    hint="Check that the Python that runs leadrope can start: memory, installation, sandbox.",
                )
            return CommandPool(knocking.result(), child)
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
"""What a shell runs that is started before its script is known: it waits for the end of its input, then reads the
script from a memory file. The script sees the same environment as under `bash -c`, except that its last program is not
exec'd."""


class SpareShell:
    """A shell that has already started and waits for its script, which saves the next command a millisecond."""

    def __init__(self, pool: CommandPool, command: PoolCommand) -> None:
        self._pool = pool
        self._command = command

    @property
    def is_good(self) -> bool:
        """Whether the shell can still be used: as far as is known it is alive, and its pool is open."""
        return not self._pool.is_lost and not self._command.has_ended

    async def run(
        self, script: str, *, timeout_s: float | None, limit_bytes: int, on_output: OnOutput | None
    ) -> Finished | None:
        """Runs a script in this shell.

        Returns None if the shell was killed while it waited: no part of the script has run, so another shell may run
        it.
        """
        command = self._command
        command.begin(script, limit_bytes, on_output)
        try:
            done = await self._pool.follow(command, timeout_s)
        except CommandLost:
            if command.was_read:
                raise
            return None
        return done if command.was_read or done.timed_out else None

    def drop(self) -> None:
        """Discards the shell, which exits when its input ends without a script."""
        self._command.drop()


class CommandPool:
    """Runs any number of commands at once; a command that stalls does not delay the others."""

    def __init__(self, sock: socket.socket, child: Child) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._channel = Channel(self._loop, sock)
        self._child = child
        self._names = itertools.count(1)
        self.places = asyncio.Semaphore(_most_at_once())
        """One slot for each running command, including those in spare shells."""
        self._workers: dict[str, WorkerChannel] = {}
        self._idle: list[WorkerChannel] = []
        self._knows_code = False
        self._ending: asyncio.Task[Any] | None = None
        self.is_lost = False
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
        """Runs one command and waits for everything that it started, also on a timeout or when this task is cancelled.

        The caller must hold one of the `places`. `body` has `argv` (optionally with a `script` of any length, or a
        `letter` for code_runner) or `code`, and the complete `cwd` and `env`.
        """
        command = self._begin(body, stdin=stdin, limit_bytes=limit_bytes, on_output=on_output)
        return await self.follow(command, timeout_s)

    def spare(self, body: Mapping[str, Any]) -> SpareShell:
        """Starts a shell (`argv`) in that `cwd` with that `env`; it waits for its script."""
        return SpareShell(self, self._begin({**body, "argv": [*body["argv"], "-c", WAITS], "waits": True}))

    async def follow(self, command: PoolCommand, timeout_s: float | None) -> Finished:
        timed_out = False

        def time_out() -> None:
            nonlocal timed_out
            if not command.has_ended:
                timed_out = True
                self._stop(command)

        clock = self._loop.call_later(timeout_s, time_out) if timeout_s is not None else None
        try:
            try:
                await command.until_ended()
            except asyncio.CancelledError:
                # The order is given before the first await: a second cancellation only ends the waiting.
                self._stop(command)
                await command.until_ended()
                raise
            return await command.finished(timed_out=timed_out)
        finally:
            if clock is not None:
                clock.cancel()
            command.close()

    async def close(self) -> None:
        """Ends the pool with all commands that are still running; returns when nothing is left."""
        self._lose()
        if self._ending is not None:
            await asyncio.wait((self._ending,))
        await self._child.end(polite_s=0.5)

    # -- workers -------------------------------------------------------------------------------------------------------

    def _begin(self, body: Mapping[str, Any], **options: Any) -> PoolCommand:
        if self.is_lost:
            raise PoolGone("the process that runs commands has ended")
        try:
            command = PoolCommand(str(next(self._names)), body, **options)
            try:
                while not self._worker_for(body).take(command):
                    if self._channel.is_broken:
                        self._lose()
                        raise PoolGone("the process that runs commands has ended")
                    # That worker was killed by somebody else; the pool will report it.
            except BaseException:
                command.close()
                raise
        except OSError as error:
            raise not_started("worker", error.errno or errno.EMFILE) from error
        return command

    def _worker_for(self, body: Mapping[str, Any]) -> WorkerChannel:
        if "code" in body and not self._knows_code:
            self._knows_code = True
            while self._idle:  # forked before the pool loaded the modules for code
                self._let_go(self._idle.pop())
        return self._idle.pop() if self._idle else self._open_worker()

    def _open_worker(self) -> WorkerChannel:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker = WorkerChannel(
            self._loop, ours, str(next(self._names)), knows_code=self._knows_code, on_rest=self._rests
        )
        self._workers[worker.number] = worker
        order = "CODE" if self._knows_code else "WORKER"
        self._channel.send(f"{order} {worker.number}".encode(), lambda: (its.fileno(),), its.close)
        return worker

    def _rests(self, worker: WorkerChannel, ended: Ended | Exception) -> None:
        """Keeps or closes a worker whose command has ended.

        A worker with survivors is not reused: they would be counted with its next command.
        """
        is_clean = isinstance(ended, Exception) or not ended.survivors
        if is_clean and len(self._idle) < MOST_IDLE and worker.knows_code == self._knows_code:
            self._idle.append(worker)
        else:
            self._let_go(worker)

    def _let_go(self, worker: WorkerChannel) -> None:
        """Closes the channel of a worker, which ends it."""
        self._workers.pop(worker.number, None)
        worker.close()

    def _stop(self, command: PoolCommand) -> None:
        """Stops a command: the message names it, and the pool sends the signal that tells the worker to read it."""
        worker = next((worker for worker in self._workers.values() if worker.command is command), None)
        if worker is not None:
            order = f"STOP {worker.number}".encode()
            worker.say_stop(lambda: self._channel.send(order))
            self._loop.call_later(UNHEARD_S, self._if_unheard, command)

    def _if_unheard(self, command: PoolCommand) -> None:
        """Ends the whole pool if it does not answer: a command has stopped it (kill -STOP), or it hangs."""
        if not command.has_ended and not self.is_lost:
            self._lose()
            self._ending = self._loop.create_task(self._child.end(stop_s=0), name="a pool that does not answer")

    # -- the pool ------------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Reads what the pool has sent and the event loop has not delivered yet, above all the end of the pool.

        A shell of a dying pool may still read a script, and then nobody could tell whether it ran.
        """
        while not self.is_lost and self._receive():
            pass

    def _receive(self) -> bool:
        """Reads one message; returns whether there was one."""
        data = received(self._sock)
        if data is None:
            return False
        if not data:
            self._lose()
            return True
        match data.decode(errors="replace").split():
            case ["LOST", number, status] if status.isdecimal() and (worker := self._workers.pop(number, None)):
                worker.lose(worker_lost(os.waitstatus_to_exitcode(int(status))))
            case ["FAILED", number, reason] if reason.isdecimal() and (worker := self._workers.pop(number, None)):
                worker.lose(not_started("worker", int(reason)))
            case _:
                return True
        if worker in self._idle:
            self._idle.remove(worker)
        return True

    def _lose(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._loop.remove_reader(self._sock.fileno())
        self._channel.close()
        self._idle.clear()
        while self._workers:
            self._workers.popitem()[1].lose(pool_lost())


def _most_at_once() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_AT_ONCE
    return max(1, min(MOST_AT_ONCE, (soft - OTHER_DESCRIPTORS) // DESCRIPTORS))
