"""`leadrope policy allow`: lists, adds and removes the user's own grants in config.toml."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadrope import errors
from leadrope.cli.agents import config_edit
from leadrope.confined import real_path
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.policy import patterns

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_HELP = """Allow calls that the mode would ask about, in every run of yours.

A PATTERN is a tool, or a tool with words: "Bash(npm test *)", "Edit", "mcp__github__get_*". It is written to [run]
allow in your config.toml. A grant opens what the mode asks about and nothing else: blocked commands stay blocked,
approval rules and protected paths still ask. Without a PATTERN the grants are listed.
"""
_EPILOG = """\b
Examples:
  leadrope policy allow                         list your grants
  leadrope policy allow "Bash(npm test *)"
  leadrope policy allow --remove "Bash(npm test *)"
"""


@click.command("allow", help=_HELP, epilog=_EPILOG, short_help="Allow calls that the mode would ask about.")
@click.argument("pattern", nargs=-1, metavar="[PATTERN]...")
@click.option("--remove", is_flag=True, help="Take the patterns out of the file.")
def command(pattern: Sequence[str], remove: bool) -> int:
    environ = dict(os.environ)
    environ = {**home.load_env(home.leadrope_home(environ)), **environ}
    path = home.config_file(environ)
    allow = configs.load(environ).run.allow  # a config that cannot be read is an error before anything is written
    before = allow if isinstance(allow, tuple) else ()
    if not pattern:
        if remove:
            raise errors.BadValue("PATTERN", "is missing", hint="Say which grant to remove; without --remove, see all.")
        for entry in before:
            click.echo(entry)
        if not before:
            click.echo(f"{path} grants nothing.", err=True)
        return 0
    for entry in pattern:
        patterns.parse(entry)  # BadValue says what to write instead
    if remove:
        missing = [entry for entry in pattern if entry not in before]
        if missing:
            hint = f"There are: {', '.join(before)}." if before else "It grants nothing."
            raise errors.BadValue("PATTERN", f"{path} does not allow {missing[0]}", hint=hint)
        after = [entry for entry in before if entry not in pattern]
    else:
        after = list(dict.fromkeys((*before, *pattern)))
    if after == list(before):
        click.echo(f"{path} already allows {', '.join(pattern)}.")
        return 0
    write(path, after)
    click.echo(f"{path} {'no longer allows' if remove else 'allows'} {', '.join(pattern)}.")
    return 0


def write(path: Path, entries: Sequence[str]) -> None:
    """Put the list into [run] allow. Comments and order stay; a link to the file stays a link."""
    import tomlkit  # noqa: PLC0415  # 40 ms that only a change costs
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415  # the same

    target = Path(real_path(path))
    try:
        text = target.read_text() if target.exists() else ""
        document: TOMLDocument = tomlkit.parse(text)
        run: Any = document.get("run")
        if run is None:
            run = document["run"] = tomlkit.table()
        allow = tomlkit.array()
        allow.extend(entries)
        run["allow"] = allow.multiline(multiline=len(entries) > 1)
        config_edit.replace_file(target, tomlkit.dumps(document))
    except (OSError, UnicodeDecodeError, TOMLKitError, TypeError) as error:
        raise errors.BadConfig(
            f"{path} cannot be changed: {error}", hint=f'Add it by hand: [run] allow = ["{entries[-1]}"]'
        ) from None
