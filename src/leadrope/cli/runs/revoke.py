"""`leadrope runs revoke`, and the grants of a run as `runs show` lists them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from leadrope import errors
from leadrope.core import actors
from leadrope.runtime.terminal_text import describe, exact

if TYPE_CHECKING:
    from leadrope.runs.approvals.grants import RunGrant
    from leadrope.runs.service import Service

SHOWN = 60
"""Characters of an exact call; `runs show -o json` has the whole one."""

_HELP = """Revoke what was granted at a question of RUN, also of a run in another terminal.

`leadrope runs show RUN` lists the grants: patterns, and `call:ID` for one exact call. The next call that a revoked
grant would have covered is asked about again; calls that it has let through stay done.
"""
_EPILOG = """\b
Examples:
  leadrope runs revoke 3fa9 "Bash(npm test *)"
  leadrope runs revoke 3fa9 call:7d3e90ab12cd
  leadrope runs revoke 3fa9 --all
"""


@click.command("revoke", help=_HELP, epilog=_EPILOG, short_help="Revoke what was granted during a run.")
@click.argument("run")
@click.argument("pattern", nargs=-1, metavar="[PATTERN|call:ID]...")
@click.option("--all", "is_all", is_flag=True, help="Every grant that the run still has.")
def command(run: str, pattern: Sequence[str], is_all: bool) -> int:
    from leadrope.cli.runs.runs import with_service  # noqa: PLC0415  # the group that this is a command of

    if bool(pattern) == is_all:
        raise errors.BadValue("PATTERN", "say which grants to revoke", hint="Name one or more grants, or give --all.")

    async def act(service: Service) -> int:
        row = await service.get(run)
        held = dict.fromkeys(grant.pattern for grant in await service.grants(row.id) if grant.state == "active")
        for each in held if is_all else pattern:
            await service.revoke(row.id, each, by=actors.system_user())
            click.echo(f"{row.id[:8]}: {exact(each)} is revoked")
        if is_all and not held:
            click.echo(f"{row.id[:8]} has no grants", err=True)
        return 0

    return with_service(act)


def lines(grants: Sequence[RunGrant], cwd: str) -> list[tuple[str, str]]:
    """For `runs show`: each pattern in full, or the call; who granted it, and whether it still holds."""
    return [("granted" if place == 0 else "", _described(grant, cwd)) for place, grant in enumerate(grants)]


def _described(grant: RunGrant, cwd: str) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(grant.time))
    how = {"active": "", "ended": "; ended", "revoked": f"; revoked by {exact(grant.revoked_by)}"}[grant.state]
    call = ""
    if grant.call is not None:
        where = f" in {exact(grant.call.cwd)}" if grant.call.cwd not in (None, cwd) else ""
        call = f" {exact(grant.call.name)} {describe(grant.call, cwd=cwd, width=SHOWN)}{where}"
    return f"{exact(grant.pattern)}{call} by {exact(grant.by)} at {at}{how}"
