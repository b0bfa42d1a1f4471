"""Secrets of workflows are in no byte of the store, and what lost one says so."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import database_file
from leadrope import errors
from leadrope.core.secrets.redaction import MASK, Redactor
from leadrope.runs.executions.journal import Executions
from leadrope.runs.executions.values import NewExecution, Remark, UnitOutcome, UnitProblem
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runtime.gate.approvers import Answer

KNOWN = 'a "known"\\ pass phrase'
SHAPED = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"
BEARER = "mF_9.B5f-4.1JqM"
PLANTED = "\n".join(
    [
        f"begins {KNOWN}",
        SHAPED,
        f"-----BEGIN RSA PRIVATE KEY-----\n{PEM}\n-----END RSA PRIVATE KEY-----",
        f"Authorization: Bearer {BEARER}",
        json.dumps({"key": SHAPED, "pass": KNOWN}),
        "ends",
    ]
)
REDACTOR = Redactor([KNOWN])


def found_in(path: Path) -> list[str]:
    """Which of them are anywhere: in the files as they are, in every cell, and in every body as it is read."""
    parts = [file.read_bytes() for file in path.parent.iterdir()]
    packed = 0
    with database_file.opened(path) as db:
        for (table,) in db.execute("select name from sqlite_schema where type = 'table'").fetchall():
            rows = db.execute(f"select * from {table}")
            names = [column[0] for column in rows.description]
            for row in rows.fetchall():
                parts += [value if isinstance(value, bytes) else str(value).encode() for value in row]
                cells = dict(zip(names, row, strict=True))
                if cells.get("packed"):
                    parts.append(zlib.decompress(cells["body"]))
                    packed += 1
    assert packed > 0
    whole = b"\n".join(parts)
    assert b"ends" in whole
    spellings = [KNOWN, json.dumps(KNOWN)[1:-1], json.dumps(json.dumps(KNOWN)[1:-1])[1:-1], SHAPED, PEM, BEARER]
    return [text for text in spellings if text.encode() in whole]


async def test_planted_secrets_are_in_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "home" / "leadrope.db"
    with Sqlite(path) as store:
        executions = Executions(store, lambda: "me")
        new = NewExecution(
            id="flow",
            text=f"# Title\n{PLANTED}\n" + "long " * 2000,
            name=SHAPED,
            title=PLANTED,
            inputs={"prompt": PLANTED, SHAPED: 1, "list": [{"deep": KNOWN}]},
            settings={"env": {"KEY": KNOWN}},
            labels={"key": KNOWN, SHAPED: "name"},
        )
        execution = await executions.add(new, REDACTOR)
        error = UnitProblem(kind="exit", message=PLANTED, hint=PLANTED)
        units = [
            UnitOutcome(step="out", status="succeeded", outputs={"stdout": PLANTED, "n": [KNOWN, {KNOWN: 1}]}),
            UnitOutcome(step="long", status="succeeded", outputs={"stdout": PLANTED + "long " * 2000}),
            UnitOutcome(step="huge", status="succeeded", outputs={"stdout": PLANTED + "long " * 80_000}),
            UnitOutcome(step="error", status="failed", error=error),
            UnitOutcome(step="warns", status="degraded", warnings=(Remark(kind="soft", message=PLANTED),)),
            UnitOutcome(step="branch", status="succeeded", branch=KNOWN),
        ]
        for unit in units:
            assert await executions.settle(execution, unit, REDACTOR) is True
        assert (
            await executions.settle(
                execution, UnitOutcome(step="clean", status="succeeded", outputs={"v": "ends"}), REDACTOR
            )
            is False
        )
        asked = {"title": PLANTED, "values": {"command": f"curl -H 'x-api-key: {SHAPED}'"}, "choices": [KNOWN]}
        approval = await executions.ask(
            execution, units[0], "step", asked, outermost_id=execution.id, fingerprint="print", redactor=REDACTOR
        )
        answer = REDACTOR.clean(msgspec.json.encode(Answer(approved=False, reason=PLANTED, choice=KNOWN)).decode())
        await store.decide(approval.id, "denied", by=SHAPED, reason=REDACTOR.clean(PLANTED), answer=answer.encode())
        await executions.change_text(execution, f"# Changed\n{PLANTED}", REDACTOR, title=PLANTED)
        assert not await executions.cache_put("key", "http", {"body": PLANTED}, REDACTOR)
        rows: list[dict[str, Any]] = [{"note": PLANTED, KNOWN: 1}]
        assert (await executions.put_dataset("d", rows, REDACTOR, columns=["note", KNOWN])).is_redacted
        assert (await executions.put_dataset("d", [{"note": "ends"}], REDACTOR, is_added=True)).is_redacted
        with pytest.raises(errors.BadValue) as caught:
            await executions.put_dataset(f"of {KNOWN}", [], REDACTOR)
        assert KNOWN not in str(caught.value)
        await executions.end(execution, "failed", {"outputs": PLANTED, "error": error}, REDACTOR)
        assert found_in(path) == []

        assert (await executions.texts("flow")).redacted == {"text", "inputs", "settings", "result"}
        kept = {one.step: one for one in await executions.outcomes("flow")}
        assert [one.step for one in kept.values() if not one.is_redacted] == ["clean"]
        stdout = kept["out"].outputs["stdout"]
        assert stdout.startswith(f"begins {MASK}\n{MASK}\n")
        assert stdout.endswith("\nends")
        assert (await executions.result("flow"))["outputs"].endswith("ends")
    assert found_in(path) == []
