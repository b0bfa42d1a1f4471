"""A step that is done more than once: every item of a batch, turn after turn of a loop. Each unit is journaled alone.

An execution that goes on finds the units that are done in the journal, and comes to the same items, turns and carried
values from them; so none of those is done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from leadrope.runs.flows import Remark, UnitOutcome
from leadrope.workflows import choosing, model, templates
from leadrope.workflows.plan import Outcome
from leadrope.workflows.steps.base import Parked, StepFailed, brief
from leadrope.workflows.unit import scope_of_unit
from leadrope.workflows.units import WHOLE, BatchProgress, Key

ITEMS_MOST = 100_000
ITEMS_NAMED = 10
"""Of those that failed, in the warning; `errors` has all of them."""


class Owner(Protocol):
    """The execution that the step belongs to."""

    def started(self, step: model.Step, count: int | None, done: int = 0) -> None: ...
    def known(self, key: Key) -> UnitOutcome | None: ...
    async def one(self, step: model.Step, key: Key, scope: Mapping[str, Any]) -> UnitOutcome: ...
    async def record(self, outcome: UnitOutcome) -> None: ...


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: a unit, or a whole batch."""

    outcome: Outcome
    outputs: dict[str, Any]
    units: tuple[UnitOutcome, ...]
    is_cut: bool = False
    """Of a loop: its condition still wanted to go on."""


def repeats(step: model.Step) -> bool:
    return step.batch is not None or step.loop is not None


async def run(
    step: model.Step, scope: dict[str, Any], owner: Owner, began: float
) -> tuple[UnitOutcome, dict[str, Any], list[UnitOutcome]]:
    """What all of it came to, its outputs, and its units."""
    if step.loop is not None:
        last, done = await _loop(step, step.loop, scope, owner)
    else:
        last = await _round(step, 0, scope, {}, owner)
        done = list(last.units)
    first_error = next((one.error for one in done if one.status == "failed"), None)
    kept = {name: value for name, value in last.outputs.items() if name != "results" or step.loop is not None}
    whole = UnitOutcome(
        step=step.id,
        iteration=WHOLE,
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


def results(units: Iterable[UnitOutcome], count: int) -> list[Any]:
    """The outputs of a batch by item; null where an item failed or was never begun."""
    found: list[Any] = [None] * count
    for one in units:
        if one.item is not None and one.item < count and one.status != "failed":
            found[one.item] = one.outputs
    return found


async def _round(
    step: model.Step, iteration: int, scope: Mapping[str, Any], carried: Mapping[str, Any], owner: Owner
) -> Round:
    if step.batch is not None:
        return await _batch(step, step.batch, iteration, scope, carried, owner)
    if iteration == 0:
        owner.started(step, None)
    key = Key(step.id, iteration)
    one = await owner.one(step, key, {**scope, **scope_of_unit(step, key, None, carried)})
    return Round(outcome=Outcome(status=one.status, branch=one.branch), outputs=one.outputs, units=(one,))


# -- loops ------------------------------------------------------------------------------------------------------------


async def _loop(
    step: model.Step, loop: model.Loop, scope: dict[str, Any], owner: Owner
) -> tuple[Round, list[UnitOutcome]]:
    carried: dict[str, Any] = dict.fromkeys(loop.carry)
    done: list[UnitOutcome] = []
    is_soft = False
    for iteration in range(loop.max_iterations):
        turn = await _round(step, iteration, scope, carried, owner)
        done += turn.units
        outputs = {**turn.outputs, "iterations": iteration + 1}
        if turn.outcome.status == "failed":
            return msgspec.structs.replace(turn, outputs=outputs), done
        is_soft = is_soft or turn.outcome.status == "degraded"
        seen = {**scope, **carried, "__iteration__": iteration, step.id: outputs}
        goes_on = _goes_on(loop, seen)
        is_cut = bool(goes_on) and iteration + 1 == loop.max_iterations
        last = Round(
            outcome=Outcome(status="degraded" if is_soft or is_cut else "succeeded", branch=turn.outcome.branch),
            outputs=outputs,
            units=turn.units,
            is_cut=is_cut,
        )
        if goes_on is False:
            return last, done
        carried = templates.resolve(loop.carry, seen)
    return last, done


def _goes_on(loop: model.Loop, scope: Mapping[str, Any]) -> bool | None:
    """None where there is no condition: the loop then has as many turns as it may."""
    if loop.while_ is not None:
        return choosing.holds(loop.while_, scope)
    if loop.until is not None:
        return not choosing.holds(loop.until, scope)
    return None


def _soft(step: model.Step, last: Round, done: Sequence[UnitOutcome]) -> tuple[Remark, ...]:
    """Why the whole is degraded, beside what its units say themselves."""
    if last.outcome.status != "degraded":
        return ()
    found = []
    if failed := [one for one in done if one.status == "failed"]:
        found.append(Remark(kind="batch.items_failed", message=_items_failed(step, failed, len(done))))
    if last.is_cut:
        turns = last.outputs.get("iterations")
        message = f"its condition still wanted to go on after {turns} turns"
        found.append(Remark(kind="loop.not_finished", message=message))
    return tuple(found)


def _items_failed(step: model.Step, failed: Sequence[UnitOutcome], count: int) -> str:
    """Which, counted as `__index__` counts them, and why the first of them failed."""
    named = failed[:ITEMS_NAMED]
    if step.loop is None:
        places = ", ".join(f"item {one.item}" for one in named)
    else:
        places = "; ".join(f"turn {one.iteration + 1}, item {one.item}" for one in named)
    more = f" and {len(failed) - ITEMS_NAMED} more" if len(failed) > ITEMS_NAMED else ""
    first = ":" if len(failed) == 1 else ". The first:"
    why = brief(failed[0].error.message) if failed[0].error is not None else "no reason was told"
    return f"{len(failed)} of {count} items failed: {places} (counted from 0){more}{first} {why}"


# -- batches ----------------------------------------------------------------------------------------------------------


async def _batch(
    step: model.Step,
    batch: model.Batch,
    iteration: int,
    scope: Mapping[str, Any],
    carried: Mapping[str, Any],
    owner: Owner,
) -> Round:
    items = _items(step, templates.resolve(batch.items, {**scope, **carried}))
    known = {key: one for number in range(len(items)) if (one := owner.known(key := Key(step.id, iteration, number)))}
    owner.started(step, len(items), len(known))
    progress = BatchProgress(
        step.id, batch, len(items), {key: Outcome(status=one.status) for key, one in known.items()}, iteration=iteration
    )
    done = dict(known)
    tasks: dict[asyncio.Task[UnitOutcome], Key] = {}
    parked: Parked | None = None
    try:
        while True:
            for key in progress.take():
                own = {**scope, **scope_of_unit(step, key, items[key.item or 0], carried)}
                tasks[asyncio.create_task(owner.one(step, key, own), name=f"item {key}")] = key
            if not tasks:
                break
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
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
        # The items that still run when one has failed, or when the whole is stopped, are ended and have no outcome.
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    if parked is not None and not any(one.status == "failed" for one in done.values()):
        raise parked
    return Round(
        outcome=_came_to(batch, len(items), done),
        outputs=_outputs(items, done),
        units=tuple(done[key] for key in sorted(done)),
    )


def _whole(tasks: Iterable[asyncio.Task[UnitOutcome]]) -> list[asyncio.Task[UnitOutcome]]:
    return [task for task in tasks if not task.cancelled() and task.exception() is None]


def _came_to(batch: model.Batch, count: int, done: Mapping[Key, UnitOutcome]) -> Outcome:
    statuses = [one.status for one in done.values()]
    failed = statuses.count("failed")
    if failed and (batch.error_handling == "fail_fast" or failed == count):
        return Outcome(status="failed")
    return Outcome(status="degraded" if failed or "degraded" in statuses else "succeeded")


def _outputs(items: list[Any], done: Mapping[Key, UnitOutcome]) -> dict[str, Any]:
    wrong = [
        {"index": key.item, "item": items[key.item or 0], **(msgspec.to_builtins(one.error) or {})}
        for key, one in sorted(done.items())
        if one.status == "failed"
    ]
    return {"results": results(done.values(), len(items)), "count": len(items), "errors": wrong}


def _items(step: model.Step, value: Any) -> list[Any]:
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        with contextlib.suppress(ValueError):  # told below, as what it is: no list
            value = json.loads(value)
    if not isinstance(value, list):
        raise StepFailed(
            f"batch.items is {templates.as_text(value)[:60]!r}, and no list",
            kind="bad_input",
            hint="A text becomes a list by a `code` or `structure` step." if isinstance(value, str) else None,
        )
    if len(value) > ITEMS_MOST:
        raise StepFailed(f"batch.items has {len(value)} items; at most {ITEMS_MOST}", kind="bad_input")
    return value
