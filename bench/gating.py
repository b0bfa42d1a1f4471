"""What the gate costs: one decision over real command lines, and sandbox and broker over a run without them.

`python gating.py FOLDER decisions` and `python gating.py FOLDER sandbox CLAUDE PAIRS` measure, each in a fresh process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

import leadrope
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Policy, decide
from leadrope.policy.files.sources import gather_policy
from leadrope.policy.shell import reader
from leadrope.providers.claude_code.locate import bundled
from leadrope.rehearsal import ModelServer
from stage import HERE, MeasurementFailed, Stage, tell
from tables import Row, Table

PAIRS = 12
MOST_DECISION_MS = 1.0
MOST_SANDBOX_MS = 40.0
COMMANDS = HERE.parent / "tests" / "data" / "commands"


def measure_decisions(stage: Stage) -> Table:
    found = stage.measure("gating", "decisions")
    return Table(
        title="(f) one decision",
        rows=tuple(
            row
            for name, times in found.items()
            for row in (
                Row(
                    what=f"{name}, median",
                    measured=median(times),
                    unit="ms",
                    bar=MOST_DECISION_MS,
                    note=f"{len(times)} decisions under the shipped policy, nothing read before",
                ),
                Row(what=f"{name}, p99", measured=quantiles(times, n=100)[98], unit="ms"),
            )
        ),
    )


def measure_sandbox(stage: Stage, *, pairs: int = PAIRS) -> Table:
    claude = bundled()
    if claude is None:
        raise MeasurementFailed("the agent binary is missing: run `make setup-dev`")
    found = stage.measure("gating", "sandbox", str(claude), str(pairs))
    return Table(
        title="(g) sandbox and broker",
        rows=(
            Row(what="a run without", measured=median(found["plain"]), unit="ms"),
            Row(what="a run with both", measured=median(found["sandboxed"]), unit="ms"),
            Row(
                what="both over none",
                measured=median(a - b for a, b in zip(found["sandboxed"], found["plain"], strict=True)),
                unit="ms",
                bar=MOST_SANDBOX_MS,
                note=f"median difference of {pairs} pairs, the order changing",
            ),
        ),
    )


def decisions() -> dict[str, list[float]]:
    rules = gather_policy().effective()
    policy = Policy(mode="default", workspace=("/workspace",), rules=rules)
    decide(policy, ToolCall(id="t", name="Bash", input={"command": "true"}))  # the parser is loaded once
    found: dict[str, list[float]] = {}
    for name in ("everyday", "evil"):
        corpus: dict[str, list[Any]] = msgspec.yaml.decode((COMMANDS / f"{name}.yaml").read_bytes())
        cases = [case for cases in corpus.values() for case in cases]
        times = found[f"{name} commands"] = []
        for case in cases:
            command = case if isinstance(case, str) else case.get("before", "") * case.get("times", 0) + case["run"]
            call = ToolCall(id="t", name="Bash", input={"command": command})
            reader._read.cache_clear()  # noqa: SLF001  # a command is read once in a run
            start = time.perf_counter()
            decide(policy, call)
            times.append(1000 * (time.perf_counter() - start))
    return found


async def sandbox(stage: Stage, claude: str, pairs: int) -> dict[str, list[float]]:
    async with ModelServer([{"text": "Hello.", "repeat": "forever"}]) as model:
        plain = stage.request(claude, base_url=model.url, broker=False, sandbox="off")
        sandboxed = stage.request(claude, base_url=model.url, broker=True, sandbox="workspace")

        def timed(request: leadrope.RunRequest) -> Callable[[], Awaitable[float]]:
            async def once() -> float:
                start = time.perf_counter()
                result = await leadrope.run(request)
                took = time.perf_counter() - start
                result.raise_for_outcome()
                return 1000 * took

            return once

        runs = {"plain": timed(plain), "sandboxed": timed(sandboxed)}
        for run in runs.values():
            await run()
        found: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(pairs):
            for name in runs if number % 2 else reversed(runs):
                found[name].append(await runs[name]())
    return found


if __name__ == "__main__":
    place = Stage(Path(sys.argv[1]))
    if sys.argv[2] == "decisions":
        tell(decisions())
    else:
        tell(asyncio.run(sandbox(place, sys.argv[3], int(sys.argv[4]))))
