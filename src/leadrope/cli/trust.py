"""`leadrope trust`: shows what a repository would run by itself, and records a yes to exactly that."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from leadrope.core import home
from leadrope.runtime import checks, trust
from leadrope.runtime.shown import exact

_HELP = """Say yes to the settings, hooks, servers and agents that the repository in DIR (default: here) brings along.

Without it they are ignored: a stranger's repository must not run anything before it was looked at. The yes holds for
the files as they are now; when one of them changes, it must be given again.
"""
_EPILOG = """\b
Examples:
  leadrope trust              look, and be asked
  leadrope trust --show       only look; exit code 1 when it is not trusted
  leadrope trust --forget     take the yes back
"""


@click.command("trust", help=_HELP, epilog=_EPILOG)
@click.argument("folder", metavar="[DIR]", default=".", required=False)
@click.option("--show", is_flag=True, help="Only show how things stand.")
@click.option("--forget", is_flag=True, help="Take the yes back.")
@click.option("--yes", is_flag=True, help="Do not ask; you have looked already.")
def command(folder: str, *, show: bool, forget: bool, yes: bool) -> int:
    place = checks.working_directory(folder)
    leadrope_home = home.leadrope_home(os.environ)
    if forget:
        known = trust.forget(leadrope_home, place)
        click.echo("forgotten" if known else "there was nothing to forget")
        return 0
    found = trust.look(leadrope_home, place, home.user_home(os.environ))
    _tell(found)
    if found.state in ("nothing", "trusted"):
        return 0
    if show:
        return 1
    if found.problem:
        trust.remember(leadrope_home, found)  # says why not
    if not yes:
        if not sys.stdin.isatty():
            click.echo("Nobody can be asked here. Look at the files, then: leadrope trust --yes", err=True)
            return 1
        if not click.confirm("Let these files have effect in runs here?", default=False):
            click.echo("They stay ignored.")
            return 1
    trust.remember(leadrope_home, found)
    click.echo(f"{place} is trusted as it is now.")
    return 0


def _tell(found: trust.Trust) -> None:
    words = {
        "nothing": "brings nothing that would need your trust",
        "trusted": "is trusted, and nothing has changed since",
        "untrusted": "brings files that are ignored until you trust them",
        "changed": "was trusted, but has changed since; its files are ignored until you trust them again",
    }
    click.echo(f"{exact(found.folder)} {words[found.state]}")
    for name in sorted({*found.files, *found.changed}):
        note = ""
        if name in found.changed:
            note = "  (gone)" if name not in found.files else "  (new or changed)"
        click.echo(f"  {exact(str(Path(name)))}{note}")
