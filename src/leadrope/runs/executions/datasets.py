"""What workflows keep beyond one execution: cached outputs of steps, and datasets. Both bounded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions import bodies
from leadrope.runs.executions.reading import CACHE_S, StoredExecutions
from leadrope.runs.executions.values import DatasetInfo
from leadrope.runs.records.redacted_rows import as_json
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.statements import sql
from leadrope.storage.writer import BATCH_EVENTS

if TYPE_CHECKING:
    from leadrope.storage.db import Db

MOST_CACHED = 2000
MOST_CACHED_BYTES = 256 * 1024 * 1024
"""Of all cached outputs together, as JSON."""
ONE_CACHED_BYTES = 4 * 1024 * 1024
MOST_ROWS = 5000
MOST_DATASET_BYTES = 2 * 1024 * 1024
MOST_NAME = 200

_rows = msgspec.json.Decoder(list[dict[str, Any]])
_columns = msgspec.json.Decoder(list[str])


class StoredDatasets(StoredExecutions):
    def __init__(self, store: Sqlite) -> None:
        super().__init__(store)
        self._store = store

    # -- cached outputs -----------------------------------------------------------------------------------------------

    async def cache_put(self, key: str, type_: str, outputs: Mapping[str, Any], redactor: Redactor) -> bool:
        """False for what is not kept: outputs with a secret, which would come back without it, and large ones."""
        try:
            body = await bodies.made(outputs, redactor, "cache", most=ONE_CACHED_BYTES)
        except errors.TooLarge:
            return False
        if body.redacted:
            return False
        now = time.time()
        values = {"key": key, "type": type_, "now": now, "bytes": body.size, **body.columns}

        def work(db: Db) -> None:
            db.execute(sql("put_cached"), values)
            db.execute(sql("drop_old_cached"), {"since": now - CACHE_S})
            db.execute(sql("drop_most_cached"), {"most": MOST_CACHED, "most_bytes": MOST_CACHED_BYTES})

        await self._write_soon(work)
        return True

    async def cache_clear(self, type_: str = "") -> int:
        """All of it, or the outputs of one type of step."""
        return await self._store.write(lambda db: db.execute(sql("clear_cached"), {"type": type_}).rowcount)

    # -- datasets -----------------------------------------------------------------------------------------------------

    async def put_dataset(
        self,
        name: str,
        rows: Iterable[Mapping[str, Any]],
        redactor: Redactor,
        *,
        columns: Sequence[str] | None = None,
        execution_id: str | None = None,
        is_added: bool = False,
        key: str | None = None,
    ) -> DatasetInfo:
        """In place of the rows that are there or, `is_added`, behind them. Columns are found where none are given.

        `key`: a column; a new row stands in the place of the one that has the same value in it.
        """
        _check_name(name, redactor)
        new = [dict(row) for row in rows]
        _check_count(name, len(new))
        text = bodies.json_of(new, f"dataset {name}")
        _check_size(name, len(text))
        plain = text.decode()
        kept_text = as_json(new, redactor)
        is_redacted = kept_text != plain
        cleaned = _rows.decode(kept_text)
        heads = [redactor.clean(str(column)) for column in columns or ()]
        # In the one transaction: two workflows that add at the same time must not lose each other's rows.

        def work(db: Db) -> None:
            kept, known, was_redacted = _before(db, name) if is_added else ([], [], False)
            kept = kept + cleaned if key is None else _by_key([*kept, *cleaned], key)
            _check_count(name, len(kept))
            body = bodies.packed(bodies.json_of(kept, f"dataset {name}"), Redactor())
            _check_size(name, body.size)
            found = list(dict.fromkeys([*known, *(heads or (key for row in cleaned for key in row))]))
            values = {
                "name": name,
                "columns": bodies.json_of(found, "columns").decode(),
                "count": len(kept),
                "bytes": body.size,
                "execution": execution_id,
                "now": time.time(),
                **body.columns,
                "redacted": int(is_redacted or was_redacted),
            }
            db.execute(sql("put_dataset"), values)

        await self._store.write(work)
        return next(one for one in await self.datasets() if one.name == name)

    async def delete_dataset(self, name: str) -> None:
        if not await self._store.write(lambda db: db.execute(sql("delete_dataset"), {"name": name}).rowcount):
            raise errors.UnknownRun(f"there is no dataset {name!r}", hint=await self._datasets_hint())

    async def _write_soon(self, work: Any) -> Any:
        """In the file before it returns, so that the end of this process takes nothing away; not forced to the disk.

        The weight of a full batch: it waits for no company, and takes along what waits already.
        """
        return await self._store.write(work, weight=BATCH_EVENTS, durable=False)


def _before(db: Db, name: str) -> tuple[list[dict[str, Any]], list[str], bool]:
    row = db.execute(sql("get_dataset"), {"name": name}).fetchone()
    if row is None:
        return [], [], False
    _, columns, _, _, _, _, redacted, packed, body = row
    return (
        _rows.decode(bodies.read(packed, body, f"the dataset {name}")),
        _columns.decode(columns),
        bool(redacted),
    )


def _by_key(rows: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Of rows with the same key the last, in the place of the first. A row without one is like no other."""
    found: dict[bytes | int, dict[str, Any]] = {}
    for number, row in enumerate(rows):
        value = row.get(key)
        found[number if value is None else msgspec.json.encode(value, order="deterministic")] = row
    return list(found.values())


def _check_name(name: str, redactor: Redactor) -> None:
    if not name.strip() or len(name) > MOST_NAME or not name.isprintable() or redactor.clean(name) != name:
        raise errors.BadValue(
            "name",
            f"{redactor.clean(name)[:40]!r} cannot be the name of a dataset",
            hint="Use a short word on one line.",
        )


def _check_count(name: str, count: int) -> None:
    if count > MOST_ROWS:
        raise errors.TooLarge(
            "rows",
            f"the dataset {name!r} would have {count:,} rows, and {MOST_ROWS:,} are kept at most",
            hint="Split it, or write the rows to a file in the workspace.",
        )


def _check_size(name: str, size: int) -> None:
    if size > MOST_DATASET_BYTES:
        raise errors.TooLarge(
            "rows",
            f"the dataset {name!r} would take {size:,} bytes, and {MOST_DATASET_BYTES:,} are kept at most",
            hint="Split it, or write the rows to a file in the workspace.",
        )
