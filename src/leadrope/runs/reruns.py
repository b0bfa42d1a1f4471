"""Runs that are to be done once more: in their session, or from the beginning; here, or in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request import RunRequest
from leadrope.runs import recover
from leadrope.runs.records.values import RunInfo

if TYPE_CHECKING:
    from leadrope.runs.service import Service
    from leadrope.runs.stored_starts import StoredStarts

FUNCTIONS = "functions"
"""In the place of a run: the names of the program's own functions that it was given."""

Tell = Callable[[str], None]


class Continuation(msgspec.Struct, frozen=True):
    run_id: str
    """Of the run that goes on, or of the new one that goes on in its session."""
    how: Literal["unpaused", "in_background", "as_new_run"]


class Reruns:
    def __init__(self, service: Service, stored: StoredStarts) -> None:
        self._service = service
        self._stored = stored

    async def again(self, run_id: str, *, prompt: str | None = None) -> tuple[RunInfo, RunRequest]:
        """The request of a run that has ended: the same once more, or with a prompt in its session."""
        store = self._service.store
        run = await store.find(run_id)
        if run.state != "ended":
            hint = f"`leadrope runs logs -f {run.id[:8]}` follows it, `leadrope runs stop {run.id[:8]}` ends it."
            if run.state == "waiting":
                hint = f"It resumes when it is answered: `leadrope approvals list --run {run.id[:8]}`."
            raise errors.WrongState(f"run {run.id[:8]} has not ended: it is {run.state}", hint=hint)
        if names := (await store.texts(run.id)).place.get(FUNCTIONS):
            raise errors.WrongState(
                f"run {run.id[:8]} called functions of the program that started it ({', '.join(names)})",
                hint="Only that program can start it again.",
            )
        request = await self._stored.stored_request(run, is_resumed=prompt is not None)
        request = msgspec.structs.replace(request, cwd=request.cwd or run.cwd or None)
        if prompt is None:
            return run, msgspec.structs.replace(request, session_id=None)
        if run.session_id is None:
            raise errors.WrongState(
                f"run {run.id[:8]} has no session to continue", hint="`leadrope runs retry` starts it anew."
            )
        return run, msgspec.structs.replace(
            request, prompt=prompt, resume=run.session_id, fork=False, session_id=None, attachments=()
        )

    async def resume(self, run_id: str, prompt: str | None, environ: Mapping[str, str], *, tell: Tell) -> Continuation:
        """Continue a run that is paused, that nobody supervises any more, or that has ended.

        `environ` has what is not stored with it. `tell` is called with what a person should know.
        """
        from leadrope.runs import detached  # noqa: PLC0415  # the way to the background process

        run = await self._service.get(run_id)
        if run.state == "paused":
            await self._service.unpause(run.id)
            return Continuation(run.id, "unpaused")
        if run.state == "queued" and run.owner is None:
            if prompt is not None:
                raise errors.WrongState(
                    f"run {run.id[:8]} has not ended, so it takes no new prompt",
                    hint=f"Continue it with `leadrope runs resume {run.id[:8]}`.",
                )
            await asyncio.to_thread(detached.resume, self._service.home, run.id, dict(environ))
            return Continuation(run.id, "in_background")
        return Continuation(await self._hand_over(run, prompt or recover.GO_ON, environ, tell), "as_new_run")

    async def retry(self, run_id: str, environ: Mapping[str, str], *, tell: Tell) -> str:
        """The id of a new run, in the background, with the request of one that has ended."""
        return await self._hand_over(await self._service.get(run_id), None, environ, tell)

    async def _hand_over(self, run: RunInfo, prompt: str | None, environ: Mapping[str, str], tell: Tell) -> str:
        from leadrope.runs import detached  # noqa: PLC0415  # as above
        from leadrope.runs.workspace import run_workspace  # noqa: PLC0415  # the same

        configs.load({**home.load_env(self._service.home), **environ})  # what cannot start is told here
        _, request = await self.again(run.id, prompt=prompt)
        place = run_workspace.of_next((await self._service.texts(run.id)).place, is_resumed=prompt is not None)
        return await asyncio.to_thread(
            detached.hand_over,
            self._service.home,
            request,
            dict(environ),
            tell=tell,
            parent=run.id,
            place=place,
        )
