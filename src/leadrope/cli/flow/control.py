"""`leadrope flow stop|pause`: controls that reach an execution wherever it runs; `flow resume` undoes a pause."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from leadrope.core import actors

if TYPE_CHECKING:
    from leadrope.runs.executions.values import ExecutionInfo
    from leadrope.runs.service import Service

LOOK_S = 2.0
"""Between two looks at an execution whose owner may have died before it could act."""


@click.command(
    "stop", epilog="\b\nExamples:\n  leadrope flow stop 3fa9\n  leadrope flow stop 3fa9 --reason 'wrong branch'"
)
@click.argument("executions", nargs=-1, required=True, metavar="EXECUTION...")
@click.option("--reason", default="", help="Stored with the execution.")
def stop(executions: tuple[str, ...], reason: str) -> int:
    """Stop executions, and wait until nothing of them runs.

    Steps that are done stay done: `leadrope flow resume` continues a stopped execution.
    """
    from leadrope.cli.flow.names import named  # noqa: PLC0415  # not needed for --help
    from leadrope.cli.runs.runs import with_service  # noqa: PLC0415  # the same
    from leadrope.runs.executions.controls import BY_A_PERSON  # noqa: PLC0415  # the same

    async def act(service: Service) -> int:
        for name in executions:
            row = await service.executions.outermost(await named(service, name))
            if row.state == "ended":
                click.echo(f"{row.id[:8]} has ended already ({row.outcome})", err=True)
                continue
            why = f"{BY_A_PERSON}: {reason}" if reason else BY_A_PERSON
            await service.controls.stop(row.id, why, by=actors.system_user())
            with service.listen() as heard:
                while (now := await service.executions.get(row.id)).state != "ended":
                    if now.owner is None:
                        await service.controls.stop(
                            row.id, why, by=actors.system_user()
                        )  # its owner died before it could
                    await heard.wait(LOOK_S)
            click.echo(f"{row.id[:8]} {now.outcome}")
        return 0

    return with_service(act)


@click.command("pause", epilog="\b\nExample:\n  leadrope flow pause 3fa9")
@click.argument("execution")
def pause(execution: str) -> int:
    """Pause an execution: no further step starts, and agents are held. Commands that run are finished.

    `leadrope flow resume EXECUTION` lets it continue.
    """
    from leadrope.cli.flow.names import named  # noqa: PLC0415  # not needed for --help
    from leadrope.cli.runs.runs import with_service  # noqa: PLC0415  # the same

    async def act(service: Service) -> int:
        row = await service.executions.outermost(await named(service, execution))
        await service.controls.pause(row.id, by=actors.system_user())
        now = await _until(service, row.id, "paused")
        click.echo(f"{row.id[:8]} {now.outcome or now.state}")
        return 0 if now.state == "paused" else 1

    return with_service(act)


async def unpaused(service: Service, row: ExecutionInfo) -> str:
    """Lets a paused execution continue where it is, or in the background; what a person is told."""
    await service.controls.unpause(row.id, by=actors.system_user())
    if row.owner is None:
        return f"{row.id[:8]} continues in the background"
    now = await _until(service, row.id, "running")
    return f"{row.id[:8]} {now.outcome or now.state} (owner {now.owner})" if now.owner else f"{row.id[:8]} {now.state}"


async def _until(service: Service, execution_id: str, state: str) -> ExecutionInfo:
    """Until its owner has done it; or has ended meanwhile."""
    with service.listen() as heard:
        while (now := await service.executions.get(execution_id)).state != state and now.owner is not None:
            await heard.wait(LOOK_S)
    return now


async def continued_elsewhere(service: Service, name: str) -> str | None:
    """Lets an execution continue that another process has, or that belongs to the background; None: it is not so."""
    from leadrope import errors  # noqa: PLC0415  # not needed for --help
    from leadrope.cli.flow.names import named  # noqa: PLC0415  # the same
    from leadrope.runs import detached  # noqa: PLC0415  # the same

    try:
        row = await service.executions.outermost(await named(service, name))
    except errors.UnknownRun:
        return None  # told where it is to be continued
    if row.state == "paused" and (row.owner is not None or row.recover == "resume"):
        return await unpaused(service, row)
    if row.state == "queued" and row.recover == "resume":
        if row.owner is not None:
            return f"{row.id[:8]} is in the queue of {row.owner}"
        await asyncio.to_thread(detached.resume_execution, service.home, row.id, dict(os.environ))
        return f"{row.id[:8]} continues in the background"
    return None
