"""`leadrope trust`: shows what a repository would run by itself, and records a yes to exactly that."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from leadrope import errors, spelling
from leadrope.cli.screen import confirm
from leadrope.core import home
from leadrope.runtime import working_directory
from leadrope.runtime.terminal_text import exact, one_line
from leadrope.runtime.trust import effects, trust
from leadrope.runtime.trust.files import PROJECT

_HELP = """Trust the settings, hooks, servers and agents of the repository in DIR [default: current directory].

Without trust they are ignored, so that a repository cannot run anything before you have reviewed it. You trust these
files as they are now; when one of them changes, trust is revoked.

With a workflow FILE, allow it the folders and variables that it asks for.
"""
_WORKFLOWS = (".flow.md", ".pflow.md")
_MOST_SHOWN = 400
"""Characters of a line; commands are shown whole as far as a person can read them."""
_EPILOG = """\b
Examples:
  leadrope trust              show the files, and ask
  leadrope trust --show       only show them; exit code 1 if they are not trusted
  leadrope trust --forget     revoke trust
  leadrope trust deploy.flow.md   the folders and variables that a workflow asks for
"""


@click.command("trust", help=_HELP, epilog=_EPILOG)
@click.argument("folder", metavar="[DIR|FILE]", default=".", required=False)
@click.option("--show", is_flag=True, help="Only show the files and whether they are trusted.")
@click.option("--forget", is_flag=True, help="Revoke trust.")
@confirm.YES
def command(folder: str, *, show: bool, forget: bool, yes: bool) -> int:
    if folder.endswith(_WORKFLOWS) and not Path(folder).is_dir():
        from leadrope.cli.policy import trust_workflow  # noqa: PLC0415  # only for workflows

        return trust_workflow.decide(folder, show=show, forget=forget, yes=yes)
    try:
        place = working_directory.working_directory(folder)
    except errors.BadDirectory as error:
        told = error.message.removeprefix("working directory ")
        raise errors.BadValue("DIR", told, hint="Name the folder of a repository.") from None
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
            click.echo(
                spelling.runnable("Nobody can be asked here. Look at the files, then: leadrope trust --yes"), err=True
            )
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
    does = effects.effects(found)
    # The project's own rules hold without trust, and come last.
    for name in sorted({*found.files, *found.changed}, key=lambda name: (name == PROJECT, name)):
        if name == PROJECT and found.state != "trusted":
            click.echo("In effect already:")
        note = ""
        if name in found.changed:
            note = "  (gone)" if name not in found.files else "  (new or changed)"
        click.echo(f"  {exact(str(Path(name)))}{note}")
        for line in does.get(name, ()):
            click.echo(f"      {one_line(exact(line), _MOST_SHOWN)}")
