"""The background owner: a process of its own that holds detached runs and executions, and ends when it has none.

They are handed over through a socket that only this user can reach, together with the environment in which they were
asked for: credentials of that environment are used, and never written anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors, spelling
from leadrope.core import home
from leadrope.core.request import RunRequest, flag_of
from leadrope.core.secrets.redaction import Redactor, Secret
from leadrope.runs import background, leases, stores
from leadrope.runs.executions.queue import Given
from leadrope.runs.executions.values import ExecutionInfo, NewExecution
from leadrope.runs.observe import jsonlog
from leadrope.runs.service import Service

log = logging.getLogger("leadrope.detached")

START_S = 20.0
"""A Python and its imports take half a second; a machine that starts many at once takes longer."""
LOCK_S = 3.0
"""How long a new owner waits for one that is about to end."""
ANSWER_S = 15.0
END_S = 9.5
"""From SIGTERM to the end of the owner; service managers kill after ten seconds."""
FORMAT = "%(asctime)s %(name)s %(message)s"
MOST_BYTES = 64 * 1024 * 1024
"""Of one handover: a prompt may be long."""


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    environ: dict[str, str]
    request: RunRequest | None = None
    """As it was asked for; the store's will be redacted."""
    resume: str = ""
    """In place of a request: a run of the queue that nobody owns."""
    execution: NewExecution | None = None
    """In place of a request: an execution of a workflow, with its inputs as they were given."""
    resume_execution: str = ""
    """In place of a request: an execution of the queue that nobody owns."""
    secrets: tuple[str, ...] = ()
    """Of an execution: what nothing that is stored may hold."""
    options: dict[str, Any] = {}
    credential: str | None = None

    def __repr__(self) -> str:
        return "Handover(…)"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's answer."""

    run_id: str = ""
    notice: str = ""
    error: str = ""
    kind: str = ""
    hint: str | None = None


def socket_path(leadrope_home: Path) -> Path:
    return leadrope_home / background.FOLDER / "owner.sock"


# -- whoever hands over ---------------------------------------------------------------------------------------------


def hand_over(
    leadrope_home: Path,
    request: RunRequest,
    environ: Mapping[str, str],
    *,
    tell: Callable[[str], object] | None = None,
    **options: Any,
) -> str:
    """Give a run to the background owner, which is started if there is none; its id, once it is stored.

    `tell` gets what the run's user should know from the beginning, if there is anything.
    """
    told = Handover(
        environ=dict(environ),
        request=msgspec.structs.replace(request, credential=None),
        credential=request.credential.reveal() if request.credential else None,
        options=options,
    )
    taken = _hand_in(leadrope_home, told, environ)
    if taken.notice and tell is not None:
        tell(taken.notice)
    return taken.run_id


def resume(leadrope_home: Path, run_id: str, environ: Mapping[str, str]) -> str:
    """Let the background owner continue a run that nobody owns; `environ` has what is not stored with the run."""
    return _hand_in(leadrope_home, Handover(environ=dict(environ), resume=run_id), environ).run_id


def hand_over_execution(
    leadrope_home: Path, new: NewExecution, environ: Mapping[str, str], *, secrets: Sequence[str] = ()
) -> str:
    """Give an execution to the background owner, which is started if there is none; its id, once it is stored."""
    told = Handover(environ=dict(environ), execution=new, secrets=tuple(secrets))
    return _hand_in(leadrope_home, told, environ).run_id


def resume_execution(leadrope_home: Path, execution_id: str, environ: Mapping[str, str]) -> str:
    """Let the background owner continue an execution of the queue now, with what is not stored with it."""
    return _hand_in(leadrope_home, Handover(environ=dict(environ), resume_execution=execution_id), environ).run_id


def _hand_in(leadrope_home: Path, told: Handover, environ: Mapping[str, str]) -> Taken:
    data = msgspec.json.encode(told) + b"\n"
    give_up = time.monotonic() + START_S
    process: subprocess.Popen[bytes] | None = None
    while True:
        try:
            answer = _say(socket_path(leadrope_home), data)
        except (ConnectionError, FileNotFoundError, TimeoutError):
            # One that found another owner, which was about to end, has ended itself.
            if process is None or process.poll() == 0:
                background.require_room(leadrope_home)
                process = background.start(leadrope_home, environ)
            if process.poll() or time.monotonic() > give_up:
                stores.check(leadrope_home, makes_one=True)  # most often this is why, and says so itself
                raise errors.StoreError(
                    "the background process did not take it", hint=f"See {background.log_path(leadrope_home)}."
                ) from None
            time.sleep(0.05)
        else:
            if answer.error:
                raise _raised(answer)
            return answer


def _raised(answer: Taken) -> errors.LeadropeError:
    """The owner's error; one of the store, or of a login, stays one."""
    known: list[type[errors.LeadropeError]] = [errors.StoreError, *errors.StoreError.__subclasses__()]
    known.append(errors.NotAuthenticated)
    kinds = {each.kind: each for each in known}
    return kinds.get(answer.kind, errors.RequestError)(answer.error, hint=answer.hint)


def _say(path: Path, data: bytes) -> Taken:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door, _short(path) as name:
        door.settimeout(ANSWER_S)
        door.connect(name)
        door.sendall(data)
        answer = b""
        while not answer.endswith(b"\n"):
            piece = door.recv(65536)
            if not piece:
                raise ConnectionError("the owner is about to end")
            answer += piece
    return msgspec.json.decode(answer, type=Taken)


@contextlib.contextmanager
def _short(path: Path) -> Any:
    """A socket's path may have 107 characters; through /proc any folder is near."""
    if len(os.fsencode(path)) < 100 or sys.platform != "linux":
        yield str(path)
        return
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)


# -- the owner itself -----------------------------------------------------------------------------------------------


class BackgroundOwner:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._is_ending = asyncio.Event()
        self._last_work = time.monotonic()

    async def serve(self) -> None:
        """Until it is told to end, or has had nothing to do for a while."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_end)
        path = socket_path(self._service.home)
        path.unlink(missing_ok=True)
        with _short(path) as name:
            server = await asyncio.start_unix_server(self._taken, name, limit=MOST_BYTES)
        path.chmod(0o600)
        try:
            while not self._is_ending.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_ending.wait(), 0.5)
                if self._service.is_at_work:
                    background.took_up(self._service.home)
                if not self._service.is_idle or await self._service.has_queue():
                    self._last_work = time.monotonic()
                if time.monotonic() - self._last_work > self._service.settings.idle_s:
                    self._is_ending.set()
            background.took_up(self._service.home)  # what it has left waits for a reason that is stored
        finally:
            path.unlink(missing_ok=True)
            server.close()

    def _told_to_end(self) -> None:
        """From here on it has ten seconds, whatever hangs: an agent with a long grace, a disk, a collector.

        What it cannot end itself ends with it, by the guardians' hands, and the next owner puts the rows right.
        """
        if not self._is_ending.is_set():
            last = threading.Timer(END_S, os._exit, (1,))
            last.daemon = True
            last.start()
        self._is_ending.set()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                told = msgspec.json.decode(await reader.readline(), type=Handover)
                if not self._is_ending.is_set():
                    self._last_work = time.monotonic()
                    writer.write(msgspec.json.encode(await self._start(told)) + b"\n")
                    await writer.drain()
        except (TimeoutError, ConnectionError, ValueError, msgspec.MsgspecError) as error:
            log.warning("a handover failed: %s", error)
        finally:
            writer.close()

    async def _start(self, told: Handover) -> Taken:
        credential = Secret(told.credential) if told.credential else None
        try:
            if told.execution is not None:
                return Taken(run_id=(await self._queue(told.execution, told)).id)
            if told.resume_execution:
                taken = await self._service.execution_queue.take_up(told.resume_execution, told.environ)
                self._service.poke()
                return Taken(run_id=taken.id)
            if told.request is None:
                return Taken(run_id=(await self._service.take_up(told.resume, environ=told.environ)).id)
            request = msgspec.structs.replace(told.request, credential=credential)
            job = await self._service.start(request, environ=told.environ, is_detached=True, **told.options)
        except errors.LeadropeError as error:
            return Taken(error=error.message, kind=error.kind, hint=error.hint)
        return Taken(run_id=job.id, notice=job.notice)

    async def _queue(self, new: NewExecution, told: Handover) -> ExecutionInfo:
        given = Given(environ=told.environ, inputs=dict(new.inputs), secrets=told.secrets)
        new = msgspec.structs.replace(new, state="queued", recover=self._service.settings.recover)
        info = await self._service.execution_queue.add(new, Redactor(told.secrets), given)
        self._service.poke()
        return info


async def _carry(service: Service, execution: ExecutionInfo, given: Given | None) -> None:
    """The engine of workflows is above this package: it is imported by its name, and where there is need of it."""
    await importlib.import_module("leadrope.workflows.start.carrier").carry(service, execution, given)


async def main(environ: Mapping[str, str]) -> int:
    leadrope_home = home.leadrope_home(environ)
    lock = home.ensure(leadrope_home / background.FOLDER) / "owner.lock"
    give_up = time.monotonic() + LOCK_S
    while True:
        with leases.Exclusive(lock) as mine:
            if mine:
                async with Service(environ, kind="background", works=True, carry=_carry) as service:
                    await BackgroundOwner(service).serve()
                return 0
        if time.monotonic() > give_up:
            return 0  # another one is there, and stays
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    lines = jsonlog.JsonFormatter() if jsonlog.is_wanted(os.environ) else jsonlog.TextFormatter(FORMAT)
    handler = logging.StreamHandler()
    handler.setFormatter(lines)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        with spelling.at_terminal(flag_of):  # its runs were started there
            code = asyncio.run(main(os.environ))
    except errors.LeadropeError as error:
        log.error("the background process cannot work: %s %s", error.message, error.hint or "")  # noqa: TRY400  # no bug
        code = 1
    sys.exit(code)
