"""kill -9 at random points of a workflow: what is in its journal is done, once, and it goes on to the same end."""

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

import msgspec
import pytest

import database_file
from leadrope.runs.executions.values import ExecutionFilter
from leadrope.runs.service import Service
from leadrope.workflows.report import ExecutionResult

ITEMS = ["i0", "i1", "i2", "i3"]
TURNS = 3
EXPECTED: dict[tuple[str, int, int | None], str | None] = {
    **{(name, 0, None): name for name in ("start", "left", "right", "join", "deep", "yes", "mend", "last")},
    **{("each", 0, number): f"each {item}" for number, item in enumerate(ITEMS)},
    **{("again", number, None): f"again {number}" for number in range(TURNS)},
    **{("both", turn, number): f"both {turn} {item}" for turn in range(2) for number, item in enumerate(ITEMS[:2])},
    ("inside", 0, None): None,
    ("choose", 0, None): None,
    ("bad", 0, None): None,
    ("each", -1, None): None,
    ("again", -1, None): None,
    ("both", -1, None): None,
}
MARKS = sum(value is not None for value in EXPECTED.values())
KILLS = 2
"""Of one workflow, one after the other, before it may end."""


def _shell(name: str, words: str, *more: str) -> str:
    """A step that leaves a mark in the world, and gives back what only it can give."""
    says = f"echo {words} >> effects.log; echo {words}"
    head = (f"### {name}", "", "Does it.", "", "- type: shell", *more)
    return "\n".join((*head, "", "```shell command", says, "```", ""))


CHOOSE = (
    "### choose\n\nWhich way.\n\n- type: condition\n- value: ${join.stdout}\n- contains: join\n"
    "- next: {yes: yes, no: nay}\n"
)
INSIDE = "### inside\n\nAnother workflow.\n\n- type: workflow\n- workflow: deep\n"
DEEP = _shell("deep", "deep") + "\n## Outputs\n\n### said\n\n- source: ${deep.stdout}\n"
WORKFLOW = "\n".join(
    (
        "# More than twelve steps\n\n## Steps\n",
        _shell("start", "start"),
        _shell("left", "left", "- after: start"),
        _shell("right", "right", "- after: start"),
        _shell("join", "join", "- after: [left, right]"),
        _shell("each", "each ${item}", "- batch:", f"    items: {json.dumps(ITEMS)}", "    max_concurrent: 2"),
        _shell(
            "again",
            "again ${__iteration__}",
            "- loop:",
            f"    until: ${{__iteration__}} == {TURNS - 1}",
            "    max_iterations: 9",
        ),
        _shell(
            "both",
            "both ${__iteration__} ${item}",
            "- batch:",
            f"    items: {json.dumps(ITEMS[:2])}",
            "    max_concurrent: 2",
            "- loop:",
            "    until: ${__iteration__} == 1",
        ),
        INSIDE,
        CHOOSE,
        _shell("yes", "yes", "- next: bad"),
        _shell("nay", "nay", "- next: bad"),
        "### bad\n\nFails.\n\n- type: read-file\n- file_path: missing\n- on-error: mend\n- next: []\n",
        _shell("mend", "mend"),
        _shell("last", "last", "- after: mend"),
        "## Outputs\n\n### said\n\n- source: ${last.stdout}\n\n### each\n\n- source: ${each.results}\n",
        "### deep\n\n- source: ${inside.said}\n",
    )
)


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """An execution as it is in the file."""

    execution_id: str = ""
    outcomes: dict[Any, Any] = {}
    ended: dict[str, Any] | None = None
    """Its result, where it has one: then there is nothing to resume, also if its process was killed before its exit."""


class Bench:
    """One workflow in a home of its own, run by the real program."""

    def __init__(self, folder: Path) -> None:
        self.ws = folder / "ws"
        self.ws.mkdir(parents=True)
        (self.ws / "twelve.flow.md").write_text(WORKFLOW)
        (self.ws / "deep.flow.md").write_text(DEEP)
        self.effects = self.ws / "effects.log"
        self.home = folder / "leadrope"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        self.settled: dict[str, int] = {}
        """What stood in the journal at a kill, and how often it had been done by then."""

    def done(self) -> Counter[str]:
        return Counter(self.effects.read_text().splitlines()) if self.effects.exists() else Counter()

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
        begun = self.done().total()
        marks = begun + chance.randint(0, max(0, MARKS - begun - 1))
        process = await self.start(*words)
        async with asyncio.timeout(120):
            while process.returncode is None and self.done().total() < marks:  # noqa: ASYNC110  # a file tells no one
                await asyncio.sleep(0)
            for _ in range(chance.randint(0, 60)):
                await asyncio.sleep(0)
            is_alive = process.returncode is None
            if is_alive:
                os.kill(process.pid, signal.SIGKILL)
            _, err = await process.communicate()
        assert is_alive or process.returncode == 0, err.decode()
        return is_alive

    async def look(self) -> Journal:
        async with Service(self.environ) as service:
            found = await service.executions.listing(ExecutionFilter(is_top=True))
            if not found:
                return Journal()
            inside = await service.executions.children(found[0].id)
            assert len(inside) <= 1, "the workflow inside is one execution, however often it was cut off"
            outcomes = {
                one.key: one
                for execution in (found[0], *inside)
                for one in await service.executions.outcomes(execution.id)
            }
            ended = await service.executions.result(found[0].id) if found[0].state == "ended" else None
            return Journal(execution_id=found[0].id, outcomes=outcomes, ended=ended)

    def check_marks(self) -> None:
        for value, count in self.settled.items():
            assert self.done()[value] == count, f"{value} was in the journal, and ran again"


@pytest.mark.fault
async def test_killed_at_random_points_it_goes_on_and_does_nothing_twice(tmp_path: Path, fault_count: int) -> None:
    kills, trial = 0, 0
    while kills < KILLS * fault_count:
        trial += 1
        assert trial <= KILLS * fault_count, f"only {kills} kills hit a running workflow"
        bench = Bench(tmp_path / str(trial))
        chance = random.Random(f"flow {trial}")
        words: tuple[str, ...] = ("run", "twelve.flow.md")
        for _ in range(KILLS):
            kills += await bench.killed(words, chance)
            bench.check_marks()
            journal = await bench.look()
            if journal.ended is not None:
                break
            words = ("resume", journal.execution_id[:12]) if journal.execution_id else words
            marks = bench.done()
            bench.settled |= {
                value: marks[value] for key, value in EXPECTED.items() if value and key in journal.outcomes
            }
        await _ends_well(bench, words, journal.ended)


async def _ends_well(bench: Bench, words: tuple[str, ...], result: dict[str, Any] | None) -> None:
    """By its result: that which is in the file already, else that of the program with these words."""
    if result is None:
        process = await bench.start(*words)
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        result = json.loads(out)
    bench.check_marks()
    assert result["outcome"] == "degraded", "a handler took over"
    assert (result["outputs"]["said"], result["outputs"]["deep"]) == ("last", "deep")
    assert [one["stdout"] for one in result["outputs"]["each"]] == [f"each {item}" for item in ITEMS]
    journal = await bench.look()
    kept, printed = (msgspec.convert(one, ExecutionResult) for one in (journal.ended, result))
    assert kept == printed, "what is kept is what was told; only the printed one spells out defaults"
    assert set(journal.outcomes) == set(EXPECTED)
    for key, value in EXPECTED.items():
        if value is not None:
            assert journal.outcomes[key].outputs["stdout"] == value, key
    database_file.check_sound(bench.home / "leadrope.db")
