"""`leadrope flow data`: what save-dataset steps have kept, as a list, and the rows of one. Changes nothing."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags
from leadrope.cli.flow.inspect import style, width
from leadrope.cli.screen import table
from leadrope.regex import regex
from leadrope.runs.executions.values import Dataset, DatasetInfo
from leadrope.runtime.terminal_text import clean, one_line
from leadrope.workflows.problems import nearest
from leadrope.workflows.tools import tables

if TYPE_CHECKING:
    from leadrope.runs.service import Service

MOST_SHOWN = 50
"""Rows of a table where nothing else is said; a program gets all."""
_CELL = 40
_NUMBER = regex(r"[+-]?\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?%?")
_NARROW = 10
"""A last column that has less room is left out."""
_EMPTY = """No datasets yet. A step of a workflow keeps one:

  ### keep
  - type: save-dataset
  - name: people
  - rows: [{name: Ann, age: 41}, {name: Bob, age: 36}]

After `leadrope flow run`: leadrope flow data people"""
_EPILOG = """\b
Examples:
  leadrope flow data                       what there is
  leadrope flow data prices                the first rows
  leadrope flow data prices -n 500
  leadrope flow data prices -o csv > prices.csv
  leadrope flow data prices -o json | jq -r .title
"""


class ListedDataset(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int
    columns: tuple[str, ...]
    bytes: int
    updated: float
    execution: str | None
    """The execution that wrote it last; it may be gone."""
    workflow: str | None
    is_redacted: bool


@click.command("data", epilog=_EPILOG)
@click.argument("dataset", metavar="[NAME]", required=False)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    help=f"How many rows [default: {MOST_SHOWN} in a table, all in json and csv].",
)
@flags.output("text", "json", "csv", help="json: one object per line. csv: the rows of one dataset.")
def data(dataset: str | None, limit: int | None, output: str) -> int:
    """What save-dataset steps have kept; with NAME the rows of that dataset.

    In csv, a text that a spreadsheet would take for a formula gets an apostrophe before it; json has the values as they
    are.
    """
    name = dataset
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # not needed for --help

    if name is None and (limit is not None or output == "csv"):
        given = "--limit" if limit is not None else "-o csv"
        raise errors.RequestError(f"{given} is for the rows of one dataset", hint="Give its NAME as well.")

    async def look(service: Service) -> tuple[list[ListedDataset], Dataset | None]:
        listed = [await _listed(service, one) for one in await service.executions.datasets()]
        is_there = name is not None and any(one.name == name for one in listed)
        return listed, await service.executions.dataset(name) if name is not None and is_there else None

    listed, found = with_service(look, reads=True) if has_store() else ([], None)
    if name is None:
        return _list(listed, output)
    if found is None:
        raise _unknown(name, [one.name for one in listed])
    _rows(found, next(one for one in listed if one.name == name), limit, output)
    return 0


def _unknown(name: str, names: Sequence[str]) -> errors.UnknownRun:
    hint = "There is none yet; `leadrope flow data` says how to make one."
    if names:
        near = nearest(name, names)
        hint = f"Did you mean {near}?" if near else f"There are: {', '.join(names[:20])}."
    return errors.UnknownRun(f"there is no dataset {name!r}", hint=hint)


async def _listed(service: Service, one: DatasetInfo) -> ListedDataset:
    workflow = None
    if one.execution_id is not None:
        with contextlib.suppress(errors.UnknownRun):  # rows are kept longer than executions
            workflow = (await service.executions.get(one.execution_id)).name or None
    return ListedDataset(
        name=one.name,
        rows=one.count,
        columns=one.columns,
        bytes=one.bytes,
        updated=one.updated,
        execution=one.execution_id,
        workflow=workflow,
        is_redacted=one.is_redacted,
    )


def _list(listed: Sequence[ListedDataset], output: str) -> int:
    if output == "json":
        for row in listed:
            sys.stdout.buffer.write(msgspec.json.encode(row) + b"\n")
        return 0
    if not listed:
        click.echo(spelling.runnable(_EMPTY), err=True)
        return 0
    shown = [
        (
            clean(row.name),
            str(row.rows),
            _size(row.bytes),
            table.ago(row.updated),
            clean(row.workflow or "-"),
            one_line(clean(", ".join(row.columns)), 200) or "-",
        )
        for row in listed
    ]
    head = ("DATASET", "ROWS", "SIZE", "AGE", "WORKFLOW", "COLUMNS")
    _print(head, shown, droppable=("WORKFLOW", "AGE", "SIZE", "ROWS"))
    click.echo(spelling.runnable("\n`leadrope flow data NAME` shows the rows of one."), err=True)
    return 0


def _rows(found: Dataset, about: ListedDataset, limit: int | None, output: str) -> None:
    columns = tuple(dict.fromkeys((*found.columns, *tables.names_of(found.rows))))
    rows = found.rows[: limit or (MOST_SHOWN if output == "text" else None)]
    if output == "json":
        for row in rows:
            sys.stdout.buffer.write(msgspec.json.encode(row) + b"\n")
        return
    cells = [[tables.cell(row.get(name)) for name in columns] for row in rows]
    if output == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([_guarded(name) for name in columns])
        writer.writerows([_guarded(cell) for cell in row] for row in cells)
        # A program gets the values as they are; a terminal would act on some of them.
        shown = clean(text.getvalue()) if sys.stdout.isatty() else text.getvalue()
        sys.stdout.buffer.write(shown.encode(errors="replace"))
        return
    lines = [[one_line(clean(cell), _CELL) for cell in row] for row in (columns, *cells)]
    fit = _fitting(lines)
    if columns and rows:
        _print(lines[0][:fit], [row[:fit] for row in lines[1:]])
    for line in _told(found, about, len(rows), lines[0][fit:]):
        click.echo(line, err=True)


def _guarded(cell: str) -> str:
    """A text that a spreadsheet would take for a formula, with an apostrophe before it; numbers stay numbers.

    Rows come from web pages and models: `=HYPERLINK(…)` would send what stands beside it to somebody.
    """
    if cell.lstrip(" \u00a0").startswith(("=", "+", "-", "@", "\t", "\r", "\n")) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def _fitting(lines: Sequence[Sequence[str]]) -> int:
    """How many columns have room beside each other; at least one, which is cut."""
    left = width()
    for number in range(len(lines[0])):
        wide = max(table.width_of(line[number]) for line in lines)
        if number and left < min(wide, _NARROW):
            return number
        left -= wide + 2
    return len(lines[0])


def _told(found: Dataset, about: ListedDataset, shown: int, hidden: Sequence[str]) -> list[str]:
    by = f" by {clean(about.workflow)}" if about.workflow else ""
    lines = ["", f"{found.count} row{'' if found.count == 1 else 's'}, saved{by} {table.ago(found.updated)} ago"]
    if shown < found.count:
        lines.append(f"The first {shown} are shown: -n shows more, -o json and -o csv give all.")
    if hidden:
        some = "1 column has" if len(hidden) == 1 else f"{len(hidden)} columns have"
        lines.append(one_line(f"{some} no room here: {', '.join(hidden)}", max(60, width())))
    if found.is_redacted:
        lines.append("Secrets were taken out of it.")
    return lines


def _size(count: int) -> str:
    for limit, unit, size in ((1000, "B", 1), (1_000_000, "kB", 1000)):
        if count < limit:
            return f"{count / size:.0f} {unit}"
    return f"{count / 1_000_000:.1f} MB"


def _print(head: Sequence[str], rows: Sequence[Sequence[str]], *, droppable: Sequence[str] = ()) -> None:
    paint = style()
    for number, line in enumerate(table.table(head, rows, width(), droppable=droppable)):
        click.echo(paint.dim(line) if number == 0 else line)
