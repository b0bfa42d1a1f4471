"""The ancestor of one agent: a script that ends the agent's whole tree, and knows nothing of leadrope or of agents.

Run as `python -I -S guardian.py FD -- COMMAND...`. It is the subreaper of everything the agent starts, so whatever
calls setsid, forks twice or clears its environment still comes back to it. It ends the tree when it is told to,
when the agent has exited, and when the supervisor is gone (kill -9 included).

To the supervisor, one line each:     STARTED pid · FAILED errno · EXITED wait-status rung · SWEPT leftovers survivors
From the supervisor, one line each:   TERM · KILL · END polite-milliseconds stop-milliseconds

Every import costs private memory in every run, hence `_signal` and `_ctypes` in place of their comfortable wrappers
(enum alone is 0.8 MB and 10 ms here).
"""

import _signal as signal  # type: ignore[import-not-found]
import errno
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# SIGKILL needs about a millisecond. Only a process in uninterruptible sleep, or one of another user, takes longer,
# and nobody can hurry those; the supervisor is told that they are there.
SWEEP_S = 5.0
# After kill -9 of the supervisor nobody waits for the answer.
ALONE_SWEEP_S = 30.0
# What a TERM to the guardian itself (a machine that shuts down) leaves the agent.
SHUTDOWN_STOP_S = 2.0

# Handled, not ignored: a handler is reset by exec, so the agent gets the defaults.
HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Ignored by Python at its start; an ignored signal would be inherited by the agent.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def prctl(option: int, value: int) -> None:
    try:
        import _ctypes  # noqa: PLC0415  # Linux only, like this script

        function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program
        result = _ctypes.call_function(function, (option, value, 0, 0, 0))
    except (ImportError, AttributeError):  # the private door may close in a later Python
        import ctypes  # noqa: PLC0415

        result = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    if result != 0:
        raise OSError(f"prctl({option}, {value}) failed")


def first_environment() -> dict[bytes, bytes]:
    """The environment as it was passed: under the C locale Python itself adds LC_CTYPE to os.environ."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # pathlib costs memory in every run
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def spawn(command: list[str]) -> tuple[int, int]:
    """The pid of the started agent and 0, or the errno that exec gave."""
    environment = first_environment()
    guardian = os.getpid()
    failed, fail = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            for number in IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == guardian:
                os.execve(command[0], command, environment)  # noqa: S606
        except OSError as error:
            os.write(fail, str(error.errno or errno.EINVAL).encode())
        finally:
            os._exit(127)
    os.close(fail)
    answer = os.read(failed, 16)
    os.close(failed)
    return pid, int(answer or 0)


def state_and_parent(pid: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "X", 0
    return fields[0].decode(), int(fields[1])


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:  # it ended while we looked; its children are ours at the next look
        pass
    return found


def scanned_children(pid: int) -> list[int]:
    """For kernels without CONFIG_PROC_CHILDREN."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return [found for found in pids if state_and_parent(found)[1] == pid]


def kill(pid: int, parents: tuple[int, int]) -> bool:
    """True when a living process got the signal. A pidfd, then a look at its parent: a reused pid is never hit."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3
        handle = -1
    try:
        state, parent = state_and_parent(pid)
        if state in "ZX" or parent not in parents:
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user (setuid): counted, and reported as a survivor
        return True
    finally:
        if handle >= 0:
            os.close(handle)
    return True


class Guardian:
    def __init__(self, control: int) -> None:
        self.me = os.getpid()
        self.control = control
        self.agent = 0
        self.agent_ended = False
        self.childless = False
        self.alone = False
        self.rung = "exited"
        self.term_at = self.kill_at = self.sweep_at = float("inf")
        self.received = b""
        self.look = children if os.path.exists(f"/proc/self/task/{self.me}/children") else scanned_children  # noqa: PTH110
        self.wake, wake_end = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in HANDLED:
            signal.signal(number, lambda _number, _frame: None)
        self.poll = select.poll()
        self.poll.register(self.wake, select.POLLIN)
        self.poll.register(control, select.POLLIN)
        # The second wire to the supervisor: a process it has forked without exec may hold a copy of its socket,
        # and then no end of file comes. Unlike PDEATHSIG it does not fire when a mere thread of it ends.
        self.supervisor = -1
        try:
            self.supervisor = os.pidfd_open(os.getppid())
            self.poll.register(self.supervisor, select.POLLIN)
        except OSError:  # a kernel before 5.3, or it is gone already: the socket tells
            pass

    def report(self, *words: object) -> None:
        try:
            os.write(self.control, " ".join(map(str, words)).encode() + b"\n")
        except OSError:  # nobody listens any more; the end of file on the same socket is acted upon
            self.supervisor_gone()

    def supervisor_gone(self) -> None:
        self.alone = True
        self.kill_at = 0.0

    def run(self, command: list[str]) -> None:
        try:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            self.agent, failure = spawn(command)
        except OSError as error:  # no more processes, or a kernel without subreapers
            failure = error.errno or errno.ENOSYS
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # held open here, the pipes would never end
            os.dup2(null, number)
        os.chdir("/")
        if failure:
            self.report("FAILED", failure)
            return
        self.report("STARTED", self.agent)
        self.watch()
        self.report("SWEPT", *self.sweep())

    def watch(self) -> None:
        """Until the agent has ended, or has been killed and still is not gone after a second."""
        while not self.agent_ended and time.monotonic() < self.sweep_at:
            next_at = min(self.term_at, self.kill_at, self.sweep_at)
            self.wait(None if next_at == float("inf") else max(0.0, next_at - time.monotonic()))
            self.reap()
            if not self.agent_ended:
                self.climb(time.monotonic())

    def climb(self, now: float) -> None:
        # The agent's pid cannot be reused here: it is our child and not yet reaped.
        if now >= self.kill_at:
            self.rung = "killed"
            os.kill(self.agent, signal.SIGKILL)
            self.term_at = self.kill_at = float("inf")
            self.sweep_at = min(self.sweep_at, now + 1.0)
        elif now >= self.term_at:
            self.rung = "stopped"
            os.kill(self.agent, signal.SIGTERM)
            os.kill(self.agent, signal.SIGCONT)  # a stopped process would not see the TERM
            self.term_at = float("inf")

    def wait(self, timeout: float | None) -> None:
        for handle, _ in self.poll.poll(None if timeout is None else int(timeout * 1000) + 1):
            if handle == self.wake:
                self.signalled(os.read(self.wake, 4096))
            elif handle == self.control:
                self.commanded()
            else:
                self.poll.unregister(self.supervisor)
                self.supervisor_gone()

    def signalled(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.end(0.0, SHUTDOWN_STOP_S)

    def commanded(self) -> None:
        try:
            data = os.read(self.control, 4096)
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(self.control)
            self.supervisor_gone()
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            words = line.split()
            if words[0] == b"TERM":
                self.term_at = 0.0
            elif words[0] == b"KILL":
                self.kill_at = 0.0
            elif words[0] == b"END":
                self.end(int(words[1]) / 1000, int(words[2]) / 1000)

    def end(self, polite_s: float, stop_s: float) -> None:
        """A second order may only shorten the first."""
        now = time.monotonic()
        if self.rung == "exited":
            self.rung = "closed"
        if self.rung == "closed":
            self.term_at = min(self.term_at, now + polite_s)
        if self.rung != "killed":
            self.kill_at = min(self.kill_at, now + polite_s + stop_s)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.agent:
                self.agent_ended = True
                self.report("EXITED", status, self.rung)

    def sweep(self) -> tuple[int, int]:
        """How many were still alive after the agent, and how many still are.

        Whatever descends from the agent has a chain of parents that ends here, so having no child at all is the
        kernel's own word that nothing is left.
        """
        leftovers: set[int] = set()
        give_up = time.monotonic() + (ALONE_SWEEP_S if self.alone else SWEEP_S)
        while True:
            self.reap()
            if self.childless:
                return len(leftovers), 0
            for pid, parent in self.descendants():
                # Killed as it is found: something that forks and exits at once is gone after a full walk.
                if kill(pid, (parent, self.me)) and pid != self.agent:
                    leftovers.add(pid)
            if time.monotonic() > give_up:
                alive = [pid for pid, _ in self.descendants() if state_and_parent(pid)[0] not in "ZX"]
                return len(leftovers), len(alive)
            self.wait(0.01)

    def descendants(self) -> "Iterator[tuple[int, int]]":
        todo = [self.me]
        while todo:
            parent = todo.pop()
            for pid in self.look(parent):
                yield pid, parent
                todo.append(pid)


def main() -> None:
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    Guardian(control).run(sys.argv[3:])
    # No interpreter shutdown: nothing is open that needs it, and the supervisor waits for this exit.
    os._exit(0)


if __name__ == "__main__":
    main()
