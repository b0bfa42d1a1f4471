"""A worker of the pool: runs one command after another, each until everything that it started has ended.

Runs in a fork of the pool, whose script lies beside this one. The supervisor talks to it over a channel of its own:

  From the supervisor:   RUN command + the body + descriptors (stdin, stdout, stderr, perhaps an answer)
                         FILE command + the same, with the body in the last descriptor
                         STOP command, and a signal sent by the pool, which says that there is a message to read
  To the supervisor:     ENDED command wait-status leftovers survivors traces · FAILED command errno cwd|program|worker

`traces` is 1 if files appeared in the folders that are discarded with the sandbox; a body with `look` lists them.

The body is a dict in the format of marshal: the other side is the same Python. An idle worker exits when its channel is
closed.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket
import errno
import gc
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

if __name__ == "worker":  # run from beside the script, not imported from the package
    import guardian  # type: ignore[import-not-found]
else:
    from leadrope.process import guardian

PR_SET_DUMPABLE = 4
MOST_DESCRIPTORS = 5
LONGEST_MESSAGE = 32 * 1024
"""A longer body is passed as a memory file. (The kernel accepts about 200 KiB in one message.)"""
STOP_S = 2.0
"""Delay between SIGTERM and SIGKILL, as for an agent."""
LONGEST_ARGUMENT = 128 * 1024 - 1
"""The longest argument that Linux accepts; a longer script is read from a memory file."""

STOP = signal.SIGTERM
# Blocked while a worker is forked and in the worker, which takes them one by one.
TAKEN = (signal.SIGCHLD, STOP)
BROKEN_WORKER = 70

ME = f"/proc/self/task/{os.getpid()}/children"
look = guardian.children if os.path.exists(ME) else guardian.scanned_children  # noqa: PTH110


def received(sock: "_socket.socket", longest: int) -> "tuple[bytes, list[int]]":
    """Returns a message and its descriptors; if some of the descriptors did not arrive, none is kept."""
    space = _socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
    data, parts, flags, _ = sock.recvmsg(longest, space, _socket.MSG_CMSG_CLOEXEC)
    handles = [
        int.from_bytes(part[2][at : at + 4], sys.byteorder) for part in parts for at in range(0, len(part[2]), 4)
    ]
    if flags & _socket.MSG_CTRUNC:
        for handle in handles:
            os.close(handle)
        return data, []
    return data, handles


def is_told_to_stop(channel: "_socket.socket", name: bytes) -> bool:
    """Whether one of the received messages tells the command with this name to stop.

    The signal alone may arrive before the worker has taken its command, or after it has ended it.
    """
    found = False
    while True:
        try:
            data = channel.recv(256, _socket.MSG_DONTWAIT)
        except OSError:
            return found
        if not data:  # the supervisor is gone, and this worker with it
            return found
        found = found or data == b"STOP " + name


def live(channel: "_socket.socket", pool: int) -> "NoReturn":
    """Runs commands until the channel is closed. It reports the end of each command; the pool reports its own end."""
    os.setsid()
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
    guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGKILL)
    while os.getppid() == pool:
        data, handles = received(channel, LONGEST_MESSAGE)
        if not data:
            os._exit(0)
        head, _, text = data.partition(b"\n")
        order, _, name = head.partition(b" ")
        if order == b"STOP":  # for a command that had already ended
            continue
        if not handles:
            channel.send(b"FAILED %s %d worker" % (name, errno.EMFILE))
            continue
        if order == b"FILE":
            with open(handles.pop(), "rb") as file:  # noqa: PTH123
                text = file.read()
        body = marshal.loads(text)  # noqa: S302  # comes from the supervisor
        told = Worker(body, handles, lambda: is_told_to_stop(channel, name)).run()  # noqa: B023  # called in this iteration only
        channel.send(told.format(name.decode()).encode())
    os._exit(BROKEN_WORKER)


def descendants(root: int) -> "Iterator[tuple[int, int]]":
    todo = [root]
    while todo:
        parent = todo.pop()
        for pid in look(parent):
            yield pid, parent
            todo.append(pid)


def is_ending(pid: int) -> bool:
    """Whether the process is exiting: it has no memory any more and need not be killed."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            return file.read(2) == b"0 "
    except OSError:
        return True


def kill_below(me: int, spared: "dict[int, str]", killed: "set[int]") -> "tuple[set[int], int]":
    """Sends SIGKILL to all descendants except `spared`; returns those found, and how many are still alive."""
    found: set[int] = set()
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
            found.add(pid)
            todo.append(pid)
    return found, alive


def end_below(me: int, spared: "dict[int, str]", killed: "set[int]", is_empty: "Callable[[], bool]") -> int:
    """Kills until nothing is left; returns how many are still alive. `is_empty` is called before each scan.

    When a process dies, its children are reparented to us, so a scan that meets a dying process may miss its children,
    and the next scan theirs. Nothing was missed only if everything that a scan found had already been dead before it.
    Two such scans in a row are required: the kernel's list sometimes omits an entry when another process ends
    meanwhile.
    """
    give_up = time.monotonic() + guardian.SWEEP_S
    dead: set[int] = set()
    quiet = 0
    while not is_empty():
        found, alive = kill_below(me, spared, killed)
        quiet = quiet + 1 if found <= dead else 0
        if quiet == 2 or time.monotonic() > give_up:
            return alive
        dead = {pid for pid in found if guardian.is_dead(pid)}
        time.sleep(0.001)
    return 0


def send_signal(pid: int, parents: "tuple[int, int]", number: int) -> None:
    """Sends a signal through a pidfd after checking the process's parent: a reused pid is never hit."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it has ended, or the kernel is older than 5.3: SIGKILL will follow
        return
    try:
        if guardian.state_and_parent(pid)[1] in parents:
            signal.pidfd_send_signal(handle, number)
    except OSError:  # it has ended meanwhile, or belongs to another user
        pass
    finally:
        os.close(handle)


def in_memory(data: bytes) -> int:
    handle = os.memfd_create("leadrope", os.MFD_CLOEXEC)
    with open(handle, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


MOST_LISTED = 5000


def in_use(folders: "list[str]") -> "list[int]":
    """Returns the number of used inodes and blocks of each folder's file system, at the cost of one call each."""
    found = []
    for path in folders:
        try:
            told = os.statvfs(path)
        except OSError:
            continue
        found += [told.f_files - told.f_ffree, told.f_blocks - told.f_bfree]
    return found


def listed(folders: "list[str]") -> "Iterator[bytes]":
    """Lists what lies in these folders, without other file systems: kind, ctime and path, each entry ended by NUL."""
    count = 0
    for root in folders:
        try:
            device = os.stat(root).st_dev  # noqa: PTH116  # pathlib is heavy
        except OSError:
            continue
        todo = [root]
        while todo:
            try:
                entries = list(os.scandir(todo.pop()))
            except OSError:  # not accessible, or removed meanwhile
                continue
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if found.st_dev != device:  # part of the real machine, which stays
                    continue
                count += 1
                if count > MOST_LISTED:
                    return
                is_folder = found.st_mode & 0o170000 == 0o040000
                if is_folder:
                    todo.append(entry.path)
                yield b"%s %d %s" % (b"d" if is_folder else b"f", found.st_ctime_ns, os.fsencode(entry.path))


def high(handle: int) -> int:
    """Duplicates a descriptor to a number above those that a command gets, which are assigned in order."""
    import fcntl  # noqa: PLC0415  # needed only for code in another Python

    found: int = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 16)
    return found


def beside(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)  # noqa: PTH100, PTH118, PTH120


def program_of(name: str, path: str) -> str:
    """Resolves `name` in the PATH that the command gets."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        found = f"{folder or '.'}/{name}"
        if os.access(found, os.X_OK) and not os.path.isdir(found):  # noqa: PTH112
            return found
    raise FileNotFoundError(errno.ENOENT, "not on the PATH", name)


class Worker:
    """Runs one command until everything that it has started has ended; used in a process of its own."""

    def __init__(self, body: "dict[str, Any]", handles: "list[int]", is_told_to_stop: "Callable[[], bool]") -> None:
        self.me = os.getpid()
        self.body = body
        self.handles = handles
        self.is_told_to_stop = is_told_to_stop
        self.pid = 0
        self.status = 0
        self.has_ended = False
        self.is_childless = False
        self.is_stopping = False
        self.leftovers: set[int] = set()

    def run(self) -> str:
        watched = self.body.get("watched", [])
        before = in_use(watched)
        failed = self.start()
        for handle in self.handles:  # held open here, the pipes would never end
            os.close(handle)
        if failed:
            return failed
        self.wait()
        survivors = self.sweep()
        traces = int(in_use(watched) != before)
        return f"ENDED {{}} {self.status} {len(self.leftovers)} {survivors} {traces}"

    def start(self) -> str:
        """Starts the command; returns the failure report, or an empty string."""
        try:
            os.chdir(self.body["cwd"])
        except OSError as error:
            return f"FAILED {{}} {error.errno} cwd"
        try:
            if "look" in self.body:
                self.pid = self.start_look()
            else:
                self.pid = self.start_code() if "code" in self.body else self.start_program()
        except OSError as error:
            return f"FAILED {{}} {error.errno or errno.EINVAL} program"
        return ""

    def start_program(self) -> int:
        if "plain" in self.body:
            try:
                return self.start_plain(self.body["plain"], self.body["env"])
            except OSError:  # bash reports the reason itself, or reads a script without an interpreter line
                pass
        argv, env = self.body["argv"], self.body["env"]
        answer = self.handles[3:]
        more: list[tuple[int, ...]] = []
        if "script" in self.body:
            argv = [*argv, *self.script_words(self.body["script"])]
        elif "waits" in self.body:
            more = [(os.POSIX_SPAWN_DUP2, answer[0], 3)]
        elif "letter" in self.body:
            argv = [*argv, beside("code_runner.py"), "3", "4", str(self.body["limit"])]
            letter = self.kept(in_memory(self.body["letter"]))
            more = [(os.POSIX_SPAWN_DUP2, answer[0], 3), (os.POSIX_SPAWN_DUP2, self.kept(high(letter)), 4)]
        return self.spawn(program_of(argv[0], env.get("PATH", os.defpath)), argv, env, more)

    def start_plain(self, words: "list[str]", env: "dict[str, str]") -> int:
        """Starts the program that bash would become, with the variables that bash would add."""
        program = program_of(words[0], env.get("PATH", os.defpath))
        return self.spawn(program, words, {**env, "PWD": os.getcwd(), "SHLVL": "0", "_": program}, [])  # noqa: PTH109

    def spawn(self, program: str, argv: "list[str]", env: "dict[str, str]", more: "list[tuple[int, ...]]") -> int:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[*((os.POSIX_SPAWN_DUP2, self.handles[number], number) for number in range(3)), *more],
            # In a session of its own: a `kill 0` in a script must not end its worker.
            setsid=True,
            setsigmask=[],
            setsigdef=[*guardian.IGNORED_BY_PYTHON, *TAKEN],
        )

    def script_words(self, script: str) -> "tuple[str, ...]":
        data = script.encode("utf-8", "surrogateescape")
        if len(data) < LONGEST_ARGUMENT:
            return "-c", script
        handle = self.kept(in_memory(data))
        os.set_inheritable(handle, True)
        return (f"/proc/self/fd/{handle}",)

    def kept(self, handle: int) -> int:
        """Registers a descriptor that is closed with the others once the command has started."""
        self.handles.append(handle)
        return handle

    def start_look(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            with open(self.handles[1], "wb", closefd=False) as file:  # a pipe
                file.writelines(line + b"\0" for line in listed(self.body["look"]))
        except OSError:  # nobody reads any more
            os._exit(BROKEN_WORKER)
        except BaseException:  # noqa: BLE001  # whatever was raised, the fork of the worker must not continue
            sys.__excepthook__(*sys.exc_info())
            os._exit(BROKEN_WORKER)
        os._exit(0)

    def start_code(self) -> int:
        code, env = sys.modules["code_runner"], self.body["env"]
        if code.read_again(self.body["code"]):
            gc.freeze()
        if os.environ != env:  # here and not in each fork: every page that a fork writes to is copied
            os.environ.clear()
            os.environ.update(env)
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            for number in TAKEN:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            guardian.prctl(PR_SET_DUMPABLE, 1)
            stdin, stdout, stderr, answer = self.handles
            for handle, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
                os.dup2(handle, number)
            # The supervisor's socket is among the descriptors closed here.
            kept = os.dup(answer) if answer <= 3 else answer
            os.dup2(kept, 3, inheritable=False)
            os.closerange(4, max(self.handles) + 64)
            gc.enable()
            code.run(self.body["code"], answer=3, limit=self.body["limit"])
        except BaseException:  # noqa: BLE001  # whatever was raised, the fork of the worker must not continue
            sys.__excepthook__(*sys.exc_info())
            os._exit(BROKEN_WORKER)
        os._exit(0)

    def wait(self) -> None:
        """Waits until the command has ended; while stopping it, until nothing of it is left or time is up."""
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
            # Neither is set: the first stop message counts.
            if number == STOP and kill_at == give_up and self.is_told_to_stop():
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
        """Kills what the command has left behind; returns how many processes are still alive.

        Only having no child at all is the kernel's assurance that nothing is left: a child that is being traced may be
        dead and stay.
        """
        return 0 if self.is_childless else end_below(self.me, {}, self.leftovers, self.has_no_child)

    def has_no_child(self) -> bool:
        self.reap()
        return self.is_childless
