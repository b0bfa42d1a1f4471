"""A run store in a scratch folder, and other processes at the same one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadrope.core.events import Event, MessageDelta, Recorded
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import NewRun, Progress, RunInfo

PROGRAM = Path(__file__).parents[3] / "data" / "store_process.py"


class Stored:
    """One run, and the events that are appended to it one after the other."""

    def __init__(self, store: Sqlite, run: RunInfo) -> None:
        self.store = store
        self.run = run
        self.seq = 0

    def take(self, *events: Event) -> list[Recorded]:
        first = self.seq + 1
        self.seq += len(events)
        return [Recorded(self.run.id, 1, seq, 1.0, "agent", event) for seq, event in enumerate(events, first)]

    async def append(self, *events: Event, durable: bool = False, redactor: Redactor | None = None) -> None:
        await self.append_records(self.take(*events), durable=durable, redactor=redactor)

    async def append_records(
        self, records: list[Recorded], *, durable: bool = False, redactor: Redactor | None = None
    ) -> None:
        await self.store.append(self.run, records, PROGRESS, redactor or Redactor(), durable=durable)

    async def append_deltas(self, count: int, text: str = "words") -> None:
        await self.append(*(MessageDelta(text=f"{self.seq + 1 + number} {text}") for number in range(count)))

    async def end(self) -> None:
        await self.store.write(lambda db: db.execute("update runs set state = 'ended' where n = ?", (self.run.n,)))


PROGRESS = Progress(
    state="running", attempt=1, cost_usd=0.0, tokens=0, model="m", session_id=None, last_action="looks around"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "leadrope.db"


@pytest.fixture
def store(path: Path) -> Iterator[Sqlite]:
    with Sqlite(path) as store:
        yield store


Add = Callable[..., Coroutine[Any, Any, Stored]]


@pytest.fixture
def add(store: Sqlite) -> Add:
    async def add(run_id: str = "run", prompt: str = "go", **fields: Any) -> Stored:
        given: dict[str, Any] = {"state": "running", "owner": "someone", "request": RunRequest(prompt=prompt)}
        return Stored(store, await store.add_run(NewRun(id=run_id, **(given | fields))))

    return add


class Child:
    """A process that does one thing at the store. `said` waits for its next line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def said(self) -> list[str]:
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            return (await self.process.stdout.readline()).decode().split()

    async def rest(self) -> list[list[str]]:
        """Everything that it still says, to its end."""
        async with asyncio.timeout(120):
            out, err = await self.process.communicate()
        assert self.process.returncode == 0, err.decode()
        return [line.split() for line in out.decode().splitlines()]

    async def all_lines(self) -> list[str]:
        return [" ".join(words) for words in await self.rest()]

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()


Start = Callable[..., Coroutine[Any, Any, Child]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    children: list[Child] = []

    async def start(what: str, *arguments: object, before: tuple[str, ...] = ()) -> Child:
        command = [*before, sys.executable, str(PROGRAM), what, *map(str, arguments)]
        pipe = asyncio.subprocess.PIPE
        child = Child(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe))
        children.append(child)
        return child

    yield start
    for child in children:
        await child.kill()
