"""kill -9 of the process that owns runs, at any moment: what is stored is true, nothing is left, work goes on once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import database_file
from leadrope import Answer, events
from leadrope.core.fold import fold
from leadrope.process import reaper
from leadrope.runs import leases, recover
from leadrope.runs.records.values import LIVE, Filter
from leadrope.runs.service import Service

CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]

OWNER = """
import asyncio, json, sys
from leadrope import RunRequest
from leadrope.runs.service import Service
import msgspec, os

async def main() -> None:
    async with Service(dict(os.environ), kind="background", works=True) as service:
        for text in json.loads(sys.argv[1]):
            run = await service.enqueue(msgspec.convert(text, RunRequest))
            print(run.id, flush=True)
        with service.store.notifier.listen() as heard:
            while await service.store.states():
                print("ack", json.dumps({r.id: r.last_seq for r in await service.listing()}), flush=True)
                await heard.wait(0.1)
        print("done", flush=True)

asyncio.run(main())
"""


def owner(yard: Any, requests: list[Any], script: str = OWNER) -> subprocess.Popen[str]:
    given = [{k: v for k, v in msgspec.to_builtins(request).items() if v is not None} for request in requests]
    return subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(given)],
        env=yard.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def acknowledged(lines: list[str]) -> dict[str, int]:
    """What the killed process had already shown to somebody."""
    found: dict[str, int] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "ack":
            found |= json.loads(rest)
    return found


async def finish(service: Service, ids: list[str]) -> None:
    with service.store.notifier.listen() as heard:
        while any([(await service.get(run_id)).state != "ended" for run_id in ids]):  # awaited one by one
            for waiting in await service.approvals():
                await service.answer(waiting.id, Answer(approved=False, by="test", reason="no"))
            await heard.wait(2)


@pytest.mark.fault
@pytest.mark.timeout(1200)
async def test_kill_9_at_any_moment_loses_nothing_and_runs_nothing_twice(yard: Any, fault_count: int) -> None:
    """Four points for each count: 20 in the suite, 200 in the soak."""
    chance = random.Random(20261116)  # the points must be the same each time
    plain = yard.agent("plain", [*({"text": f"line {n}"} for n in range(30)), *CLOSE])
    held = {"call": {"tool": "Bash", "id": "t1", "input": {"command": "touch it"}, "touch": str(yard.marker)}}
    asks = yard.agent("asks", [{"text": "may I?"}, held, {"text": "well"}, *CLOSE])
    for _ in range(4 * fault_count):
        requests = [yard.request(plain), yard.request(plain), yard.request(asks)]
        process = owner(yard, requests)
        assert process.stdout is not None
        assert process.stderr is not None
        ids = [process.stdout.readline().strip() for _ in range(chance.randint(1, 3))]
        lines: list[str] = []
        for _ in range(chance.randint(0, 25)):
            line = process.stdout.readline()
            lines.append(line)
            if not line or line.startswith("done") or '"ended"' in line:
                break
            if chance.random() < 0.05:
                await asyncio.sleep(0.05 * chance.random())  # between two commits, not only after one
        os.kill(process.pid, signal.SIGKILL)
        rest, told = process.communicate()
        lines += rest.splitlines(keepends=True)
        ids += [line.strip() for line in lines if len(line) == 33]
        assert "Traceback" not in told, told
        await check(yard, acknowledged([line for line in lines if line.endswith("\n")]))
        assert not yard.marker.exists(), "nobody has said yes"


async def check(yard: Any, acked: dict[str, int]) -> None:
    async with yard.service(kind="next", works=True) as service:
        alive = {service.lease.owner.id}
        for row in await service.listing(Filter(limit=500)):
            is_suspended = row.state == "waiting" and row.owner is None and bool(await service.approvals(run_id=row.id))
            is_owned = row.state not in LIVE or row.owner in alive
            assert is_owned or is_suspended, "a run says running without a living owner"
            records = await recover.all_events(service.store, row)
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            assert len(records) >= acked.get(row.id, 0), "an event that was shown is gone"
        ids = [row.id for row in await service.listing(Filter(limit=500))]
        await finish(service, ids)
        for run_id in ids:
            row = await service.get(run_id)
            records = await recover.all_events(service.store, row)
            result = (await service.texts(run_id)).result
            assert row.outcome == ("denied" if result is not None and result.denials else "succeeded")
            assert isinstance(records[-1].event, events.RunEnded)
            assert fold(records) == result
            assert reaper.tagged(run_id) == []
        for run_id in ids:
            await service.delete([run_id])
    database = yard.home / "leadrope.db"
    database_file.check_sound(database)


async def test_an_answer_that_came_after_the_crash_is_used_once_for_the_same_call(yard: Any) -> None:
    held = {"call": {"tool": "Bash", "id": "t1", "input": {"command": "touch it"}, "touch": str(yard.marker)}}
    again = {"call": {"tool": "Bash", "id": "t2", "input": {"command": "touch it"}}}
    agent = yard.agent("asks", [{"text": "may I?"}, held, again, {"text": "well"}, *CLOSE])
    process = owner(yard, [yard.request(agent)])
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    async with yard.service(kind="watch") as watch:
        with watch.store.notifier.listen() as heard:
            while not (waiting := await watch.approvals()):
                await heard.wait(5)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        first = waiting[0].id
        await watch.answer(first, Answer(approved=True, by="ann"))
        assert not yard.marker.exists()
    async with yard.service(kind="next", works=True) as service:
        assert (await service.get(run_id)).attempt == 2
        with service.store.notifier.listen() as heard:
            while not (waiting := await service.approvals()):
                await heard.wait(5)
        assert yard.marker.exists(), "the answer was used for the first identical call"
        assert waiting[0].id != first, "and the second one is asked for again"
        await service.answer(waiting[0].id, Answer(approved=False, by="ann"))
        await finish(service, [run_id])
        result = (await service.texts(run_id)).result
        assert result is not None
        assert (result.outcome, result.attempts) == ("succeeded", 2)


async def test_a_terminals_run_is_ended_and_not_started_again_behind_its_persons_back(yard: Any) -> None:
    agent = yard.agent("a", [{"text": "x"}, {"hang": True}])
    script = OWNER.replace('kind="background", works=True', 'kind="terminal"').replace(
        "service.enqueue(msgspec.convert(text, RunRequest))", "service.start(msgspec.convert(text, RunRequest))"
    )
    process = owner(yard, [yard.request(agent)], script)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    async with yard.service(kind="watch") as watch:
        async for item in watch.follow(run_id):
            if isinstance(item.event, events.MessageCompleted):
                break
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        with watch.store.notifier.listen() as heard:
            while (await watch.get(run_id)).state != "ended":
                await heard.wait(5)
        row = await watch.get(run_id)
        assert (row.outcome, row.error_kind) == ("failed", "agent_died")
        result = (await watch.texts(run_id)).result
        assert result is not None
        assert result.error is not None
        assert "runs resume" in (result.error.hint or "")
        assert reaper.tagged(run_id) == []


async def test_a_detached_owner_that_is_told_to_end_gives_its_runs_back(yard: Any) -> None:
    agent = yard.agent("a", [{"text": "x"}, {"await_file": str(yard.folder / "go")}, *CLOSE])
    async with yard.service(kind="background", works=True) as service:
        run = await service.enqueue(yard.request(agent))
        async for item in service.follow(run.id):
            if isinstance(item.event, events.MessageCompleted):
                break
    (yard.folder / "go").touch()
    async with yard.service(kind="background", works=True) as service:
        await finish(service, [run.id])
        row = await service.get(run.id)
        assert (row.outcome, row.attempt) == ("succeeded", 2)


def test_a_lease_is_alive_as_long_as_its_process(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from leadrope.runs.leases import Lease; "
    code += "lease = Lease(Path(sys.argv[1]), 'x'); print(lease.owner.id, flush=True); time.sleep(1000)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    found = msgspec.structs.replace(leases.Lease(tmp_path, "mine").owner, id=name)
    assert leases.is_alive(tmp_path, found)
    assert leases.is_alive(tmp_path, found), "asking does not disturb"
    assert not leases.is_alive(tmp_path, msgspec.structs.replace(found, boot="another"))
    process.kill()
    process.communicate()
    assert not leases.is_alive(tmp_path, found)
