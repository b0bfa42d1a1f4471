"""Side-by-side measurements with their bars: `python bench/bench.py [--only a,b] [--save]`; a missed bar exits 1."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import asking
import flows
import gating
import memory
import overhead
import reading
import startup
import store
import storm
import turns
from stage import HERE, MeasurementFailed, Stage
from tables import Table, shown

PARTS: dict[str, Callable[[Stage], Table]] = {
    "a": reading.measure,
    "b": overhead.measure,
    "c": startup.measure,
    "d": memory.measure_lines,
    "e": memory.measure_runs,
    "f": gating.measure_decisions,
    "g": gating.measure_sandbox,
    "h": turns.measure,
    "i": store.measure,
    "j": storm.measure,
    "k": flows.measure,
    "l": asking.measure,
}
MARK = "<!-- the last table; written by bench.py --save -->"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to measure, for example a,b")
    parser.add_argument("--save", action="store_true", help="write the tables to bench/README.md")
    options = parser.parse_args(argv)
    parts = [part.strip() for part in options.only.split(",")]
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    if options.save and set(parts) != set(PARTS):
        parser.error("--save writes all tables, so it goes without --only")
    told = [_machine()]
    print(told[0])
    missed = 0
    with tempfile.TemporaryDirectory(prefix="leadrope-bench-") as folder:
        for part in parts:
            start = time.monotonic()
            try:
                table = PARTS[part](Stage(Path(folder)))
            except (MeasurementFailed, subprocess.SubprocessError) as error:
                print(f"({part}) could not be measured: {error}", file=sys.stderr)
                missed += 1
                continue
            missed += table.missed
            told.append(shown(table))
            print(f"\n{told[-1]}\nin {time.monotonic() - start:.0f} s", flush=True)
    print(f"\n{missed or 'no'} bar{'' if missed == 1 else 's'} missed")
    if options.save:
        page = HERE / "README.md"
        text = page.read_text(encoding="utf-8").partition(MARK)[0]
        page.write_text(f"{text}{MARK}\n\n" + "\n".join(told), encoding="utf-8")
    return 1 if missed else 0


def _machine() -> str:
    now = datetime.now(UTC)
    return (
        f"{now:%Y-%m-%d}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the start\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
