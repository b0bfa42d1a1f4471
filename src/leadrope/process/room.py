"""The room: a script that runs commands beside each other, each in a lane of its own; knows nothing of leadrope.

Run as `python -IS -Xutf8 room.py FOLDER`, behind the walls and below the guardian of an agent. It connects to the
socket in FOLDER and has a lane for each command that runs: a fork of itself, used again for the next. A lane is the
subreaper of its command: whatever calls setsid or forks twice comes back to it, is ended and counted before the lane
tells the end. A command costs one fork, and no start of a Python.

From the supervisor, one message each:   RUN|CODE id + descriptors (body, stdin, stdout, stderr, answer) · STOP id
To the supervisor, one message each:     ENDED id wait-status leftovers survivors · LOST id wait-status (of the lane)
                                         FAILED id errno cwd|program|lane

The body is a dict of marshal's: the other side is the same Python. What comes back may have passed through the hands of
a command, and is plain text.

Every import costs each fork, hence `_signal` and `_socket` in place of their comfortable wrappers.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket
import errno
import gc
import marshal
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

if __name__ == "__main__":
    # Both lie beside this script, where `-I` does not look; a command's own code must not find them.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib is heavy
    import guardian  # type: ignore[import-not-found]
    import room_lane as lanes  # type: ignore[import-not-found]

    del sys.path[0]
else:
    from leadrope.process import guardian
    from leadrope.process import room_lane as lanes

SOCKET = "room.sock"
MOST_IDLE = 4
"""Lanes that are kept for commands to come."""


def received(sock: "_socket.socket") -> "tuple[bytes, list[int]]":
    """A message and its descriptors; of descriptors that did not all arrive none is kept."""
    space = _socket.CMSG_SPACE(lanes.MOST_DESCRIPTORS * 4)
    data, parts, flags, _ = sock.recvmsg(256, space, _socket.MSG_CMSG_CLOEXEC)
    handles = [
        int.from_bytes(part[2][at : at + 4], sys.byteorder) for part in parts for at in range(0, len(part[2]), 4)
    ]
    if flags & _socket.MSG_CTRUNC:
        for handle in handles:
            os.close(handle)
        return data, []
    return data, handles


def is_told_to_stop(wire: "_socket.socket", name: bytes) -> bool:
    """Whether one of the words that have come is for the command with this name."""
    found = False
    while True:
        try:
            data = wire.recv(256, _socket.MSG_DONTWAIT)
        except OSError:
            return found
        if not data:  # the room is gone, and this lane with it
            return found
        found = found or data == b"STOP " + name


def struct_of(handles: "list[int]") -> bytes:
    return b"".join(handle.to_bytes(4, sys.byteorder) for handle in handles)


class Room:
    def __init__(self, sock: "_socket.socket") -> None:
        self.me = os.getpid()
        self.sock = sock
        self.lanes: dict[int, str] = {}
        """The pid of a lane -> the command that it runs; empty while it is idle."""
        self.pids: dict[str, int] = {}
        self.wires: dict[int, _socket.socket] = {}
        """The pid of a lane -> the way to it."""
        self.ends: dict[int, int] = {}
        """Our end of that way -> the pid."""
        self.heard: set[int] = set()
        """Lanes that have not hung up."""
        self.idle: list[int] = []
        self.poll = select.poll()
        self.wake, wake_end = os.pipe()
        for handle in (self.wake, wake_end):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def serve(self) -> None:
        """Until the supervisor closes its end. What still runs then is the guardian's to end."""
        self.poll.register(self.wake, select.POLLIN)
        self.poll.register(self.sock.fileno(), select.POLLIN)
        while True:
            for handle, _ in self.poll.poll():
                if handle == self.wake:
                    os.read(self.wake, 4096)
                    self.reap()
                elif handle in self.ends:
                    self.hear(self.ends[handle])
                elif handle == self.sock.fileno() and not self.receive():
                    return

    def receive(self) -> bool:
        data, handles = received(self.sock)
        if not data:
            return False
        order, _, name = data.decode().partition(" ")
        if order in ("RUN", "CODE"):
            if order == "CODE":
                self.learn_code()
            if len(handles) != lanes.MOST_DESCRIPTORS:
                self.tell(f"FAILED {name} {errno.EMFILE} lane")
            else:
                self.hand_on(name, handles)
        elif order == "STOP" and name in self.pids:
            self.stop(self.pids[name], data)
        for handle in handles:
            os.close(handle)
        return True

    def stop(self, pid: int, words: bytes) -> None:
        """The words say whom they are for, and the signal that they are there.

        A signal alone may come before the lane has taken its command, or after it has ended it.
        """
        try:
            self.wires[pid].send(words, _socket.MSG_DONTWAIT)
        except OSError:  # somebody has killed it, which will be told
            return
        os.kill(pid, lanes.STOP)  # our child, and not yet reaped

    def hand_on(self, name: str, handles: "list[int]") -> None:
        """To a lane that is idle, or to a new one."""
        message = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct_of(handles))]
        while self.idle:
            pid = self.idle.pop()
            try:
                self.wires[pid].sendmsg([name.encode()], message)
            except OSError:  # somebody has killed it
                self.let_go(pid)
                continue
            break
        else:
            try:
                pid = self.open_lane(handles)
                self.wires[pid].sendmsg([name.encode()], message)
            except OSError as error:
                self.tell(f"FAILED {name} {error.errno} lane")
                return
        self.lanes[pid] = name
        self.pids[name] = pid

    def open_lane(self, foreign: "list[int]") -> int:
        """`foreign` are descriptors of a command that are open here; held open in a lane too, they would never end."""
        ours, its = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        signal.pthread_sigmask(signal.SIG_BLOCK, lanes.TAKEN)
        try:
            pid = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, lanes.TAKEN)
            ours.close()
            its.close()
            raise
        if pid == 0:
            self.live(its, ours, foreign)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, lanes.TAKEN)
        its.close()
        self.lanes[pid] = ""
        self.wires[pid] = ours
        self.ends[ours.fileno()] = pid
        self.poll.register(ours.fileno(), select.POLLIN)
        self.heard.add(pid)
        return pid

    def live(self, wire: "_socket.socket", other_end: "_socket.socket", foreign: "list[int]") -> "NoReturn":
        """The life of a lane. It tells the end of each command itself; its own end is told by the room."""
        try:
            signal.set_wakeup_fd(-1)
            for end in (other_end, *self.wires.values()):
                end.close()
            for handle in foreign:
                os.close(handle)
            os.setsid()
            guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
            guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGKILL)
            while os.getppid() == self.me:
                data, handles = received(wire)
                if not data:
                    os._exit(0)
                if data.startswith(b"STOP "):  # a command that had ended by then
                    continue
                body = marshal.loads(lanes.whole(handles[0]))  # noqa: S302  # the supervisor's own words
                lane = lanes.Lane(body, handles, lambda name=data: is_told_to_stop(wire, name))
                self.tell(lane.run().format(data.decode()))
                wire.send(b"idle")
        except BaseException:  # noqa: BLE001  # a copy of the room must never go on as the room
            sys.__excepthook__(*sys.exc_info())
        os._exit(lanes.BROKEN_LANE)

    def hear(self, pid: int) -> None:
        """A lane has ended its command, or itself."""
        try:
            data = self.wires[pid].recv(16)
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(self.wires[pid].fileno())  # its exit is told by a signal
            self.heard.discard(pid)
            return
        self.pids.pop(self.lanes[pid], None)
        self.lanes[pid] = ""
        if len(self.idle) < MOST_IDLE:
            self.idle.append(pid)
        else:
            self.let_go(pid)

    def let_go(self, pid: int) -> None:
        """The end of its wire is the end of a lane."""
        wire = self.wires.pop(pid, None)
        if wire is None:
            return
        del self.ends[wire.fileno()]
        if pid in self.heard:
            self.poll.unregister(wire.fileno())
            self.heard.discard(pid)
        wire.close()

    def learn_code(self) -> None:
        """Once, and only where code is run: what all code needs is imported here and shared by every fork."""
        if "room_code" in sys.modules:
            return
        sys.path.insert(0, lanes.beside(""))
        import room_code  # type: ignore[import-not-found]  # noqa: PLC0415

        del sys.path[0]
        room_code.prepare()
        gc.freeze()
        while self.idle:  # forked before, they know nothing of it
            self.let_go(self.idle.pop())

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self.lanes.pop(pid, None)
            if name is None:  # left by a lane that was killed
                continue
            self.let_go(pid)
            if pid in self.idle:
                self.idle.remove(pid)
            if name:
                del self.pids[name]
                self.sweep()
                self.tell(f"LOST {name} {status}")

    def sweep(self) -> None:
        """A lane was killed: what it held hangs below us now, beside the other lanes."""
        lanes.end_below(self.me, self.lanes, set(), lambda: False)

    def tell(self, words: str) -> None:
        self.sock.send(words.encode())


def connected(folder: str) -> "_socket.socket":
    """Through a handle of the folder: the name of a socket has room for 107 bytes."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    sock.connect(f"/proc/self/fd/{handle}/{SOCKET}")
    os.close(handle)
    return sock


def main() -> None:
    gc.disable()  # nothing here has cycles, and a collection would copy shared memory into every fork
    # Not to be traced by a command of the same user, who could speak to the supervisor in its name.
    guardian.prctl(lanes.PR_SET_DUMPABLE, 0)
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
    sock = connected(sys.argv[1])
    gc.freeze()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    os.close(null)
    Room(sock).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
