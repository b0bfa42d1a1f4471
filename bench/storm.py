"""Many runs at once through the service: when the first result comes, and what bounding the starts costs the whole.

`python storm.py FOLDER PART CLAUDE RUNS` measures one part in its own process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from leadrope.core.config import Config
from leadrope.providers.claude_code.locate import bundled
from leadrope.rehearsal import ModelServer
from leadrope.runs.job import Job
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import DenyAll
from stage import MeasurementFailed, Stage, tell
from tables import Row, Table

RUNS = 32
SINGLES = 5
ROUNDS = 3
FIRST_MOST = 2.5
WHOLE_MOST = 1.1
SETTINGS: Mapping[str, dict[str, int]] = {
    "bounded": {},
    "unlimited": {"running": 1000, "starting": 1000},
}
"""`[service]` of the config; nothing said is what everybody has."""


def measure(stage: Stage, *, runs: int = RUNS, rounds: int = ROUNDS) -> Table:
    claude = bundled()
    if claude is None:
        raise MeasurementFailed("the agent binary is missing: run `make setup-dev`")
    singles = stage.measure("storm", "single", str(claude), str(SINGLES))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    for number in range(rounds):
        for name in sorted(SETTINGS, reverse=bool(number % 2)):
            found[name].append(stage.measure("storm", name, str(claude), str(runs)))
    bounded, unlimited = found["bounded"], found["unlimited"]
    single = median(singles)
    first = median(one["first"] for one in bounded)
    return Table(
        title="(j) a storm of starts",
        rows=(
            Row(what="a single run", measured=single, unit="ms", note=f"real CLI, one text turn; median of {SINGLES}"),
            Row(what=f"{runs} runs, first result", measured=first, unit="ms", note="from the first one's being queued"),
            Row(what="the same, starts not bounded", measured=median(one["first"] for one in unlimited), unit="ms"),
            Row(what="first result over a single run", measured=first / single, unit="x", bar=FIRST_MOST),
            Row(what=f"{runs} runs, all of them", measured=median(one["whole"] for one in bounded), unit="ms"),
            Row(what="the same, starts not bounded", measured=median(one["whole"] for one in unlimited), unit="ms"),
            Row(
                what="all of them over starts not bounded",
                measured=median(a["whole"] / b["whole"] for a, b in zip(bounded, unlimited, strict=True)),
                unit="x",
                bar=WHOLE_MOST,
                note=f"median of {rounds} pairs in changing order",
            ),
        ),
    )


# -- in the measuring process -------------------------------------------------------------------------------------


async def single(stage: Stage, claude: str, runs: int) -> list[float]:
    """One after the other; the first warms up."""
    async with at_work(stage, claude, {}) as start:
        return [(await timed(start, 1))["whole"] for _ in range(runs + 1)][1:]


async def storm(stage: Stage, claude: str, runs: int, settings: dict[str, int]) -> dict[str, float]:
    async with at_work(stage, claude, settings) as start:
        await timed(start, 1)
        return await timed(start, runs)


@asynccontextmanager
async def at_work(stage: Stage, claude: str, settings: dict[str, int]) -> AsyncIterator[Callable[[], Awaitable[Job]]]:
    """A service, the model that its runs talk to, and what queues one of them."""
    config = Config(service=settings)
    async with (
        ModelServer([{"text": "Hello.", "repeat": "forever"}]) as model,
        Service(stage.environ(), kind="bench", config=config) as service,
    ):
        request = stage.request(claude, base_url=model.url)
        yield lambda: service.start(request, approver=DenyAll())


async def timed(start: Callable[[], Awaitable[Job]], runs: int) -> dict[str, float]:
    ended: list[float] = []
    begun = time.perf_counter()

    async def one() -> None:
        result = await (await start()).result()
        if result.outcome != "succeeded":
            raise SystemExit(f"a run ended as {result.outcome}: {result.error}")
        ended.append(1000 * (time.perf_counter() - begun))

    await asyncio.gather(*(one() for _ in range(runs)))
    return {"first": ended[0], "whole": ended[-1]}


async def main(folder: str, part: str, claude: str, runs: str) -> None:
    stage = Stage(Path(folder))
    tell(
        await single(stage, claude, int(runs))
        if part == "single"
        else await storm(stage, claude, int(runs), SETTINGS[part])
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
