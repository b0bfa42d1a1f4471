"""The question before something is deleted."""

from __future__ import annotations

import sys

import click

from leadrope import errors

YES = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def ask(question: str, *, yes: bool) -> None:
    """Returns where it may be done. Without a terminal nobody can be asked, and only --yes is an answer."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.RequestError(
            f"nothing was deleted: there is no terminal to ask on ({question.rstrip('?')})",
            hint="Add --yes to delete without a question.",
        )
    if not click.confirm(question, default=False, err=True):
        click.echo("Nothing was deleted.", err=True)
        raise click.exceptions.Exit(1)
