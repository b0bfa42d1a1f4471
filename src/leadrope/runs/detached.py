"""The background owner: a process of its own that holds detached runs, and ends itself when it has none.

Runs are handed over through a socket that only this user can reach, together with the environment in which they were
asked for: credentials of that environment are used, and never written anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core import home
from leadrope.core.redaction import Secret
from leadrope.core.request import RunRequest
from leadrope.runs import jsonlog, leases
from leadrope.runs.service import Service

log = logging.getLogger("leadrope.detached")

FOLDER = "background"
START_S = 20.0
"""A Python and its imports take half a second; a machine that starts many at once takes longer."""
ANSWER_S = 15.0
END_S = 9.5
"""From SIGTERM to the end of the owner; service managers kill after ten seconds."""
FORMAT = "%(asctime)s %(name)s %(message)s"
MOST_BYTES = 64 * 1024 * 1024
"""Of one handover: a prompt may be long."""


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    environ: dict[str, str]
    request: RunRequest
    """As it was asked for; the store's will be redacted."""
    options: dict[str, Any] = {}
    credential: str | None = None

    def __repr__(self) -> str:
        return "Handover(…)"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's answer."""

    run_id: str = ""
    error: str = ""
    kind: str = ""
    hint: str | None = None


def socket_path(leadrope_home: Path) -> Path:
    return leadrope_home / FOLDER / "owner.sock"


# -- whoever hands over ---------------------------------------------------------------------------------------------


def hand_over(leadrope_home: Path, request: RunRequest, environ: Mapping[str, str], **options: Any) -> str:
    """Give a run to the background owner, which is started if there is none; its id, once it is stored."""
    told = Handover(
        environ=dict(environ),
        request=msgspec.structs.replace(request, credential=None),
        credential=request.credential.reveal() if request.credential else None,
        options=options,
    )
    data = msgspec.json.encode(told) + b"\n"
    give_up = time.monotonic() + START_S
    process: subprocess.Popen[bytes] | None = None
    while True:
        try:
            answer = _say(socket_path(leadrope_home), data)
        except (ConnectionError, FileNotFoundError, TimeoutError):
            if process is None:
                process = _start(leadrope_home, environ)
            if time.monotonic() > give_up:
                raise errors.StoreError(
                    "the background owner did not take the run",
                    hint=f"Look at {leadrope_home / FOLDER / 'owner.log'}.",
                ) from None
            time.sleep(0.05)
        else:
            if answer.error:
                wrong = errors.QueueFull if answer.kind == errors.QueueFull.kind else errors.RequestError
                raise wrong(answer.error, hint=answer.hint)
            return answer.run_id


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


def _start(leadrope_home: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    folder = home.ensure(leadrope_home / FOLDER)
    with os.fdopen(os.open(folder / "owner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "leadrope.runs.detached"],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            env={**environ, "LEADROPE_HOME": str(leadrope_home)},
            cwd="/",
            start_new_session=True,
        )
    _CHILDREN.append(process)
    return process


_CHILDREN: list[subprocess.Popen[bytes]] = []
"""Owners that this process has started; they outlive it, and one that ended first is reaped by `poll`."""


# -- the owner itself -----------------------------------------------------------------------------------------------


class Background:
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
                if not self._service.is_idle or self._service.store.states().get("queued"):
                    self._last_work = time.monotonic()
                if time.monotonic() - self._last_work > self._service.settings.idle_s:
                    self._is_ending.set()
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
        request = msgspec.structs.replace(told.request, credential=credential)
        try:
            job = await self._service.start(request, environ=told.environ, is_detached=True, **told.options)
        except errors.LeadropeError as error:
            return Taken(error=error.message, kind=error.kind, hint=error.hint)
        return Taken(run_id=job.id)


async def main(environ: Mapping[str, str]) -> int:
    leadrope_home = home.leadrope_home(environ)
    with leases.Exclusive(home.ensure(leadrope_home / FOLDER) / "owner.lock") as mine:
        if not mine:
            return 0  # another one is there already
        async with Service(environ, kind="background", works=True) as service:
            await Background(service).serve()
    return 0


if __name__ == "__main__":
    lines = jsonlog.JsonFormatter() if jsonlog.is_wanted(os.environ) else jsonlog.TextFormatter(FORMAT)
    handler = logging.StreamHandler()
    handler.setFormatter(lines)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    sys.exit(asyncio.run(main(os.environ)))
