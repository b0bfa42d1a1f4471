"""How runs come into the queue: started here, read by a program, or left for any owner."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import check_text
from leadrope.runs import recover, session_names
from leadrope.runs.job import Job
from leadrope.runs.records import stored_environ, stored_secrets
from leadrope.runs.records.stored_requests import account_of, placed
from leadrope.runs.records.values import NewRun, RunInfo
from leadrope.runs.reruns import FUNCTIONS
from leadrope.runs.run_recorder import Show
from leadrope.runtime.gate.approvers import Approve, Approver, as_approver
from leadrope.runtime.sessions.files import Sessions

if TYPE_CHECKING:
    from leadrope.runs.run_loop import RunsInHand
    from leadrope.runs.service import Service
    from leadrope.runs.stored_starts import StoredStarts
    from leadrope.runtime.connections.functions import Function
    from leadrope.runtime.run import Run

Functions = Sequence["Function[..., Any] | Callable[..., Any]"]

TAKE_UP_S = 5.0
"""How long `take_up` waits for a run that is just being started to be at work, or back in the queue."""


class RunStarts:
    """For one configuration; see `Service.configured`."""

    def __init__(self, service: Service, hand: RunsInHand, stored: StoredStarts) -> None:
        self._service = service
        self._hand = hand
        self._stored = stored

    async def start(
        self,
        request: RunRequest,
        *,
        approver: Approver | None = None,
        show: Show | None = None,
        environ: Mapping[str, str] | None = None,
        is_detached: bool = False,
        functions: Functions = (),
        execution_id: str | None = None,
        **options: Any,
    ) -> Job:
        """Queue a run and take it up here, and nowhere else, as soon as its turn comes.

        `is_detached`: nobody sits before it. If this process dies, another one goes on with it. `functions` are those
        of `open_run`; a run that has some lives and dies with this process. `execution_id`: it is the work of a step of
        this execution, which continues it if this process dies.
        """
        if execution_id is not None and self._service.settings.recover == "resume":
            options["place"] = {**(options.get("place") or {}), "recover": "execution", "execution": execution_id}
        if is_detached:
            _refuse(functions)
        if functions:
            options["place"] = {**(options.get("place") or {}), FUNCTIONS: _names(functions)}
        then = self._service.settings.recover if is_detached else "fail"
        if is_detached:
            around = self._service.environ if environ is None else environ
            options["place"] = {
                **(options.get("place") or {}),
                stored_environ.KEY: stored_environ.kept(around),
                stored_environ.NEEDED: stored_environ.needed(
                    request, self._service.config.forward_env, around, home.load_env(self._service.home)
                ),
            }
        run = await self._add(
            request, recover=then, waits=is_detached, owner=self._service.lease.owner.id, environ=environ, **options
        )
        job = self._hand.take(run, approver, show, environ, request)
        job.config = self._service.config
        if is_detached and then == "resume":
            job.notice = await self._stored.not_recoverable(run)
        if functions:
            job.options = {"functions": functions}
        return job

    async def adopt(
        self,
        run: RunInfo,
        request: RunRequest,
        execution_id: str,
        *,
        approver: Approver | None,
        show: Show | None,
        environ: Mapping[str, str],
    ) -> Job | None:
        """Continue the run of a step that waits for its execution, here; None when it does not wait like that."""
        if not await self._service.store.adopt(run, execution_id, self._service.lease.owner.id):
            return None
        job = self._hand.take(await self._service.store.get(run.id), approver, show, environ, request)
        job.config = self._service.config
        return job

    async def open_run(
        self,
        request: RunRequest,
        *,
        approver: Approver | Approve | None = None,
        environ: Mapping[str, str] | None = None,
        config: configs.Config | None = None,
        functions: Functions = (),
        place: dict[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        """A started run whose events the caller reads himself, as `open_run` gives it; kept like every other."""
        place = {**(place or {}), FUNCTIONS: _names(functions)} if functions else place
        run = await self._add(request, recover="fail", owner=self._service.lease.owner.id, environ=environ, place=place)
        job = self._hand.take(run, as_approver(approver), None, environ, request)
        return await job.read({**options, **({"functions": functions} if functions else {})})

    async def enqueue(self, request: RunRequest, *, functions: Functions = (), **options: Any) -> RunInfo:
        """Queue a run for any owner that works; its credential is the owner's to find. It takes no functions."""
        _refuse(functions)
        return await self._add(request, recover=self._service.settings.recover, waits=True, **options)

    async def take_up(self, run_id: str, *, environ: Mapping[str, str]) -> RunInfo:
        """Start a run of the queue that nobody owns, now; `environ` has the variables that were not stored with it.

        Raises what would keep it in the queue: a secret or a credential that is not found.
        """
        run = await self._service.store.find(run_id)
        give_up = time.monotonic() + TAKE_UP_S
        with self._service.store.notifier.listen() as heard:
            # Taken from the queue a moment ago, with what is stored. If that is not enough, it is back there soon.
            while (job := self._hand.jobs.get(run.id)) is not None and job.is_taken and job.run is None:
                if time.monotonic() > give_up:
                    break
                await heard.wait(0.1)
        run = await self._service.store.get(run.id)
        if run.id not in self._hand.jobs and run.owner is None:
            stored = stored_environ.restored((await self._service.store.texts(run.id)).place, self._service.home)
            self._hand.environs[run.id] = {**environ, **(stored or {})}
            is_taken = False
            try:
                await self._stored.stored_request(
                    run, is_resumed=recover.has_session(await recover.all_events(self._service.store, run))
                )
                is_taken = await self._service.store.wake(run)
            finally:
                if not is_taken and run.id not in self._hand.jobs:
                    del self._hand.environs[run.id]
                    self._hand.held.add(run.id)
            self._hand.poke.set()
        return await self._service.store.get(run.id)

    async def _add(
        self,
        request: RunRequest,
        *,
        recover: str,
        waits: bool = False,
        run_id: str | None = None,
        title: str = "",
        priority: int = 0,
        lane: str | None = None,
        parent: str | None = None,
        place: dict[str, Any] | None = None,
        owner: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunInfo:
        # The rest is checked where it starts; this could not even be stored.
        check_text(msgspec.structs.asdict(msgspec.structs.replace(request, credential=None)))
        request = placed(await self._with_session(request))
        own, around = home.load_env(self._service.home), self._service.environ if environ is None else environ
        redactor, files = self._stored.redactor(request, around), (place or {}).get(stored_secrets.FILES, {})
        places_ = stored_secrets.SecretSources(config=self._service.config, env_file=own)
        new = NewRun(
            id=run_id or uuid.uuid4().hex,
            request=request,
            policy=request.policy,
            title=title,
            priority=priority,
            lane=lane
            if lane is not None
            else ",".join(f"{key}={value}" for key, value in sorted(request.labels.items())),
            account=account_of(request, around, own),
            owner=owner,
            parent=parent,
            place={
                "recover": recover,
                "pending": self._service.settings.pending,
                "waits": waits,
                **(place or {}),
                stored_secrets.KEY: stored_secrets.referenced(request, redactor, places_, files),
            },
        )
        return await self._service.store.add_run(new, self._service.settings.limits(), redactor=redactor)

    async def _with_session(self, request: RunRequest) -> RunRequest:
        """With the whole id of the session it resumes. An unknown one is refused here: it would name this run's row."""
        if request.resume is None or request.provider != "claude-code":
            return request
        runs = await self._service.store.with_prefix(request.resume)
        known = session_names.resolve(request.resume, Sessions(self._service.home), runs)
        return msgspec.structs.replace(request, resume=known)


def _names(functions: Functions) -> list[str]:
    from leadrope.runtime.connections import functions as functions_of  # noqa: PLC0415  # most runs have none

    return list(functions_of.collect(functions))


def _refuse(functions: Functions) -> None:
    if functions:
        raise errors.BadValue(
            "functions",
            f"{', '.join(_names(functions))}: a run that another process may take up cannot call functions of this one",
            hint="Run it in this process (`leadrope.run`, or `start` without is_detached), or offer the functions by "
            "an MCP server (`connections`).",
        )
