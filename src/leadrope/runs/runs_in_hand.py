"""Runs that this process has in hand, from the queue to the end, and what it was given for them. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from leadrope.core.request import RunRequest
from leadrope.runs.records.values import RunInfo
from leadrope.runtime.gate.approvers import Approver

if TYPE_CHECKING:
    from leadrope.runs.job import Job
    from leadrope.runs.run_recorder import Show


class RunsInHand:
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.suspended: dict[str, Job] = {}
        """Runs without an agent, which wait for a person and may come back here."""
        self.held: set[str] = set()
        """Runs that could not be started here, and wait for a person."""
        self.requests: dict[str, RunRequest] = {}
        """As they were asked for. The store's are redacted and have no credential; they are for looks and recovery."""
        self.environs: dict[str, Mapping[str, str]] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.poke = asyncio.Event()
        """Set when the queue is to be looked at now."""

    def take(
        self,
        run: RunInfo,
        approver: Approver | None,
        show: Show | None,
        environ: Mapping[str, str] | None,
        request: RunRequest | None,
    ) -> Job:
        from leadrope.runs.job import Job  # noqa: PLC0415  # workflows without agents do not need it

        job = Job(run, approver, show)
        self.jobs[run.id] = job
        if environ is not None:
            self.environs[run.id] = environ
        if request is not None:
            self.requests[run.id] = request
        self.poke.set()
        return job

    def forget(self, job: Job) -> None:
        self.jobs.pop(job.id, None)
        self.environs.pop(job.id, None)
        self.requests.pop(job.id, None)
        self.poke.set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task
