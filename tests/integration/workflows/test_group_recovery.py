"""kill -9 at random points inside groups: the journal of each turn is kept, and no step that is in it runs again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from leadrope.runs.executions.values import ExecutionFilter
from leadrope.runs.service import Service

TURNS, INNER = 2, 2
WORKFLOW = f"""# Groups

## Steps

### outer

Twice.

- type: group
- loop: {{max_iterations: {TURNS}, carry: {{last: "${{last-step.stdout}}"}}}}

#### begin

Marks it.

- type: shell
- command: echo begin ${{outer_turn}} >> effects.log; echo begin

#### inner

Twice in each turn.

- type: group
- loop: {{max_iterations: {INNER}}}

##### one

Marks it.

- type: shell
- command: echo one ${{last ?? "first"}} ${{__iteration__}} >> effects.log; echo one

##### two

For both items.

- type: shell
- batch: {{items: [a, b], max_concurrent: 2}}
- command: echo two ${{last ?? "first"}} ${{__iteration__}} ${{item}} >> effects.log; echo two

#### last-step

Marks it.

- type: shell
- command: echo end ${{last ?? "first"}} >> effects.log; echo "after-${{last ?? "first"}}"

## Outputs

### said

- source: ${{outer.last-step.stdout}}
""".replace("${outer_turn}", "${__iteration__}")
LASTS = ["first", "after-first"]
MARKS = {
    **{f"begin {turn}": f"outer#{turn}/begin#0" for turn in range(TURNS)},
    **{
        f"one {last} {number}": f"outer#{turn}/inner#{number}/one#0"
        for turn, last in enumerate(LASTS)
        for number in range(INNER)
    },
    **{
        f"two {last} {number} {item}": f"outer#{turn}/inner#{number}/two#0[{place}]"
        for turn, last in enumerate(LASTS)
        for number in range(INNER)
        for place, item in enumerate("ab")
    },
    **{f"end {last}": f"outer#{turn}/last-step#0" for turn, last in enumerate(LASTS)},
}
"""What is left in the world -> the unit that leaves it, with the units that it is a part of."""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.ws = folder / "ws"
        self.ws.mkdir(parents=True)
        (self.ws / "groups.flow.md").write_text(WORKFLOW)
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LEADROPE_HOME": str(folder / "leadrope")}

    def marks(self) -> Counter[str]:
        log = self.ws / "effects.log"
        return Counter(log.read_text().splitlines()) if log.exists() else Counter()

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadrope.cli.main", "flow", *words, "-q", "-o", "json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ,
            cwd=self.ws,
            start_new_session=True,
        )

    async def killed(self, words: tuple[str, ...], chance: random.Random) -> bool:
        """Killed when a number of marks is in the world, and a little later; False when it ended well before."""
        begun = self.marks().total()
        wanted = begun + chance.randint(0, max(0, len(MARKS) - begun - 1))
        process = await self.start(*words)
        async with asyncio.timeout(120):
            while process.returncode is None and self.marks().total() < wanted:  # noqa: ASYNC110  # a file tells no one
                await asyncio.sleep(0)
            for _ in range(chance.randint(0, 60)):
                await asyncio.sleep(0)
            is_alive = process.returncode is None
            if is_alive:
                os.kill(process.pid, signal.SIGKILL)
            _, err = await process.communicate()
        assert is_alive or process.returncode == 0, err.decode()
        return is_alive

    async def journal(self) -> tuple[str, set[str], bool]:
        """The execution, its units with those that they are a part of, and whether it has ended."""
        async with Service(self.environ) as service:
            found = await service.executions.listing(ExecutionFilter(is_top=True))
            if not found:
                return "", set(), False
            units: set[str] = set()
            todo = [(found[0], "")]
            while todo:
                execution, path = todo.pop()
                for one in await service.executions.outcomes(execution.id):
                    item = f"[{one.item}]" if one.item is not None else ""
                    units.add(f"{path}{one.step}#{one.iteration}{item}")
                todo += [
                    (child, f"{path}{child.parent_key}/") for child in await service.executions.children(execution.id)
                ]
            return found[0].id, units, found[0].state == "ended"


@pytest.mark.fault
async def test_killed_inside_groups_it_goes_on_and_does_nothing_twice(tmp_path: Path, fault_count: int) -> None:
    kills = 0
    for trial in range(fault_count):
        bench = Bench(tmp_path / str(trial))
        chance = random.Random(f"groups {trial}")
        words: tuple[str, ...] = ("run", "groups.flow.md")
        done: dict[str, int] = {}
        for _ in range(2):
            kills += await bench.killed(words, chance)
            execution_id, units, has_ended = await bench.journal()
            marks = bench.marks()
            assert {mark: marks[mark] for mark in done} == done, "what was in the journal ran again"
            done = {mark: marks[mark] for mark, unit in MARKS.items() if unit in units}
            words = ("resume", execution_id[:12]) if execution_id else words
            if has_ended:
                break
        result = await _ended(bench, words) if not has_ended else None
        marks = bench.marks()
        assert {mark: marks[mark] for mark in done} == done, "what was in the journal ran again"
        assert set(marks) == set(MARKS)
        _, units, has_ended = await bench.journal()
        assert has_ended
        assert set(MARKS.values()) <= units
        if result is not None:
            assert (result["outcome"], result["outputs"]) == ("succeeded", {"said": "after-after-first"})
    assert kills, "no kill hit a running workflow"


async def _ended(bench: Bench, words: tuple[str, ...]) -> dict[str, Any]:
    process = await bench.start(*words)
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = json.loads(out)
    return result
