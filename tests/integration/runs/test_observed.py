"""What leaves a service beside its store: spans, webhooks, logs, pages of real runs, and no secret in any of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import database_file
from collector import Listener, listening
from leadrope import Answer, Secret, errors
from leadrope.core.request import McpServer
from leadrope.core.secrets.redaction import Redactor
from leadrope.rehearsal import write_executable
from leadrope.runs import recover
from leadrope.runs.observe import jsonlog
from leadrope.runs.observe.webhook import verify_webhook
from leadrope.runs.page import page
from leadrope.runs.service import Service
from leadrope.storage import database

CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]
SIGNED_WITH = "0123456789abcdef0123456789abcdef"
BASH: dict[str, Any] = {"call": {"tool": "Bash", "id": "t1", "input": {"command": "make it"}, "result": "made"}}


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def watched(yard: Any, listener: Listener, *, content: bool = False) -> Service:
    """A service whose user has asked for all of it."""
    config = yard.folder / ".config/leadrope"
    config.mkdir(parents=True, exist_ok=True)
    told = f'[telemetry]\nendpoint = "{listener.url}"\ncontent = {str(content).lower()}\n'
    (config / "config.toml").write_text(f'[notify]\nwebhook = "{listener.url}/hook"\n{told}')
    yard.home.mkdir(mode=0o700, exist_ok=True)
    (yard.home / ".env").write_text(f"LEADROPE_WEBHOOK_SECRET={SIGNED_WITH}\n")
    (yard.home / ".env").chmod(0o600)
    service: Service = yard.service()
    return service


async def approve(service: Service) -> None:
    with service.store.notifier.listen() as heard:
        while not (waiting := await service.approvals()):
            await heard.wait(5)
    await service.answer(waiting[0].id, Answer(approved=True, by="ann"))


async def test_the_spans_of_a_run_arrive_at_the_collector(yard: Any, listener: Listener) -> None:
    agent = yard.agent("a", [BASH, {"text": "done"}, *CLOSE])
    async with watched(yard, listener) as service:
        job = await service.start(yard.request(agent))
        await approve(service)
        assert (await job.result()).outcome == "succeeded"
    spans = {span.name: span for span in listener.spans()}
    assert set(spans) == {"invoke_agent", "execute_tool Bash"}
    assert spans["execute_tool Bash"].parent_span_id == spans["invoke_agent"].span_id
    found = {item.key: item.value.string_value for item in spans["invoke_agent"].attributes}
    assert (found["leadrope.run.id"], found["leadrope.outcome"]) == (job.id, "succeeded")
    assert listener.of("/v1/metrics")


async def test_a_signed_word_tells_that_a_run_waits(yard: Any, listener: Listener) -> None:
    agent = yard.agent("a", [BASH, {"text": "done"}, *CLOSE])
    async with watched(yard, listener) as service:
        job = await service.start(yard.request(agent, labels={"team": "blue"}))
        await approve(service)
        await job.result()
    ((_, headers, body),) = [item for item in listener.got if item[0] == "/hook"]
    stamp, signature = headers["x-leadrope-timestamp"], headers["x-leadrope-signature"]
    assert verify_webhook(SIGNED_WITH, stamp, body, signature, time.time())
    assert not verify_webhook(SIGNED_WITH, stamp, body + b" ", signature, time.time())
    word = json.loads(body)
    assert (word["type"], word["run_id"], word["tool"]) == ("approval.needed", job.id, "Bash")
    assert word["labels"] == {"team": "blue"}
    assert "make it" in word["body"]


async def test_nobody_is_called_to_a_run_that_has_said_no_already(yard: Any, listener: Listener) -> None:
    from leadrope.runtime.gate.approvers import DenyAll

    agent = yard.agent("a", [BASH, {"text": "done"}, *CLOSE])
    async with watched(yard, listener) as service:
        job = await service.start(yard.request(agent), approver=DenyAll("nobody is there"))
        await job.result()
    assert listener.of("/hook") == []
    assert listener.of("/v1/traces")


async def test_listeners_that_never_answer_do_not_hold_the_end(
    yard: Any, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    listener.is_silent = True
    agent = yard.agent("a", [BASH, {"text": "done"}, *CLOSE])
    service = watched(yard, listener)
    async with service:
        job = await service.start(yard.request(agent))
        await approve(service)
        assert (await job.result()).outcome == "succeeded"
        async with asyncio.timeout(10):  # what a graceful stop may take in all
            await service.close()
    assert "not sent in time" in caplog.text
    listener.done.set()


@pytest.mark.parametrize(
    ("table", "told"),
    [('[notify]\nwebhook = "http://127.0.0.1:1/"\n', "no secret to sign with"), ("[telemetry]\nx = 1\n", "telemetry")],
)
async def test_a_wrong_setting_is_what_keeps_a_run_from_starting(yard: Any, table: str, told: str) -> None:
    config = yard.folder / ".config/leadrope"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(table)

    async def start() -> None:
        async with yard.service() as service:
            job = await service.start(yard.request(yard.agent("a", CLOSE)))
            await job.result()

    with pytest.raises(errors.BadConfig, match=told):
        await start()
    (config / "config.toml").write_text("")
    async with yard.service() as service:
        assert await service.listing() == [], "wrong usage is not a run"


def test_a_service_that_nobody_watches_imports_nothing_for_it(yard: Any) -> None:
    script = """
import asyncio, os, sys
from leadrope import RunRequest
from leadrope.runs.service import Service

async def main(binary, cwd):
    async with Service(dict(os.environ)) as service:
        request = RunRequest(prompt="go", cwd=cwd, provider="scripted", binary=binary, sandbox="off")
        await (await service.start(request)).result()

asyncio.run(main(*sys.argv[1:]))
print([name for name in sys.modules if name.startswith("opentelemetry") or name.endswith((".notify", ".telemetry"))])
"""
    agent = yard.agent("a", [{"text": "done"}, *CLOSE])
    done = subprocess.run(
        [sys.executable, "-c", script, agent, str(yard.ws)],
        env=yard.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


# -- secrets ----------------------------------------------------------------------------------------------------------

PLANTED = {
    "credential": "plain-credential-of-the-run-0042",
    "key": "sk-ant-api03-plantedplantedplanted0123456789",
    "prompt": "ghp_plantedplantedplantedplanted0123",
    "output": "sk-proj-plantedplanted0123456789abcd",
    "error": "xoxb-planted-0123456789-abcdef",
    "variable": "hunter2-of-the-database",
    "marked": "postgres://app:opensesame@db/app",
    "referred": "plain-value-of-a-variable-of-the-user",
    "server": "tavily-plain-key-of-a-server",
    "webhook": SIGNED_WITH,
}


def rows(yard: Any) -> bytes:
    """Every value of every table, unpacked, and the files themselves."""
    found = b""
    with database_file.opened(database.path_in(yard.home)) as db:
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            for row in db.execute(f'select * from "{table}"'):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    with contextlib.suppress(zlib.error):
                        data += zlib.decompress(data) if isinstance(value, bytes) else b""
                    found += data + b"\n"
    for path in yard.home.glob("leadrope.db*"):
        found += path.read_bytes()
    return found


async def test_planted_secrets_leave_nowhere(yard: Any, listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    """A real process of the real provider's wire is told all of them and says all of them, then fails with them."""
    caplog.set_level(logging.DEBUG)
    everything = "\n".join(value for name, value in PLANTED.items() if name != "webhook")
    env = {"TAVILY": PLANTED["server"], "OTHER": "${USERS_OWN}"}
    servers = {"db": McpServer(command="true", env=env, required=False)}
    yard.environ["USERS_OWN"] = PLANTED["referred"]
    bash = {"tool": "Bash", "id": "t1", "input": {"command": f"echo {everything}"}, "result": everything}
    long = {"tool": "Read", "id": "t2", "input": {"file_path": "x"}, "result": everything + "\n" + "x" * 20_000}
    steps = [
        *({"initialize": True}, {"await_control": "mcp_status"}, {"await_user": True}, {"init": True}),
        {"text": f"I say {everything}"},
        {"call": bash},
        {"call": long},
        {"stderr": f"failed with {everything}\n"},
        {"text": everything},
        {"result": {"is_error": True, "subtype": "error_during_execution", "errors": [everything]}},
        {"await_eof": True},
    ]
    script = {"version": "2.1.325 (Claude Code)", "steps": steps}
    claude = str(write_executable(yard.folder / "claude", script))
    request = yard.request(
        claude,
        provider="claude-code",
        prompt=f"use {PLANTED['prompt']}, {PLANTED['referred']}, {PLANTED['marked']} and {PLANTED['key']}",
        credential=Secret(PLANTED["credential"]),
        credential_kind="api_key",
        billing="api_key",
        broker=False,
        variables={"DB_PASSWORD": PLANTED["variable"], "DSN": PLANTED["marked"], "STAGE": "dev"},
        secret_variables=("DSN",),
        connections=servers,
        labels={"note": PLANTED["key"]},
    )
    async with watched(yard, listener, content=True) as service:
        job = await service.start(request, title=f"title {PLANTED['variable']}")
        await approve(service)
        result = await job.result()
        assert result.outcome == "failed"
        row, texts = await service.get(job.id), await service.texts(job.id)
        records = await recover.all_events(service.store, row)
        exported = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        html = page.render(row, texts.request, records, texts.result).encode()
        kept = msgspec.json.encode([row, texts.request, texts.result, await service.approvals(state=None)])
    formatter = jsonlog.JsonFormatter(Redactor())
    places = {
        "the store": rows(yard),
        "what the store tells": kept,
        "the JSON export": exported,
        "the page": html,
        "the log": caplog.text.encode(),
        "the JSON log": "\n".join(map(formatter.format, caplog.records)).encode(),
        "the webhook": b"".join(listener.of("/hook")),
        "the spans": b"".join(listener.of("/v1/traces") + listener.of("/v1/metrics")),
    }
    assert all(places.values()), "nothing is searched in vain"
    assert b"[redacted]" in places["the spans"], "content was sent, and cleaned"
    found = [
        (name, place) for place, data in places.items() for name, value in PLANTED.items() if value.encode() in data
    ]
    assert not found
    # The same run again would need them, and says so.
    async with yard.service() as service:
        with pytest.raises(errors.RequestError, match="secrets are not stored"):
            await service.again(job.id)
