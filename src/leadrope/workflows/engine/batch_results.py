"""Builds the outputs of a batch step from the results of its items. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from leadrope.runs.executions.values import UnitOutcome
from leadrope.workflows import model
from leadrope.workflows.language import templates

_NOT_RUN = {"kind": "not_run", "message": "it was not run, because another item failed", "hint": None}


def outputs(items: Sequence[Any], units: Iterable[UnitOutcome], dialect: model.Dialect = "flow") -> dict[str, Any]:
    """Return all outputs of a batch; `results` has one entry per item, in order."""
    failed = sorted((one for one in units if one.status == "failed"), key=lambda one: one.item or 0)
    wrong = [
        {"index": one.item, "item": items[one.item], **_error(one, dialect)} for one in failed if one.item is not None
    ]
    found = results(len(items), units, items=items, dialect=dialect)
    done = sum(not isinstance(one, templates.FailedOutputs) for one in found)
    return {
        "results": found,
        "count": len(items),
        "success_count": done,
        "error_count": len(wrong),
        "errors": wrong,
    }


def results(
    count: int,
    units: Iterable[UnitOutcome],
    *,
    items: Sequence[Any] | None = None,
    dialect: model.Dialect = "flow",
) -> list[dict[str, Any]]:
    """Return each item with its outputs. One that failed or never ran has an `error`; pflow's files omit it.

    `items` is None if they are no longer known; the results then have no `item`.
    """
    by_item = {one.item: one for one in units}
    found: list[dict[str, Any]] = []
    for index in range(count):
        own = {"index": index} if items is None else {"item": items[index], "index": index}
        one = by_item.get(index)
        if one is not None and one.status != "failed":
            pflow = {"original_index": index} if dialect == "pflow" else {}
            found.append({**one.outputs, **own, **pflow})
        elif dialect == "flow":
            error = _NOT_RUN if one is None else msgspec.to_builtins(one.error)
            found.append(templates.FailedOutputs({**own, "error": error}))
    return found


def items_again(step: model.Step, scope: Mapping[str, Any], count: int) -> list[Any] | None:
    """Recompute the items of a finished batch from the values they came from; None if these are gone."""
    if step.batch is None:
        return None
    try:
        found = templates.opened(templates.resolve(step.batch.items, scope))
    except templates.Unresolved:
        return None
    return found if isinstance(found, list) and len(found) == count else None


def _error(one: UnitOutcome, dialect: model.Dialect) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(one.error) or {}
    return {**told, "error": told.get("message", "")} if dialect == "pflow" else told
