"""Runs a step repeatedly: each item of a batch, each turn of a loop. Every unit is journaled on its own.

A resumed execution finds the finished units in the journal and derives the same items, turns and carried values from
them, so no unit is repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from leadrope.runs.executions.values import STEP_TOTAL, Remark, UnitOutcome
from leadrope.workflows import model
from leadrope.workflows.engine import batch_results, looping
from leadrope.workflows.engine.plan import Outcome
from leadrope.workflows.engine.step_attempt import scope_of_unit
from leadrope.workflows.engine.unit_progress import BatchProgress, Key
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Parked, StepFailed, brief

ITEMS_MOST = 100_000
ITEMS_NAMED = 10
"""Number of failed items that the warning names; `errors` has all of them."""


class RepeatOwner(Protocol):
    """The execution that the step belongs to."""

    def started(self, step: model.Step, count: int | None, done: int = 0) -> None: ...
    def known(self, key: Key) -> UnitOutcome | None: ...
    async def one(self, step: model.Step, key: Key, scope: Mapping[str, Any]) -> UnitOutcome: ...
    async def record(self, outcome: UnitOutcome) -> None: ...
    async def recorded(self) -> None:
        """Wait until the outcomes of all units so far are in the journal."""
        ...

    def begin_turn(self) -> None:
        """Raise StepFailed if the execution has no turns left for its loops."""
        ...

    async def pause(self, step: model.Step, turn: int, seconds: float) -> None:
        """Pause before this turn."""
        ...


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: a unit, or a whole batch."""

    outcome: Outcome
    outputs: dict[str, Any]
    units: tuple[UnitOutcome, ...]
    cut: str = ""
    """What ended a loop whose condition asked for another turn."""


def repeats(step: model.Step) -> bool:
    return step.batch is not None or step.loop is not None


async def run(
    step: model.Step, scope: dict[str, Any], owner: RepeatOwner, began: float
) -> tuple[UnitOutcome, dict[str, Any], list[UnitOutcome]]:
    """Return the step's overall outcome, its outputs and its units."""
    if step.loop is not None:
        last, done = await _loop(step, step.loop, scope, owner)
    else:
        last = await _round(step, 0, scope, {}, owner)
        done = list(last.units)
    first_error = next((one.error for one in done if one.status == "failed"), None)
    kept = {name: value for name, value in last.outputs.items() if name != "results" or step.loop is not None}
    whole = UnitOutcome(
        step=step.id,
        iteration=STEP_TOTAL,
        status=last.outcome.status,
        branch=last.outcome.branch,
        outputs=kept,
        error=first_error if last.outcome.status == "failed" else None,
        warnings=_soft(step, last, done),
        started=began,
        ended=time.time(),
    )
    await owner.record(whole)
    return whole, last.outputs, done


async def _round(
    step: model.Step, iteration: int, scope: Mapping[str, Any], carried: Mapping[str, Any], owner: RepeatOwner
) -> Round:
    step = looping.with_carried(step, carried)
    if step.batch is not None:
        return await _batch(step, step.batch, iteration, scope, carried, owner)
    if iteration == 0:
        owner.started(step, None)
    key = Key(step.id, iteration)
    one = await owner.one(step, key, {**scope, **scope_of_unit(step, key, None, carried)})
    return Round(outcome=Outcome(status=one.status, branch=one.branch), outputs=one.outputs, units=(one,))


# -- loops ------------------------------------------------------------------------------------------------------------


async def _loop(
    step: model.Step, loop: model.Loop, scope: dict[str, Any], owner: RepeatOwner
) -> tuple[Round, list[UnitOutcome]]:
    bounds = looping.bounds_of(loop, scope)
    carried: dict[str, Any] = {}
    done: list[UnitOutcome] = []
    is_soft = False
    used_s = 0.0
    iteration = 0
    while True:
        if not _is_begun(step, iteration, owner):
            owner.begin_turn()
        turn = await _round(step, iteration, scope, carried, owner)
        iteration += 1
        done += turn.units
        outputs = {**turn.outputs, "iterations": iteration}
        if turn.outcome.status == "failed":
            return msgspec.structs.replace(turn, outputs=outputs), done
        is_soft = is_soft or turn.outcome.status == "degraded"
        seen = {**scope, **carried, "__iteration__": iteration - 1, **_inside(step, outputs), step.id: outputs}
        wants = looping.goes_on(loop, seen)
        ended = max((one.ended for one in turn.units), default=0.0)
        used_s += ended - min((one.started for one in turn.units), default=ended)
        pause_s = looping.pause_of(loop, seen) if wants is not False and iteration < bounds.turns else 0.0
        stopped = looping.stopped(bounds, turns=iteration, wants=wants, used_s=used_s + pause_s)
        if stopped is not None:
            cut = stopped if wants else ""
            status = Outcome(status="degraded" if is_soft or cut else "succeeded", branch=turn.outcome.branch)
            outputs = {**outputs, "loop_stopped": stopped}
            return Round(outcome=status, outputs=outputs, units=turn.units, cut=cut), done
        carried = templates.resolve(loop.carry, seen)
        used_s += pause_s
        if pause_s and not _is_begun(step, iteration, owner):
            # By wall clock: after a crash only the remaining time is waited.
            await owner.pause(step, iteration, min(pause_s, ended + pause_s - time.time()))


def _inside(step: model.Step, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for a group, the outputs of its steps in this turn, by name."""
    return {inner.id: outputs[inner.id] for inner in step.steps if inner.id in outputs}


def _is_begun(step: model.Step, iteration: int, owner: RepeatOwner) -> bool:
    """Whether the journal has a unit of this turn, which means that the turn had begun before."""
    return any(owner.known(Key(step.id, iteration, item)) is not None for item in (None, 0))


def _soft(step: model.Step, last: Round, done: Sequence[UnitOutcome]) -> tuple[Remark, ...]:
    """Return why the whole is degraded, in addition to the remarks of its units."""
    if last.outcome.status != "degraded":
        return ()
    found = []
    if failed := [one for one in done if one.status == "failed"]:
        found.append(Remark(kind="batch.items_failed", message=_items_failed(step, failed, len(done))))
    if last.cut:
        turns = last.outputs.get("iterations")
        message = f"its condition still wanted another turn after {turns} turns"
        message += " and all of its max_seconds" if last.cut == "max_seconds" else ""
        found.append(Remark(kind="loop.not_finished", message=message))
    return tuple(found)


def _items_failed(step: model.Step, failed: Sequence[UnitOutcome], count: int) -> str:
    """Describe which items failed, counted as `__index__` counts them, and why the first one did."""
    named = failed[:ITEMS_NAMED]
    if step.loop is None:
        places = ", ".join(f"item {one.item}" for one in named)
    else:
        places = "; ".join(f"turn {one.iteration + 1}, item {one.item}" for one in named)
    more = f" and {len(failed) - ITEMS_NAMED} more" if len(failed) > ITEMS_NAMED else ""
    first = ":" if len(failed) == 1 else ". The first:"
    why = brief(failed[0].error.message) if failed[0].error is not None else "no reason was given"
    return f"{len(failed)} of {count} items failed: {places} (counted from 0){more}{first} {why}"


# -- batches ----------------------------------------------------------------------------------------------------------


async def _batch(
    step: model.Step,
    batch: model.Batch,
    iteration: int,
    scope: Mapping[str, Any],
    carried: Mapping[str, Any],
    owner: RepeatOwner,
) -> Round:
    items = _items(step, templates.resolve(batch.items, {**scope, **carried}))
    known = {key: one for number in range(len(items)) if (one := owner.known(key := Key(step.id, iteration, number)))}
    owner.started(step, len(items), len(known))
    progress = BatchProgress(
        step.id, batch, len(items), {key: Outcome(status=one.status) for key, one in known.items()}, iteration=iteration
    )
    done = dict(known)
    tasks: dict[asyncio.Task[UnitOutcome], Key] = {}
    ended = _Ended()
    parked: Parked | None = None
    try:
        while True:
            for key in progress.take():
                own = {**scope, **scope_of_unit(step, key, items[key.item or 0], carried)}
                task = asyncio.create_task(owner.one(step, key, own), name=f"item {key}")
                task.add_done_callback(ended.add)
                tasks[task] = key
            if not tasks:
                break
            finished = await ended.taken()
            for task in finished:
                key = tasks.pop(task)
                try:
                    one = task.result()
                except Parked as waiting:
                    parked = waiting
                    continue
                done[key] = one
                progress.settle(key, Outcome(status=one.status))
            if batch.error_handling == "fail_fast" and any(
                task.result().status == "failed" for task in _whole(finished)
            ):
                break
    finally:
        # When an item failed or everything is stopped, the items still running are cancelled and get no outcome.
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await owner.recorded()
    if parked is not None and not any(one.status == "failed" for one in done.values()):
        raise parked
    return Round(
        outcome=_came_to(batch, len(items), done),
        outputs=batch_results.outputs(items, done.values(), scope.get(templates.DIALECT, "flow")),
        units=tuple(done[key] for key in sorted(done)),
    )


class _Ended:
    """Collects tasks as they end. (`asyncio.wait` would visit all running tasks for each one that ends.)"""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[UnitOutcome]] = []
        self._some = asyncio.Event()

    def add(self, task: asyncio.Task[UnitOutcome]) -> None:
        self._tasks.append(task)
        self._some.set()

    async def taken(self) -> list[asyncio.Task[UnitOutcome]]:
        """Wait for at least one task to end, and return all that have."""
        await self._some.wait()
        self._some.clear()
        taken, self._tasks = self._tasks, []
        return taken


def _whole(tasks: Iterable[asyncio.Task[UnitOutcome]]) -> list[asyncio.Task[UnitOutcome]]:
    return [task for task in tasks if not task.cancelled() and task.exception() is None]


def _came_to(batch: model.Batch, count: int, done: Mapping[Key, UnitOutcome]) -> Outcome:
    statuses = [one.status for one in done.values()]
    failed = statuses.count("failed")
    if failed and (batch.error_handling == "fail_fast" or failed == count):
        return Outcome(status="failed")
    return Outcome(status="degraded" if failed or "degraded" in statuses else "succeeded")


def _items(step: model.Step, value: Any) -> list[Any]:
    value = templates.opened(value)
    if not isinstance(value, list):
        raise StepFailed(
            f"batch.items is {templates.as_text(value)[:60]!r}, and no list",
            kind="bad_input",
            hint="A text becomes a list by a `code` or `structure` step." if isinstance(value, str) else None,
        )
    if len(value) > ITEMS_MOST:
        raise StepFailed(f"batch.items has {len(value)} items; at most {ITEMS_MOST}", kind="bad_input")
    return value
