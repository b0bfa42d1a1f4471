"""A click group whose commands are imported when they are called and not when they are listed; help that fits."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.formatting import wrap_text

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


NARROW = 60
"""Columns. Below, two columns of help leave too little room for the second one."""


class HelpFormatter(click.HelpFormatter):
    """Fits help into narrow terminals: click itself never goes below 50 columns, where a terminal then cuts words."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        columns = shutil.get_terminal_size().columns
        if width is None and columns < NARROW:
            width = max(columns - 2, 20)
        super().__init__(indent_increment, width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        if self.width >= NARROW:
            super().write_dl(rows, col_max, col_spacing)
            return
        for name, text in rows:
            self.write(f"{'':{self.current_indent}}{name}\n")  # not wrapped: it is copied as it is
            if text:
                below = " " * (self.current_indent + self.indent_increment)
                wrapped = wrap_text(text, self.width, initial_indent=below, subsequent_indent=below)
                self.write(f"{wrapped}\n")


click.Context.formatter_class = HelpFormatter
