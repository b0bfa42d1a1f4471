"""How much memory a supervisor needs: for a flood, for one huge line, and for one more run.

`python memory.py FOLDER PART ARGUMENTS` measures one part in its own process.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import corpus
from leadrope import events, open_run
from leadrope.process import guardian, lines
from stage import MeasurementFailed, Stage, tell
from tables import Row, Table

MIB = 1024 * 1024
FLOOD_BYTES = 1_000_000_000
FLOOD_MOST_MIB = 32.0
LINE_MOST_TIMES = 4.0
SPOOLED_BYTES = 200_000_000
SPOOLED_MOST_MIB = 80.0
MORE_RUNS = 20
RUN_MOST_MB = 1.0
GUARDIAN_MOST_MB = 4.0

# The consumer takes this many events and then does nothing for a while: long enough to fill every buffer.
STALL_EVERY = 20_000
STALL_S = 0.1
FIRST_STALL_S = 2.0


def measure_lines(stage: Stage) -> Table:
    ordinary = corpus.ordinary(stage.folder / "lines.jsonl")
    times = -(-FLOOD_BYTES // ordinary.stat().st_size)
    flood = [{"repeat": {"times": times, "steps": [{"play": {"file": str(ordinary)}}]}}]
    longest = [{"play": {"file": str(corpus.one_long(stage.folder / "longest.jsonl", lines.LINE_LIMIT))}}]
    emoji = corpus.one_long(stage.folder / "emoji.jsonl", lines.LINE_LIMIT, ending="\N{OCTOPUS}")
    spooled = [{"play": {"file": str(corpus.one_long(stage.folder / "spooled.jsonl", SPOOLED_BYTES))}}]
    grown = {
        name: _growth(stage, name, part, steps)
        for name, part, steps in (
            ("flood", "flood", flood),
            ("longest", "line", longest),
            ("emoji", "line", [{"play": {"file": str(emoji)}}]),
            ("spooled", "spooled", spooled),
        )
    }
    limit = lines.LINE_LIMIT
    return Table(
        title="(d) memory of the supervisor, peak over its rest",
        rows=(
            Row(
                what="1 GB of ordinary lines, stalling consumer",
                measured=grown["flood"] / MIB,
                unit="MiB",
                bar=FLOOD_MOST_MIB,
                note=f"{times * corpus.LINES:,} lines; a stall after every {STALL_EVERY:,} events",
            ),
            Row(
                what=f"one line of {limit // MIB} MiB",
                measured=grown["longest"] / limit,
                unit="x the line",
                bar=LINE_MOST_TIMES,
                note=f"{grown['longest'] / MIB:.0f} MiB",
            ),
            Row(
                what=f"one line of {limit // MIB} MiB with one emoji",
                measured=grown["emoji"] / limit,
                unit="x the line",
                note="Python keeps such a text at four bytes a character",
            ),
            Row(
                what=f"one line of {SPOOLED_BYTES // 1_000_000} MB, spooled",
                measured=grown["spooled"] / MIB,
                unit="MiB",
                bar=SPOOLED_MOST_MIB,
            ),
        ),
    )


def _growth(stage: Stage, name: str, part: str, steps: list[dict[str, Any]]) -> float:
    ending: list[dict[str, Any]] = [{"result": {"result": "done"}}, {"await_eof": True}]
    few = corpus.ordinary(stage.folder / "few.jsonl", lines=100)
    warm_up = stage.stand_in("memory-few", [{"play": {"file": str(few)}}, *ending])
    executable = stage.stand_in(f"memory-{name}", [*steps, *ending])
    return float(stage.measure("memory", part, str(warm_up), str(executable))["grown"])


def measure_runs(stage: Stage) -> Table:
    held = stage.stand_in("held", [{"text": "Here."}, {"hang": True}])
    found = stage.measure("memory", "runs", str(held), str(MORE_RUNS))
    return Table(
        title="(e) memory of one more run",
        rows=(
            Row(
                what="supervisor, for each further run",
                measured=found["per_run"] / 1e6,
                unit="MB",
                bar=RUN_MOST_MB,
                note=f"resident with {1 + MORE_RUNS} runs, less that with 1, by {MORE_RUNS}",
            ),
            Row(
                what="guardian, private",
                measured=found["guardian"] / 1e6,
                unit="MB",
                bar=GUARDIAN_MOST_MB,
                note=f"the largest of {1 + MORE_RUNS}",
            ),
        ),
    )


# -- in the measuring process -------------------------------------------------------------------------------------


def _rollup(pid: int | str, *names: str) -> int:
    """Bytes, from /proc/PID/smaps_rollup."""
    values = [text.split() for text in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    return sum(int(words[1]) * 1024 for words in values if words[0].rstrip(":") in names)


def _peak() -> int:
    for text in Path("/proc/self/status").read_text().splitlines():
        if text.startswith("VmHWM:"):
            return int(text.split()[1]) * 1024
    raise MeasurementFailed("/proc/self/status tells no VmHWM")


async def _read(stage: Stage, executable: str, *, stalls: bool = False) -> tuple[int, events.Event | None]:
    """How many lines came, and the last of them."""
    wanted = (events.MessageCompleted, events.ToolRequested, events.ToolCompleted, events.Unrecognised)
    count, last = 0, None
    async with open_run(stage.request(executable), environ=stage.environ()) as run:
        async for recorded in run:
            if not isinstance(recorded.event, wanted):
                continue
            count, last = count + 1, recorded.event
            if stalls and (count == 1 or count % STALL_EVERY == 0):
                await asyncio.sleep(FIRST_STALL_S if count == 1 else STALL_S)
        result = await run.result()
    if result.outcome != "succeeded":
        raise MeasurementFailed(f"the run ended as {result.outcome}: {result.error}")
    return count, last


async def growth(stage: Stage, part: str, warm_up: str, executable: str) -> None:
    await _read(stage, warm_up)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is there now
    before = _peak()
    count, last = await _read(stage, executable, stalls=part == "flood")
    grown = _peak() - before
    match part, last:
        case "flood", _ if count * corpus.LONGEST >= FLOOD_BYTES:
            pass
        case "line", events.MessageCompleted(text=text) if len(text) > 0.99 * lines.LINE_LIMIT:
            pass
        case "spooled", events.Unrecognised(reason="line_too_long", size=size) if size == SPOOLED_BYTES:
            pass
        case _:
            raise MeasurementFailed(f"{part}: {count} lines came, the last one a {type(last).__name__}")
    tell({"grown": grown})


async def runs(stage: Stage, executable: str, more: str) -> None:
    async with AsyncExitStack() as stack:

        async def hold() -> None:
            run = await stack.enter_async_context(open_run(stage.request(executable), environ=stage.environ()))
            async for recorded in run:
                if isinstance(recorded.event, events.MessageCompleted):
                    return
            raise MeasurementFailed("a run that was to be held has ended")

        await hold()
        gc.collect()
        one = _rollup("self", "Rss")
        for _ in range(int(more)):
            await hold()
        gc.collect()
        grown = _rollup("self", "Rss") - one
        guardians = [_rollup(pid, "Private_Clean", "Private_Dirty") for pid in _guardians()]
        if len(guardians) != 1 + int(more):
            raise MeasurementFailed(f"{len(guardians)} guardians were found for {1 + int(more)} runs")
    tell({"per_run": grown / int(more), "guardian": max(guardians)})


def _guardians() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    script = f"{Path(guardian.__file__).parent}/".encode()
    return [int(pid) for pid in children if script in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def main(folder: str, part: str, *arguments: str) -> None:
    stage = Stage(Path(folder))
    if part == "runs":
        await runs(stage, *arguments)
    else:
        await growth(stage, part, *arguments)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
