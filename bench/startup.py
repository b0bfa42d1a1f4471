"""What the terminal command costs before it does anything, beside an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from stage import Stage
from tables import Row, Table

ROUNDS = 15
MOST_TIMES_PYTHON = 6.0


def measure(stage: Stage, *, rounds: int = ROUNDS) -> Table:
    leadrope = str(Path(sys.executable).with_name("leadrope"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "leadrope --version": [leadrope, "--version"],
        "leadrope --help": [leadrope, "--help"],
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    env = stage.environ()
    for warm in (False, *[True] * rounds):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, env=env, cwd=stage.ws, stdout=subprocess.DEVNULL, check=True)
            if warm:
                took[name].append(1000 * (time.perf_counter() - start))
    nothing, *ours = took
    return Table(
        title="(c) start of the terminal command",
        rows=(
            *(Row(what=name, measured=median(found), unit="ms") for name, found in took.items()),
            *(
                Row(
                    what=f"{name} over {nothing}",
                    measured=median(a / b for a, b in zip(took[name], took[nothing], strict=True)),
                    unit="x",
                    bar=MOST_TIMES_PYTHON,
                    note=f"median of {rounds} rounds",
                )
                for name in ours
            ),
        ),
    )
