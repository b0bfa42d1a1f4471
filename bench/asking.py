"""How many everyday commands a person is asked about: by mode, without and with a sandbox.

Each figure is one run: an agent that asks for every command of the table, in a scratch project, with every program on
PATH, under the shipped policy and in the sandbox that this machine has. Nobody is there to approve, and no command
is run.
`python asking.py FOLDER MODE SANDBOX_LEVELS` is one of them, in a fresh process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from stage import HERE, MeasurementFailed, Stage, tell
from tables import Row, Table

sys.path.append(str(HERE.parent / "tests" / "aids"))

import everyday_commands
import leadrope
from leadrope import events

MOST_PERCENT = {("edit", "off"): 60.0, ("edit", "workspace"): 60.0}
MOST_PERCENT |= {("sandboxed", "workspace"): 5.0, ("full", "workspace"): 5.0}


def measure(stage: Stage) -> Table:
    lines = everyday_commands.lines()
    rows: list[Row] = []
    for mode in everyday_commands.MODES:
        for sandbox in ("off", "workspace"):
            if (mode, sandbox) == ("sandboxed", "off"):
                continue  # it is refused
            asked = set(stage.measure("asking", mode, sandbox))
            reads = [line.command for line in lines if line.reads and line.command in asked]
            if reads:
                raise MeasurementFailed(f"asked about commands that only read, in mode {mode}: {reads}")
            rows.append(
                Row(
                    what=f"{mode}, {'sandbox' if sandbox == 'workspace' else 'no sandbox'}",
                    measured=100 * len(asked) / len(lines),
                    unit="%",
                    bar=MOST_PERCENT.get((mode, sandbox)),
                    note=f"{len(asked)} of {len(lines)} commands; none of those that only read",
                )
            )
    return Table(title="(l) everyday commands that need a person", rows=tuple(rows))


async def asked_in(stage: Stage, mode: str, sandbox: str) -> list[str]:
    """The commands that the gate of a real run does not simply allow."""
    commands = [line.command for line in everyday_commands.lines()]
    hooks = [
        {"hook": {"tool": "Bash", "id": f"toolu_{number}", "input": {"command": command}}}
        for number, command in enumerate(commands)
    ]
    end: list[dict[str, Any]] = [{"text": "done"}, {"result": True}, {"await_eof": True}]
    agent = stage.stand_in("asking-agent", [*hooks, *end])
    programs = everyday_commands.programs(stage.folder / "programs", commands)
    environ = {**os.environ, "PATH": f"{everyday_commands.SYSTEM_PATH}:{programs}"}
    request = stage.request(agent, mode=mode, sandbox=sandbox)
    decided: dict[str, str] = {}
    async with leadrope.open_run(request, environ=environ) as run:
        async for record in run:
            if isinstance(record.event, events.ToolDecided):
                decided[record.event.call.id] = record.event.decision
            if isinstance(record.event, events.Notice) and record.event.code in ("no_sandbox", "sandbox_incomplete"):
                raise MeasurementFailed(record.event.message)
        result = await run.result()
    if any(f"toolu_{number}" not in decided for number in range(len(commands))):
        raise MeasurementFailed(f"not every command was decided about: {result}")
    return [command for number, command in enumerate(commands) if decided[f"toolu_{number}"] != "allow"]


if __name__ == "__main__":
    scratch = Stage(Path(sys.argv[1]))
    everyday_commands.project(scratch.ws)
    tell(asyncio.run(asked_in(scratch, *sys.argv[2:])))
