"""Workflows beside pflow, the same files in the same run: what a start costs, what a step costs, what a batch costs.

The larger ones are measured in fewer rounds: ratios of seconds vary less than those of milliseconds.

Both get a network namespace of their own: neither needs a network for this, and one of them would look for updates.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
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
LARGE_ROUNDS = 5
LARGE_BYTES = 100_000
TRUE_500, TRUE_5000 = "batch of 500 x /bin/true at 8", "batch of 5,000 x /bin/true at 8"
CODE_500 = "batch of 500 code items at 8"
DATA_100 = "100 code steps that pass on 100 kB"
NESTED_20 = "20 nested workflows"
LARGE = {TRUE_500: 1.2, TRUE_5000: 1.2, CODE_500: 1.2, DATA_100: 0.5, NESTED_20: 0.5}
"""With the most of pflow's time that each may take; pflow has no sandbox and no journal."""


def measure(stage: Stage, *, rounds: int = ROUNDS) -> Table:
    pflow = _pflow()
    files = _write(stage.ws)
    ours = [str(Path(sys.executable).with_name("leadrope")), "flow", "run", "-q"]
    commands = {"leadrope": ours, "pflow": [pflow, "--no-cache"]}
    large = _write_large(stage.ws)
    took: dict[tuple[str, str], list[float]] = {(who, what): [] for who in commands for what in (*files, *large)}
    batches: list[float] = []
    for what in ("1 step", "batch"):  # caches of both, and of the disk
        for command in commands.values():
            _run(stage, [*command, files[what].name])
    for number in range(rounds):
        for what, file in files.items():
            for who in _in_turn(commands, number):
                took[who, what].append(_timed(stage, [*commands[who], file.name]))
        batches.append(_batch_alone(stage, ours, files["batch"]))
    for number in range(min(rounds, LARGE_ROUNDS)):
        for what, file in large.items():
            for who in _in_turn(commands, number):
                took[who, what].append(_timed(stage, [*commands[who], file.name]))
    rows = (*_rows(took, batches), *_large_rows(took))
    return Table(title=f"(k) workflows beside {PFLOW}, median of {rounds} rounds", rows=rows)


def _in_turn(commands: Mapping[str, list[str]], number: int) -> list[str]:
    """Each goes first in every other round: what else runs on the machine then favours neither."""
    names = list(commands)
    return names if number % 2 == 0 else names[::-1]


def _timed(stage: Stage, command: list[str]) -> float:
    start = time.perf_counter()
    _run(stage, command)
    return time.perf_counter() - start


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
            note="the step itself, with the start of its sandbox",
        ),
    )


def _large_rows(took: dict[tuple[str, str], list[float]]) -> Iterator[Row]:
    for what, bar in LARGE.items():
        ours, theirs = median(took["leadrope", what]), median(took["pflow", what])
        yield Row(
            what=f"{what} over pflow's",
            measured=ours / theirs,
            unit="x",
            bar=bar,
            note=f"{1000 * ours:,.0f} ms and {1000 * theirs:,.0f} ms, median of {len(took['pflow', what])}",
        )


def _run(stage: Stage, command: list[str]) -> bytes:
    done = subprocess.run(
        [*_alone(), *command], env=stage.environ(), cwd=stage.ws, capture_output=True, check=False, timeout=300
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


def _write_large(folder: Path) -> dict[str, Path]:
    inner = "# Inner\n\nMeasured.\n\n## Inputs\n\n### x\n\nA number.\n\n- type: integer\n\n## Steps\n\n"
    inner += (
        "### add\n\nAdds.\n\n- type: code\n- inputs:\n    x: ${x}\n\n```python code\nx: int\nresult: int = x + 1\n```\n"
    )
    (folder / "inner.pflow.md").write_text(
        f"{inner}\n## Outputs\n\n### y\n\nThe sum.\n\n- source: ${{add.result}}\n", encoding="utf-8"
    )
    true, code = "```shell command\n/bin/true\n```\n", "```python code\nx: int\nresult: int = x + 1\n```\n"
    texts = {
        TRUE_500: _batch_of(500, "shell", "", true),
        TRUE_5000: _batch_of(5000, "shell", "", true),
        CODE_500: _batch_of(500, "code", "- inputs:\n    x: ${item}\n", code),
        DATA_100: _chain(100, _data_step),
        NESTED_20: _chain(20, _nested_step),
    }
    found = {}
    for number, (what, text) in enumerate(texts.items()):
        found[what] = folder / f"large-{number}.pflow.md"
        found[what].write_text(text, encoding="utf-8")
    return found


def _batch_of(count: int, kind: str, inputs: str, block: str) -> str:
    batch = f"- batch:\n    items: {list(range(count))}\n    parallel: true\n    max_concurrent: 8\n"
    return f"# Bench\n\nMeasured.\n\n## Steps\n\n### each\n\nA step.\n\n- type: {kind}\n{batch}{inputs}\n{block}"


def _data_step(number: int) -> str:
    if number == 0:
        code = f"```python code\nresult: str = 'x' * {LARGE_BYTES}\n```\n"
        return f"### s0\n\nA step.\n\n- type: code\n\n{code}"
    code = "```python code\nx: str\nresult: str = x[1:] + 'y'\n```\n"
    return f"### s{number}\n\nA step.\n\n- type: code\n- inputs:\n    x: ${{s{number - 1}.result}}\n\n{code}"


def _nested_step(number: int) -> str:
    before = f"${{s{number - 1}.y}}" if number else "1"
    return f"### s{number}\n\nA step.\n\n- type: workflow\n- workflow: ./inner.pflow.md\n- inputs:\n    x: {before}\n"


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
