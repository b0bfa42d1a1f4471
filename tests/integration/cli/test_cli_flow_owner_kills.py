"""kill -9 of the owners of detached executions at random points, with approvals in between; recovered by commands.

Every command of the workflow writes a line when it starts: its unit, and a token that is also its output. So the file
of effects says which start an outcome belongs to, and the journal as a kill left it says what must not happen again.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import random
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stored
from leadrope.rehearsal import ModelServer
from leadrope.runs.stores import Stores

KILLS = 5
"""Of the owners of one execution."""
ITEMS = ("a", "b", "c", "d", "e", "f")
ASKED = ("ask", "mark", "push", "sign")
AIMS = ("push", "each-d", "mark", "again-2")
"""One kill of each trial comes while this runs: what an answer has let run and has no outcome yet, or an item or a turn
of which others have theirs."""


def effect(unit: str) -> str:
    return f"t=$EPOCHREALTIME; echo {unit} $t >> effects.log; echo $t"


OUTER = f"""# Release

## Settings

- policy: {{require_approval: ['Bash(touch *)']}}

## Steps

### first

- type: shell
- command: {effect("first")}

### ask

- type: approval
- message: Release it?

### each

- type: shell
- command: {effect("each-${item}")}; sleep 0.2
- batch: {{items: [{", ".join(ITEMS)}], max_concurrent: 2}}

### again

- type: shell
- command: {effect("again-${__iteration__}")}; sleep 0.2
- loop: {{max_iterations: 3}}

### push

- type: shell
- command: {effect("push")}; sleep 0.3
- approval: required

### mark

- type: shell
- command: touch marker; {effect("mark")}; sleep 0.3

### rounds

- type: group
- loop: {{max_iterations: 2}}

#### turn

- type: shell
- command: {effect("turn")}

### inside

- type: workflow
- workflow: ./inner.flow.md
{{agent}}
### last

- type: shell
- command: {effect("last")}
"""
INNER = f"""# Inside

## Steps

### say

- type: shell
- command: {effect("say")}

### sign

- type: approval
- message: Sign it?

### seal

- type: shell
- command: {effect("seal")}
"""
AGENT = """
### fix

- type: agent
- prompt: fix it
- mode: full
"""
REPEATED = ("execution.queued", "execution.resumed", "execution.waiting", "cost.updated")
"""What a log tells more than once of one execution."""
DONE = "the work of the agent is done"
WORK = "echo fix $EPOCHREALTIME >> effects.log; echo the work of the agent is d''one"
MODEL: list[Any] = [
    {"text": "All is fixed.", "expect": {"contains": DONE}, "optional": True},
    {"tool": {"name": "Bash", "input": {"command": WORK, "description": "fix it"}}, "expect": {"lacks": DONE}}
    | {"optional": True},
] * 20
"""It answers by what it is shown: a request that a kill cut off is sent again."""
ORDER = (
    *(("first",), tuple(f"each-{item}" for item in ITEMS), ("again-0",), ("again-1",), ("again-2",), ("push",)),
    *(("mark",), ("turn",), ("say",), ("seal",)),
)
"""Units without an order among themselves stand together; each of the others rests on all before it."""

Unit = tuple[str, str, int, int | None]
"""Execution ("" for the outermost), step, turn, item."""


class Left(NamedTuple):
    """What a kill has left behind: the journal, how often each effect had happened, what the model was asked."""

    outcomes: dict[Unit, Any]
    effects: Counter[str]
    requests: int


class Trial:
    """One detached execution, looked at and answered by commands."""

    def __init__(self, desk: Any, background: Any, number: int, model: ModelServer | None) -> None:
        self._desk = desk
        self._background = background
        self._chance = random.Random(f"owner {number}")
        self._effects = desk.project / "effects.log"
        self._home = Path(desk.environ["LEADROPE_HOME"])
        self._model = model
        self._seen: list[Any] = []
        self._aim = AIMS[number % len(AIMS)]
        self.left: list[Left] = []
        self.id = ""

    async def begin(self) -> None:
        words = ["--base-url", self._model.url] if self._model else []
        text = OUTER.replace("{agent}", AGENT if self._model else "")
        (self._desk.project / "release.flow.md").write_text(text)
        (self._desk.project / "inner.flow.md").write_text(INNER)
        self._effects.unlink(missing_ok=True)
        started = await self._desk.leadrope("flow", "run", "release.flow.md", "--detach", *words)
        assert started.code == 0, started.err
        self.id = started.out.strip()

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def starts(self) -> list[tuple[str, str]]:
        """Unit and token of each start, in their order."""
        lines = self._effects.read_text().splitlines() if self._effects.exists() else []
        return [(line.split()[0], line.split()[1]) for line in lines]

    def done(self) -> Counter[str]:
        return Counter(unit for unit, _ in self.starts())

    def requests(self) -> list[Any]:
        """Those of the agent's conversation."""
        return [request for request in self._model.requests if request.place] if self._model else []

    def journal(self) -> dict[Unit, Any]:
        """Every outcome that is in the file, also of executions inside. Read only: it recovers nothing."""
        return stored.read(self._home, self._outcomes)

    async def _outcomes(self, found_stores: Stores) -> dict[Unit, Any]:
        executions = found_stores.executions
        found: dict[Unit, Any] = {}
        todo = [await executions.get(self.id)]
        while todo:
            execution = todo.pop()
            todo += await executions.children(execution.id)
            for outcome in await executions.outcomes(execution.id):
                unit = (
                    "" if execution.id == self.id else execution.id,
                    outcome.step,
                    outcome.iteration,
                    outcome.item,
                )
                assert unit not in found, f"{unit} has two outcomes"
                found[unit] = outcome
        return found

    async def lines(self, *words: str) -> list[Any]:
        said = await self._desk.leadrope(*words)
        assert said.code == 0, said.err
        return [json.loads(line) for line in said.out.splitlines()]

    async def approvals(self, *more: str) -> list[dict[str, Any]]:
        found = await self.lines("approvals", "list", "-o", "json", *more)
        return [row for row in found if row["id"].startswith(self.id[:12])]

    # -- what is done to it -------------------------------------------------------------------------------------------

    async def look(self) -> str:
        """The outcome, if there is one. Looking starts the next owner where there is none."""
        history = await self.lines("flow", "history", "-o", "json")
        row = next(one["execution"] for one in history if one["execution"]["id"] == self.id)
        assert row["state"] != "interrupted", row
        if row["state"] == "waiting":  # nobody answers meanwhile
            assert await self.approvals(), "all is answered, and nothing continues it"
        await self.check_events()
        return str(row.get("outcome") or "")

    async def answer_some(self) -> None:
        for row in await self.approvals():
            if self._chance.random() < 0.8:
                said = await self._desk.leadrope("approvals", "approve", row["id"])
                assert said.code == 0, said.err

    async def kill(self) -> bool:
        """The owner that is at work, when a number of effects is there and a little later; False: nobody was.

        One kill of each trial is aimed.
        """
        marks = self.done().total() + self._chance.choice((0, 0, 1, 1, 2, 4, 8))
        looks = self._chance.choice((0, 1, 3, 10, 60))
        is_tree = self._chance.random() < 0.6
        pid = await self._owner_at_work()
        is_open = self.awaits_its_kill
        is_last = len(self.left) >= KILLS - 1
        while pid in self._background.owners():
            if (is_open and not self.awaits_its_kill) or (not is_last and self.done().total() >= marks):
                break
            await asyncio.sleep(0.005)
        if is_open and not self.awaits_its_kill:
            looks = 0
        elif is_last and is_open:
            return False
        while looks and pid in self._background.owners():
            looks -= 1
            await asyncio.sleep(0.01 * self._chance.random())
        if pid not in self._background.owners():
            return False
        await self._background.kill(pid, with_tree=is_tree)
        self.left.append(Left(self.journal(), self.done(), len(self.requests())))
        return True

    @property
    def awaits_its_kill(self) -> bool:
        return not self.done()[self._aim]

    async def _owner_at_work(self) -> int:
        """One that ends before it has taken up anything is started again only after a while: not what is tried here."""
        while owners := self._background.owners():
            if not (self._home / "background/starts.json").exists():
                return int(owners[0])
            await asyncio.sleep(0.005)
        return 0

    # -- what must hold -----------------------------------------------------------------------------------------------

    async def check_events(self) -> list[Any]:
        """Numbers have no gaps, what was shown stays, epochs only rise, and each event follows what it rests on."""
        records = await self.lines("flow", "logs", self.id[:12], "-o", "stream-json")
        assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
        assert records[: len(self._seen)] == self._seen, "what was shown once has changed"
        assert [record["epoch"] for record in records] == sorted(record["epoch"] for record in records)
        self._seen = records
        told = Counter[tuple[str, ...]]()
        is_queued = False
        for event in (record["event"] for record in records):
            kind, execution, step = event["type"], event.get("execution", ""), event.get("step", "")
            assert not told["step.ended", execution, step], f"the step has ended already: {event}"
            assert not told["execution.ended", execution], f"the execution has ended already: {event}"
            if kind in ("execution.started", "execution.resumed") and not execution:
                assert is_queued, f"it was not queued: {event}"
                is_queued = False
            is_queued = is_queued or kind == "execution.queued"
            if step:
                assert told["execution.started", execution], f"its execution has not started: {event}"
            match kind:
                case "step.progress" | "step.asked" | "unit.ended" | "step.ended":
                    assert told["step.started", execution, step], f"the step has not started: {event}"
                case "step.answered":
                    assert told["step.asked", event["approval_id"]], f"nobody was asked: {event}"
                    assert event["approved"], event
            if kind == "step.ended":
                assert event["status"] == "succeeded", event
            told[kind, *([execution, step] if step else [execution])] += 1
            if kind in ("step.asked", "step.answered"):
                told[kind, event["approval_id"]] += 1
        again = {key for key, count in told.items() if count > 1 and len(key) == 2 and key[0] not in REPEATED}
        assert not again, f"told more than once: {again}"
        return records

    async def check_end(self) -> None:
        outcomes = self.journal()
        self._check_outcomes(outcomes)
        self._check_order()
        self._check_model()
        await self._check_values(outcomes)
        asked = await self.approvals("--all")
        await self._check_log(outcomes, [row["id"] for row in asked])
        assert sorted((row["state"], row["step"]) for row in asked) == [("approved", step) for step in ASKED]
        runs = [
            run for run in await self.lines("runs", "list", "-o", "json", "-n", "0") if run["created"] > self._begun
        ]
        assert [run["outcome"] for run in runs] == (["succeeded"] if self._model else [])

    @property
    def _begun(self) -> float:
        return float(self._seen[0]["time"])

    def _check_outcomes(self, outcomes: dict[Unit, Any]) -> None:
        """What was in the journal at a kill is there at the end to the letter, and was not started again."""
        done = self.done()
        for left in self.left:
            for unit, outcome in left.outcomes.items():
                assert outcomes.get(unit) == outcome, f"the outcome of {unit} was lost or changed"
            settled = {name for unit in left.outcomes for name in names(unit)}
            again = {name for name in settled - {"turn"} if done[name] != left.effects[name]}
            assert not again, f"started again after their outcome: {again}"
            if ("", "fix", 0, None) in left.outcomes:
                assert len(self.requests()) == left.requests, "the model was asked after the outcome of its step"
        # Each turn of the group is an execution of its own; only a start that a kill cut off is repeated.
        assert 2 <= done["turn"] <= 2 + len(self.left)

    def _check_order(self) -> None:
        """Once a unit has started, nothing that it rests on starts: its outcome was there before."""
        order = [*ORDER, *([("fix",)] if self._model else []), ("last",)]
        level = {name: number for number, names_ in enumerate(order) for name in names_}
        assert set(self.done()) == set(level)
        assert max(self.done().values()) <= len(self.left) + 2, self.done()
        levels = [level[unit] for unit, _ in self.starts()]
        assert levels == sorted(levels), f"a step ran again after one that rests on it: {self.starts()}"

    def _check_model(self) -> None:
        """A conversation that was answered once is continued, not begun again."""
        answered = False
        for request in self.requests():
            roles = {message["role"] for message in request.body["messages"]}
            assert not (answered and "assistant" not in roles), "the agent began again from scratch"
            answered = answered or "assistant" in roles
        if self._model:
            assert 2 <= len(self.requests()) <= 2 + 2 * len(self.left)

    async def _check_values(self, outcomes: dict[Unit, Any]) -> None:
        """Each outcome is that of the last start of its unit, in the journal and in what a person is shown."""
        tokens = dict(self.starts())
        assert {unit[1:] for unit in outcomes if not unit[0]} >= {
            *(("each", 0, number) for number in range(len(ITEMS))),
            *(("again", number, None) for number in range(3)),
            *((step, 0, None) for step in ("first", "ask", "push", "mark", "inside", "last")),
        }
        for unit, outcome in outcomes.items():
            assert outcome.status == "succeeded", outcome
            for name in names(unit):
                if name not in ("turn", "fix"):
                    assert outcome.outputs["stdout"] == tokens[name], f"{unit} was done again"
        for item in self._chance.sample(range(len(ITEMS)), 2):
            (shown,) = await self.lines("flow", "values", self.id[:12], "each", "--item", str(item))
            assert shown["outputs"]["stdout"] == tokens[f"each-{ITEMS[item]}"]

    async def _check_log(self, outcomes: dict[Unit, Any], asked: Collection[str]) -> None:
        """The log tells the end of each step of the journal once, and of no other; also of executions and questions."""
        events = [record["event"] for record in await self.check_events()]
        ended = Counter((one.get("execution", ""), one["step"]) for one in events if one["type"] == "step.ended")
        assert ended == Counter({(execution, step) for execution, step, _, _ in outcomes})
        for kind in ("execution.started", "execution.ended"):
            told = Counter(one.get("execution", "") for one in events if one["type"] == kind)
            assert told == Counter({execution for execution, _, _, _ in outcomes}), kind
        for kind in ("step.asked", "step.answered"):
            assert Counter(one["approval_id"] for one in events if one["type"] == kind) == Counter(asked), kind
        assert {one["by"] for one in events if one["type"] == "step.answered"} == {f"user:{getpass.getuser()}"}
        assert (events[-1]["type"], events[-1]["outcome"]) == ("execution.ended", "succeeded")


def names(unit: Unit) -> list[str]:
    """What the commands of a unit write; nothing for steps that have none, and for what a step comes to as a whole."""
    _, step, iteration, item = unit
    if step == "each":
        return [] if item is None else [f"each-{ITEMS[item]}"]
    if step == "again":
        return [] if iteration < 0 else [f"again-{iteration}"]
    return [step] if step not in ("ask", "sign", "inside", "rounds") and iteration >= 0 else []


@pytest.mark.fault
@pytest.mark.timeout(3600)
async def test_killed_owners_of_detached_executions_leave_each_unit_one_outcome(
    desk: Any, background: Any, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    count = 100 if is_soak else 10
    record_property("count", count)
    kills, number = 0, 0
    while kills < count:
        number += 1
        assert number <= count, f"only {kills} kills hit an owner"
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(ModelServer(MODEL)) if number % 2 else None
            trial = Trial(desk, background, number, model)
            await trial.begin()
            outcome = ""
            while not outcome:
                answers = asyncio.ensure_future(trial.answer_some())
                if len(trial.left) < KILLS - 1 or trial.awaits_its_kill:
                    await trial.kill()
                await answers
                outcome = await trial.look()
            kills += len(trial.left)
            assert outcome == "succeeded"
            await trial.check_end()
