"""A second turn in a conversation over a fresh start: the time to the first event.

`python turns.py FOLDER CLAUDE ROUNDS` measures, in a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

from leadrope import open_conversation
from leadrope.core import events
from leadrope.providers.claude_code.locate import bundled
from leadrope.rehearsal import ModelServer
from stage import MeasurementFailed, Stage, tell
from tables import Row, Table

ROUNDS = 8
LEAST_TIMES_QUICKER = 3.0
FIRST = (events.SessionStarted, events.TurnStarted, events.MessageDelta, events.ThinkingDelta)
"""What the agent says, not what leadrope says about it."""


def measure(stage: Stage, *, rounds: int = ROUNDS) -> Table:
    claude = bundled()
    if claude is None:
        raise MeasurementFailed("the agent binary is missing: run `make setup-dev`")
    found = stage.measure("turns", str(claude), str(rounds))
    return Table(
        title="(h) a second turn",
        rows=(
            Row(what="fresh start to the first event", measured=median(found["fresh"]), unit="ms"),
            Row(what="second turn to the first event", measured=median(found["second"]), unit="ms"),
            Row(what="second turn to the end of the answer", measured=median(found["whole"]), unit="ms"),
            Row(
                what="second turn over a fresh start",
                measured=median(a / b for a, b in zip(found["fresh"], found["second"], strict=True)),
                unit="x quicker",
                bar=LEAST_TIMES_QUICKER,
                is_floor=True,
                note=f"median of {rounds} conversations",
            ),
        ),
    )


async def turns(stage: Stage, claude: str, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"fresh": [], "second": [], "whole": []}
    async with ModelServer([{"text": "Hello.", "repeat": "forever"}]) as model:
        for number in range(rounds + 1):
            request = stage.request(claude, prompt="", base_url=model.url)
            async with open_conversation(request, environ=stage.environ()) as conversation:
                fresh, _ = await _timed(conversation.say("first"))
                second, whole = await _timed(conversation.say("second"))
            if conversation.starts != 1:
                raise SystemExit(f"{conversation.starts} processes were started")
            if number:  # the first one warms up
                found["fresh"].append(fresh)
                found["second"].append(second)
                found["whole"].append(whole)
    return found


async def _timed(turn: AsyncIterator[events.Recorded]) -> tuple[float, float]:
    start = time.perf_counter()
    first = 0.0
    async for recorded in turn:
        if not first and isinstance(recorded.event, FIRST):
            first = time.perf_counter()
    return 1000 * (first - start), 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    tell(asyncio.run(turns(Stage(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]))))
