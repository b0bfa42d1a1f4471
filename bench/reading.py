"""The whole path of 50,000 lines: through open_run, through claude-agent-sdk, and through the least reader there is."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import msgspec

import corpus
from readers import Reading
from stage import MeasurementFailed, Stage
from tables import Row, Table

ROUNDS = 9
WARM_UP_LINES = 100
LEAST_TIMES_SDK = 6.0
MOST_CPU_OF_BARE = 1.6
NAMES = {"leadrope": "open_run", "sdk": "claude-agent-sdk query()", "bare": "bare reader"}


def measure(stage: Stage, *, rounds: int = ROUNDS) -> Table:
    few = _executables(stage, "few", corpus.ordinary(stage.folder / "few.jsonl", lines=WARM_UP_LINES))
    all_ = _executables(stage, "all", corpus.ordinary(stage.folder / "lines.jsonl"))
    readings: dict[str, list[Reading]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        # One after the other and again: what else the machine does falls on all of them.
        for name, found in readings.items():
            reading = msgspec.convert(stage.measure("readers", name, str(few[name]), str(all_[name])), Reading)
            if reading.lines != corpus.LINES:
                raise MeasurementFailed(f"{name} told of {reading.lines} lines; {corpus.LINES} were said")
            found.append(reading)
    ours, theirs, bare = (readings[name] for name in NAMES)
    return Table(
        title="(a) whole path",
        rows=(
            *(
                Row(what=f"events/s, {title}", measured=median(_rate(r) for r in readings[name]), unit="/s")
                for name, title in NAMES.items()
            ),
            Row(
                what="events/s, open_run over query()",
                measured=median(_rate(a) / _rate(b) for a, b in zip(ours, theirs, strict=True)),
                unit="x",
                note="by the clock on the wall; other work on the machine counts",
            ),
            *(
                Row(what=f"CPU, {title}", measured=median(1000 * r.cpu_s for r in readings[name]), unit="ms")
                for name, title in NAMES.items()
            ),
            Row(
                what="events per CPU second, open_run over query()",
                measured=median(b.cpu_s / a.cpu_s for a, b in zip(ours, theirs, strict=True)),
                unit="x",
                bar=LEAST_TIMES_SDK,
                is_floor=True,
                note=f"{corpus.LINES:,} lines, {corpus.SHORTEST}-{corpus.LONGEST} B; median of {rounds} rounds",
            ),
            Row(
                what="CPU of open_run over the bare reader",
                measured=median(a.cpu_s / b.cpu_s for a, b in zip(ours, bare, strict=True)),
                unit="x",
                bar=MOST_CPU_OF_BARE,
                note="the same rounds",
            ),
        ),
    )


def _executables(stage: Stage, name: str, lines: Path) -> dict[str, Path]:
    said: list[dict[str, Any]] = [{"play": {"file": str(lines)}}]
    ending: list[dict[str, Any]] = [{"result": {"result": "done"}}, {"await_eof": True}]
    return {
        "leadrope": stage.stand_in(f"{name}-leadrope", [*said, *ending]),
        "sdk": stage.stand_in(f"{name}-sdk", [*said, *ending], is_gated=False),
        "bare": stage.bare_stand_in(f"{name}-bare", said),
    }


def _rate(reading: Reading) -> float:
    """By the clock on the wall. All three readers keep one core busy, so that on an idle machine this is lines by CPU
    time; on a busy one only the CPU time can be compared, and the bar is held against that.
    """
    return reading.lines / (reading.last_at - reading.first_at)
