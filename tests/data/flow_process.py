"""Another process at the journal of workflows: `python flow_process.py WHAT HOME ARGUMENTS`; says what it did."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from leadrope import errors
from leadrope.core.execution_events import CostUpdated, ExecutionPaused
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions.protocols import EventLog
from leadrope.runs.executions.values import NewExecution, UnitOutcome
from leadrope.runs.service import Service


def say(*words: object) -> None:
    print(*words, flush=True)


def service(home: Path) -> Service:
    return Service({"PATH": os.environ["PATH"], "HOME": str(home), "LEADROPE_HOME": str(home)})


def unit(number: int) -> UnitOutcome:
    return UnitOutcome(
        step=f"step-{number // 8}",
        item=number % 8,
        status="succeeded",
        outputs={"number": number, "text": f"{number} " * 2000 if number % 5 == 0 else "short"},
        cost_usd=0.5,
        tokens=3,
    )


async def work(home: Path, execution_id: str, together: str) -> None:
    """Settles units for ever, some at once; each is told once it is acknowledged."""
    async with service(home) as opened:
        executions = opened.executions
        execution = await executions.add(NewExecution(id=execution_id, text="# Work"), Redactor())
        say("ready")

        async def one(number: int) -> None:
            outcome = unit(number)
            await executions.begin(execution, outcome)
            await executions.settle(execution, outcome, Redactor())
            say("settled", number)

        number = 0
        while True:
            await asyncio.gather(*(one(number + more) for more in range(int(together))))
            number += int(together)


async def hold(home: Path, execution_id: str) -> None:
    """Owns a flow until it is ended or told to end."""
    async with service(home) as opened:
        await opened.executions.add(NewExecution(id=execution_id, text="# Held"), Redactor())
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)


async def claim(home: Path, execution_id: str) -> None:
    async with service(home) as opened:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        try:
            execution = await opened.executions.claim(execution_id)
            say("won", execution.owner)
        except errors.WrongState as error:
            say("lost", error.message)
        await asyncio.to_thread(sys.stdin.readline)


async def told(log: EventLog) -> None:
    log.tell(CostUpdated(cost_usd=1.0))
    await log.flush()


async def zombie(home: Path, execution_id: str, inner_id: str) -> None:
    """Has a flow, is taken for dead, and writes all the same."""
    async with service(home) as opened:
        executions, none = opened.executions, Redactor()
        execution = await executions.add(NewExecution(id=execution_id, text="# Held"), none)
        inner = await executions.add(NewExecution(id=inner_id, text="# Inside", parent=execution_id, parent_key="call#0"), none)
        log = opened.executions.log_of(execution, redactor=lambda: none)
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        for name, work in {
            "begin": executions.begin(execution, unit(0)),
            "settle": executions.settle(execution, unit(0), none),
            "set_state": executions.set_state(execution, "waiting"),
            "change_text": executions.change_text(execution, "# Other", none, title="Other"),
            "carry": executions.carry(execution, execution, ["one"]),
            "ask": executions.ask(execution, unit(1), "step", {}, outermost_id=execution.id, fingerprint="f", redactor=none),
            "requeue": executions.requeue(execution, note="of a zombie"),
            "wait_for": executions.wait_for(execution, ["held-step-1"]),
            "set_paused": executions.set_paused(execution, None, ExecutionPaused(), is_paused=True),
            "events": told(log),
            "end": executions.end(execution, "failed", {}, none),
            "settle inside": executions.settle(inner, unit(0), none),
            "end inside": executions.end(inner, "failed", {}, none),
        }.items():
            try:
                await work
                said = "written"
            except errors.LeadropeError as error:
                said = type(error).__name__
            say(name.replace(" ", "_"), said)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    what, home, *arguments = sys.argv[1:]
    commands: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
        command.__name__: command for command in (work, hold, claim, zombie)
    }
    asyncio.run(commands[what](Path(home), *arguments))
