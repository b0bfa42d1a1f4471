"""The room: a script that runs commands beside each other, each in a lane of its own; knows nothing of leadrope.

Run as `python -IS -Xutf8 room.py FOLDER`, behind the walls and below the guardian of an agent. It connects to the
socket in FOLDER and forks a lane per command. A lane is the subreaper of its command: whatever calls setsid or forks
twice comes back to it, is ended and counted before the lane tells the end. A command costs two forks, and no start of
a Python.

From the supervisor, one message each:   RUN id + descriptors (body, stdin, stdout, stderr, answer) · STOP id
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
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

if __name__ == "__main__":
    # Both lie beside this script, where `-I` does not look; a command's own code must not find them.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib is heavy
    import guardian  # type: ignore[import-not-found]

    del sys.path[0]
else:
    from leadrope.process import guardian

PR_SET_DUMPABLE = 4
SOCKET = "room.sock"
MOST_DESCRIPTORS = 5
STOP_S = 2.0
"""From SIGTERM to SIGKILL, as for an agent."""
LONGEST_ARGUMENT = 128 * 1024 - 1
"""Linux takes no longer one; a script that is longer is read from a file in memory."""

STOP = signal.SIGTERM
# Blocked while a lane is forked, and in the lane, which takes them one by one.
TAKEN = (signal.SIGCHLD, STOP)
BROKEN_LANE = 70

ME = f"/proc/self/task/{os.getpid()}/children"
look = guardian.children if os.path.exists(ME) else guardian.scanned_children  # noqa: PTH110


def descendants(root: int) -> "Iterator[tuple[int, int]]":
    todo = [root]
    while todo:
        parent = todo.pop()
        for pid in look(parent):
            yield pid, parent
            todo.append(pid)


def is_ending(pid: int) -> bool:
    """What is on its way out has no memory any more; it needs no killing."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            return file.read(2) == b"0 "
    except OSError:
        return True


def kill_below(me: int, spared: "dict[int, str]", killed: "set[int]") -> int:
    """SIGKILL to everything below but the spared; how much of it is still alive."""
    alive = 0
    todo = [me]
    while todo:
        parent = todo.pop()
        for pid in look(parent):
            if pid in spared:
                continue
            counts = not is_ending(pid)
            if guardian.kill(pid, (parent, me)) and counts:
                killed.add(pid)
            alive += not guardian.is_dead(pid)
            todo.append(pid)
    return alive


def send_signal(pid: int, parents: "tuple[int, int]", number: int) -> None:
    """A pidfd, then a look at its parent: a reused pid is never hit."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it has ended, or a kernel before 5.3: SIGKILL will come
        return
    try:
        if guardian.state_and_parent(pid)[1] in parents:
            signal.pidfd_send_signal(handle, number)
    except OSError:  # ended meanwhile, or of another user
        pass
    finally:
        os.close(handle)


def whole(handle: int) -> bytes:
    """What a file in memory holds, wherever it was left off."""
    size, parts = 0, []
    while part := os.pread(handle, 1 << 20, size):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def in_memory(data: bytes) -> int:
    handle = os.memfd_create("leadrope", os.MFD_CLOEXEC)
    with open(handle, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def high(handle: int) -> int:
    """The same where no number that a command gets is in its way."""
    import fcntl  # noqa: PLC0415  # for code in another Python alone

    found: int = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 16)
    return found


def beside(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)  # noqa: PTH100, PTH118, PTH120


def program_of(name: str, path: str) -> str:
    """Looked up in the PATH that the command gets."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        found = f"{folder or '.'}/{name}"
        if os.access(found, os.X_OK) and not os.path.isdir(found):  # noqa: PTH112
            return found
    raise FileNotFoundError(errno.ENOENT, "not on the PATH", name)


class Lane:
    """One command, from its start to the end of everything that it has started. Lives in a process of its own."""

    def __init__(self, body: "dict[str, Any]", handles: "list[int]") -> None:
        self.me = os.getpid()
        self.body = body
        self.handles = handles
        self.pid = 0
        self.status = 0
        self.has_ended = False
        self.is_childless = False
        self.is_stopping = False
        self.leftovers: set[int] = set()

    def run(self) -> str:
        try:
            os.chdir(self.body["cwd"])
        except OSError as error:
            return f"FAILED {{}} {error.errno} cwd"
        try:
            self.pid = self.start_code() if "code" in self.body else self.start_program()
        except OSError as error:
            return f"FAILED {{}} {error.errno or errno.EINVAL} program"
        for handle in self.handles:  # held open here, the pipes would never end
            os.close(handle)
        self.wait()
        survivors = self.sweep()
        return f"ENDED {{}} {self.status} {len(self.leftovers)} {survivors}"

    def start_program(self) -> int:
        argv, env = self.body["argv"], self.body["env"]
        _, stdin, stdout, stderr, answer = self.handles
        more: list[tuple[int, ...]] = []
        if "script" in self.body:
            argv = [*argv, *self.script_words(self.body["script"])]
        elif "letter" in self.body:
            argv = [*argv, beside("room_code.py"), "3", "4", str(self.body["limit"])]
            letter = in_memory(self.body["letter"])
            more = [(os.POSIX_SPAWN_DUP2, high(answer), 3), (os.POSIX_SPAWN_DUP2, high(letter), 4)]
        return os.posix_spawn(
            program_of(argv[0], env.get("PATH", os.defpath)),
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
                *more,
            ],
            # A session of its own: a `kill 0` in a script must not end its lane.
            setsid=True,
            setsigmask=[],
            setsigdef=[*guardian.IGNORED_BY_PYTHON, *TAKEN],
        )

    def script_words(self, script: str) -> "tuple[str, ...]":
        data = script.encode("utf-8", "surrogateescape")
        if len(data) < LONGEST_ARGUMENT:
            return "-c", script
        handle = in_memory(data)
        os.set_inheritable(handle, True)
        return (f"/proc/self/fd/{handle}",)

    def start_code(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            for number in TAKEN:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            guardian.prctl(PR_SET_DUMPABLE, 1)
            _, stdin, stdout, stderr, answer = self.handles
            for handle, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
                os.dup2(handle, number)
            # The supervisor's socket is among what is closed here.
            kept = os.dup(answer) if answer <= 3 else answer
            os.dup2(kept, 3, inheritable=False)
            os.closerange(4, max(self.handles) + 64)
            gc.enable()
            os.environ.clear()
            os.environ.update(self.body["env"])
            sys.modules["room_code"].run(self.body["code"], answer=3, limit=self.body["limit"])
        except BaseException:  # noqa: BLE001  # whatever it is, the copy of the lane must not live on
            sys.__excepthook__(*sys.exc_info())
            os._exit(BROKEN_LANE)
        os._exit(0)

    def wait(self) -> None:
        """Until the command has ended; while it is being stopped, until nothing of it is left, or time is up."""
        kill_at = give_up = float("inf")
        while True:
            self.reap()
            if self.has_ended and (self.is_childless or not self.is_stopping):
                return
            now = time.monotonic()
            if now >= give_up:
                self.status = self.status if self.has_ended else signal.SIGKILL
                return
            if now >= kill_at:
                if self.has_ended:
                    return
                os.kill(self.pid, signal.SIGKILL)  # our child, and not yet reaped
                kill_at, give_up = float("inf"), now + guardian.SWEEP_S
                self.is_stopping = False  # what is left after it is killed as well
                continue
            number = self.next_signal(min(kill_at, give_up) - now)
            if number == STOP and kill_at == give_up:  # neither is set: the first word counts
                self.is_stopping = True
                kill_at = time.monotonic() + STOP_S
                self.ask_to_end()

    def next_signal(self, timeout: float) -> int:
        if timeout == float("inf"):
            return int(signal.sigwait(TAKEN))
        found = signal.sigtimedwait(TAKEN, max(0.0, timeout))
        return found.si_signo if found else 0

    def ask_to_end(self) -> None:
        for pid, parent in descendants(self.me):
            send_signal(pid, (parent, self.me), signal.SIGTERM)
            send_signal(pid, (parent, self.me), signal.SIGCONT)  # a stopped process would not see the TERM

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_childless = True
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.has_ended = True
                self.status = status

    def sweep(self) -> int:
        """Kills what the command has left behind, and gives how much of it is alive all the same.

        Having no child at all is the kernel's own word that nothing is left. A child that somebody traces may be dead
        and stay: then two looks in a row must find nothing alive.
        """
        give_up = time.monotonic() + guardian.SWEEP_S
        was_empty = False
        while True:
            self.reap()
            if self.is_childless:
                return 0
            alive = kill_below(self.me, {}, self.leftovers)
            if (not alive and was_empty) or time.monotonic() > give_up:
                return alive
            was_empty = not alive
            signal.sigtimedwait((signal.SIGCHLD,), 0.01)


class Room:
    def __init__(self, sock: "_socket.socket") -> None:
        self.me = os.getpid()
        self.sock = sock
        self.lanes: dict[int, str] = {}
        self.pids: dict[str, int] = {}
        self.wake, wake_end = os.pipe()
        for handle in (self.wake, wake_end):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def serve(self) -> None:
        """Until the supervisor closes its end. What still runs then is the guardian's to end."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.sock.fileno(), select.POLLIN)
        while True:
            for handle, _ in poll.poll():
                if handle == self.wake:
                    os.read(self.wake, 4096)
                    self.reap()
                elif not self.receive():
                    return

    def receive(self) -> bool:
        space = _socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
        data, parts, flags, _ = self.sock.recvmsg(256, space, _socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        handles = [
            int.from_bytes(part[2][at : at + 4], sys.byteorder) for part in parts for at in range(0, len(part[2]), 4)
        ]
        order, _, name = data.decode().partition(" ")
        if order == "RUN":
            if flags & _socket.MSG_CTRUNC or len(handles) != MOST_DESCRIPTORS:
                self.tell(f"FAILED {name} {errno.EMFILE} lane")
            else:
                self.open_lane(name, handles)
        elif order == "STOP" and name in self.pids:
            os.kill(self.pids[name], STOP)  # our child, and not yet reaped
        for handle in handles:
            os.close(handle)
        return True

    def open_lane(self, name: str, handles: "list[int]") -> None:
        body = marshal.loads(whole(handles[0]))  # noqa: S302  # the supervisor's own words
        if "code" in body:
            self.learn_code()
        signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
        try:
            pid = os.fork()
        except OSError as error:
            self.tell(f"FAILED {name} {error.errno} lane")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TAKEN)
            return
        if pid == 0:
            self.live(name, body, handles)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TAKEN)
        self.lanes[pid] = name
        self.pids[name] = pid

    def live(self, name: str, body: "dict[str, Any]", handles: "list[int]") -> "NoReturn":
        """The life of a lane. It tells the end itself and then exits with 0; another exit is told by the room."""
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
            guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == self.me:
                self.tell(Lane(body, handles).run().format(name))
                os._exit(0)
        except BaseException:  # noqa: BLE001  # a copy of the room must never go on as the room
            sys.__excepthook__(*sys.exc_info())
        os._exit(BROKEN_LANE)

    def learn_code(self) -> None:
        """Once, and only where code is run: what all code needs is imported here and shared by every fork."""
        if "room_code" in sys.modules:
            return
        sys.path.insert(0, beside(""))
        import room_code  # type: ignore[import-not-found]  # noqa: PLC0415

        del sys.path[0]
        room_code.prepare()
        gc.freeze()

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
            del self.pids[name]
            if status != 0:
                self.sweep()
                self.tell(f"LOST {name} {status}")

    def sweep(self) -> None:
        """A lane was killed: what it held hangs below us now, beside the other lanes."""
        give_up = time.monotonic() + guardian.SWEEP_S
        while kill_below(self.me, self.lanes, set()) and time.monotonic() < give_up:
            time.sleep(0.001)

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
    guardian.prctl(PR_SET_DUMPABLE, 0)
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
