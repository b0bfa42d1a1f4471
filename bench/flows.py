"""Workflows beside pflow, the same files in the same run: what a start costs, what a step costs, what a batch costs.

Both get a network namespace of their own: neither needs a network for this, and one of them would look for updates.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from stage import HERE, MeasurementFailed, Stage
from tables import Row, Table

PFLOW = "pflow-cli==0.16.0"
ROUNDS = 9
STEPS = 200
ITEMS, AT_ONCE, EACH_S = 100, 10, 0.1
MOST_OF_PFLOW = 1 / 3
MOST_OVER_IDEAL = 1.25


def measure(stage: Stage, *, rounds: int = ROUNDS) -> Table:
    pflow = _pflow()
    files = _write(stage.ws)
    ours = [str(Path(sys.executable).with_name("leadrope")), "flow", "run", "-q"]
    commands = {"leadrope": ours, "pflow": [pflow, "--no-cache"]}
    took: dict[tuple[str, str], list[float]] = {(who, what): [] for who in commands for what in files}
    batches: list[float] = []
    for is_warm in (False, *[True] * rounds):
        for what, file in files.items():
            for who, command in commands.items():
                if not is_warm and what not in ("1 step", "batch"):
                    continue
                start = time.perf_counter()
                _run(stage, [*command, file.name])
                if is_warm:
                    took[who, what].append(time.perf_counter() - start)
        if is_warm:
            batches.append(_batch_alone(stage, ours, files["batch"]))
    return Table(title=f"(k) workflows beside {PFLOW}, median of {rounds} rounds", rows=_rows(took, batches))


def _rows(took: dict[tuple[str, str], list[float]], batches: list[float]) -> tuple[Row, ...]:
    def ms(who: str, what: str) -> float:
        return 1000 * median(took[who, what])

    def each(who: str) -> float:
        rounds = zip(took[who, f"{STEPS} steps"], took[who, "1 step"], strict=True)
        return 1000 * median((many - one) / (STEPS - 1) for many, one in rounds)

    ideal = ITEMS / AT_ONCE * EACH_S
    told = [
        Row(what=f"{what}, {who}", measured=ms(who, what), unit="ms")
        for what in ("1 step", "10 steps", f"{STEPS} steps", f"{STEPS} code steps", "batch")
        for who in ("leadrope", "pflow")
    ]
    return (
        *told,
        Row(
            what="fixed cost over pflow's",
            measured=ms("leadrope", "1 step") / ms("pflow", "1 step"),
            unit="x",
            bar=MOST_OF_PFLOW,
        ),
        Row(what="one shell step, leadrope", measured=each("leadrope"), unit="ms"),
        Row(what="one shell step, pflow", measured=each("pflow"), unit="ms"),
        Row(what="shell step over pflow's", measured=each("leadrope") / each("pflow"), unit="x", bar=MOST_OF_PFLOW),
        Row(
            what=f"{STEPS} code steps over pflow's",
            measured=ms("leadrope", f"{STEPS} code steps") / ms("pflow", f"{STEPS} code steps"),
            unit="x",
        ),
        Row(
            what=f"batch of {ITEMS} x sleep {EACH_S} at {AT_ONCE} over ideal",
            measured=median(batches) / ideal,
            unit="x",
            bar=MOST_OVER_IDEAL,
            note="the step itself, with the start of its walls",
        ),
    )


def _run(stage: Stage, command: list[str]) -> bytes:
    done = subprocess.run(
        [*_alone(), *command], env=stage.environ(), cwd=stage.ws, capture_output=True, check=False, timeout=120
    )
    if done.returncode != 0:
        raise MeasurementFailed(f"{' '.join(command)} exited with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done.stdout


def _batch_alone(stage: Stage, ours: list[str], file: Path) -> float:
    result = json.loads(_run(stage, [*ours, "-o", "json", file.name]))
    return float(result["steps"][0]["duration_s"])


def _alone() -> list[str]:
    """A network namespace without any network; also for a user who is not root."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise MeasurementFailed("unshare (util-linux) is missing")
    return [unshare, "-n"] if os.geteuid() == 0 else [unshare, "-rn"]


def _write(folder: Path) -> dict[str, Path]:
    texts = {
        "1 step": _chain(1, _shell_step),
        "10 steps": _chain(10, _shell_step),
        f"{STEPS} steps": _chain(STEPS, _shell_step),
        f"{STEPS} code steps": _chain(STEPS, _code_step),
        "batch": _batch(),
    }
    found = {}
    for number, (what, text) in enumerate(texts.items()):
        found[what] = folder / f"bench-{number}.pflow.md"
        found[what].write_text(text, encoding="utf-8")
    return found


def _chain(count: int, step: Callable[[int], str]) -> str:
    steps = [step(number) for number in range(count)]
    return "\n".join(["# Bench\n\nMeasured.\n\n## Steps\n", *steps])


def _shell_step(number: int) -> str:
    return f"### s{number}\n\nA step.\n\n- type: shell\n\n```shell command\ntrue\n```\n"


def _code_step(number: int) -> str:
    before = f"${{s{number - 1}.result}}" if number else "0"
    code = "x: int\nresult: int = x + 1"
    return f"### s{number}\n\nA step.\n\n- type: code\n- inputs:\n    x: {before}\n\n```python code\n{code}\n```\n"


def _batch() -> str:
    batch = f"- batch:\n    items: {list(range(ITEMS))}\n    parallel: true\n    max_concurrent: {AT_ONCE}"
    command = f"```shell command\nsleep {EACH_S}\n```\n"
    return f"# Bench\n\nMeasured.\n\n## Steps\n\n### each\n\nA step.\n\n- type: shell\n{batch}\n\n{command}"


def _pflow() -> str:
    """Its own environment, beside this file and not in the repository; installed when it is missing."""
    folder = HERE / ".pflow"
    program = folder / "bin/pflow"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
        install = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", PFLOW]
        subprocess.run(install, check=True, timeout=900)
    return str(program)
