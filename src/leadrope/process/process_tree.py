"""The two ways to hold a process tree: through its guardian, or bare, swept at the end by tag and session."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from leadrope.process import guardian, reaper
from leadrope.process.streams import InputSocket, Pipe, Streams

Rung = Literal["exited", "closed", "stopped", "killed"]
"""How far the escalation went: it ended by itself, after its stdin was closed, after SIGTERM, or by SIGKILL."""

START_S = 15.0
"""Python starts in 15 ms here; on a machine that swaps it may take seconds. After this something is broken."""

OVERDUE_S = guardian.SWEEP_S + 3.0
"""The guardian limits its own work; this long after its last deadline it is stuck (stopped by the agent, say)."""

_REAP_FIRST_S = 0.001
_REAP_MOST_S = 0.05


class TreeHold(Protocol):
    """What a child asks of the holder of its tree. Both calls return at once, without waiting."""

    pid: int

    def terminate(self) -> None: ...

    def end(self, polite_s: float, stop_s: float) -> None: ...


class TreeOwner(Protocol):
    """The receiver of a hold's reports; each method is called once, in this order."""

    def agent_exited(self, code: int) -> None: ...

    def tree_ended(self, *, leftovers: int, survivors: int, names: str, rung: Rung) -> None: ...


class Swept(NamedTuple):
    leftovers: int = 0
    survivors: int = 0
    names: str = "-"
    """Names of the first survivors, for messages."""


_LATE: list[subprocess.Popen[bytes]] = []
"""Guardians that are still trying to kill survivors; reaped when another one is started, or by the system at exit."""


def late() -> int:
    """Reaps the guardians that have ended; returns how many are still working."""
    _LATE[:] = [process for process in _LATE if process.poll() is None]
    return len(_LATE)


class ExecFailed(Exception):
    """The command itself could not be executed; `child` turns this into a message."""

    def __init__(self, errno: int) -> None:
        super().__init__(os.strerror(errno))
        self.errno = errno


class BoxFailed(Exception):
    """The sandbox could not be built; its stderr says why."""


class GuardianFailed(Exception):
    """The guardian ended before it had started the command."""


def has_guardian() -> bool:
    """Whether a guardian can be used: it needs Linux and a real interpreter.

    The sys.executable of a frozen program is the program itself.
    """
    is_frozen = bool(getattr(sys, "frozen", False))
    return sys.platform == "linux" and bool(sys.executable) and not is_frozen and _has_script()


@functools.cache
def _has_script() -> bool:
    return Path(guardian.__file__).is_file()


def _script() -> str:
    """Returns the guardian's compiled file, which starts faster and needs a megabyte less than its source.

    Where none could be written (a read-only installation, PYTHONDONTWRITEBYTECODE), a compiled file of an older source
    may exist; it is compared with the source, and the source itself is run if it does not match.
    """
    compiled = guardian.__spec__.cached
    return compiled if compiled and is_of(compiled, guardian.__file__) else guardian.__file__


def is_of(compiled: str, source: str) -> bool:
    """Whether `compiled` was made from `source`, by the modification time and size in its header."""
    try:
        with open(compiled, "rb") as file:  # noqa: PTH123  # read at every start
            head = file.read(16)
        found = os.stat(source)  # noqa: PTH116
    except OSError:
        return False
    told = (int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF)
    by_time = (0).to_bytes(4, "little")
    return head[4:8] == by_time and head[8:] == b"".join(number.to_bytes(4, "little") for number in told)


class Guarded:
    """A process tree below its guardian.

    Started with Popen and not loop.subprocess_exec: asyncio kills a process whose transport is dropped, and a guardian
    killed like that cannot end its tree, whereas one whose socket is dropped does. Popen also avoids the thread per
    process of asyncio's watcher on Python 3.11.
    """

    def __init__(self, owner: TreeOwner, *, tag: str, boxed: bool = False, socket_input: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._tag = tag
        self._boxed = boxed
        self._socket_input = socket_input
        self.pid = 0
        self._session = 0
        self._started: asyncio.Future[int | Exception] = self._loop.create_future()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._received = b""
        self._exit_code: int | None = None
        self._rung: Rung = "exited"
        self._swept: Swept | None = None
        self._connecting: asyncio.Future[None] | None = None
        self._net: reaper.Net | None = None
        self._overdue: asyncio.TimerHandle | None = None

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, streams: Streams) -> None:
        late()
        ours, theirs = socket.socketpair()
        to_agent, its_input = socket.socketpair() if self._socket_input else (None, None)
        with theirs, its_input or contextlib.nullcontext():
            try:
                process = subprocess.Popen(  # noqa: ASYNC220  # fork and exec, as asyncio does it; nothing waits
                    [
                        *(sys.executable, "-I", "-S", "-X", "utf8", _script()),
                        *(str(theirs.fileno()), "boxed" if self._boxed else "plain", "--", *argv),
                    ],
                    stdin=subprocess.PIPE if its_input is None else its_input.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env=env,
                    cwd=cwd,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                if to_agent is not None:
                    to_agent.close()
                raise
        self._process = process
        self._control = ours
        ours.setblocking(False)
        self._loop.add_reader(ours.fileno(), self._read_control)
        # Shielded: a start that is cancelled halfway would leave pipes that nobody closes.
        self._connecting = asyncio.ensure_future(self._connect(process, to_agent, streams))
        await asyncio.shield(self._connecting)
        async with asyncio.timeout(START_S):
            started = await self._started
        if isinstance(started, Exception):
            raise started

    async def _connect(
        self, process: subprocess.Popen[bytes], to_agent: socket.socket | None, streams: Streams
    ) -> None:
        if to_agent is None:
            await self._loop.connect_write_pipe(lambda: Pipe(0, streams), process.stdin)
        else:
            await self._loop.connect_accepted_socket(lambda: InputSocket(streams), to_agent)
        await self._loop.connect_read_pipe(lambda: Pipe(1, streams), process.stdout)
        await self._loop.connect_read_pipe(lambda: Pipe(2, streams), process.stderr)

    def terminate(self) -> None:
        self._tell("TERM")

    def end(self, polite_s: float, stop_s: float) -> None:
        self._tell(f"END {math.ceil(polite_s * 1000)} {math.ceil(stop_s * 1000)}")
        if self._process is not None and self._control is not None:
            # An agent of the same user may have stopped its guardian; this wakes it.
            self._process.send_signal(signal.SIGCONT)
            if self._overdue is not None:
                self._overdue.cancel()
            self._overdue = self._loop.call_later(polite_s + stop_s + OVERDUE_S, self._replace_guardian)

    def _tell(self, order: str) -> None:
        if self._control is None:
            return
        try:
            self._control.send(order.encode() + b"\n")
        except OSError:
            # It has just ended (the end of file is about to reach _read_control), or it is stuck with a full socket and
            # _replace_guardian follows.
            return

    def _read_control(self) -> None:
        if self._control is None:
            return
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._guardian_ended()
            return
        *reports, self._received = (self._received + data).split(b"\n")
        for report in reports:
            self._take(report.decode().split())

    def _take(self, words: list[str]) -> None:
        match words:
            case ["STARTED", pid, session]:
                self.pid = int(pid)
                self._session = int(session)
                if not self._started.done():
                    self._started.set_result(self.pid)
            case ["FAILED", errno]:
                self._swept = Swept()
                if not self._started.done():
                    self._started.set_result(ExecFailed(int(errno)) if int(errno) else BoxFailed())
            case ["EXITED", status, "exited" | "closed" | "stopped" | "killed" as rung]:
                self._rung = rung
                self._exit_code = os.waitstatus_to_exitcode(int(status))
                self._owner.agent_exited(self._exit_code)
            case ["SWEPT", leftovers, survivors, names]:
                self._swept = Swept(int(leftovers), int(survivors), names)
                if self._swept.survivors:
                    # It continues to kill in the background; whoever waits for the end has got an answer.
                    self._let_guardian_go()
                    self._finish(self._swept)
            case _:
                raise RuntimeError(f"the guardian of process {self.pid} said {' '.join(words)!r}, which means nothing")

    def _guardian_ended(self) -> None:
        self._drop_control()
        self._reap(_REAP_FIRST_S)

    def _let_guardian_go(self) -> None:
        self._drop_control()
        if self._process is not None:
            _LATE.append(self._process)

    def _drop_control(self) -> None:
        if self._control is not None:
            self._loop.remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        if self._overdue is not None:
            self._overdue.cancel()

    def _reap(self, pause_s: float) -> None:
        """Reaps the guardian; its socket closes a moment before it can be waited for."""
        if self._process is not None and self._process.poll() is None:
            self._loop.call_later(pause_s, self._reap, min(2 * pause_s, _REAP_MOST_S))
            return
        if not self._started.done():
            self._started.set_result(GuardianFailed())
        if self._swept is not None:
            self._finish(self._swept)
        else:
            # Killed before its work was done. The agent died with it (PDEATHSIG); the reaper finds the others.
            self._rung = "killed"
            net = self._net or reaper.Net(session=self._session, tag=self._tag)
            _sweep(self._loop, net, self._finish)

    def _finish(self, swept: Swept) -> None:
        if self._exit_code is None:
            self._owner.agent_exited(-signal.SIGKILL)
        self._owner.tree_ended(leftovers=swept.leftovers, survivors=swept.survivors, names=swept.names, rung=self._rung)

    def _replace_guardian(self) -> None:
        """Does the guardian's work here if it did not answer in time: its tree is still below it."""
        if self._process is None or self._control is None:
            return
        self._net = reaper.Net(session=self._session, tag=self._tag)
        self._net.note_descendants(self._process.pid)
        self._net.sweep()
        self._process.kill()


class Bare:
    """A process tree without a guardian: it has its own session and is swept by the reaper after the end.

    Processes that have left the session and cleared their environment escape, and nothing ends the tree if the
    supervisor is killed.
    """

    def __init__(self, owner: TreeOwner, *, tag: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._tag = tag
        self.pid = 0
        self._streams: Streams | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._net: reaper.Net | None = None
        self._rung: Rung = "exited"
        self._timers: list[asyncio.TimerHandle] = []
        self._has_exited = False

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, streams: Streams) -> None:
        transport, _ = await self._loop.subprocess_exec(
            lambda: streams,
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        self._streams = streams
        self._transport = transport
        self.pid = transport.get_pid()
        self._net = reaper.Net(session=self.pid, tag=self._tag)
        if transport.get_returncode() is not None:
            self.exited()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def end(self, polite_s: float, stop_s: float) -> None:
        if self._has_exited:
            return
        if self._rung == "exited":
            self._rung = "closed"
        if self._rung == "closed":
            self._timers.append(self._loop.call_later(polite_s, self._stop))
        self._timers.append(self._loop.call_later(polite_s + stop_s, self._kill))

    def exited(self) -> None:
        """Called when asyncio has seen the exit, and once at the start; only the first call counts."""
        if self._has_exited or self._transport is None or self._net is None:
            return
        self._has_exited = True
        for timer in self._timers:
            timer.cancel()
        code = self._transport.get_returncode()
        self._owner.agent_exited(-signal.SIGKILL if code is None else code)
        _sweep(self._loop, self._net, self._finish)

    def _finish(self, swept: Swept) -> None:
        self._owner.tree_ended(leftovers=swept.leftovers, survivors=swept.survivors, names=swept.names, rung=self._rung)
        if self._streams is not None and self._transport is not None:
            # Not earlier: asyncio kills a process whose transport is closed.
            transport = self._transport
            self._streams.all_lost.add_done_callback(lambda _: transport.close())

    def _stop(self) -> None:
        if self._rung == "closed":
            self._rung = "stopped"
            self._signal(signal.SIGTERM)

    def _kill(self) -> None:
        self._rung = "killed"
        if self._net is not None:
            self._net.note_descendants(self.pid)
        self._signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._transport is None:
            return
        try:
            self._transport.send_signal(number)
        except ProcessLookupError:
            return  # it has ended; asyncio is about to report it


def _sweep(loop: asyncio.AbstractEventLoop, net: reaper.Net, done: Callable[[Swept], None]) -> None:
    """Sweeps in steps of a few milliseconds each, with the event loop running in between."""
    give_up = time.monotonic() + reaper.GIVE_UP_S

    def step() -> None:
        alive = net.sweep()
        if alive and time.monotonic() < give_up:
            loop.call_later(0.005, step)
        else:
            done(Swept(net.killed, alive))

    step()
