"""`leadrope runs`: what was run, what runs now, and what can be done about it, from any terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from leadrope import errors, spelling
from leadrope.cli import flags, json_output, values
from leadrope.cli.exits import Demands, exit_code
from leadrope.cli.runs import names, report, revoke
from leadrope.cli.screen import pager, table
from leadrope.cli.screen.live_lines import LiveLines
from leadrope.cli.screen.render import Renderer
from leadrope.cli.screen.screen import Screen
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import Outcome
from leadrope.core.text.rehearsal_label import is_rehearsed
from leadrope.runs import stores
from leadrope.runs.cleanup import Pruned
from leadrope.runs.records.values import Filter, RunInfo, State, Truncated
from leadrope.runs.service import Service
from leadrope.runs.workspace import run_workspace
from leadrope.runtime.terminal_text import clean

_HELP = """List, follow and control runs.

RUN is an id or the beginning of one, as for commits in git. Without it, or with `last`, it is the newest run of this
folder; commands that only look fall back to the newest of all. Everything works from any terminal, also for runs that
were started with `leadrope run --detach`.
"""
_EPILOG = """\b
Examples:
  leadrope runs list --open             what runs or waits
  leadrope runs show                    the newest run of this folder
  leadrope runs logs -f 3fa9            watch a run from here
  leadrope runs stop 3fa9
  leadrope runs revoke 3fa9 --all       ask again about what was granted
  leadrope runs resume 3fa9 "and now the tests"     in the same session
  leadrope runs diff 3fa9               what a run has changed, as a patch
  leadrope runs undo 3fa9               restore the files
  leadrope runs prune --days 30
"""
ALL = 2**31
T = TypeVar("T")


@click.group("runs", help=_HELP, epilog=_EPILOG, short_help="List, follow, stop, resume and export runs.")
def command() -> None:
    pass


command.add_command(revoke.command)


def with_service(
    work: Callable[[Service], Awaitable[T]], *, stays: bool = False, reads: bool = False, needs_config: bool = False
) -> T:
    """What a command does with the store; owners that died are put right first.

    One that only `reads` works on a store that cannot be written, too, and says so.

    Detached runs that nobody owns any more are continued in the background: afterwards, so that a command does not wait
    for it and `runs stop` stops them first; all the time if the command `stays`. A mistake in config.toml is a warning,
    so that what runs can always be seen and stopped, unless the command `needs_config`.
    """

    async def do() -> T:
        environ = dict(os.environ)
        open_service = Service if needs_config else usable_service
        service = open_service(environ, revives=stays, reads=reads)
        async with service:
            if service.read_only is not None:
                click.echo(
                    spelling.runnable(f"leadrope: {service.read_only.message}; this is what is stored"), err=True
                )
            done = await work(service)
            if notice := await service.revive():
                click.echo(spelling.runnable(notice), err=True)
            return done

    return asyncio.run(do())


def usable_service(environ: dict[str, str], **options: Any) -> Service:
    """With as much of config.toml as can be used; what cannot is told on stderr."""
    config, wrong = configs.load_usable({**home.load_env(home.leadrope_home(environ)), **environ})
    try:
        service = Service(environ, config=config, **options)
    except errors.BadConfig as error:
        wrong = wrong or error
        service = Service(environ, config=configs.Config(source=config.source), **options)
    if wrong is not None:
        click.echo(spelling.runnable(f"warning: {wrong.message}"), err=True)
        if wrong.hint:
            click.echo(spelling.runnable(f"  {wrong.hint}"), err=True)
    return service


def has_store() -> bool:
    return stores.is_there(home.leadrope_home(os.environ))


# -- looking ----------------------------------------------------------------------------------------------------------


@command.command("list")
@click.option("--open", "is_open", is_flag=True, help="Only runs that have not ended.")
@click.option(
    "--state", type=flags.WordChoice(get_args(State)), metavar="WORD", help=f"One of: {', '.join(get_args(State))}."
)
@click.option(
    "--outcome",
    type=flags.WordChoice(get_args(Outcome)),
    metavar="WORD",
    help=f"One of: {', '.join(get_args(Outcome))}.",
)
@click.option("--label", metavar="KEY=VALUE", help="Only runs with this label.")
@click.option("--here", is_flag=True, help="Only runs of this folder.")
@flags.limit()
@flags.output("text", "json", help="json: one object per line.")
def list_(is_open: bool, state: Any, outcome: Any, label: str | None, here: bool, limit: int, output: str) -> int:
    """List runs, newest first."""
    pair = None
    if label is not None:
        key, equals, value = label.partition("=")
        if not equals:
            raise errors.BadValue("--label", f"{label!r} is not KEY=VALUE")
        pair = (key, value)
    wanted = Filter(
        is_open=is_open,
        state=state,
        outcome=outcome,
        label=pair,
        cwd=str(Path.cwd()) if here else None,
        limit=limit or ALL,
    )

    async def look(service: Service) -> list[RunInfo]:
        return await service.listing(wanted)

    rows = with_service(look, reads=True) if has_store() else []
    if output == "json":
        for row in rows:
            json_output.write(row)
        return 0
    screen = Screen.of_process()
    if not rows:
        is_filtered = is_open or here or state or outcome or label
        none = spelling.runnable('No runs yet. `leadrope run "…"` makes one, `leadrope demo` shows how.')
        screen.say("No run matches." if is_filtered and has_store() else none)
        return 0
    lines = listed(rows, screen.width)
    for number, line in enumerate(lines):
        click.echo(screen.style.dim(line) if number == 0 and sys.stdout.isatty() else line)
    if any(cost(row) != NO_COST for row in rows) and "COST" in lines[0]:
        screen.line(screen.style.dim(cost_key(rows)))
    return 0


def listed(rows: Sequence[RunInfo], width: int) -> list[str]:
    head = ("RUN", "STATE", "AGE", "COST", "MODEL", "TASK")
    return table.table(
        head,
        [
            (
                row.id[:8],
                row.outcome or row.state,
                table.ago(row.created),
                cost(row),
                row.model.removeprefix("claude-") or "-",
                clean(row.title) + (f"  ({clean(row.note)})" if row.note and row.state != "ended" else ""),
            )
            for row in rows
        ],
        width,
        droppable=("MODEL", "COST", "AGE"),
    )


NO_COST = "-"


def cost(row: RunInfo) -> str:
    """For a column, where there is no room for what it is called: a mark on what a subscription has paid."""
    if not row.cost_usd or is_rehearsed(row.labels):  # its model is a script
        return NO_COST
    return f"{'' if row.cost_label == 'estimate' else '~'}${row.cost_usd:.2f}"


def cost_key(rows: Sequence[RunInfo]) -> str:
    """What the costs of a table are, in one line."""
    if all(row.cost_label == "estimate" for row in rows):
        return "Costs are estimates."
    return "Costs are estimates; ~ API-equivalent: a subscription pays, not by the token."


@command.command("show")
@click.argument("run", required=False)
@flags.output("text", "json", help="json: one object.")
def show(run: str | None, output: str) -> int:
    """Show a run: the request, its outcome, its cost."""

    async def look(service: Service) -> int:
        row = await names.named(service, run)
        texts = await service.texts(row.id)
        if output == "json":
            told = {"run": row, "request": texts.request, "place": texts.place, "result": texts.result}
            told |= {"policy": texts.policy, "artifacts": await service.artifacts(row)}
            told |= {"grants": await service.grants(row.id)}
            json_output.write(told)
            return 0
        screen = Screen.of_process()
        styled = screen.styles_answer
        shown = {"is_live": screen.is_live, "styles_answer": styled}
        for line in await report.lines(service, row, texts, screen.width, **shown):
            click.echo(line)
        return 0

    return with_service(look, reads=True)


@command.command("logs")
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow the run until it ends.")
@click.option("--from", "from_seq", default=1, show_default=True, metavar="SEQ", help="Begin at this event.")
@flags.output("text", "stream-json", help="stream-json: one event per line.")
def logs(run: str | None, follow: bool, from_seq: int, output: str) -> int:
    """Show the events of a run as they were shown when it ran. Ctrl-C does not stop the run."""

    async def look(service: Service) -> int:
        row = await names.named(service, run)
        screen = Screen.of_process()
        renderer = Renderer(screen, folded=not follow or screen.can_redraw)
        with LiveLines(screen, renderer.live_lines, wanted=follow and output == "text"):
            async for item in service.follow(row.id, from_seq, live=follow):
                if output == "stream-json":
                    if isinstance(item, Truncated):
                        json_output.write(item)
                    else:
                        sys.stdout.buffer.write(json_output.event_line(item))
                        sys.stdout.buffer.flush()
                elif isinstance(item, Truncated):
                    screen.line(f"· events {item.first_seq} to {item.last_seq} are no longer kept")
                else:
                    renderer.show(item)
        ended = await service.get(row.id)
        texts = await service.texts(row.id)
        if not follow or texts.result is None or ended.state != "ended":
            return 0
        return exit_code(texts.result, Demands(schema=texts.request.output_schema is not None))

    return with_service(look, stays=follow, reads=True)


@command.command("export")
@click.argument("run", required=False)
@click.option("--html", is_flag=True, help="One self-contained page.")
@flags.out()
@flags.old_file("-o", "--output")
def export(run: str | None, html: bool, out: str | None) -> int:
    """Export a run: its events as JSON lines, or one HTML page."""
    data = page_of(run) if html else _lines_of(run)
    if out is None:
        sys.stdout.buffer.write(data)
        return 0
    values.write_file("--out", out, data)
    click.echo(f"{out}: {len(data)} bytes", err=True)
    return 0


def _lines_of(run: str | None) -> bytes:
    async def look(service: Service) -> bytes:
        records = await service.all_events(await names.named(service, run))
        return b"".join(json_output.event_line(record) for record in records)

    return with_service(look, reads=True)


def page_of(run: str | None) -> bytes:
    """A run as one HTML page."""
    from leadrope.runs.page import page  # noqa: PLC0415  # only for this

    async def look(service: Service) -> bytes:
        row = await names.named(service, run)
        records = await service.all_events(row)
        texts = await service.texts(row.id)
        clean_ = redactor_of(texts.request).clean
        changed = await _folder_diff(service, row, texts.place)
        return page.render(row, texts.request, records, texts.result, diff=changed, redact=clean_).encode()

    return with_service(look, reads=True)


async def _folder_diff(service: Service, row: RunInfo, place: dict[str, Any]) -> str | None:
    """Of a worktree, as git tells it; a page without it shows the agent's own edits."""
    if run_workspace.tree_of(place) is None:
        return None
    try:
        return await run_workspace.readable_diff(service, row)
    except (errors.LeadropeError, OSError) as error:
        click.echo(f"the worktree's changes cannot be read: {error}", err=True)
        return None


# -- acting -----------------------------------------------------------------------------------------------------------


@command.command("stop")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
def stop(runs: tuple[str, ...]) -> int:
    """Stop runs, and wait until nothing of them is left."""

    async def act(service: Service) -> int:
        for run in runs or (None,):
            row = await names.named(service, run, changes=True, is_open=True)
            if row.state == "ended":
                click.echo(f"{row.id[:8]} has ended already ({row.outcome})", err=True)
                continue
            await service.stop(row.id)
            with service.listen() as heard:
                while (now := await service.get(row.id)).state != "ended":
                    if now.state in ("queued", "waiting") and now.owner is None:
                        await service.stop(row.id)  # its owner died before it could
                    await heard.wait(2)
            click.echo(f"{row.id[:8]} {(await service.get(row.id)).outcome}")
        return 0

    return with_service(act)


def _order(kind: str) -> Callable[[str | None], int]:
    def act(run: str | None) -> int:
        async def give(service: Service) -> int:
            row = await names.named(service, run, changes=True, is_open=True)
            await service.control(row.id, kind)
            click.echo(f"{row.id[:8]}: {kind} asked for")
            return 0

        return with_service(give)

    return act


@command.command("pause", short_help="Pause a run at its next tool call or turn.")
@click.argument("run", required=False)
def pause(run: str | None) -> int:
    """Pause a run at its next tool call or turn; `runs resume` continues it."""
    return _order("pause")(run)


@command.command("interrupt")
@click.argument("run", required=False)
def interrupt(run: str | None) -> int:
    """Interrupt the turn, not the run."""
    return _order("interrupt")(run)


@command.command("send")
@click.argument("run")
@click.argument("text")
def send(run: str, text: str) -> int:
    """Send another prompt to a running run."""

    async def act(service: Service) -> int:
        row = await service.get(run)
        await service.send(row.id, text)
        click.echo(f"{row.id[:8]}: queued")
        return 0

    return with_service(act)


@command.command("resume", short_help="Continue a run in the background.")
@click.argument("run", required=False)
@click.argument("prompt", required=False)
def resume(run: str | None, prompt: str | None) -> int:
    """Continue a run in the background: one that is paused, one that nobody supervises any more, or an ended one.

    An ended run continues in its session, with PROMPT and its settings: mode, model, billing, limits, folder or
    worktree. One whose background process is gone gets the environment that it was started with; variables that
    leadrope does not store, such as tokens, are taken from this shell.
    """
    if run is not None and prompt is None and not names.is_name(run):
        run, prompt = None, run

    async def act(service: Service) -> int:
        row = await names.named(service, run, changes=True)
        continued = await service.resume(row.id, prompt, os.environ, tell=_tell)
        if continued.how == "unpaused":
            click.echo(f"{row.id[:8]} continues")
            return 0
        click.echo(
            f"{row.id[:8]} continues in the background" if continued.how == "in_background" else continued.run_id
        )
        _say_how_to_watch(continued.run_id)
        return 0

    return with_service(act)


@command.command("retry", short_help="Run the same request again.")
@click.argument("run", required=False)
def retry(run: str | None) -> int:
    """Run the same request again, from the beginning, in the background."""

    async def act(service: Service) -> int:
        new = await service.retry((await names.named(service, run, changes=True)).id, os.environ, tell=_tell)
        click.echo(new)
        _say_how_to_watch(new)
        return 0

    return with_service(act)


def _tell(text: str) -> None:
    click.echo(f"! {clean(spelling.runnable(text))}", err=True)


def _say_how_to_watch(run_id: str) -> None:
    click.echo(spelling.runnable(f"  watch it with: leadrope runs logs -f {run_id[:8]}"), err=True)


@command.command("delete")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def delete(runs: tuple[str, ...]) -> int:
    """Delete ended runs, with all their events."""

    async def act(service: Service) -> int:
        return await service.delete(runs)

    click.echo(f"{with_service(act)} deleted")
    return 0


@command.command("prune")
@click.option(
    "--days",
    type=click.FloatRange(0),
    help="Keep runs that ended within this many days [default: keep_days of [service]].",
)
@click.option("--keep", type=int, help="Keep this many of the newest, however old [default: keep_runs of [service]].")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def prune(days: float | None, keep: int | None, dry_run: bool) -> int:
    """Delete old runs and executions of workflows.

    Runs that have not ended, or whose worktree has changes, are kept.
    """

    async def act(service: Service) -> Pruned:
        return await service.prune(keep_days=days, keep_runs=keep, dry_run=dry_run)

    done = with_service(act, needs_config=True)  # it deletes by keep_days
    for told in done.swept:
        click.echo(f"removed the {told}, whose run is gone")
    executions = done.executions
    more = f" and {executions} execution{'' if executions == 1 else 's'} of workflows" if executions else ""
    click.echo(f"{done.runs} runs{more} {'would be ' if dry_run else ''}deleted")
    return 0


# -- what a run did to files ------------------------------------------------------------------------------------------


@command.command("diff", short_help="Show what a run has changed, as a patch.")
@click.argument("run", required=False)
@click.option("--stat", is_flag=True, help="Only the names of the changed files.")
@click.option("--no-pager", is_flag=True, help="Print to the terminal directly, also what is longer than the screen.")
def diff(run: str | None, stat: bool, no_pager: bool) -> int:
    """Show what a run has changed, in its worktree or since its checkpoint, as a patch.

    On a terminal it is coloured and shown by $PAGER (less).
    """

    async def look(service: Service) -> tuple[str, str]:
        row = await names.named(service, run)
        none = run_workspace.none_changed((await service.texts(row.id)).place)
        if stat:
            return "".join(f"{path}\n" for path in await run_workspace.changed_files(service, row)), none
        return await run_workspace.diff(service, row), none

    changes, none = with_service(look, reads=True)
    if not changes:
        click.echo(f"Changed files: {none or 'none'}", err=True)
    elif sys.stdout.isatty():
        pager.show(changes, Screen.of_process().style, paged=not no_pager)
    else:
        sys.stdout.write(changes)
    return 0


@command.command("apply", short_help="Apply the changes of a run's worktree to the repository.")
@click.argument("run", required=False)
@click.option("--commits", is_flag=True, help="Merge the run's own commits instead of one patch.")
def apply(run: str | None, commits: bool) -> int:
    """Apply the changes of a run's worktree to the repository that it came from."""

    async def act(service: Service) -> str:
        return await run_workspace.apply(service, await names.named(service, run, changes=True), commits=commits)

    click.echo(with_service(act))
    return 0


@command.command("discard", short_help="Delete a run's worktree and its branch.")
@click.argument("run", required=False)
def discard(run: str | None) -> int:
    """Delete a run's worktree and its branch, with everything in them."""

    async def act(service: Service) -> str:
        return await run_workspace.discard(service, await names.named(service, run, changes=True))

    click.echo(with_service(act))
    return 0


@command.command("undo")
@click.argument("run", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--force", is_flag=True, help="Also restore files that changed after the run.")
def undo(run: str | None, dry_run: bool, force: bool) -> int:
    """Restore the files as they were before the run's first edit."""

    async def act(service: Service) -> str:
        return await run_workspace.undo(
            service, await names.named(service, run, changes=True), dry_run=dry_run, force=force
        )

    click.echo(with_service(act))
    return 0
