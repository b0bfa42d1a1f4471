"""Another process at the journal of workflows: `python flow_process.py WHAT HOME ARGUMENTS`; says what it did."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from leadrope import errors
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.executions.journal import NewFlow, UnitOutcome
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


async def work(home: Path, flow_id: str, together: str) -> None:
    """Settles units for ever, some at once; each is told once it is acknowledged."""
    async with service(home) as opened:
        flows = opened.flows
        flow = await flows.add(NewFlow(id=flow_id, text="# Work"), Redactor())
        say("ready")

        async def one(number: int) -> None:
            outcome = unit(number)
            await flows.begin(flow, outcome)
            await flows.settle(flow, outcome, Redactor())
            say("settled", number)

        number = 0
        while True:
            await asyncio.gather(*(one(number + more) for more in range(int(together))))
            number += int(together)


async def hold(home: Path, flow_id: str) -> None:
    """Owns a flow until it is ended or told to end."""
    async with service(home) as opened:
        await opened.flows.add(NewFlow(id=flow_id, text="# Held"), Redactor())
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)


async def claim(home: Path, flow_id: str) -> None:
    async with service(home) as opened:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        try:
            flow = await opened.flows.claim(flow_id)
            say("won", flow.owner)
        except errors.WrongState as error:
            say("lost", error.message)
        await asyncio.to_thread(sys.stdin.readline)


async def zombie(home: Path, flow_id: str, inner_id: str) -> None:
    """Has a flow, is taken for dead, and writes all the same."""
    async with service(home) as opened:
        flows, none = opened.flows, Redactor()
        flow = await flows.add(NewFlow(id=flow_id, text="# Held"), none)
        inner = await flows.add(NewFlow(id=inner_id, text="# Inside", parent=flow_id, parent_key="call#0"), none)
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        for name, work in {
            "begin": flows.begin(flow, unit(0)),
            "settle": flows.settle(flow, unit(0), none),
            "set_state": flows.set_state(flow, "waiting"),
            "change_text": flows.change_text(flow, "# Other", none, title="Other"),
            "carry": flows.carry(flow, flow, ["one"]),
            "ask": flows.ask(flow, unit(1), "step", {}, execution_id=flow.id, fingerprint="f", redactor=none),
            "end": flows.end(flow, "failed", {}, none),
            "settle inside": flows.settle(inner, unit(0), none),
            "end inside": flows.end(inner, "failed", {}, none),
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
