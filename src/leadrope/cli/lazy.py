"""A click group whose commands are imported when they are called, not when they are listed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


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
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self._table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._table and not name.startswith("-"):
            known = ", ".join(self._table)
            # The commonest slip is a prompt without its command.
            raise click.UsageError(
                f"there is no command {name!r}; there are: {known}. A prompt goes to `leadrope run`.", ctx=ctx
            )
        return super().resolve_command(ctx, args)
