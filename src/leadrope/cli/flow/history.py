"""`leadrope flow list|history|report`: workflows with what became of them. Reads the store, and starts nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags, json_output
from leadrope.cli.flow.inspect import EMPTY, found, judged, style, width, written
from leadrope.cli.screen import table
from leadrope.cli.screen.screen import Screen
from leadrope.confined import real_path
from leadrope.core import home
from leadrope.core.text import rehearsal_label
from leadrope.runs.executions.values import ExecutionFilter, ExecutionInfo
from leadrope.runtime.terminal_text import clean, one_line
from leadrope.workflows import library
from leadrope.workflows.language import markdown

if TYPE_CHECKING:
    from leadrope.runs.service import Service
    from leadrope.workflows.report import PendingApproval

_NONE_YET = "Nothing was run yet. `leadrope flow run FILE` runs a workflow, `leadrope flow list` shows what there is."
_AS_JSON = flags.output("text", "json", help="json: one object per line.")


def state_of(row: ExecutionInfo) -> str:
    return row.outcome or row.state


# -- list -------------------------------------------------------------------------------------------------------------


class ListedWorkflow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    """What is typed to run it, here."""
    file: str
    is_saved: bool
    title: str
    steps: int
    errors: int
    last: ExecutionInfo | None = None


_LIST_EPILOG = """\b
Examples:
  leadrope flow list
  leadrope flow list -o json | jq -r 'select(.errors > 0) | .file'
"""


@click.command("list", epilog=_LIST_EPILOG)
@_AS_JSON
def list_(output: str) -> int:
    """The workflows of this folder (also in workflows/, .leadrope/ and examples/), and those that are saved.

    Each with its last execution. The first column is what `leadrope flow run` takes.
    """
    rows = _listed()
    if output == "json":
        for row in rows:
            json_output.write(row)
        return 0
    if not rows:
        click.echo(spelling.runnable(EMPTY), err=True)
        return 0
    shown = [
        (
            clean(row.name),
            "saved" if row.is_saved else "here",
            str(row.steps),
            state_of(row.last) if row.last else "never run",
            table.ago(row.last.created) if row.last else "-",
            (f"{row.errors} error{'' if row.errors == 1 else 's'}! " if row.errors else "")
            + one_line(clean(row.title), 200),
        )
        for row in rows
    ]
    _print(("WORKFLOW", "FROM", "STEPS", "LAST", "AGE", "TITLE"), shown, droppable=("FROM", "STEPS", "AGE", "LAST"))
    return 0


def _listed() -> list[ListedWorkflow]:
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # not needed for --help

    folder, own = Path.cwd(), home.leadrope_home(os.environ)
    files: list[tuple[str, Path, bool]] = []
    for path in library.files_in(folder):
        is_direct = path.parent == folder
        files.append((_name(path) if is_direct else str(path.relative_to(folder)), path, False))
    taken = {name for name, _, _ in files}
    for name, path in library.saved(own):
        # A file of this folder is taken before a saved one of the same name.
        files.append((str(path) if name in taken else name, path, True))
    if not files:
        return []

    async def look(service: Service) -> dict[Path, ExecutionInfo | None]:
        return {path: await service.executions.last_of(file=real_path(path)) for _, path, _ in files}

    last = with_service(look, reads=True) if has_store() else {}
    rows = []
    for name, path, is_saved in files:
        try:
            document, problems = judged(path)
        except errors.BadValue as error:
            rows.append(
                ListedWorkflow(name=name, file=str(path), is_saved=is_saved, title=error.message, steps=0, errors=1)
            )
            continue
        rows.append(
            ListedWorkflow(
                name=name,
                file=str(path),
                is_saved=is_saved,
                title=document.workflow.title,
                steps=len(document.workflow.every_step),
                errors=sum(problem.severity == "error" for problem in problems),
                last=last.get(path),
            )
        )
    return rows


def _name(path: Path) -> str:
    return next(path.name.removesuffix(suffix) for suffix in markdown.SUFFIXES if path.name.endswith(suffix))


# -- history ----------------------------------------------------------------------------------------------------------

_HISTORY_EPILOG = """\b
Examples:
  leadrope flow history
  leadrope flow history review.flow.md -n 5
  leadrope flow history --open        what runs, waits, was stopped or cut off
  leadrope flow history --here        only what ran in this folder
"""


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True):
    execution: ExecutionInfo
    took_s: float | None
    note: str
    approvals: tuple[str, ...]
    """The ids of what it waits for."""


@click.command("history", epilog=_HISTORY_EPILOG)
@click.argument("workflow", required=False)
@click.option(
    "-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="Maximum number of lines."
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Only executions that run or can be resumed: queued, waiting, paused, stopped, cut off.",
)
@click.option("--here", is_flag=True, help="Only executions of this folder.")
@_AS_JSON
def history(workflow: str | None, limit: int, is_open: bool, here: bool, output: str) -> int:
    """List executions, newest first; with WORKFLOW, only its executions."""
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # not needed for --help

    folder = real_path(Path.cwd())
    wanted = ExecutionFilter(is_open=is_open, is_top=True, limit=limit, cwd=folder if here else None)

    async def look(service: Service) -> list[ExecutionRow]:
        only = wanted if workflow is None else await _only(service, wanted, workflow)
        return [await _told(service, row) for row in await service.executions.listing(only)]

    if workflow is not None and not has_store():
        found(workflow)  # a wrong name is told also where nothing was run yet
    rows = with_service(look, reads=True) if has_store() else []
    if output == "json":
        for row in rows:
            json_output.write(row)
        return 0
    if not rows:
        if is_open:
            none = "Nothing runs or can be resumed; `leadrope flow history` shows all executions."
        elif workflow is not None:
            none = f"{workflow} was not run yet; `leadrope flow history` shows all executions."
        else:
            none = _NONE_YET
        Screen.of_process().say(spelling.runnable(none))
        return 0
    from leadrope.cli.screen.live_lines import seconds  # noqa: PLC0415  # only here

    shown = [
        (
            row.execution.id[:8],
            state_of(row.execution),
            table.ago(row.execution.created),
            seconds(row.took_s) if row.took_s is not None else "-",
            _cost(row.execution),
            _named(row.execution, folder) + (f"  {spelling.runnable(row.note)}" if row.note else ""),
        )
        for row in rows
    ]
    _print(("ID", "STATE", "AGE", "TOOK", "COST", "WORKFLOW"), shown, droppable=("COST", "TOOK", "AGE"))
    for row in rows:
        for approval_id in row.approvals:
            told = f"  {row.execution.id[:8]} waits for: `leadrope approvals show {approval_id}`"
            Screen.of_process().say(spelling.runnable(told), hanging="    ")
    return 0


def _cost(execution: ExecutionInfo) -> str:
    from leadrope.cli.flow.view import money  # noqa: PLC0415  # only here

    return (
        money(execution.cost_usd) if execution.cost_usd and not rehearsal_label.is_rehearsed(execution.labels) else "-"
    )


def _named(execution: ExecutionInfo, folder: str) -> str:
    """With its folder, where that is another one."""
    if rehearsal_label.is_rehearsed(execution.labels):
        return f"{clean(execution.name)} (rehearsal)"
    if execution.cwd == folder:
        return clean(execution.name)
    home_folder = str(Path.home())
    shown = f"~{execution.cwd[len(home_folder) :]}" if execution.cwd.startswith(f"{home_folder}/") else execution.cwd
    return clean(f"{execution.name} ({shown})")


async def _only(service: Service, wanted: ExecutionFilter, workflow: str) -> ExecutionFilter:
    """Of a file where there is one; else of the name, for a file that is gone."""
    try:
        return msgspec.structs.replace(wanted, file=str(found(workflow)))
    except errors.BadValue:
        name = library.name_of(Path(workflow))
        if not name or await service.executions.last_of(name=name) is None:
            raise  # there is no such file, and never was one that ran
        return msgspec.structs.replace(wanted, name=name)


async def _told(service: Service, row: ExecutionInfo) -> ExecutionRow:
    approvals = await approvals_of(service, row)
    why = row.note or ("waiting for a free slot" if row.state == "queued" else "")
    note = "; ".join(filter(None, (why, f"owner {row.owner}" if row.owner is not None else "")))
    if approvals and row.state == "waiting":
        note = f"{approvals[0].step} waits: {approvals[0].detail or approvals[0].title}"
    elif row.outcome == "failed":
        note = _why(await service.executions.result(row.id))
    elif row.state in ("interrupted", "paused") or row.outcome == "stopped":
        how = {"interrupted": row.note or "cut off"}.get(row.state, "")
        go_on = f"continue with: leadrope flow resume {row.id[:8]}"
        note = "; ".join(filter(None, (how or note, go_on)))
    end = row.ended if row.ended is not None else time.time() if row.state == "running" else None
    return ExecutionRow(
        execution=row,
        took_s=None if end is None else max(0.0, end - row.created),
        note=one_line(clean(note), 200),
        approvals=tuple(one.id for one in approvals),
    )


def _why(result: object) -> str:
    if not isinstance(result, dict):
        return ""
    for step in result.get("steps", ()):
        if step.get("state") == "failed" and not step.get("is_handled"):
            name, message = str(step.get("id")), str((step.get("error") or {}).get("message", "failed"))
            message = message.partition("\nTraceback ")[0]
            return message if message.startswith(f"{name}:") else f"{name}: {message}"
    return ""


async def approvals_of(service: Service, execution: ExecutionInfo) -> list[PendingApproval]:
    """What a person is asked now, also by the workflows that it has called."""
    from leadrope.workflows.report import pending_of  # noqa: PLC0415  # only where something waits

    if execution.state == "ended":
        return []
    whose = {"outermost_id": execution.id} if execution.parent is None else {"execution_id": execution.id}
    return [pending_of(one) for one in await service.approvals(**whose)]


# -- report -----------------------------------------------------------------------------------------------------------

_REPORT_EPILOG = """\b
Examples:
  leadrope flow report 3fa9
  leadrope flow report 3fa9 --html -O report.html
  leadrope flow report review.flow.md            its last execution
"""


@click.command("report", epilog=_REPORT_EPILOG)
@click.argument("execution")
@click.option("--html", is_flag=True, help="One self-contained page.")
@flags.out()
@flags.output("text", "json", help="json: one object.")
def report(execution: str, html: bool, out: str | None, output: str) -> int:
    """One execution, step by step: times, costs, retries, warnings, errors, outputs.

    Works for an execution that runs, waits or was cut off, too. EXECUTION is an ID prefix, of an approval that it
    waits for, or a workflow, which means its last execution.
    """
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # not needed for --help
    from leadrope.workflows.views import report_page  # noqa: PLC0415  # only for this
    from leadrope.workflows.views.execution_report import Account, account, child_of  # noqa: PLC0415  # the same

    if not has_store():
        raise errors.UnknownRun(f"there is no execution {execution!r}", hint=_NONE_YET)

    async def look(service: Service) -> Account:
        row = await _execution(service, execution)
        texts = await service.executions.texts(row.id)
        return account(
            row,
            library.parsed(texts.text, file=row.file),
            await service.executions.outcomes(row.id),
            inputs=texts.inputs,
            approvals=await approvals_of(service, row),
            begun={one.step for one in await service.executions.begun(row.id)},
            children=[child_of(child, state_of(child)) for child in await service.executions.children(row.id)],
            result=texts.result,
        )

    told = with_service(look, reads=True)
    if output == "json":
        data = json_output.line(told).decode()
    else:
        data = report_page.page(told) if html else report_page.markdown(told)
    written(data, out)
    return 0


async def _execution(service: Service, name: str) -> ExecutionInfo:
    try:
        return await service.executions.find(name)
    except errors.UnknownRun as unknown:
        try:
            return await service.executions.get((await service.known_approval(name)).execution_id)
        except errors.UnknownRun:
            pass
        try:
            last = await service.executions.last_of(file=str(found(name)))
        except errors.BadValue:
            last = await service.executions.last_of(name=name)
        if last is None:
            raise unknown from None
        return last


def _print(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, droppable: Sequence[str]) -> None:
    paint = style()
    for number, line in enumerate(table.table(head, rows, width(), droppable=droppable)):
        click.echo(paint.dim(line) if number == 0 else line)
