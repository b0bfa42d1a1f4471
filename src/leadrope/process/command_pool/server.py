"""The pool: a script that keeps workers, in each of which commands run one by one; knows nothing of leadrope.

Run as `python -IS -Xutf8 server.py FOLDER`, in the sandbox and below the guardian of an agent. It connects to the
socket in FOLDER. A worker is a fork of it with a channel of its own to the supervisor (see worker.py). It is the
subreaper of its command: whatever calls setsid or forks twice comes back to it, and is ended and counted before the
worker tells the end. What a worker holds that is killed itself comes to the pool. A command costs no start of a
Python, and where a worker is idle not even a fork; the pool sleeps meanwhile.

From the supervisor, one message each:   WORKER|CODE worker + the worker's end of its channel · STOP worker
To the supervisor, one message each:     LOST worker wait-status · FAILED worker errno

What comes back may have passed through the hands of a command, and is plain text.

Every import costs each fork, hence `_signal` and `_socket` in place of their comfortable wrappers.
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
    # Both lie beside this script, where `-I` does not look; a command's own code must not find them.
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
        """The pid of a worker -> its number."""
        self.pids: dict[str, int] = {}
        self.poll = select.poll()
        self.wake, self.wake_end = os.pipe()
        for handle in (self.wake, self.wake_end):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(self.wake_end, warn_on_full_buffer=False)
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
                elif not self.receive():
                    return

    def receive(self) -> bool:
        data, handles = workers.received(self.sock, 256)
        if not data:
            return False
        order, _, number = data.decode().partition(" ")
        if order == "STOP" and number in self.pids:
            # Our child, and not yet reaped. A command may have stopped it: it would take no word.
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
        except BaseException:  # noqa: BLE001  # a copy of the pool must never go on as the pool
            sys.__excepthook__(*sys.exc_info())
        os._exit(workers.BROKEN_WORKER)

    def learn_code(self) -> None:
        """Once, and only where code is run: what all code needs is imported here and shared by every fork."""
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
            if number is None:  # left by a worker that was killed
                continue
            del self.pids[number]
            if status:  # not let go by the supervisor, while it was idle
                self.sweep()
                self.tell(f"LOST {number} {status}")

    def sweep(self) -> None:
        """A worker was killed: what it held hangs below us now, beside the other workers."""
        workers.end_below(self.me, self.workers, set(), lambda: False)

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
