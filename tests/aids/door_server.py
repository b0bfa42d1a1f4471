"""Commands of leadrope, called one after the other in folders that a hostile agent has prepared; a program of its own.

    python door_server.py        one job (JSON) per line on stdin, one answer (JSON) per line on stdout

It runs as the user under test, restores the user's machine from a template before each command, plants one trick, and
calls `leadrope` in a process of its own. That process is forked from this one, in which everything is imported
already: a user's call in a twentieth of the time. One that does not end is killed and told as hung.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hostile_folders import CASES, Outside, Spot
from leadrope.runs.background import log_path
from restored import Restored

_MODULES = {
    "leadrope.cli": "main run.run agents.agents",
    "leadrope.cli.flow": "flow people inspect",
    "leadrope.cli.policy": "trust policy",
    "leadrope.cli.runs": "runs sessions transcripts events",
    "leadrope.cli.setup": "doctor",
    "leadrope.runs": "service continued workspace.checkpoints workspace.worktrees workspace.worktree_changes",
    "leadrope.runtime": "run sandboxing.sandboxing commands",
    "leadrope.providers": "registry scripted claude_code.provider",
    "leadrope.workflows": "engine.engine start.start steps.read_file steps.write_file steps.copy_file steps.shell",
    "leadrope.policy": "shell.reader commands programs.read_only",
    "yaml": "cyaml",
}

Job = dict[str, Any]


def main() -> None:
    for package, names in _MODULES.items():
        for name in names.split():
            importlib.import_module(f"{package}.{name}")
    gc.freeze()
    for line in sys.stdin:
        try:
            answer = perform(json.loads(line))
        except Exception:  # noqa: BLE001  # the test tells it
            answer = {"broken": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


def perform(job: Job) -> Job:
    if "command" in job:  # of the machine, to prepare it
        done = subprocess.run(
            job["command"], cwd=job["cwd"], env=job["env"], capture_output=True, text=True, check=False
        )
        return {"code": done.returncode, "out": done.stdout, "err": done.stderr}
    if "template" not in job:
        return call(job)
    restored(job["template"], job["site"]).restore()
    return hostile(job)


@functools.cache
def restored(template: str, site: str) -> Restored:
    return Restored(Path(template), Path(site))


def hostile(job: Job) -> Job:
    site = Path(job["site"])
    outside = Outside(site / "outside")
    with planted(job, outside) as has_secret_inside:
        answer = call(job)
    answer["changes"] = outside.changes()
    answer["leaks"] = []
    answer["has_secret_inside"] = has_secret_inside
    if not has_secret_inside:
        answer["leaks"] = outside.leaks_in(*(site / name for name in job["searched"]))
        answer["leaks"] += [stream for stream in ("out", "err") if outside.secret in answer[stream]]
    return answer


@contextlib.contextmanager
def planted(job: Job, outside: Outside) -> Iterator[bool]:
    if job["case"] is None:
        outside.remember()
        yield False
        return
    case = next(case for case in CASES if case.name == job["case"])
    path, root = Path(job["spot"]), Path(job["root"])
    with case.plant(Spot(path=path, kind=job["kind"], root=root), outside):
        yield case.has_secret_inside


def call(job: Job) -> Job:
    """`leadrope ARGS`, as its own process group; its code is None if it did not end in time."""
    answer = in_terminal(job) if job.get("has_terminal") else without_terminal(job)
    if job.get("is_background"):
        home = job["env"]["LEADROPE_HOME"]
        if not background_ended(home, job["limit_s"]):
            answer["code"] = None
        log = log_path(Path(home))
        if log.exists():
            answer["err"] += log.read_text(errors="replace")
    return answer


def background_ended(home: str, limit_s: float) -> bool:
    """Whether every process with this LEADROPE_HOME is gone in time; those that are not are ended."""
    until = time.monotonic() + limit_s
    while found := processes_of(home):
        if time.monotonic() > until:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def processes_of(home: str) -> list[int]:
    wanted = b"LEADROPE_HOME=" + os.fsencode(home)
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is somebody else's
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def in_terminal(job: Job) -> Job:
    """The same in a terminal of its own, in which Ctrl-D is pressed twice a second."""
    pid, terminal = pty.fork()
    if pid == 0:
        become(lambda: command(job), None, None)
    shown = bytearray()
    until = time.monotonic() + job["limit_s"]
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
        else:
            with contextlib.suppress(OSError):
                os.write(terminal, b"\x04")
    code = ended(pid, max(1.0, until - time.monotonic()))
    os.close(terminal)
    return {"code": code, "out": shown.decode(errors="replace"), "err": ""}


def without_terminal(job: Job) -> Job:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            become(lambda: command(job), out.fileno(), err.fileno())
        code = ended(pid, job["limit_s"])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"code": code, "out": texts[0], "err": texts[1]}


def command(job: Job) -> int:
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    tempfile.tempdir = None
    sys.argv = ["leadrope", *job["args"]]
    from leadrope.cli.main import main

    return main()


def become(work: Callable[[], int], out: int | None, err: int | None) -> None:
    """Do the work and end this process. Without files for its output, it has a terminal already."""
    code = 70
    try:
        if out is not None and err is not None:
            os.setsid()
            for number, handle in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, err)):
                os.dup2(handle, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  # as the interpreter would
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def ended(pid: int, limit_s: float) -> int | None:
    handle = os.pidfd_open(pid)
    try:
        is_over = bool(select.select([handle], [], [], limit_s)[0])
    finally:
        os.close(handle)
    if not is_over:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if is_over else None


if __name__ == "__main__":
    main()
