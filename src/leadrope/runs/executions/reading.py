"""Reading what is kept of workflows. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.execution_events import ExecutionRecord
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions import bodies, log
from leadrope.runs.executions.values import (
    UNIT_BYTES,
    Begun,
    Cached,
    Dataset,
    DatasetInfo,
    ExecutionFilter,
    ExecutionInfo,
    ExecutionTexts,
    Remark,
    UnitData,
    UnitOutcome,
    UnitProblem,
)
from leadrope.runs.records.reading import Reads

PAGE = 500
CACHE_S = 30 * 86400.0
"""A cached output is not used after this time, whatever the room."""

_SHAPES = Redactor()

_labels = msgspec.json.Decoder(dict[str, str])
_columns = msgspec.json.Decoder(tuple[str, ...])
_object = msgspec.json.Decoder(dict[str, Any])
_rows = msgspec.json.Decoder(list[dict[str, Any]])
_INFO_FIELDS = ExecutionInfo.__struct_fields__


class UnitBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a row keeps of an outcome beside its columns."""

    outputs: dict[str, Any] = {}
    warnings: tuple[Remark, ...] = ()
    error: UnitProblem | None = None


_unit = msgspec.json.Decoder(UnitBody)


class StoredExecutions:
    """The half that a list, a history or a view needs."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def get(self, execution_id: str) -> ExecutionInfo:
        rows = await self._rows("get_execution", id=execution_id)
        if not rows:
            raise _unknown(execution_id)
        return _info(rows[0])

    async def find(self, prefix: str) -> ExecutionInfo:
        """A flow by its id or the beginning of it."""
        found = await self.ids_beginning(prefix)
        if prefix in found or len(found) == 1:
            return await self.get(prefix if prefix in found else found[0])
        if found:
            some = ", ".join(one[: len(prefix) + 8] for one in found)
            raise errors.UnknownRun(f"several executions begin with {prefix}: {some}", hint="Write more of the id.")
        raise _unknown(prefix)

    async def ids_beginning(self, prefix: str) -> list[str]:
        """Only the first few; none for nothing."""
        rows = await self._rows("executions_with_prefix", low=prefix, high=prefix + "\uffff") if prefix else []
        return [row[0] for row in rows]

    async def listing(self, wanted: ExecutionFilter = ExecutionFilter()) -> list[ExecutionInfo]:  # noqa: B008  # frozen
        """The newest first."""
        key, value = wanted.label or ("", "")
        rows = await self._rows(
            "list_executions",
            before=wanted.before if wanted.before is not None else 2**62,
            state=wanted.state or "",
            outcome=wanted.outcome or "",
            is_open=int(wanted.is_open),
            is_top=int(wanted.is_top),
            name=wanted.name or "",
            file=wanted.file or "",
            cwd=wanted.cwd or "",
            label=key,
            value=value,
            since=wanted.since,
            limit=wanted.limit,
        )
        return [_info(row) for row in rows]

    async def last_of(self, *, name: str = "", file: str = "") -> ExecutionInfo | None:
        """The newest flow of that file, or of that name; not one that is part of another."""
        if bool(name) == bool(file):
            raise ValueError("either a name or a file")
        rows = (
            await self._rows("last_execution_of_file", file=file)
            if file
            else await self._rows("last_execution_of_name", name=name)
        )
        return await self.get(rows[0][0]) if rows else None

    async def children(self, execution_id: str, parent_key: str = "") -> list[ExecutionInfo]:
        """Flows that are the work of one of its units, the oldest first."""
        return [
            await self.get(row[0])
            for row in await self._rows("child_executions", parent=execution_id, parent_key=parent_key)
        ]

    async def texts(self, execution_id: str) -> ExecutionTexts:
        rows = await self._rows("get_execution_texts", id=execution_id, name="")
        if not rows:
            raise _unknown(execution_id)
        found = {name: bodies.read(packed, body, f"the {name} of {execution_id}") for name, _, packed, body in rows}
        return ExecutionTexts(
            text=msgspec.json.decode(found["text"], type=str),
            inputs=_object.decode(found["inputs"]),
            settings=_object.decode(found["settings"]),
            called=_object.decode(found["called"]) if "called" in found else {},
            result=msgspec.json.decode(found["result"]) if "result" in found else None,
            redacted=frozenset(name for name, redacted, *_ in rows if redacted),
        )

    async def text(self, execution_id: str) -> str:
        return msgspec.json.decode(await self._text(execution_id, "text") or b'""', type=str)

    async def inputs(self, execution_id: str) -> dict[str, Any]:
        return _object.decode(await self._text(execution_id, "inputs") or b"{}")

    async def result(self, execution_id: str) -> Any:
        """What `end` was given; None while it has not ended."""
        body = await self._text(execution_id, "result")
        return None if body is None else msgspec.json.decode(body)

    async def outcomes(self, execution_id: str, *, step: str | None = None, after: int = 0) -> list[UnitOutcome]:
        """In the order in which they were settled; `after` the one of that `n`, for those who follow."""
        n = (await self.get(execution_id)).n
        if step is None:
            rows = await self._rows("read_outcomes", execution=n, after=after)
        else:
            rows = await self._rows("read_outcomes_of_step", execution=n, step=step, after=after)
        return [_outcome(row) for row in rows]

    async def unit(
        self, execution_id: str, step: str, iteration: int = 0, item: int | None = None, *, most: int = UNIT_BYTES
    ) -> UnitData:
        """What events refer to: the values of one unit, at most so many bytes of its outputs."""
        execution = await self.get(execution_id)
        key = {"execution": execution.n, "step": step, "iteration": iteration, "item": -1 if item is None else item}
        begun, ended = await self._rows("unit_inputs", **key), await self._rows("unit_outcome", **key)
        if not begun and not ended:
            raise errors.UnknownRun(f"{step} of execution {execution.id[:8]} has not begun, or there is no such unit")
        inputs, inputs_bytes, times, *_ = begun[0] if begun else (None, 0, 0)
        found = UnitData(
            step=step,
            iteration=iteration,
            item=item,
            times=times,
            inputs=bodies.read_excerpt(inputs, f"the inputs of {step}"),
            inputs_bytes=inputs_bytes,
        )
        if not ended:
            return found
        outcome = _outcome(ended[0])
        shown = bodies.excerpt(outcome.outputs, _SHAPES, most=most)
        return msgspec.structs.replace(
            found,
            status=outcome.status,
            outputs=bodies.read_excerpt(shown.body, f"the outputs of {step}"),
            outputs_bytes=shown.size,
            run_id=outcome.run_id,
        )

    async def queued_for(self, owner: str, until: float) -> list[str]:
        """Executions in the queue that this owner may take up by then."""
        return [row[0] for row in await self._rows("executions_queued_for", owner=owner, until=until)]

    async def left_over(self, now: float) -> list[str]:
        """Executions that may start and have no owner, the first first."""
        return [row[0] for row in await self._rows("queued_executions_left_over", now=now)]

    async def next_due(self, now: float) -> float | None:
        """When an execution that waits for a time may start."""
        due = (await self._rows("next_queued_execution_due", now=now))[0][0]
        return None if due is None else float(due)

    async def done_units(self, execution_id: str) -> int:
        """How many outcomes it has, those of called workflows included."""
        return int((await self._rows("count_family_outcomes", id=execution_id))[0][0])

    async def read_events(
        self, execution: ExecutionInfo, seq: int, limit: int, *, type_: str | None = None
    ) -> list[ExecutionRecord]:
        """Of its log, from `seq` on; none when there are no more. Called workflows have theirs in the caller's log."""
        return await self._reads.patiently(lambda: self._events_now(execution, seq, limit, type_=type_))

    def _events_now(
        self, execution: ExecutionInfo, seq: int, limit: int, *, type_: str | None = None
    ) -> list[ExecutionRecord]:
        name = "read_execution_events" if type_ is None else "read_execution_events_of_type"
        rows = self._reads.rows_now(
            name, execution=execution.n, seq=seq, limit=limit, **({} if type_ is None else {"type": type_})
        )
        return [log.read(row, execution.id) for row in rows]

    async def all_events(self, execution: ExecutionInfo, *, type_: str | None = None) -> list[ExecutionRecord]:
        found: list[ExecutionRecord] = []
        while page := await self.read_events(execution, found[-1].seq + 1 if found else 1, PAGE, type_=type_):
            found += page
        return found

    async def events(self, execution: ExecutionInfo, seq: int, limit: int = 500) -> list[ExecutionRecord]:
        """As `read_events`, in a thread."""
        return await self._reads.in_thread(lambda: self._events_now(execution, seq, limit))

    async def outermost(self, execution: ExecutionInfo) -> ExecutionInfo:
        """The execution that called it, and so on: whose log, queue and controls are those of all inside it."""
        while execution.parent is not None:
            execution = await self.get(execution.parent)
        return execution

    async def begun(self, execution_id: str, *, is_all: bool = False) -> list[Begun]:
        """Units that were started and have no outcome: they run, or were cut off. `is_all`: also those that have."""
        return [
            Begun(step=step, iteration=iteration, item=_item(item), times=times, first=first, last=last)
            for step, iteration, item, times, first, last in await self._rows(
                "open_begins", execution=(await self.get(execution_id)).n, is_all=int(is_all)
            )
        ]

    async def cache_get(self, key: str) -> Cached | None:
        rows = await self._rows("get_cached", key=key, since=time.time() - CACHE_S)
        if not rows:
            return None
        key, type_, created, packed, body = rows[0]
        return Cached(key=key, type=type_, created=created, outputs=_object.decode(bodies.read(packed, body, key)))

    async def cached(self, type_: str = "") -> int:
        """How many outputs are kept, of all steps or of one type."""
        return int((await self._rows("count_cached", type=type_))[0][0])

    async def dataset(self, name: str) -> Dataset:
        rows = await self._rows("get_dataset", name=name)
        if not rows:
            raise errors.UnknownRun(f"there is no dataset {name!r}", hint=await self._datasets_hint())
        *fields, packed, body = rows[0]
        return Dataset(**_dataset(fields), rows=_rows.decode(bodies.read(packed, body, f"the dataset {name}")))

    async def datasets(self) -> list[DatasetInfo]:
        return [DatasetInfo(**_dataset(row)) for row in await self._rows("list_datasets")]

    async def _datasets_hint(self) -> str:
        names = [one.name for one in await self.datasets()]
        return f"There are: {', '.join(names[:20])}." if names else "There is none yet; a save-dataset step makes one."

    async def _text(self, execution_id: str, name: str) -> bytes | None:
        rows = await self._rows("get_execution_texts", id=execution_id, name=name)
        if not rows:
            await self.get(execution_id)
            return None
        _, _, packed, body = rows[0]
        return bodies.read(packed, body, f"the {name} of {execution_id}")

    async def _rows(self, statement: str, /, **values: Any) -> list[Any]:
        return await self._reads._rows(statement, **values)  # noqa: SLF001  # the other half of the same store


def _unknown(execution_id: str) -> errors.UnknownRun:
    return errors.UnknownRun(f"there is no execution {execution_id!r}", hint="`leadrope flow history` shows them.")


def _item(stored: int) -> int | None:
    return None if stored < 0 else stored


def _info(row: Sequence[Any]) -> ExecutionInfo:
    fields = dict(zip(_INFO_FIELDS, row, strict=True))
    fields["labels"] = _labels.decode(fields["labels"])
    return ExecutionInfo(**fields)


def _outcome(row: Sequence[Any]) -> UnitOutcome:
    (
        n,
        step,
        iteration,
        item,
        status,
        branch,
        cost_usd,
        tokens,
        run,
        attempts,
        started,
        ended,
        is_sum,
        redacted,
        packed,
        body,
    ) = row
    found = _unit.decode(bodies.read(packed, body, f"the outcome of {step}"))
    return UnitOutcome(
        n=n,
        step=step,
        iteration=iteration,
        item=_item(item),
        status=status,
        branch=branch,
        outputs=found.outputs,
        warnings=found.warnings,
        error=found.error,
        cost_usd=cost_usd,
        tokens=tokens,
        run_id=run,
        attempts=attempts,
        started=started,
        ended=ended,
        is_sum=bool(is_sum),
        is_redacted=bool(redacted),
    )


def _dataset(row: Sequence[Any]) -> dict[str, Any]:
    name, columns, count, size, execution_id, updated, redacted = row
    return {
        "name": name,
        "columns": _columns.decode(columns),
        "count": count,
        "bytes": size,
        "execution_id": execution_id,
        "updated": updated,
        "is_redacted": bool(redacted),
    }
