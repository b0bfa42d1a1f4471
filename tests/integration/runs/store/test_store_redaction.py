"""Secrets are in no byte of the store: not in a row, not in the log, and not where a body is packed."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core.events import (
    AgentExited,
    MessageCompleted,
    MessageDelta,
    Notice,
    Recorded,
    ToolCompleted,
    ToolRequested,
)
from leadrope.core.request import McpServer, RunRequest
from leadrope.core.result import RunError, RunResult
from leadrope.core.secrets.redaction import Redactor, Secret
from leadrope.core.tools import ToolCall
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import Approval, NewRun, Progress, ended_event

KNOWN = 'the "known"\\ credential of this run'
SHAPED = {
    "anthropic": "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789",
    "openai": "sk-proj-abcdefghij0123456789klmnop",
    "github": "ghp_abcdefghijklmnopqrstuvwxyz012345",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "google": "AIzaSyA-abcdefghijklmnopqrstuvwxyz012345",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "pem": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ",
    "bearer": "mF_9.B5f-4.1JqM",
    "header": "0123456789abcdef-key",
    "mcp": "tavily-plain-key-of-a-server",
    "word": "opensesame-of-a-header",
}
SEARCHED = {
    "known": (KNOWN, json.dumps(KNOWN)[1:-1]),
    **{name: (value,) for name, value in SHAPED.items()},
}
LINES = "\n".join(  # each at the beginning of a line, as a file of keys has them: in JSON the line break is a letter
    [
        KNOWN,
        SHAPED["anthropic"],
        SHAPED["openai"],
        SHAPED["github"],
        SHAPED["aws"],
        SHAPED["google"],
        SHAPED["token"],
        f"-----BEGIN RSA PRIVATE KEY-----\n{SHAPED['pem']}\n{SHAPED['pem']}\n-----END RSA PRIVATE KEY-----",
        f"Authorization: Bearer {SHAPED['bearer']}",
        f"x-api-key: {SHAPED['header']}",
        "the end",
    ]
)


def spread(text: str = LINES) -> Iterator[str]:
    """The same, as text, within JSON, behind tabs, and within JSON that is within JSON."""
    yield text
    yield json.dumps({"output": text})
    yield text.replace("\n", "\n\t")
    yield json.dumps(json.dumps([text]))


def scan(path: Path) -> list[str]:
    """Which secrets are anywhere: in the files as they are, and in every body as it is read."""
    parts = [file.read_bytes() for file in path.parent.iterdir()]
    assert {file.name for file in path.parent.iterdir()} >= {"leadrope.db", "leadrope.db-wal"}
    with contextlib.closing(sqlite3.connect(path)) as db:
        for (table,) in db.execute("select name from sqlite_schema where type = 'table'").fetchall():
            for row in db.execute(f"select * from {table}").fetchall():
                for value in row:
                    parts.append(value if isinstance(value, bytes) else str(value).encode())
        parts += [zlib.decompress(body) for (body,) in db.execute("select body from events where packed = 1")]
        assert db.execute("select count(*) from events where packed = 1").fetchone()[0] > 0
    whole = b"\n".join(parts)
    return [name for name, spellings in SEARCHED.items() if any(text.encode() in whole for text in spellings)]


async def test_planted_secrets_are_in_no_byte(store: Sqlite, path: Path) -> None:
    request = RunRequest(
        prompt=LINES,
        credential=Secret(KNOWN),
        labels={"key": SHAPED["openai"], SHAPED["github"]: "as a name"},
        append_system_prompt=f"Use\n{SHAPED['aws']}",
        connections={
            "search": McpServer(command="search", env={"KEY": SHAPED["mcp"]}),
            "web": McpServer(url="http://127.0.0.1:1", headers={"Authorization": f"Magic {SHAPED['word']}"}),
        },
        variables={"AWS": SHAPED["aws"]},
    )
    run = await store.add_run(
        NewRun(
            id="run",
            request=request,
            title=f"with {SHAPED['mcp']} and\n{SHAPED['openai']}",
            note=f"because {SHAPED['word']}",
            lane=SHAPED["openai"],
            policy={"note": f"x\n{SHAPED['google']}"},
            place={"setup": f"export KEY=\n{SHAPED['aws']}"},
            state="running",
            owner="someone",
        )
    )
    redactor = Redactor([KNOWN, SHAPED["mcp"], SHAPED["word"]])
    told: list[Any] = []
    for text in spread():
        told += [
            MessageDelta(text=text),
            MessageCompleted(text=text),
            ToolRequested(call=ToolCall(id="c", name="Bash", input={"command": text, "env": {"x-api-key": text}})),
            ToolCompleted(call_id="c", text=text),
            ToolCompleted(call_id="c", text=text + "long " * 2000),
            Notice(level="error", code="x", message=f"{text}{SHAPED['mcp']}{SHAPED['word']}"),
            AgentExited(exit_code=1, stderr_tail=tuple(text.split("\n"))),
        ]
    records = [Recorded("run", 1, seq, 1.0, "agent", event) for seq, event in enumerate(told, 1)]
    action = f"Bash: {LINES}"
    progress = Progress(
        state="running", attempt=1, cost_usd=0, tokens=0, model="m", session_id=None, last_action=action
    )
    await store.append(run, records, progress, redactor)
    asked = msgspec.json.encode(ToolRequested(call=ToolCall(id="c", name="Bash", input={"command": SHAPED["aws"]})))
    for number, text in enumerate(spread(LINES.replace(KNOWN, ""))):
        approval = Approval(
            id=f"a{number}",
            run_id="run",
            attempt=1,
            asked_id="c",
            kind="tool_call",
            state="pending",
            fingerprint="f",
            requested=1.0,
            asked=asked,
        )
        await store.add_approval(run, approval)
        await store.decide(f"a{number}", "approved", by="me", reason=text, answer=msgspec.json.encode({"why": text}))
        await store.add_control(run, "send", {"text": text})
        await store.hold_account("a", 1.0, text)
        await store.set_state(run, "waiting", text)
        await store.set_place(run, {"setup": text})
        await store.park(run, until=1.0, note=text)
        await store.requeue(await store.get(run.id), attempt=1, note=text)
        run = await store.get(run.id)
    error = RunError(kind="api_error", message=LINES, stderr_tail=tuple(LINES.split("\n")), hint=LINES)
    result = RunResult(run_id="run", outcome="failed", text=LINES, output={"x-api-key": KNOWN, "a": LINES}, error=error)
    ended = ended_event("run", 1, len(records) + 1, result)
    await store.end_run(run, result, redactor, last=ended, note=LINES.replace(KNOWN, ""))
    assert scan(path) == []
    # Cleaned, and whole: every event and every text is read as what it was.
    found = await store.read(run, 1, 1000)
    assert [type(item.event) for item in found] == [*map(type, told), type(ended.event)]
    first = found[0].event
    assert isinstance(first, MessageDelta)
    assert first.text.startswith("[redacted]\n[redacted]\n")
    assert first.text.endswith("\nx-api-key: [redacted]\nthe end")
    texts = await store.texts("run")
    assert texts.result is not None
    assert texts.result.error is not None
    assert texts.request.prompt.endswith("the end")
    assert texts.request.connections["search"].command == "search"
    assert list(texts.request.labels.values()) == ["[redacted]", "as a name"]


@pytest.mark.parametrize(
    "text",
    [
        'if head.startswith("-----BEGIN PRIVATE KEY-----"):',
        '"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED"',
        json.dumps({"pem": "-----BEGIN PRIVATE KEY-----"}),
        json.dumps(json.dumps({"pem": "-----BEGIN PRIVATE KEY-----\nMIIE"})),
        "a line\nanother",  # with a secret that reads like the end of the first line's break
    ],
)
async def test_a_cleaned_event_can_be_read_again(add: Any, text: str) -> None:
    """A quote beside what was removed belongs to the JSON around it. Taken away with it, the event was lost."""
    stored = await add()
    await stored.append(MessageDelta(text=text), MessageDelta(text="after"), redactor=Redactor(["nanother"]))
    first, second = (item.event for item in await stored.store.read(stored.run, 1, 10))
    assert isinstance(first, MessageDelta)
    assert first.text.count("[redacted]") == (0 if "another" in text else 1)
    assert second == MessageDelta(text="after")


async def test_the_value_of_a_variable_that_is_only_named_is_not_known(store: Sqlite) -> None:
    """`${NAME}` holds no secret, and stays what it is: the run that is started from the store fills it in."""
    server = McpServer(command="search", env={"KEY": "${TAVILY_API_KEY}"}, headers={})
    request = RunRequest(prompt="${TAVILY_API_KEY} is a name", connections={"search": server})
    await store.add_run(NewRun(id="run", request=request))
    assert (await store.texts("run")).request == request
