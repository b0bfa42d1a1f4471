"""`leadrope events`: what happened in a run, one JSON object a line, ours or universal. Starts nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from leadrope import errors
from leadrope.cli.runs.transcripts import read_file, universal_of, write
from leadrope.core import home
from leadrope.core.events import Event, Recorded
from leadrope.core.execution_events import ExecutionEvent, ExecutionRecord
from leadrope.core.universal import schemas
from leadrope.core.universal.types import UniversalEvent
from leadrope.providers.claude_code.transcripts import Read
from leadrope.runtime.sessions.files import LEAST_PREFIX, Sessions

if TYPE_CHECKING:
    from leadrope.runs.queries import Queries
    from leadrope.runs.records.values import RunInfo

PAGE = 500
LAST = "last"
_OF_PROGRAMS = (
    "Stored are the runs and chats of the terminal, and those of the service. A program that calls open_run has the "
    "events of its runs itself. What `-o stream-json` has printed can be named here as a file."
)


@click.command(
    "events",
    short_help="What happened in a run, line by line.",
    epilog="""\b
Examples:
  leadrope events 7f1f9d3e --type tool.decided
  leadrope run "hello" -o stream-json > run.jsonl; leadrope events run.jsonl --universal
  leadrope events 3fa9c1d2 --type step.ended                      of a workflow's execution
  leadrope events --schema --universal > universal.schema.json
""",
)
@click.argument("target", metavar="[RUN|SESSION|EXECUTION|FILE]", required=False)
@click.option("--universal", is_flag=True, help="In the universal schema (docs/universal.md).")
@click.option("--raw", is_flag=True, help="With --universal: keep each line beside what it means.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type; repeatable.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a line instead.")
@click.option("--executions", is_flag=True, help="With --schema: of a line of a workflow's execution.")
def command(
    *, target: str | None, universal: bool, raw: bool, types: Sequence[str], schema: bool, executions: bool
) -> int:
    """Print the events of a RUN, of every run of a SESSION, of a workflow's EXECUTION, or of a FILE.

    RUN, SESSION and EXECUTION are ids, or how they begin; without one, or with `last`, it is the newest run of this
    folder, or of all. FILE is what `leadrope run -o stream-json` or the agent itself has printed.
    """
    if executions and not schema:
        raise errors.BadValue("--executions", "is for --schema", hint="Name an execution to see its events.")
    if schema:
        made = schemas.universal_schema() if universal else schemas.event_schema()
        if executions:
            made = schemas.execution_schema()
        sys.stdout.buffer.write(schemas.text_of(made).encode())
        sys.stdout.buffer.flush()
        return 0
    if raw and not universal:
        raise errors.BadValue("--raw", "only the universal form has a place for it", hint="Add --universal.")
    _check_types(types, UniversalEvent if universal else Event | ExecutionEvent)
    own = home.leadrope_home(os.environ)
    if target is not None and (execution := _execution(target, own)) is not None:
        if universal:
            raise errors.BadValue("--universal", "is for the events of agents", hint="Name the run of a step.")
        write(_filtered(execution, types))
        return 0
    with found(target or LAST, own) as runs:
        write(_filtered(chain.from_iterable(_told(run, universal=universal, raw=raw) for run in runs), types))
    return 0


def _execution(target: str, leadrope_home: Path) -> list[ExecutionRecord] | None:
    """The events of the one execution whose id begins so; None where a file or a run may be meant."""
    if target == LAST or Path(target).expanduser().is_file():
        return None
    return asyncio.run(_records_of(target, leadrope_home))


async def _records_of(target: str, leadrope_home: Path) -> list[ExecutionRecord] | None:
    from leadrope.runs import stores  # noqa: PLC0415  # SQLite is for those who have something to look at

    async with stores.reading(leadrope_home) as queries:
        if (
            queries is None
            or len(await queries.executions.ids_beginning(target)) != 1
            or await queries.with_prefix(target)
        ):
            return None
        row = await queries.executions.find(target)
        told = await queries.executions.all_events(await queries.executions.outermost(row))
        return [one for one in told if row.parent is None or one.event.execution == row.id]


@contextlib.contextmanager
def found(target: str, leadrope_home: Path) -> Iterator[list[Iterable[Read]]]:
    """What `target` names, run by run: a file, a run of the store, or all runs of a session, oldest first."""
    path = Path(target).expanduser()
    if path.is_file():
        yield [read_file(path)]
        return
    from leadrope.runs import stores  # noqa: PLC0415  # as above

    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        reading = stores.reading(leadrope_home)
        queries = runner.run(reading.__aenter__())
        stack.callback(lambda: runner.run(reading.__aexit__(None, None, None)))
        if queries is None:
            told = f"no run is stored in {leadrope_home} yet"
            if target != LAST:
                told = f"there is no file {target!r}, and {told}"
            raise errors.BadValue("RUN", told, hint=_OF_PROGRAMS)
        runs = runner.run(find(target, queries, Sessions(leadrope_home)))
        yield [_read(runner, queries, run) for run in runs]


async def find(target: str, queries: Queries, sessions: Sessions) -> list[RunInfo]:
    """The stored runs that `target` names: one by its id, or those of a session. What could be several is refused."""
    if target == LAST:
        return [await _newest(queries)]
    if (run := await queries.known(target)) is not None:
        return [run]
    rows = await _rows(queries)
    runs = [row for row in rows if row.id.startswith(target)]
    known = {info.id: info.runs for info in sessions.listing()}
    # A session whose files were deleted is still named by its runs.
    names = {*known, *(row.session_id for row in rows if row.session_id)}
    if target in names:
        named = {target}
    else:
        named = {name for name in names if name.startswith(target)} if len(target) >= LEAST_PREFIX else set()
    of_session = [row for row in rows if row.session_id in named or any(row.id in known.get(n, ()) for n in named)]
    if len(runs) == 1 and not named - {runs[0].session_id}:
        return runs
    if not runs and len(named) == 1:
        if not of_session:
            told = f"none of the runs of session {named.pop()} is stored"
            raise errors.BadValue("RUN", told, hint=_OF_PROGRAMS)
        return of_session
    if runs or named:
        shown = [*sorted(row.id for row in runs), *sorted(named)]
        told = f"{target!r} could be {', '.join(shown[:6])}{' …' if len(shown) > 6 else ''}"
        raise errors.BadValue("RUN", told, hint="Give more of it.")
    told = f"there is no file, run or session {target!r}"
    raise errors.BadValue("RUN", told, hint=f"`leadrope runs list` shows the runs. {_OF_PROGRAMS}")


async def _newest(queries: Queries) -> RunInfo:
    """Of this folder; of all, where this one has none."""
    from leadrope.runs.records.values import Filter  # noqa: PLC0415

    for cwd in (str(Path.cwd()), None):
        if rows := await queries.listing(Filter(cwd=cwd, limit=1)):
            click.echo(f"run {rows[0].id[:8]}", err=True)
            return rows[0]
    raise errors.BadValue("RUN", "no run is stored yet", hint=_OF_PROGRAMS)


async def _rows(queries: Queries) -> list[RunInfo]:
    """All runs, oldest first."""
    from leadrope.runs.records.values import Filter  # noqa: PLC0415

    pages: list[list[RunInfo]] = []
    page = await queries.listing(Filter(limit=PAGE))
    while page:
        pages.append(page)
        page = await queries.listing(Filter(limit=PAGE, before=page[-1].n))
    return [row for page in reversed(pages) for row in reversed(page)]


def _read(runner: asyncio.Runner, queries: Queries, run: RunInfo) -> Iterator[Read]:
    """Page by page: a long run is not in memory at once."""
    encode = msgspec.json.Encoder().encode
    seq = 1
    while page := runner.run(_page(queries, run, seq)):
        yield from (Read(recorded=recorded, raw=encode(recorded).decode()) for recorded in page)
        seq = page[-1].seq + 1


async def _page(queries: Queries, run: RunInfo, seq: int) -> list[Recorded]:
    return await queries.page(run, seq, PAGE)


def _told(reads: Iterable[Read], *, universal: bool, raw: bool) -> Iterable[Any]:
    return universal_of(reads, raw=raw) if universal else (read.recorded for read in reads)


def _check_types(types: Sequence[str], union: Any) -> None:
    known = [str(kind.__struct_config__.tag) for kind in get_args(union)]
    for name in types:
        if name not in known:
            raise errors.BadValue("--type", f"there is no type {name!r}", hint=f"There are: {', '.join(known)}.")


def _filtered(values: Iterable[Any], types: Sequence[str]) -> Iterator[Any]:
    for value in values:
        # Ours stand inside their record, a universal event is its own envelope.
        told = getattr(value, "event", value)
        if not types or told.__struct_config__.tag in types:
            yield value
