"""What a workflow may use besides its workspace: the options that give it, and the question for what its file asks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leadrope import errors
from leadrope.cli import flags, values
from leadrope.core import home as homes
from leadrope.runtime.terminal_text import exact
from leadrope.workflows import library

if TYPE_CHECKING:
    from leadrope.runtime.sandboxing.access import Access
    from leadrope.workflows.check.access_requests import AccessRequest

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    flags.old_walls(),
    click.option(
        "--add-dir",
        "add_dirs",
        multiple=True,
        metavar="DIR[:ro]",
        help="Another folder for commands and agents; with :ro they can only read it. A folder with keys (~/.ssh, "
        "~/.config/gh) is for commands alone. Repeatable.",
    ),
    click.option(
        "--sandbox",
        callback=flags.or_old("sandbox"),
        type=click.Choice(flags.SANDBOX_LEVELS),
        help="The sandbox around commands and agents [default: what the policy says].",
    ),
    click.option(
        "--var",
        "variables",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="An environment variable for commands; without =VALUE, its value in your environment. Repeatable.",
    ),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="NAME",
        help="The same for a secret, from your environment or LEADROPE_HOME/.env; http steps refer to it as "
        "${secret.NAME}. Its value is never shown or stored. Repeatable.",
    ),
)


def options(command: F) -> F:
    """Adds the options to a command, in their order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def given(options: Mapping[str, Any], *, environ: Mapping[str, str]) -> Access:
    """What the options say; each refusal names its option."""
    from leadrope.runtime.sandboxing import access as accesses  # noqa: PLC0415  # only where something runs

    own = homes.leadrope_home(environ)
    try:
        folders = tuple(
            accesses.read_folder(text, base=Path.cwd(), environ=environ, leadrope_home=own)
            for text in options["add_dirs"]
        )
    except errors.BadValue as error:
        raise errors.BadValue("--add-dir", error.message.removeprefix("add_dir: "), hint=error.hint) from None
    with_values = values.pairs("--var", [text for text in options["variables"] if "=" in text])
    names = tuple(text for text in options["variables"] if "=" not in text)
    found = accesses.Access(
        folders=folders,
        sandbox=options["sandbox"],
        variables=names,
        values=with_values,
        secrets=tuple(options["secrets"]),
    )
    for name in found.secrets:
        if not name.isidentifier():  # and it is not shown: it may be the secret itself
            raise errors.BadValue("--secret", "is not given the name of a variable", hint="Write --secret NAME.")
    accesses.check_given(found)
    known = accesses.known_variables(environ, own)
    for name in names:
        if name not in known:
            raise errors.BadValue("--var", f"{name!r} is not set here", hint=f"Write --var {name or 'NAME'}=VALUE.")
    accesses.secret_values(found.secrets, environ, own)
    return found


def settled(
    loaded: library.Loaded,
    access: Access,
    *,
    inputs: Mapping[str, Any],
    workspace: Path,
    environ: Mapping[str, str],
    unasked: list[str] | None = None,
) -> tuple[Access, dict[str, str]]:
    """With what the file asks for, once the user has allowed that; and the variables that fill its inputs.

    `inputs` are those that were given: they need no variable. With `unasked` nobody is asked: it gets a line for each
    thing that the user would have to allow.
    """
    from leadrope.runtime.sandboxing import access as accesses  # noqa: PLC0415  # only where something runs
    from leadrope.workflows.check import access_requests  # noqa: PLC0415  # the same

    own = homes.leadrope_home(environ)
    asked = access_requests.asked_by(loaded.workflow, workspace=workspace, environ=environ, leadrope_home=own)
    known = accesses.known_variables(environ, own)
    wanted = {
        one.name: one.env for one in loaded.workflow.inputs if one.env in known and one.env and one.name not in inputs
    }
    by_flag = {*access.variables, *access.values}
    lacks = access_requests.AccessRequest(
        access=access.lacks(asked), inputs={name: env for name, env in wanted.items() if env not in by_flag}
    )
    if not lacks.is_nothing:
        _confirmed(loaded, lacks, own, unasked)
    for name in asked.variables:
        if name not in {**known, **access.values}:
            click.echo(f"note: {loaded.name} asks for the variable {name}, which is not set here", err=True)
    values_of_inputs = {env: access.values.get(env, known[env]) for env in wanted.values()}
    return access.joined(lacks.access), values_of_inputs


def _confirmed(loaded: library.Loaded, asked: AccessRequest, own: Path, unasked: list[str] | None) -> None:
    """Returns if the user has said yes to this file, now or before."""
    from leadrope.workflows.start import trusted_files  # noqa: PLC0415  # few workflows ask for more

    if loaded.file and trusted_files.covers(own, loaded.file, loaded.digest, asked):
        return
    if unasked is not None:
        unasked += lines(asked)
        return
    name = exact(loaded.file or loaded.name)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.RequestError(
            f"{name} asks for more than its workspace, and nobody can be asked here: {'; '.join(lines(asked))}",
            hint=f"Review it and run `leadrope trust {name}`, or give it by hand: {_flags(asked)}",
        )
    click.echo(f"{name} asks for more than its workspace:", err=True)
    for line in lines(asked):
        click.echo(f"  {line}", err=True)
    if not click.confirm("Allow this, for the file as it is now?", default=False, err=True):
        raise errors.RequestError(
            f"{name} was not started: it asks for more than its workspace, and that was not allowed",
            hint="Remove it from its Settings and Inputs, or run it again and allow it.",
        )
    if loaded.file:
        trusted_files.remember(own, loaded.file, loaded.digest, asked)


def lines(asked: AccessRequest) -> list[str]:
    """One for each thing that is asked for."""
    found = [
        f"folder {exact(one.path)} ({'read' if one.is_read_only else 'read and write'})" for one in asked.access.folders
    ]
    found += [f"variable {name} for its commands" for name in asked.access.variables]
    return found + [f"variable {env} for the input {name}" for name, env in asked.inputs.items()]


def _flags(asked: AccessRequest) -> str:
    from leadrope.workflows.check import access_requests  # noqa: PLC0415  # few workflows ask for more

    words = [access_requests.flags(asked.access), *(f"{name}=VALUE" for name in asked.inputs)]
    return " ".join(word for word in words if word)
