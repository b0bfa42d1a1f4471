"""`leadrope flow delete|delete-data|clear-cache`: what was kept under a name, taken away after a question."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from leadrope import errors
from leadrope.cli.screen import confirm
from leadrope.core import home
from leadrope.runtime.terminal_text import clean
from leadrope.workflows import library
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps import registry

if TYPE_CHECKING:
    from leadrope.runs.service import Service


@click.command("delete", epilog="\b\nExample:\n  leadrope flow delete review")
@click.argument("saved_workflow", metavar="NAME")
@confirm.YES
def delete(saved_workflow: str, yes: bool) -> int:
    """Delete the saved workflow NAME. Its executions, their reports and its datasets stay."""
    own = home.leadrope_home(os.environ)
    path = library.saved_as(saved_workflow, own)
    callers = library.callers_of(saved_workflow, own)
    also = f" {', '.join(map(clean, callers))} would no longer find it." if callers else ""
    confirm.ask(f"Delete the saved workflow {clean(saved_workflow)} ({path})?{also}", yes=yes)
    library.delete(path, own)
    click.echo(f"deleted the saved workflow {clean(saved_workflow)}")
    return 0


@click.command("delete-data", epilog="\b\nExample:\n  leadrope flow delete-data prices --yes")
@click.argument("dataset", metavar="NAME")
@confirm.YES
def delete_data(dataset: str, yes: bool) -> int:
    """Delete the dataset NAME with all its rows. The executions that wrote it stay."""
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # not needed for --help

    async def look(service: Service) -> dict[str, int]:
        return {one.name: one.count for one in await service.executions.datasets()}

    known = with_service(look) if has_store() else {}
    if dataset not in known:
        near = nearest(dataset, known)
        hint = f"Did you mean {near}?" if near else f"There are: {', '.join([*known][:20])}." if known else None
        raise errors.UnknownRun(f"there is no dataset {dataset!r}", hint=hint)
    count = known[dataset]
    rows = "1 row" if count == 1 else f"{count:,} rows"
    confirm.ask(f"Delete the dataset {clean(dataset)} with {rows}?", yes=yes)

    async def do(service: Service) -> None:
        await service.executions.delete_dataset(dataset)

    with_service(do)
    click.echo(f"deleted the dataset {clean(dataset)} ({rows})")
    return 0


@click.command("clear-cache", epilog="\b\nExample:\n  leadrope flow clear-cache --type http")
@click.option("--type", "type_", metavar="KIND", help="Only outputs of this kind of step; see `leadrope flow steps`.")
@confirm.YES
def clear_cache(type_: str | None, yes: bool) -> int:
    """Forget the outputs of steps that say `cache: true`, so that they run again."""
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # not needed for --help

    if type_ is not None and type_ not in registry.KINDS:
        near = nearest(type_, registry.KINDS)
        hint = f"Did you mean {near}?" if near else f"There are: {', '.join(registry.KINDS)}."
        raise errors.BadValue("--type", f"there is no step type {type_!r}", hint=hint)

    async def look(service: Service) -> int:
        return await service.executions.cached(type_ or "")

    count = with_service(look) if has_store() else 0
    entries = "1 entry" if count == 1 else f"{count:,} entries"
    if not count:
        click.echo("The cache holds nothing" + (f" of the type {type_}." if type_ else "."), err=True)
        return 0
    confirm.ask(f"Delete {entries} of the cache?", yes=yes)

    async def do(service: Service) -> int:
        return await service.executions.cache_clear(type_ or "")

    with_service(do)
    click.echo(f"deleted {entries} of the cache")
    return 0
