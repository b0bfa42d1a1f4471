"""The pool: a script that forks workers, each of which runs one command after another; independent of leadrope.

Run as `python -IS -Xutf8 server.py FOLDER`, in the sandbox and below the guardian of an agent. It connects to the
socket in FOLDER. A worker is a fork of it with its own channel to the supervisor (see worker.py). A worker is the
subreaper of its command: processes that call setsid or fork twice are reparented to it, and are ended and counted
before it reports the end. If a worker itself is killed, its processes are reparented to the pool. A command does not
cost the start of a Python, and with an idle worker not even a fork; the pool sleeps meanwhile.

From the supervisor, one message each:   WORKER|CODE worker + the worker's end of its channel · STOP worker
To the supervisor, one message each:     LOST worker wait-status · FAILED worker errno

A command may have tampered with what comes back, so it is plain text.

Every import costs memory in each fork, hence `_signal` and `_socket` instead of their wrappers.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket
import errno
import gc
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

if __name__ == "__main__":
    # Both modules lie beside this script, where `-I` does not look; a command's own code must not be able to import
    # them.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # pathlib is heavy
    import guardian  # type: ignore[import-not-found]
    import worker as workers  # type: ignore[import-not-found]

    del sys.path[0]
else:
    from leadrope.process import guardian
    from leadrope.process.command_pool import worker as workers

SOCKET = "pool.sock"


class PoolServer:
    def __init__(self, sock: "_socket.socket") -> None:
        self.me = os.getpid()
        self.sock = sock
        self.workers: dict[int, str] = {}
        """Worker numbers by pid."""
        self.pids: dict[str, int] = {}
        self.poll = select.poll()
        self.wake, self.wake_end = os.pipe()
        for handle in (self.wake, self.wake_end):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(self.wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def serve(self) -> None:
        """Serves until the supervisor closes its end. The guardian ends what is still running then."""
        self.poll.register(self.wake, select.POLLIN)
        self.poll.register(self.sock.fileno(), select.POLLIN)
        while True:
            for handle, _ in self.poll.poll():
                if handle == self.wake:
                    os.read(self.wake, 4096)
                    self.reap()
                elif not self.receive():
                    return

    def receive(self) -> bool:
        data, handles = workers.received(self.sock, 256)
        if not data:
            return False
        order, _, number = data.decode().partition(" ")
        if order == "STOP" and number in self.pids:
            # Our child, and not yet reaped. A command may have stopped it, and then it would not read a message.
            os.kill(self.pids[number], workers.STOP)
            os.kill(self.pids[number], signal.SIGCONT)
        elif order in ("WORKER", "CODE"):
            try:
                if order == "CODE":
                    self.learn_code()
                if not handles:
                    raise OSError(errno.EMFILE, "the channel did not arrive")
                self.open_worker(number, handles[0])
            except OSError as error:
                self.tell(f"FAILED {number} {error.errno or errno.EINVAL}")
        for handle in handles:
            os.close(handle)
        return True

    def open_worker(self, number: str, channel: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, workers.TAKEN)
        try:
            pid = os.fork()
            if pid == 0:
                self.become_worker(channel)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, workers.TAKEN)
        self.workers[pid] = number
        self.pids[number] = pid

    def become_worker(self, channel: int) -> "NoReturn":
        try:
            signal.set_wakeup_fd(-1)
            self.sock.close()
            os.close(self.wake)
            os.close(self.wake_end)
            workers.live(_socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, channel), self.me)
        except BaseException:  # noqa: BLE001  # a fork must never continue as the pool
            sys.__excepthook__(*sys.exc_info())
        os._exit(workers.BROKEN_WORKER)

    def learn_code(self) -> None:
        """Imports what all code needs, shared by every fork; called once, and only if code is run."""
        if "code_runner" in sys.modules:
            return
        sys.path.insert(0, workers.beside(""))
        import code_runner  # type: ignore[import-not-found]  # noqa: PLC0415

        del sys.path[0]
        code_runner.prepare()
        gc.freeze()

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.workers.pop(pid, None)
            if number is None:  # left behind by a worker that was killed
                continue
            del self.pids[number]
            if status:  # not an idle worker that the supervisor has closed
                self.sweep()
                self.tell(f"LOST {number} {status}")

    def sweep(self) -> None:
        """Kills the processes of a worker that was killed; they are our children now, beside the other workers."""
        workers.end_below(self.me, self.workers, set(), lambda: False)

    def tell(self, words: str) -> None:
        self.sock.send(words.encode())


def connected(folder: str) -> "_socket.socket":
    """Connects through a descriptor of the folder: the path of a Unix socket is limited to 107 bytes."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    sock.connect(f"/proc/self/fd/{handle}/{SOCKET}")
    os.close(handle)
    return sock


def main() -> None:
    gc.disable()  # nothing here has cycles, and a collection would copy shared memory into every fork
    # Prevents commands of the same user from tracing this process and writing to the supervisor in its name.
    guardian.prctl(workers.PR_SET_DUMPABLE, 0)
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
    sock = connected(sys.argv[1])
    gc.freeze()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    os.close(null)
    PoolServer(sock).serve()
    os._exit(0)


if __name__ == "__main__":
    main()
