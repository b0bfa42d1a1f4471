"""`leadrope runs`: what was run, what runs now, and what can be done about it, from any terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from leadrope import errors
from leadrope.cli import runs_revoke, table, values
from leadrope.cli.exits import exit_code
from leadrope.cli.render import Renderer, ending_lines
from leadrope.cli.screen import Screen
from leadrope.core import home
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunResult
from leadrope.runs import database, detached, places, recover
from leadrope.runs.service import Service
from leadrope.runs.store import Filter, RunInfo, Truncated
from leadrope.runtime.shown import clean

_HELP = """What was run, what runs now, and what can be done about it.

A run is named by the beginning of its id, as a commit is in git. All of it works from any terminal, also for runs
that were started with `leadrope run --detach`.
"""
_EPILOG = """\b
Examples:
  leadrope runs list --open             what runs or waits
  leadrope runs logs -f 3fa9            watch a run from here
  leadrope runs stop 3fa9
  leadrope runs revoke 3fa9 --all       ask again about what was granted
  leadrope runs resume 3fa9 "go on"     in the same session
  leadrope runs diff 3fa9               what a run in a worktree has changed
  leadrope runs undo 3fa9               put the files back as they were before
  leadrope runs prune --days 30
"""
T = TypeVar("T")


@click.group("runs", help=_HELP, epilog=_EPILOG, short_help="List, follow, stop, resume and export runs.")
def command() -> None:
    pass


command.add_command(runs_revoke.command)


def with_service(work: Callable[[Service], Awaitable[T]]) -> T:
    """What a command does with the store; owners that died are put right first."""

    async def do() -> T:
        async with Service(dict(os.environ), kind="terminal") as service:
            return await work(service)

    return asyncio.run(do())


def has_store() -> bool:
    return database.path_in(home.leadrope_home(os.environ)).exists()


# -- looking ----------------------------------------------------------------------------------------------------------


@command.command("list")
@click.option("--open", "is_open", is_flag=True, help="Only runs that have not ended.")
@click.option("--state", type=click.Choice(["queued", "starting", "running", "waiting", "paused", "parked", "ended"]))
@click.option(
    "--outcome", metavar="WORD", help="succeeded, degraded, failed, denied, timed_out, over_budget, stopped …"
)
@click.option("--label", metavar="KEY=VALUE", help="Only runs with this label.")
@click.option("--here", is_flag=True, help="Only runs of this folder.")
@click.option("-n", "--limit", default=20, show_default=True, help="How many.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="json: one object per line.")
def list_(is_open: bool, state: Any, outcome: Any, label: str | None, here: bool, limit: int, output: str) -> int:
    """The newest runs first."""
    pair = None
    if label is not None:
        key, equals, value = label.partition("=")
        if not equals:
            raise errors.BadValue("--label", f"{label!r} is not KEY=VALUE")
        pair = (key, value)
    wanted = Filter(
        is_open=is_open, state=state, outcome=outcome, label=pair, cwd=str(Path.cwd()) if here else None, limit=limit
    )

    async def look(service: Service) -> list[RunInfo]:
        return service.listing(wanted)

    rows = with_service(look) if has_store() else []
    if output == "json":
        for row in rows:
            sys.stdout.buffer.write(msgspec.json.encode(row) + b"\n")
        return 0
    screen = Screen.of_process()
    if not rows:
        screen.line('No runs yet. `leadrope run "…"` makes one, `leadrope demo` shows how.')
        return 0
    for number, line in enumerate(listed(rows, screen.width)):
        click.echo(screen.style.dim(line) if number == 0 and sys.stdout.isatty() else line)
    if any(row.cost_usd for row in rows):
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
                cost(row) if row.cost_usd else "-",
                row.model.removeprefix("claude-") or "-",
                clean(row.title) + (f"  ({clean(row.note)})" if row.note and row.state != "ended" else ""),
            )
            for row in rows
        ],
        width,
    )


def cost(row: RunInfo) -> str:
    """For a column, where there is no room for what it is called: a mark on what a subscription has paid."""
    return f"{'' if row.cost_label == 'estimate' else '~'}${row.cost_usd:.2f}"


def cost_key(rows: Sequence[RunInfo]) -> str:
    """What the costs of a table are, in one line."""
    if all(row.cost_label == "estimate" for row in rows):
        return "Costs are estimates."
    return "Costs are estimates; ~ API-equivalent: a subscription pays, which is not charged by the token."


@command.command("show")
@click.argument("run")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def show(run: str, output: str) -> int:
    """What was asked, how it went, what it cost."""

    async def look(service: Service) -> int:
        row = service.get(run)
        texts = service.texts(row.id)
        if output == "json":
            told = {"run": row, "request": texts.request, "place": texts.place, "result": texts.result}
            told |= {"policy": texts.policy, "artifacts": service.store.artifacts(row)}
            told |= {"grants": service.grants(row.id)}
            sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
            return 0
        kept = [("kept", f"{clean(each.name)} ({each.size} bytes)") for each in service.store.artifacts(row)]
        granted = runs_revoke.lines(service.grants(row.id))
        for name, value in (*described(row, service.waits_for(row), texts.result), *granted, *kept):
            click.echo(f"{name:<10} {value}")
        click.echo(f"\n{clean(texts.request.prompt)}")
        if texts.result is not None:
            if texts.result.text:
                click.echo(f"\n{clean(texts.result.text)}")
            for line in ending_lines(texts.result):
                click.echo(line)
        return 0

    return with_service(look)


def described(row: RunInfo, note: str, result: RunResult | None) -> list[tuple[str, str]]:
    source = "computed" if result is None else result.cost_source
    state = row.state if row.outcome is None else f"{row.state}, {row.outcome}"
    lines = [
        ("run", row.id),
        ("state", state + (f": {clean(note)}" if note else "")),
        ("folder", row.cwd),
        ("agent", " ".join(word for word in (row.agent, row.provider, row.model) if word)),
        ("session", row.session_id or "-"),
        ("started", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.created))),
        ("attempts", str(row.attempt)),
        ("cost", f"${row.cost_usd:.4f} ({row.cost_label}, {source}), {row.tokens} tokens"),
    ]
    if row.labels:
        lines.append(("labels", ", ".join(f"{key}={value}" for key, value in row.labels.items())))
    if row.parent:
        lines.append(("after", row.parent[:8]))
    if row.state != "ended" and row.last_action:
        lines.append(("now", clean(row.last_action)))
    return lines


@command.command("logs")
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--from", "from_seq", default=1, metavar="SEQ", help="Begin at this event.")
@click.option("-o", "--output", type=click.Choice(["text", "stream-json"]), default="text")
def logs(run: str, follow: bool, from_seq: int, output: str) -> int:
    """The events of a run, as they were shown when it ran. Ctrl-C leaves the run alone."""

    async def look(service: Service) -> int:
        row = service.get(run)
        screen = Screen.of_process()
        renderer = Renderer(screen)
        encode = msgspec.json.Encoder().encode
        async for item in service.follow(row.id, from_seq, live=follow):
            if output == "stream-json":
                sys.stdout.buffer.write(encode(item) + b"\n")
                sys.stdout.buffer.flush()
            elif isinstance(item, Truncated):
                screen.line(f"· events {item.first_seq} to {item.last_seq} are no longer kept")
            else:
                renderer.show(item)
        ended = service.get(row.id)
        result = service.texts(row.id).result
        return exit_code(result) if follow and result is not None and ended.state == "ended" else 0

    return with_service(look)


@command.command("export")
@click.argument("run")
@click.option("--html", is_flag=True, help="One page that needs nothing else.")
@click.option("-o", "--output", "target", type=click.Path(), help="A file; without it, standard output.")
def export(run: str, html: bool, target: str | None) -> int:
    """The whole run: its events as JSON lines, or one page for people."""

    async def look(service: Service) -> bytes:
        row = service.get(run)
        records = recover.all_events(service.store, row)
        if html:
            from leadrope.runs import page  # noqa: PLC0415  # only for this

            texts = service.texts(row.id)
            clean_ = redactor_of(texts.request).clean
            changed = await _folder_diff(service, row, texts.place)
            return page.render(row, texts.request, records, texts.result, diff=changed, redact=clean_).encode()
        return b"".join(msgspec.json.encode(record) + b"\n" for record in records)

    data = with_service(look)
    if target is None:
        sys.stdout.buffer.write(data)
        return 0
    values.write_file("--out", target, data)
    click.echo(f"{target}: {len(data)} bytes", err=True)
    return 0


async def _folder_diff(service: Service, row: RunInfo, place: dict[str, Any]) -> str | None:
    """Of a worktree, as git tells it; a page without it shows the agent's own edits."""
    if places.tree_of(place) is None:
        return None
    try:
        return await places.readable_diff(service, row)
    except (errors.LeadropeError, OSError) as error:
        click.echo(f"the worktree's changes cannot be read: {error}", err=True)
        return None


# -- acting -----------------------------------------------------------------------------------------------------------


@command.command("stop")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def stop(runs: tuple[str, ...]) -> int:
    """End runs, and wait until nothing of them is left."""

    async def act(service: Service) -> int:
        for run in runs:
            row = service.get(run)
            if row.state == "ended":
                click.echo(f"{row.id[:8]} has ended already ({row.outcome})", err=True)
                continue
            await service.stop(row.id)
            with service.store.bell.listen() as heard:
                while service.get(row.id).state != "ended":
                    await heard.wait(2)
            click.echo(f"{row.id[:8]} {service.get(row.id).outcome}")
        return 0

    return with_service(act)


def _order(kind: str) -> Callable[[str], int]:
    def act(run: str) -> int:
        async def give(service: Service) -> int:
            row = service.get(run)
            await service.order(row.id, kind)
            click.echo(f"{row.id[:8]}: {kind} asked for")
            return 0

        return with_service(give)

    return act


@command.command("pause")
@click.argument("run")
def pause(run: str) -> int:
    """Hold a run at its next tool call or turn; `runs resume` lets it go on."""
    return _order("pause")(run)


@command.command("interrupt")
@click.argument("run")
def interrupt(run: str) -> int:
    """End the turn, not the run."""
    return _order("interrupt")(run)


@command.command("send")
@click.argument("run")
@click.argument("text")
def send(run: str, text: str) -> int:
    """Another prompt for a run that is at work."""

    async def act(service: Service) -> int:
        row = service.get(run)
        await service.send(row.id, text)
        click.echo(f"{row.id[:8]}: queued")
        return 0

    return with_service(act)


@command.command("resume")
@click.argument("run")
@click.argument("prompt", required=False)
def resume(run: str, prompt: str | None) -> int:
    """Let a paused run go on, or go on with an ended one in its session, in the background."""

    async def act(service: Service) -> int:
        row = service.get(run)
        if row.state == "paused":
            await service.unpause(row.id)
            click.echo(f"{row.id[:8]} goes on")
            return 0
        return await _again(service, row, prompt or recover.GO_ON)

    return with_service(act)


@command.command("retry")
@click.argument("run")
def retry(run: str) -> int:
    """The same request once more, from the beginning, in the background."""

    async def act(service: Service) -> int:
        return await _again(service, service.get(run), None)

    return with_service(act)


async def _again(service: Service, row: RunInfo, prompt: str | None) -> int:
    _, request = service.again(row.id, prompt=prompt)
    new = await asyncio.to_thread(detached.hand_over, service.home, request, dict(os.environ), parent=row.id)
    click.echo(new)
    click.echo(f"  watch it with: leadrope runs logs -f {new[:8]}", err=True)
    return 0


@command.command("delete")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def delete(runs: tuple[str, ...]) -> int:
    """Forget ended runs, with all their events."""

    async def act(service: Service) -> int:
        for run in runs:
            await places.forget(service, service.get(run))
        return await service.delete(runs)

    click.echo(f"{with_service(act)} deleted")
    return 0


@command.command("prune")
@click.option("--days", type=float, help="Keep what ended within so many days; the config's keep_days.")
@click.option("--keep", type=int, help="Keep the newest so many, however old; the config's keep_runs.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would go.")
def prune(days: float | None, keep: int | None, dry_run: bool) -> int:
    """Delete old runs and executions of workflows.

    One that lives, waits, or has a worktree with work in it is kept.
    """

    async def act(service: Service) -> tuple[int, int]:
        keep_s = (service.settings.keep_days if days is None else days) * 86400
        newest = service.settings.keep_runs if keep is None else keep
        found = recover.stale(service.store, keep_s=keep_s, keep_runs=newest)
        flows = service.flows.stale(keep_s=keep_s, keep_flows=newest)
        found = [row for row in found if not places.has_work(service, row)]
        if not dry_run:
            for row in found:
                await places.forget(service, row)
            await service.delete([row.id for row in found])
            await service.flows.delete(flows)
            for told in await places.sweep(service):
                click.echo(f"removed the {told}, whose run is gone")
            await service.store.shrink()
        return len(found), len(flows)

    count, flows = with_service(act)
    more = f" and {flows} execution{'' if flows == 1 else 's'} of workflows" if flows else ""
    click.echo(f"{count} runs{more} {'would be ' if dry_run else ''}deleted")
    return 0


# -- what a run did to files ------------------------------------------------------------------------------------------


@command.command("diff")
@click.argument("run")
def diff(run: str) -> int:
    """What the run has changed, in its worktree or since its checkpoint."""

    async def look(service: Service) -> str:
        return await places.diff(service, service.get(run))

    sys.stdout.write(with_service(look))
    return 0


@command.command("apply")
@click.argument("run")
@click.option("--commits", is_flag=True, help="Bring the run's own commits, not one patch.")
def apply(run: str, commits: bool) -> int:
    """Bring the changes of a run's worktree into the repository it came from."""

    async def act(service: Service) -> str:
        return await places.apply(service, service.get(run), commits=commits)

    click.echo(with_service(act))
    return 0


@command.command("discard")
@click.argument("run")
def discard(run: str) -> int:
    """Remove a run's worktree and its branch, with all that is in them."""

    async def act(service: Service) -> str:
        return await places.discard(service, service.get(run))

    click.echo(with_service(act))
    return 0


@command.command("undo")
@click.argument("run")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--force", is_flag=True, help="Also files that were changed after the run.")
def undo(run: str, dry_run: bool, force: bool) -> int:
    """Put the files back as they were before the run's first edit."""

    async def act(service: Service) -> str:
        return await places.undo(service, service.get(run), dry_run=dry_run, force=force)

    click.echo(with_service(act))
    return 0
