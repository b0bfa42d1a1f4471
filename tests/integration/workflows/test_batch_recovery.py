"""Outcomes of small items are written together; after kill -9 a batch continues from what was written."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

import database_file
from leadrope.runs.executions.values import ExecutionFilter
from leadrope.runs.service import Service
from leadrope.workflows.engine.journal_chunks import MOST_UNWRITTEN

ITEMS = 400
AT_ONCE = 8
WORKFLOW = f"""# Many small items

## Steps

### each

Leaves a mark.

- type: shell
- batch:
    items: {list(range(ITEMS))}
    max_concurrent: {AT_ONCE}

```shell command
echo ${{item}} >> effects.log
```
"""


class Batch:
    def __init__(self, folder: Path) -> None:
        self.ws = folder / "ws"
        self.ws.mkdir()
        (self.ws / "many.flow.md").write_text(WORKFLOW)
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "leadrope"),
            "LANG": "C.UTF-8",
        }
        self.database = folder / "leadrope/leadrope.db"

    def marks(self) -> Counter[int]:
        effects = self.ws / "effects.log"
        return Counter(map(int, effects.read_text().split())) if effects.exists() else Counter()

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadrope.cli.main", "flow", *words, "-q", "-o", "json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ,
            cwd=self.ws,
        )

    async def killed(self, *words: str, after: int) -> None:
        """When that many marks are in the world."""
        process = await self.start(*words)
        async with asyncio.timeout(120):
            while process.returncode is None and self.marks().total() < after:  # noqa: ASYNC110  # a file tells no one
                await asyncio.sleep(0)
            assert process.returncode is None, "it ended before it was killed"
            os.kill(process.pid, signal.SIGKILL)
            await process.communicate()

    async def journal(self) -> tuple[str, set[int]]:
        """The execution, and the items that have an outcome."""
        async with Service(self.environ) as service:
            execution = (await service.executions.listing(ExecutionFilter(is_top=True)))[0]
            return execution.id, {
                one.item for one in await service.executions.outcomes(execution.id) if one.item is not None
            }


@pytest.mark.fault
async def test_a_killed_batch_of_small_items_continues_from_what_was_written(tmp_path: Path) -> None:
    batch = Batch(tmp_path)
    await batch.killed("run", "many.flow.md", after=ITEMS // 3)
    execution, settled = await batch.journal()
    marks = batch.marks()
    lost = set(marks) - settled
    assert settled, "nothing was written before the kill"
    assert len(lost) <= 2 * MOST_UNWRITTEN + AT_ONCE, "those that wait, those being written, and those that run"
    await batch.killed("resume", execution[:12], after=marks.total() + ITEMS // 3)
    _, more = await batch.journal()
    assert settled <= more
    before = {item: batch.marks()[item] for item in more}
    process = await batch.start("resume", execution[:12])
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert json.loads(out)["outcome"] == "succeeded"
    after = batch.marks()
    assert {item: after[item] for item in more} == before, "an item with an outcome ran again"
    assert all(after[item] == 1 for item in settled)
    assert set(after) == set(range(ITEMS))
    assert (await batch.journal())[1] == set(range(ITEMS))
    with database_file.opened(batch.database) as db:
        numbers = [row[0] for row in db.execute("select seq from execution_events order by seq")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
