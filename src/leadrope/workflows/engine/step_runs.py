"""Agent runs started by steps, with ids that survive a crash, so that none is paid for twice.

A resumed execution finds the run of a step by its id. A finished run is not repeated, an interrupted one continues in
its session, and a stopped one is followed by another run in the same session.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from leadrope.core.events import Recorded
from leadrope.core.request import RunRequest
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunResult
from leadrope.runs.records.values import RunInfo
from leadrope.runs.recover import GO_ON

if TYPE_CHECKING:
    from leadrope.runs.job import Job
    from leadrope.workflows.steps.base import StepContext

MOST_RUNS = 100
"""Limit for one attempt of one unit that is stopped and continued repeatedly."""


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of stopped runs of the same attempt."""

    cost_usd: float = 0.0
    tokens: int = 0


class StepRun(msgspec.Struct, frozen=True, kw_only=True):
    """Either a run in progress, or the result of one that has ended before."""

    job: Job | None = None
    result: RunResult | None = None
    before: Before = Before()


def run_id_of(execution_id: str, name: str, number: int = 0) -> str:
    return uuid.uuid5(uuid.UUID(hex=execution_id), f"{name}/{number}" if number else name).hex


async def begin(request: RunRequest, context: StepContext, show: Callable[[Recorded], None], title: str) -> StepRun:
    """Start or find the run of a step: continue an existing one where it was cut off, or create a new one."""
    service, name = context.service, context.run_name()
    before, resume, run_id = Before(), None, ""
    for number in range(MOST_RUNS):
        run_id = run_id_of(context.execution_id, name, number)
        run = await service.known(run_id)
        if run is None:
            break
        is_same = await _is_same(request, run, context)
        if run.state == "ended" and run.outcome != "stopped" and is_same:
            result = (await service.texts(run.id)).result
            if result is not None:
                return StepRun(result=result, before=before)
        if run.state != "ended" and is_same:
            job = await service.adopt(
                run, request, context.outermost_id, approver=context.approver, show=show, environ=context.environ
            )
            if job is not None:
                return StepRun(job=job, before=before)
        if run.state != "ended":
            await service.stop(run.id, "its step was changed")
        before = Before(cost_usd=before.cost_usd + run.cost_usd, tokens=before.tokens + run.tokens)
        resume = run.session_id if is_same and run.last_seq else None
    if resume is not None and request.persist_session:
        request = msgspec.structs.replace(
            request, resume=resume, fork=False, session_id=None, prompt=GO_ON, attachments=()
        )
    job = await service.start(
        request,
        approver=context.approver,
        show=show,
        environ=context.environ,
        title=title,
        run_id=run_id,
        execution_id=context.outermost_id,
    )
    return StepRun(job=job, before=before)


async def _is_same(request: RunRequest, run: RunInfo, context: StepContext) -> bool:
    """What it is asked is what it was asked: the file may have been changed since."""
    stored = (await context.service.texts(run.id)).request
    asked = redactor_of(request, context.environ).clean(request.prompt)
    return (stored.prompt in (asked, GO_ON), stored.model) == (True, request.model)
