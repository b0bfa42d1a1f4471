"""Many runs in one call: a few at a time, with one budget for all of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from typing import Unpack

from leadrope import errors
from leadrope.core.request import RunRequest
from leadrope.core.result import RunError, RunResult, not_started
from leadrope.runtime.keywords import CallArguments, RunKeywords, read
from leadrope.runtime.limits.shared_budget import SharedBudget
from leadrope.runtime.run import opened


async def run_many(
    prompts: Iterable[str | RunRequest],
    *,
    concurrency: int = 4,
    budget_usd: float | None = None,
    **keywords: Unpack[RunKeywords],
) -> list[RunResult]:
    """Run all prompts, at most `concurrency` at a time, and return their results in the same order.

    results = await leadrope.run_many(["Review a.py", "Review b.py"], budget_usd=2, mode="plan")

    The keywords hold for all of them. `budget_usd` is a cap for all runs together, beside the one of each: when it is
    reached, those that run are ended and the rest are not started, all with outcome `over_budget`. A run that cannot
    start is a result, too (`result.error`). Cancelling ends all that run.
    """
    if concurrency < 1:
        raise errors.BadValue("concurrency", f"{concurrency} is not a number above zero")
    if budget_usd is not None and budget_usd <= 0:
        raise errors.BadValue(
            "budget_usd", f"{budget_usd} lets nothing happen", hint="Leave it out for no cap over all runs."
        )
    shared = SharedBudget(budget_usd)
    places = asyncio.Semaphore(concurrency)
    # All are read before the first one starts: a wrong keyword is the caller's mistake, and no result.
    waiting = [read(prompt, keywords) for prompt in prompts]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_one(asked, shared, places)) for asked in waiting]
    return [task.result() for task in tasks]


async def _one(asked: CallArguments, shared: SharedBudget, places: asyncio.Semaphore) -> RunResult:
    async with places:
        run_id = uuid.uuid4().hex
        if shared.is_over:
            error = RunError(kind="over_budget", message=f"not started: {shared.reason}", hint="Raise budget_usd.")
            return RunResult(run_id=run_id, outcome="over_budget", error=error, attempts=0)
        try:
            async with opened(asked, run_id=run_id, shared=shared) as run:
                return await run.result()
        except errors.LeadropeError as error:
            return not_started(error, run_id=run_id)
