"""A click group whose commands are imported when they are called, not when they are listed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

import click

from leadrope.spelling import close_matches


class LazyGroup(click.Group):
    """`table`: name -> module, attribute, one line of help."""

    def __init__(self, table: Mapping[str, tuple[str, str, str]], **attrs: Any) -> None:
        super().__init__(**attrs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        if "_LEADROPE_COMPLETE" in os.environ:  # a shell asks what could follow
            from leadrope.cli.setup import completion  # noqa: PLC0415  # else nobody needs it

            completion.attach(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self._table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._table and not name.startswith("-"):
            raise click.UsageError(self._no_such(name, ctx), ctx=ctx)
        return super().resolve_command(ctx, args)

    def _no_such(self, name: str, ctx: click.Context) -> str:
        near = close_matches(name, self._table, n=1)
        if near:
            return f"there is no command {name!r}. Did you mean `{ctx.command_path} {near[0]}`?"
        if ctx.parent is None and " " in name:
            # The commonest slip is a prompt without its command.
            return f"there is no command {name!r}. A prompt goes to `leadrope run`."
        return f"there is no command {name!r}; the commands are: {', '.join(self._table)}."
