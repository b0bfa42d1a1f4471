"""`leadrope completion SHELL`, and what the Tab key offers: modes, ids, names of the configuration, files.

Shells call the program itself with a variable set (click's protocol). Only then is anything here imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import get_args

import click
from click.shell_completion import CompletionItem, get_completion_class

from leadrope.cli.setup import shells

VARIABLE = "_LEADROPE_COMPLETE"
MOST = 50
"""Of ids; the newest are meant."""

_WHERE = {
    "bash": 'eval "$(leadrope completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(leadrope completion zsh)"     # in ~/.zshrc, after compinit',
    "fish": "leadrope completion fish | source     # in ~/.config/fish/config.fish",
}
_EPILOG = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in _WHERE.values())

Offer = Callable[[str], Iterator[CompletionItem]]


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(list(_WHERE)))
def command(shell: str) -> int:
    """Print the code that makes Tab complete leadrope's commands, options and ids in your shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(kind(command, {}, "leadrope", VARIABLE).source())
    return 0


shells.register()


def attach(found: click.Command) -> None:
    """Tell each parameter of a command what it can be, by its name."""
    for parameter in found.params:
        offer = _offer_for(parameter)
        if offer is not None:
            parameter.shell_complete = _guarded(offer)  # type: ignore[method-assign, assignment]
    if isinstance(found, click.Group):
        for each in found.commands.values():
            attach(each)


def _offer_for(parameter: click.Parameter) -> Offer | None:
    name = parameter.name or ""
    if name in _BY_NAME:
        return _BY_NAME[name]
    shown = (parameter.metavar or "").strip("[].").split("|")
    if "DIR" in shown:
        return lambda incomplete: iter([CompletionItem(incomplete, type="dir")])
    if "FILE" in shown or name in ("file", "files"):
        return _files
    return None


def _guarded(offer: Offer) -> Callable[[click.Context, str], list[CompletionItem]]:
    def complete(_: click.Context, incomplete: str) -> list[CompletionItem]:
        try:
            return [item for item in offer(incomplete) if item.type != "plain" or item.value.startswith(incomplete)]
        except Exception:  # noqa: BLE001  # a traceback in the middle of a line that is being typed helps nobody
            return []

    return complete


def _files(incomplete: str) -> Iterator[CompletionItem]:
    yield CompletionItem(incomplete, type="file")


def _words(module: str, name: str) -> Offer:
    """The members of a Literal, or the keys of a table."""

    def offer(_: str) -> Iterator[CompletionItem]:
        import importlib  # noqa: PLC0415  # only when Tab is pressed

        found = getattr(importlib.import_module(module), name)
        for word in get_args(found) or found:
            yield CompletionItem(word)

    return offer


def _runs(_: str) -> Iterator[CompletionItem]:
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # only when Tab is pressed
    from leadrope.runs.records.values import Filter  # noqa: PLC0415  # the same
    from leadrope.runs.service import Service  # noqa: PLC0415  # the same

    async def newest(service: Service) -> list[CompletionItem]:
        return [
            CompletionItem(run.id[:8], help=f"{run.outcome or run.state} · {run.title}"[:60])
            for run in await service.listing(Filter(limit=MOST))
        ]

    yield from with_service(newest, reads=True) if has_store() else ()


def _executions(_: str) -> Iterator[CompletionItem]:
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # only when Tab is pressed
    from leadrope.runs.executions.values import ExecutionFilter  # noqa: PLC0415  # the same
    from leadrope.runs.service import Service  # noqa: PLC0415  # the same

    async def newest(service: Service) -> list[CompletionItem]:
        return [
            CompletionItem(row.id[:8], help=f"{row.outcome or row.state} · {row.name}"[:60])
            for row in await service.executions.listing(ExecutionFilter(limit=MOST))
        ]

    yield from with_service(newest, reads=True) if has_store() else ()


def _approvals(_: str) -> Iterator[CompletionItem]:
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # only when Tab is pressed
    from leadrope.runs.service import Service  # noqa: PLC0415  # the same

    async def waiting(service: Service) -> list[CompletionItem]:
        return [CompletionItem(row.id[:8], help=row.title[:60]) for row in await service.approvals(state="pending")]

    yield from with_service(waiting, reads=True) if has_store() else ()


def _sessions(_: str) -> Iterator[CompletionItem]:
    from leadrope.runtime.sessions.files import Sessions  # noqa: PLC0415  # only when Tab is pressed

    for info in Sessions.of().listing()[:MOST]:
        yield CompletionItem(info.id[:8], help=info.title[:60])


def _names(section: str) -> Offer:
    def offer(_: str) -> Iterator[CompletionItem]:
        from leadrope.core import config  # noqa: PLC0415  # only when Tab is pressed

        for name in getattr(config.load(dict(os.environ)), section):
            yield CompletionItem(name)

    return offer


def _agents(_: str) -> Iterator[CompletionItem]:
    from pathlib import Path  # noqa: PLC0415  # only when Tab is pressed

    from leadrope.core import config  # noqa: PLC0415  # the same
    from leadrope.runtime.agents import saved_agents  # noqa: PLC0415  # the same

    environ = dict(os.environ)
    for name in saved_agents.names(config.load(environ), environ, Path.cwd()):
        yield CompletionItem(name)


def _datasets(_: str) -> Iterator[CompletionItem]:
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # only when Tab is pressed
    from leadrope.runs.service import Service  # noqa: PLC0415  # the same

    async def kept(service: Service) -> list[CompletionItem]:
        return [CompletionItem(one.name, help=f"{one.count} rows") for one in await service.executions.datasets()]

    yield from with_service(kept) if has_store() else ()


def _saved_workflows(_: str) -> Iterator[CompletionItem]:
    from leadrope.core import home  # noqa: PLC0415  # only when Tab is pressed
    from leadrope.workflows import library  # noqa: PLC0415  # the same

    for name, _path in library.saved(home.leadrope_home(os.environ)):
        yield CompletionItem(name)


def _workflows(incomplete: str) -> Iterator[CompletionItem]:
    """Saved names, and files where none begins like this: shells take one or the other."""
    named = [item for item in _saved_workflows(incomplete) if incomplete and item.value.startswith(incomplete)]
    yield from named or _files(incomplete)


_BY_NAME: dict[str, Offer] = {
    "mode": _words("leadrope.core.request", "Mode"),
    "effort": _words("leadrope.core.request", "Effort"),
    "billing": _words("leadrope.core.request", "Billing"),
    "model": _words("leadrope.core.models", "TIERS"),
    "fallback_model": _words("leadrope.core.models", "TIERS"),
    "purpose": _words("leadrope.core.models", "PURPOSES"),
    "agent": _agents,
    "run": _runs,
    "runs": _runs,
    "target": _runs,
    "execution": _executions,
    "executions": _executions,
    "approval": _approvals,
    "session_id": _sessions,
    "session_ids": _sessions,
    "resume": _sessions,
    "fork": _sessions,
    "profile": _names("profiles"),
    "mcp_server": _names("connections"),
    "workflow": _workflows,
    "saved_workflow": _saved_workflows,
    "dataset": _datasets,
}
