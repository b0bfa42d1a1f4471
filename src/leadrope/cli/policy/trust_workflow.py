"""`leadrope trust FILE` for a workflow: shows what its file asks for besides the workspace, and records a yes to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from leadrope import spelling
from leadrope.cli.flow import access
from leadrope.core import home
from leadrope.runtime.terminal_text import exact
from leadrope.workflows import library
from leadrope.workflows.check import access_requests
from leadrope.workflows.start import trusted_files


def decide(file: str, *, show: bool, forget: bool, yes: bool) -> int:
    """The exit code: 0 if the file has what it asks for."""
    own = home.leadrope_home(os.environ)
    path = library.find(file, folder=Path.cwd(), leadrope_home=own)
    if forget:
        known = trusted_files.forget(own, str(path))
        click.echo("forgotten" if known else "there was nothing to forget")
        return 0
    loaded = library.load(path, leadrope_home=own)
    asked = access_requests.AccessRequest(
        access=access_requests.asked_by(loaded.workflow, workspace=Path.cwd(), environ=os.environ, leadrope_home=own),
        inputs={one.name: one.env for one in loaded.workflow.inputs if one.env},
    )
    name = exact(loaded.file)
    if asked.is_nothing:
        click.echo(f"{name} asks for nothing besides its workspace")
        return 0
    is_trusted = trusted_files.covers(own, loaded.file, loaded.digest, asked)
    click.echo(f"{name} {'is trusted, and gets' if is_trusted else 'asks for'}")
    for line in access.lines(asked):
        click.echo(f"  {line}")
    if is_trusted or show:
        return 0 if is_trusted else 1
    if not yes:
        if not sys.stdin.isatty():
            click.echo(
                spelling.runnable(f"Nobody can be asked here. Review the file, then: leadrope trust {name} --yes"),
                err=True,
            )
            return 1
        if not click.confirm("Allow this, for the file as it is now?", default=False):
            click.echo("It is not allowed.")
            return 1
    trusted_files.remember(own, loaded.file, loaded.digest, asked)
    click.echo(f"{name} is trusted as it is now.")
    return 0
