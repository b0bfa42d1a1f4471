"""Everything that a person is asked is one table: also in a file that an earlier version wrote."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.approvals import names as approval_names
from leadrope.runs.approvals.requests import CallRequest, StepRequest, request_of
from leadrope.runs.executions.journal import Executions
from leadrope.runs.executions.reading import StoredExecutions
from leadrope.runs.executions.values import NewExecution, UnitOutcome
from leadrope.runs.records import statements
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runtime.gate.approvers import Answer, read_answer
from leadrope.storage import database

CALL = {"type": "approval.requested", "call": {"id": "t", "name": "Bash", "input": {"command": "make"}}}
QUESTION = {"type": "question.requested", "question_id": "q", "kind": "question", "questions": [{"question": "Why?"}]}
PLAN = {"type": "question.requested", "question_id": "p", "kind": "plan", "plan": "1. go"}
ASKED = {"kind": "approval", "title": "ask", "detail": "Ship it?", "choices": ["now", "later"], "fingerprint": "x"}
COMMAND = {"kind": "command", "title": "push: Bash", "detail": "git push", "reason": "it pushes", "fingerprint": "y"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "leadrope.db"


def old_store(path: Path) -> None:
    """As version 4 wrote it: approvals of runs, and waits of workflows, one inside another."""
    with contextlib.closing(database.open_(path, statements.migrations()[:4])) as db:
        db.execute(
            "insert into runs (n, id, created, state, title, cwd, labels)"
            " values (1, 'run', 1, 'waiting', 'T', '/r', '{}')"
        )
        db.execute("insert into texts (run, request, policy) values (1, '{\"prompt\":\"x\"}', '{}')")
        runs: list[tuple[Any, ...]] = [
            ("run-1-approval-1", "approval", "approved", "ann", CALL, {"approved": True, "by": "ann"}),
            ("run-1-approval-2", "approval", "expired", "timeout", CALL, None),
            ("run-1-approval-3", "approval", "pending", "", CALL, None),
            (
                "run-1-question-4",
                "question",
                "approved",
                "person",
                QUESTION,
                {"answered": True, "answers": {"Why?": "x"}},
            ),
            ("run-1-question-5", "question", "withdrawn", "supervisor", PLAN, None),
        ]
        for id_, kind, state, by, asked, answer in runs:
            db.execute(
                "insert into approvals (id, run, attempt, asked_id, kind, state, fingerprint, requested, by, asked,"
                " answer) values (?, 1, 1, 'a', ?, ?, 'f', 1, ?, ?, ?)",
                (id_, kind, state, by, json.dumps(asked), json.dumps(answer) if answer else None),
            )
        for number, (execution, parent) in enumerate((("outer", None), ("middle", "outer"), ("inner", "middle")), 1):
            db.execute(
                "insert into flows (n, id, digest, file, cwd, state, created, parent, labels)"
                " values (?, ?, 'd', '/w/ship.flow.md', '/f', 'waiting', 1, ?, '{}')",
                (number, execution, parent),
            )
        waits: list[tuple[Any, ...]] = [
            ("token2pending", 1, "ask", "pending", "", "", "", ASKED),
            ("token3approved", 3, "push", "approved", "", "fine", "bob", COMMAND),
            ("token4chosen", 1, "ask", "approved", "later", "", "person", ASKED),
            ("token5withdrawn", 1, "ask", "withdrawn", "", "it asks something else now", "workflow", ASKED),
        ]
        for token, flow_n, step, state, choice, reason, by, asked in waits:
            db.execute(
                "insert into flow_waits (token, flow, step, iteration, item, asked, fingerprint, state, choice, reason,"
                " by, requested) values (?, ?, ?, 0, 2, ?, 'f', ?, ?, ?, ?, 2)",
                (token, flow_n, step, json.dumps(asked), state, choice, reason, by),
            )


async def test_a_store_of_an_earlier_version_has_one_table_afterwards(path: Path) -> None:
    old_store(path)
    with Sqlite(path) as store:
        found = {one.id: one for one in await store.approvals(state="")}
        assert len(found) == 9
        kinds = {name: (one.kind, one.state, one.by) for name, one in found.items()}
        assert kinds == {
            "run-1-approval-1": ("tool_call", "approved", "user:ann"),
            "run-1-approval-2": ("tool_call", "expired", "timeout"),
            "run-1-approval-3": ("tool_call", "pending", ""),
            "run-1-question-4": ("question", "approved", "user"),
            "run-1-question-5": ("plan", "withdrawn", "leadrope"),
            "token2pending": ("step", "pending", ""),
            "token3approved": ("tool_call", "approved", "user:bob"),
            "token4chosen": ("step", "approved", "user"),
            "token5withdrawn": ("step", "withdrawn", "leadrope"),
        }
        question = found["run-1-question-4"]
        assert read_answer(question.answer or b"") == Answer(approved=True, answers={"Why?": "x"})
        chosen = found["token4chosen"]
        assert read_answer(chosen.answer or b"") == Answer(approved=True, choice="later")
        assert (chosen.outermost_id, chosen.execution_id, chosen.step, chosen.item) == ("outer", "outer", "ask", 2)
        assert (chosen.title, chosen.cwd, chosen.run_id) == ("ship.flow.md", "/f", "")
        asked = request_of(found["token2pending"])
        assert isinstance(asked, StepRequest)
        assert (asked.detail, asked.choices) == ("Ship it?", ("now", "later"))
        command = found["token3approved"]
        assert (command.outermost_id, command.execution_id, command.reason) == ("outer", "inner", "fine")
        call = request_of(command)
        assert isinstance(call, CallRequest)
        assert (call.call.name, call.call.input, call.reason) == ("Bash", {"command": "git push"}, "it pushes")
        assert found["run-1-approval-3"].run_id == "run"
        assert [one.id for one in await store.approvals()] == ["run-1-approval-3", "token2pending"]
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = {row[0] for row in db.execute("select name from sqlite_schema where type = 'table'")}
    assert "flow_waits" not in tables


async def test_an_answer_by_an_old_token_continues_its_execution(path: Path) -> None:
    old_store(path)
    with Sqlite(path) as store:
        executions = Executions(store, lambda: "me")
        assert (await approval_names.find("token2", store, executions)).id == "token2pending"
        assert await store.decide("token2pending", "approved", by="ann")
        assert (await executions.get("outer")).state == "queued"


# -- names ------------------------------------------------------------------------------------------------------------


async def names(store: Sqlite) -> Executions:
    """The execution aaaa1… asks once, aaab2… twice, aaac3… nothing."""
    executions = Executions(store, lambda: "me")
    for execution_id, count in (("aaaa1" + "0" * 27, 1), ("aaab2" + "0" * 27, 2), ("aaac3" + "0" * 27, 0)):
        execution = await executions.add(NewExecution(id=execution_id, text="#", name="ship"), Redactor())
        for number in range(count):
            key = UnitOutcome(step=f"s{number}", status="succeeded")
            asked = {"kind": "step", "title": "?"}
            await executions.ask(
                execution, key, "step", asked, outermost_id=execution_id, fingerprint=str(number), redactor=Redactor()
            )
    return executions


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("aaaa10000000-step-1", "aaaa10000000-step-1"),
        ("AAAA", "aaaa10000000-step-1"),
        ("aaaa1", "aaaa10000000-step-1"),
        ("aaaa1" + "0" * 27, "aaaa10000000-step-1"),
        ("aaab20000000-step-2", "aaab20000000-step-2"),
    ],
)
async def test_an_approval_is_named_by_its_id_or_by_what_asks(path: Path, name: str, found: str) -> None:
    with Sqlite(path) as store:
        executions = await names(store)
        assert (await approval_names.find(name, store, executions)).id == found


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("aaab", "several begin with aaab: aaab20000000-step-1, aaab20000000-step-2"),
        ("aaa", "too short"),
        ("", "too short"),
        ("aaac", "the execution aaac3000 (ship) is running, and asks nothing now"),
        ("bbbb", "there is no approval 'bbbb'"),
    ],
)
async def test_a_name_that_is_not_clear_names_nothing(path: Path, name: str, told: str) -> None:
    with Sqlite(path) as store:
        executions = await names(store)
        with pytest.raises((errors.UnknownRun, errors.WrongState)) as raised:
            await approval_names.find(name, store, executions)
        assert told in str(raised.value)


async def test_where_several_executions_begin_so_none_is_meant(path: Path) -> None:
    """Also where only one of them asks: an answer to another one could not be taken back."""
    with Sqlite(path) as store:
        executions = await names(store)
        ended = await executions.add(NewExecution(id="aaaa9" + "0" * 27, text="#"), Redactor())
        await executions.end(ended, "succeeded", {}, Redactor())
        with pytest.raises(errors.UnknownRun, match="several begin with aaaa: aaaa10000000, aaaa90000000"):
            await approval_names.find("aaaa", store, StoredExecutions(store))


async def test_a_decided_one_is_found_by_its_whole_id(path: Path) -> None:
    with Sqlite(path) as store:
        executions = await names(store)
        answer = msgspec.json.encode(Answer(approved=False))
        await store.decide("aaaa10000000-step-1", "denied", by="ann", answer=answer)
        assert (await approval_names.find("aaaa10000000-step-1", store, executions)).state == "denied"
