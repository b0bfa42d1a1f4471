"""Options that many commands share, so that a letter means one thing everywhere.

`-o/--output` is a format, `-O/--out` a file, `-C/--cwd` a folder to work in, `-n/--limit` a number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from leadrope.spelling import close_matches

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]


SANDBOX_LEVELS = ("workspace", "read-only", "off")
_OLD = "leadrope.cli.flags"
"""Where options of earlier versions leave their value for the one that has taken their place."""


class Renamed(click.Option):
    """An option that also takes names of earlier versions, which are not shown."""

    def __init__(self, names: Sequence[str], *, old: tuple[str, ...] = (), **attrs: Any) -> None:
        super().__init__([*names, *old], **attrs)
        self.old = old

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        with self._new_names():
            return super().get_help_record(ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        with self._new_names():
            return super().get_error_hint(ctx)

    @contextmanager
    def _new_names(self) -> Iterator[None]:
        every = self.opts
        self.opts = [name for name in every if name not in self.old]
        try:
            yield
        finally:
            self.opts = every


class WordChoice(click.Choice[str]):
    """One of a few words; a misspelt one is refused with the nearest."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        near = nearest(str(value), tuple(self.choices))
        return f"{str(value)!r} is not known. {near or 'Use one of: ' + ', '.join(self.choices) + '.'}"


def nearest(word: str, known: Sequence[str]) -> str | None:
    """`Did you mean plan?`, or None where nothing is near."""
    by_lower = {name.lower(): name for name in known}
    close = close_matches(word.lower(), by_lower, n=1)
    return f"Did you mean {by_lower[close[0]]}?" if close else None


def output(*formats: str, help: str) -> Decorator[Any]:  # noqa: A002  # click's own word
    """`-o/--output`; the first format is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        callback=or_old("output"),
        help=help,
    )


def out(help: str = "Write to this file [default: standard output].") -> Decorator[Any]:  # noqa: A002  # the same
    return click.option("-O", "--out", metavar="FILE", type=click.Path(), callback=or_old("out"), help=help)


def cwd(help: str = "The project's folder") -> Decorator[Any]:  # noqa: A002  # the same
    return click.option("-C", "--cwd", metavar="DIR", default=".", help=f"{help} [default: current directory].")


def limit(default: int = 20, *, help: str = "How many; 0: all.") -> Decorator[Any]:  # noqa: A002  # the same
    return click.option("-n", "--limit", type=click.IntRange(0), default=default, show_default=True, help=help)


def old_json() -> Decorator[Any]:
    """`--json` of earlier versions, which works for one more."""
    return _old("output", "--json", note="--json will be removed; use -o json", is_flag=True, flag_value="json")


def old_file(*names: str) -> Decorator[Any]:
    """The option that named a file in earlier versions, where `--out` is meant."""
    return _old("out", *names, note=f"{names[0]} FILE will be removed; use -O FILE", type=click.Path())


def old_walls() -> Decorator[Any]:
    """`--walls` of earlier versions, for commands with `--sandbox`."""
    note = "--walls will be removed; use --sandbox"
    return _old("sandbox", "--walls", note=note, type=click.Choice(SANDBOX_LEVELS))


def _old(target: str, *names: str, note: str, **attrs: Any) -> Decorator[Any]:
    def use(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value:
            click.echo(f"note: {note}", err=True)
            context.meta.setdefault(_OLD, {})[target] = (names[0], value)

    # Eager: read before the option that takes the value over.
    return click.option(
        *names, f"old_{target}", hidden=True, expose_value=False, is_eager=True, default=None, callback=use, **attrs
    )


def or_old(target: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def use(context: click.Context, param: click.Parameter, value: Any) -> Any:
        if target not in context.meta.get(_OLD, {}):
            return value
        name, old = context.meta[_OLD][target]
        is_given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if is_given and old != value:
            raise click.UsageError(f"{param.opts[-1]} {value} contradicts {name} {old}.", context)
        return old

    return use
