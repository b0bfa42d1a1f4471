"""The session as one run sees it: held for it alone, resumed, begun anew when its record is lost. Starts nothing."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.core import events, home
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.providers import base
from leadrope.runtime.journal.journal import Journal
from leadrope.runtime.sessions import session_secrets
from leadrope.runtime.sessions.files import SessionInfo, Sessions


class RunSession:
    def __init__(self, sessions: Sessions, journal: Journal) -> None:
        self._sessions = sessions
        self._journal = journal
        self._hold = SessionLock(sessions)
        self._rebuilt = 0
        self.origin: events.Origin = "new"

    def settle(self, request: RunRequest) -> tuple[RunRequest, tuple[events.Notice, ...]]:
        """The request with its session's whole id and folder."""
        if request.resume is not None:
            self.origin = "forked" if request.fork else "resumed"
        return self._sessions.settle(request)

    async def prepare(self, provider: base.Provider, request: RunRequest, place: base.StartContext) -> base.Start:
        """Plan the start. SessionLost is raised when the session is to be rebuilt first."""
        if request.resume is not None and not request.fork and request.persist_session:
            self._hold.take(request.resume, is_new=False)
        launch = await provider.prepare(request, place, attempt=self._journal.attempt)
        if request.persist_session and launch.session_id is not None:
            self._hold.take(launch.session_id)
        return launch

    def rebuilt(self, request: RunRequest) -> RunRequest | None:
        """The agent's own record is lost: a request that begins the session anew from ours, if we have one."""
        rebuilt = self._sessions.rebuilt(request)
        if rebuilt is None:
            return None
        self.origin = "rebuilt"
        self._rebuilt = 1
        self._journal.meant[rebuilt.prompt] = request.prompt
        told = f"the agent's record of session {request.resume} is lost; it was rebuilt from leadrope's transcript"
        self._journal.record(events.Notice(level="warning", code="session_rebuilt", message=told))
        return rebuilt

    def resumed(self, request: RunRequest, session_id: str | None) -> RunRequest:
        """The next attempt goes on in the session of this one."""
        self.origin = "resumed"
        return msgspec.structs.replace(request, resume=session_id, fork=False, session_id=None)

    def anew(self, request: RunRequest, launch: base.Start | None) -> RunRequest:
        """The next attempt begins again. In the user's own folder the failed one's id is taken."""
        has_own_folder = not isinstance(launch, base.Launch) or launch.config_dir is not None
        if has_own_folder or request.resume is not None:
            return request
        return msgspec.structs.replace(request, session_id=str(uuid.uuid4()))

    def open_log(self, request: RunRequest, launch: base.Start) -> None:
        if not request.persist_session or launch.session_id is None:
            return
        info = SessionInfo(
            id=launch.session_id,
            cwd=launch.cwd,
            provider=request.provider,
            title=self._journal.meant.get(request.prompt, request.prompt),
            forked_from=request.resume if request.fork else None,
            rebuilt=self._rebuilt,
        )
        folder = self._sessions.folder / launch.session_id
        # Before the agent starts: from then on its own record may hold what the redactor knows.
        self._remember_secrets(folder, info.forked_from)
        self._journal.open_log(folder, info)
        self._rebuilt = 0

    def _remember_secrets(self, folder: Path, forked_from: str | None) -> None:
        origin = self._sessions.folder / forked_from if forked_from else None
        lost = session_secrets.remember(self._sessions.home, home.ensure(folder), self._journal.redactor, origin=origin)
        if lost:
            told = f"{lost}; an export of this session will leave out the agent's own record"
            self._journal.record(events.Notice(level="warning", code="session_secrets", message=told))

    def end(self, result: RunResult, *, turns: int) -> None:
        """`turns` of earlier attempts are added to those of the last."""
        if self._journal.log is not None:
            self._journal.log.end(result, turns=turns + result.turns, cost_usd=result.cost_usd)

    def release(self) -> None:
        self._hold.release()


def to_resume(result: RunResult, request: RunRequest, provider: base.Provider) -> str | None:
    """The session in which the work of this attempt can go on."""
    if not (request.persist_session and provider.capabilities.sessions):
        return None
    return result.session_id or (None if request.fork else request.resume)


class SessionLock:
    """One run at a time in a session; the lock goes with its process, whatever ends that."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._handles: dict[str, int] = {}

    def take(self, session_id: str, *, is_new: bool = True) -> None:
        """Two agents in one session would tear its record, and the first to end would clear the other's folder."""
        folder = self._sessions.folder / session_id
        if session_id in self._handles or sys.platform == "win32" or not (is_new or folder.is_dir()):
            return
        import fcntl  # noqa: PLC0415  # absent on Windows

        handle = os.open(home.ensure(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise errors.BadValue(
                "resume",
                f"session {session_id} is in use by another run",
                hint="Wait until that has ended, or continue in a copy of the session (fork).",
            ) from None
        self._handles[session_id] = handle

    def release(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])
