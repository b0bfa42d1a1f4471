"""The ancestor of one agent: a script, independent of leadrope, that ends the agent's whole process tree.

Run as `python -I -S guardian.py FD plain|boxed -- COMMAND...`. It is the subreaper of everything the agent starts, so
processes that call setsid, fork twice or clear their environment are still reparented to it. It ends the tree when it
is told to, when the agent has exited, and when the supervisor is gone (kill -9 included).

With `boxed`, the command is bubblewrap, and the agent its grandchild: bubblewrap's monitor, the init of the new pid
namespace, the agent. The monitor turns SIGTERM into a SIGKILL of everything and the init ignores it, so signals go to
the agent itself. The monitor is stopped while the agent lives: otherwise it would end the sandbox together with the
agent, and nobody could count what was left inside.

To the supervisor, one line each:     STARTED pid session · FAILED errno (0: the sandbox, not the agent)
                                      EXITED wait-status rung · SWEPT leftovers survivors names
From the supervisor, one line each:   TERM · KILL · END polite-milliseconds stop-milliseconds

Every import costs private memory in every run, hence `_signal` and `_ctypes` instead of their wrappers (enum alone is
0.8 MB and 10 ms here).
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
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
# The numbers are the same on every architecture.
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_SCOPES = 0b11

# SIGKILL needs about a millisecond. Only processes in uninterruptible sleep or of another user take longer. Nothing can
# speed those up; the supervisor is told that they exist.
SWEEP_S = 5.0
# Whoever requested the end gets an answer at most this long after the last signal. A busy machine needs 50 ms; a
# sandbox full of processes needs BOX_SWEEP_S more.
ANSWER_S = 0.45
# How long to wait for a killed agent before its tree is swept together with it.
KILLED_S = 0.1
# Once the answer is given, or the supervisor was killed with -9, nobody waits any more, and the sweep continues this
# long.
ALONE_SWEEP_S = 30.0
# The time that a SIGTERM to the guardian itself (the machine shuts down) leaves the agent.
SHUTDOWN_STOP_S = 2.0

# Interval between scans for the agent while bubblewrap builds the sandbox, which takes about 8 ms.
BOX_LOOK_S = 0.001
# What is left in a sandbox is killed one by one, to count it. A process that forks faster than that is ended with the
# whole namespace, by the kernel, when this time is over.
BOX_SWEEP_S = 0.25
# How long to wait for the monitor of a sandbox whose agent has ended, if nobody waits for an answer. On a busy machine
# it needed more than KILLED_S and was killed before it had reported the exit code: a success became a -9.
BOX_END_S = 10.0
# In the argv of the sandbox's own forwarders, which do not count as leftovers of the agent.
FURNITURE = b"-lpleadrope-forward"

# Handled, not ignored: a handler is reset by exec, so the agent gets the defaults.
HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Ignored by Python at its start; an ignored signal would be inherited by the agent.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def call_libc(name: str, *arguments: "int | bytes") -> int:
    try:
        import _ctypes  # noqa: PLC0415  # Linux only, like this script

        function = _ctypes.dlsym(_ctypes.dlopen(None, 0), name)  # type: ignore[arg-type]  # None: this program
        result: int = _ctypes.call_function(function, arguments)
    except (ImportError, AttributeError):  # the private module may disappear in a later Python
        import ctypes  # noqa: PLC0415

        result = ctypes.CDLL(None)[name](*arguments)
    return result


def prctl(option: int, value: int) -> None:
    if call_libc("prctl", option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl({option}, {value}) failed")


def keep_to_itself() -> None:
    """Keeps abstract sockets and signals inside of the sandbox, even if it shares the machine's network.

    This needs Linux 6.12 (Landlock ABI 6). Older kernels lack only this protection.
    """
    if call_libc("syscall", LANDLOCK_CREATE_RULESET, 0, 0, 1) < 6:
        return
    rules = (0).to_bytes(16, sys.byteorder) + LANDLOCK_SCOPES.to_bytes(8, sys.byteorder)
    handle = call_libc("syscall", LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if handle < 0 or call_libc("syscall", LANDLOCK_RESTRICT_SELF, handle, 0) != 0:
        raise OSError(errno.EPERM, "the kernel refuses its own rules")
    os.close(handle)


def first_environment() -> dict[bytes, bytes]:
    """Returns the environment as it was passed: under the C locale Python adds LC_CTYPE to os.environ."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # pathlib costs memory in every run
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def dressed(command: list[str], status: int) -> list[str]:
    """Runs the script that may precede a sandbox (`SCRIPT.py ... -- BWRAP ...`) and returns the command to execute.

    The script prepares this very process for the sandbox.
    """
    if command[0].endswith(".py"):
        with open(command[0], "rb") as file:  # noqa: PTH123
            code = compile(file.read(), command[0], "exec")
        scope: dict[str, Any] = {}
        exec(code, scope)  # noqa: S102  # a file beside this one; as an import it would cost memory in every run
        command = scope["enter"](command[1:], call_libc)
    return [command[0], "--json-status-fd", str(status), *command[1:]]


def spawn(command: list[str], *, status: int | None) -> tuple[int, int]:
    """Starts the command; returns its pid and 0, or the errno of exec. Bubblewrap reports to `status`."""
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
            if status is not None:
                keep_to_itself()
                command = dressed(command, status)
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


def name(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def is_leftover(pid: int) -> bool:
    """Whether the process counts as a leftover: not a forwarder of the sandbox, and not exiting.

    An exiting process has no memory, hence no argv.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read()
    except OSError:
        return False
    return bool(words) and FURNITURE not in words.split(b"\0")


def state_and_parent(pid: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "X", 0
    return fields[0].decode(), int(fields[1])


def is_dead(pid: int) -> bool:
    """Whether no thread of the process runs any more.

    A process whose main thread has ended looks like a zombie while others are still running.
    """
    if state_and_parent(pid)[0] not in "ZX":
        return False
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1  # noqa: PTH208
    except OSError:
        return True


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:  # it ended while we looked; its children are reparented to us and found in the next scan
        pass
    return found


def scanned_children(pid: int) -> list[int]:
    """Lists children on kernels without CONFIG_PROC_CHILDREN."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    return [found for found in pids if state_and_parent(found)[1] == pid]


def kill(pid: int, parents: tuple[int, int]) -> bool:
    """Kills a process; True if a living process got the signal.

    The pidfd is opened before the parent is checked, so a reused pid is never hit.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3
        handle = -1
    try:
        if is_dead(pid) or state_and_parent(pid)[1] not in parents:
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
    def __init__(self, control: int, *, boxed: bool) -> None:
        self.me = os.getpid()
        self.control = control
        self.boxed = boxed
        self.top = 0
        """Our own child: the agent, or the monitor of its sandbox."""
        self.top_ended = False
        self.top_status = 0
        self.is_started = False
        self.agent = 0
        self.agent_handle = -1
        self.leftovers: set[int] = set()
        self.childless = False
        self.alone = False
        self.rung = "exited"
        self.term_at = self.kill_at = self.sweep_at = self.answer_by = float("inf")
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
        # A second way to notice the supervisor's end: a process that it has forked without exec may hold a copy of its
        # socket, and then no end of file arrives. Unlike PDEATHSIG a pidfd does not fire when a mere thread of the
        # supervisor ends.
        self.supervisor = -1
        try:
            self.supervisor = os.pidfd_open(os.getppid())
            self.poll.register(self.supervisor, select.POLLIN)
        except OSError:  # a kernel before 5.3, or it is already gone: then the socket reports it
            pass

    def report(self, *words: object) -> None:
        try:
            os.write(self.control, " ".join(map(str, words)).encode() + b"\n")
        except OSError:  # nobody reads any more; the end of file on the same socket is handled
            self.supervisor_gone()

    def supervisor_gone(self) -> None:
        self.alone = True
        self.kill_at = 0.0

    def run(self, command: list[str]) -> None:
        status, told = os.pipe()
        try:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            if self.boxed:
                os.set_inheritable(told, True)
            self.top, failure = spawn(command, status=told if self.boxed else None)
        except OSError as error:  # no more processes, or a kernel without subreapers
            failure = error.errno or errno.ENOSYS
        os.close(told)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # held open here, the pipes would never end
            os.dup2(null, number)
        os.chdir("/")
        if failure:
            self.report("FAILED", failure)
            return
        if not self.boxed:
            self.agent = self.top
        elif not self.enter(status):
            self.sweep(time.monotonic() + SWEEP_S)
            self.report("FAILED", 0)
            return
        self.report("STARTED", self.agent, self.top)
        self.is_started = True
        if self.top_ended:
            self.report_exit()
        self.watch()
        survivors = self.sweep(min(time.monotonic() + SWEEP_S, self.answer_by))
        names = b",".join(name(pid).strip().replace(b" ", b"_") or b"?" for pid in survivors[:5]).decode(
            errors="replace"
        )
        self.report("SWEPT", len(self.leftovers), len(survivors), names or "-")
        if survivors or self.alone:
            self.sweep(time.monotonic() + ALONE_SWEEP_S)

    def enter(self, status: int) -> bool:
        """Waits for the agent inside of the sandbox; False if bubblewrap could not build it or was told to end."""
        while not self.top_ended:
            if time.monotonic() >= min(self.kill_at, self.term_at):
                os.kill(self.top, signal.SIGKILL)
            for init in self.look(self.top):
                # Only the first child: an orphan that was reparented comes after it.
                for pid in self.look(init)[:1]:
                    if name(pid) != name(self.top) and self.hold_agent(pid, init):
                        return True
            self.wait(BOX_LOOK_S)
            self.reap()
        # An agent may end before it was seen. Bubblewrap reports an exit code only for an agent that was started.
        self.agent = self.top
        return b'"exit-code"' in os.read(status, 4096)

    def hold_agent(self, pid: int, init: int) -> bool:
        try:
            handle = os.pidfd_open(pid)
        except OSError:  # it has already ended
            return False
        if state_and_parent(pid)[1] != init:
            os.close(handle)
            return False
        os.kill(self.top, signal.SIGSTOP)
        self.agent, self.agent_handle = pid, handle
        self.poll.register(handle, select.POLLIN)
        return True

    def box_ended(self) -> None:
        """Handles the end of a sandboxed agent.

        Counts and kills its leftovers, then lets the monitor report the exit code.
        """
        self.poll.unregister(self.agent_handle)
        give_up = time.monotonic() + BOX_SWEEP_S
        while self.kill_in_box(give_up) and time.monotonic() < give_up:
            time.sleep(BOX_LOOK_S)
        os.kill(self.top, signal.SIGCONT)
        now = time.monotonic()
        patient = min(now + BOX_END_S, self.answer_by - BOX_SWEEP_S)
        self.sweep_at = min(self.sweep_at, max(now + KILLED_S, patient))

    def kill_in_box(self, give_up: float) -> bool:
        """Kills everything in the sandbox except its init; True if something was still alive."""
        alive = False
        for init in self.look(self.top):
            for pid, parent in self.descendants(init):
                counts = is_leftover(pid)
                if kill(pid, (parent, init)):
                    alive = True
                    if counts:
                        self.leftovers.add(pid)
                if time.monotonic() > give_up:
                    return True
        return alive

    def watch(self) -> None:
        """Waits until the agent has ended, or until `sweep_at`, shortly after it was killed."""
        while not self.top_ended and time.monotonic() < self.sweep_at:
            next_at = min(self.term_at, self.kill_at, self.sweep_at)
            self.wait(None if next_at == float("inf") else max(0.0, next_at - time.monotonic()))
            self.reap()
            if not self.top_ended:
                self.climb(time.monotonic())

    def climb(self, now: float) -> None:
        if now >= self.kill_at:
            self.rung = "killed"
            self.signal_agent(signal.SIGKILL)
            self.term_at = self.kill_at = float("inf")
            # The kernel ends a sandbox with everything in it, which takes longer than a single process.
            self.sweep_at = min(self.sweep_at, now + KILLED_S + (BOX_SWEEP_S if self.boxed else 0.0))
        elif now >= self.term_at:
            self.rung = "stopped"
            self.signal_agent(signal.SIGTERM)
            self.signal_agent(signal.SIGCONT)  # a stopped process would not see the TERM
            self.term_at = float("inf")

    def signal_agent(self, number: int) -> None:
        if not self.boxed:
            # Its pid cannot be reused here: it is our child and not yet reaped.
            os.kill(self.agent, number)
            return
        try:
            signal.pidfd_send_signal(self.agent_handle, number)
        except ProcessLookupError:  # it ended a moment ago, which its pidfd is about to report
            return

    def report_exit(self) -> None:
        status = self.top_status
        if self.boxed and self.rung == "killed" and status == (128 + signal.SIGKILL) << 8:
            # How the monitor reports the SIGKILL that we have sent.
            status = signal.SIGKILL
        self.report("EXITED", status, self.rung)

    def wait(self, timeout: float | None) -> None:
        for handle, _ in self.poll.poll(None if timeout is None else int(timeout * 1000) + 1):
            if handle == self.wake:
                self.signalled(os.read(self.wake, 4096))
            elif handle == self.control:
                self.commanded()
            elif handle == self.agent_handle:
                self.box_ended()
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
        """Begins or shortens the ending; a second order can only shorten the first."""
        now = time.monotonic()
        if self.rung == "exited":
            self.rung = "closed"
        if self.rung == "closed":
            self.term_at = min(self.term_at, now + polite_s)
        if self.rung != "killed":
            self.kill_at = min(self.kill_at, now + polite_s + stop_s)
        self.answer_by = min(self.answer_by, now + polite_s + stop_s + ANSWER_S)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.top:
                self.top_ended = True
                self.top_status = status
                if self.is_started:
                    self.report_exit()

    def sweep(self, give_up: float) -> list[int]:
        """Kills what the agent has left behind; returns the processes that are still alive.

        All descendants of the agent are below this process, so having no child at all is the kernel's assurance that
        nothing is left. A child may also be dead and stay: one that is being traced can only be reaped by its tracer.
        Then two scans in a row must find nothing that was not already dead: during a scan a dying parent's children may
        be reparented to us unseen.
        """
        dead: set[int] = set()
        quiet = 0
        while True:
            self.reap()
            if self.childless:
                return []
            found = set()
            for pid, parent in self.descendants(self.me):
                # Killed as soon as it is found: a process that forks and exits at once is gone after a full walk.
                counts = not self.boxed and pid != self.agent
                if kill(pid, (parent, self.me)) and counts:
                    self.leftovers.add(pid)
                found.add(pid)
            quiet = quiet + 1 if found <= dead else 0
            if quiet == 2:
                return []
            alive = [pid for pid in found if not is_dead(pid)]
            if time.monotonic() > give_up:
                return alive
            dead = found.difference(alive)
            self.wait(0.01)

    def descendants(self, root: int) -> "Iterator[tuple[int, int]]":
        todo = [root]
        while todo:
            parent = todo.pop()
            for pid in self.look(parent):
                yield pid, parent
                todo.append(pid)


def main() -> None:
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    Guardian(control, boxed=sys.argv[2] == "boxed").run(sys.argv[4:])
    # No interpreter shutdown: nothing is open that needs it, and the supervisor waits for this exit.
    os._exit(0)


if __name__ == "__main__":
    main()
