"""The step `save-dataset`: stores rows under a name beyond the workflow, for lists, exports and later workflows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from leadrope.core.output import json_in_text
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed
from leadrope.workflows.tools import tables


class SaveDatasetConfig(StepConfig, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="Of the dataset.", min_length=1, max_length=200)]
    rows: Annotated[Any, Meta(description="A list of objects, or one; at most 5,000 rows and 2 MB.")]
    mode: Annotated[
        Literal["replace", "append"], Meta(description="In place of the rows that are there, or behind them.")
    ] = "replace"
    key: Annotated[
        str | None, Meta(description="A column; a row with the same value in it is replaced, others are added.")
    ] = None


async def run(config: SaveDatasetConfig, context: StepContext) -> StepDone:
    rows = rows_of(config.rows)
    if config.key is not None:
        rows = _by_key(rows, config.key)
    columns = tables.names_of(rows)
    context.say(f"keeps {len(rows)} rows as {config.name}")
    # TooLarge and BadValue already say what is wrong.
    kept = await context.service.executions.put_dataset(
        config.name,
        rows,
        context.redactor,
        columns=columns,
        execution_id=context.execution_id,
        is_added=config.mode == "append",
        key=config.key,
    )
    return StepDone(outputs={"name": kept.name, "rows": len(rows), "total": kept.count, "columns": list(kept.columns)})


def rows_of(given: Any) -> list[dict[str, Any]]:
    """Return the rows of a value: a list of objects, one object, or the JSON text of either."""
    value = json_in_text.parse(given.strip()) if isinstance(given, str) else given
    if isinstance(value, Mapping):
        value = [value]
    if value is msgspec.UNSET or not isinstance(value, list | tuple):
        shown = "a text that is not JSON" if isinstance(given, str) else json.dumps(given)[:40]
        raise StepFailed(
            f"rows: {shown} is not a list of objects",
            kind="bad_input",
            hint="Give it the `data` of a structure step with format: array.",
        )
    for number, row in enumerate(value, 1):
        if not isinstance(row, Mapping):
            raise StepFailed(
                f"rows: row {number} is not an object: {json.dumps(row, ensure_ascii=False)[:40]}",
                kind="bad_input",
                hint="Each row is an object with the columns as its keys.",
            )
    return [{str(name): cell for name, cell in row.items()} for row in value]


def _by_key(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Keep only the last of the rows with the same key."""
    found: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows, 1):
        if row.get(key) is None:
            raise StepFailed(
                f"key: row {number} has no {key!r} (it has: {', '.join(list(row)[:20])})",
                kind="bad_input",
                hint="The key is a column that every row has a value in.",
            )
        found[json.dumps(row[key], sort_keys=True)] = row
    return list(found.values())


KIND = Kind(
    name="save-dataset",
    summary="Keeps rows under a name, beyond the workflow.",
    config=SaveDatasetConfig,
    outputs={
        "name": {"type": "string"},
        "rows": {"type": "integer"},
        "total": {"type": "integer"},
        "columns": {"type": "array", "items": {"type": "string"}},
    },
    run=run,
)
