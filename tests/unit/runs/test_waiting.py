"""What a resumed agent is told about the answers that came while it was gone, and what lists say of the wait."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leadrope import Answer, RunRequest, events
from leadrope.core.fold import SUSPENDED, fold
from leadrope.core.tools import ToolCall
from leadrope.runs.approvals import waiting
from leadrope.runs.records.values import Approval

CALL = ToolCall(id="t1", name="Bash", input={"command": "make"})


def asked(event: Any, answer: Any = None, *, requested: float = 0.0) -> Approval:
    return Approval(
        id="r-1-a",
        run_id="r",
        attempt=1,
        asked_id="a",
        kind="tool_call" if isinstance(event, events.ApprovalRequested) else event.kind,
        state="pending" if answer is None else "approved",
        fingerprint="f",
        requested=requested,
        decided=None,
        by="user:ann",
        reason="",
        used=False,
        asked=msgspec.json.encode(event),
        answer=None if answer is None else msgspec.json.encode(answer),
    )


def approval(expires_s: float = 0) -> events.ApprovalRequested:
    return events.ApprovalRequested(approval_id="a", call=CALL, reason="", expires_s=expires_s)


def question(kind: Any = "question") -> events.QuestionRequested:
    questions = (events.Question(question="Which?"),)
    return events.QuestionRequested(question_id="a", kind=kind, questions=questions, plan="p", expires_s=0)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (asked(approval(), Answer(approved=True)), '- Approved: Bash {"command":"make"}'),
        (asked(approval(), Answer(approved=False, reason="no")), '- Denied (no): Bash {"command":"make"}'),
        (
            asked(approval(), Answer(approved=True, edited={"command": "make -n"})),
            '  The person has edited it: it will run as {"command":"make -n"}',
        ),
        (asked(question(), Answer(approved=True, answers={"Which?": "this"})), "  The answer: this"),
        (asked(question(), Answer(approved=False, reason="later")), "- Your question was not answered: later"),
        (
            asked(question("plan"), Answer(approved=True)),
            "- Your plan was approved. Call ExitPlanMode again with the same plan.",
        ),
        (asked(question("plan"), Answer(approved=False, reason="x")), "- Your plan was not approved: x"),
    ],
)
def test_the_resumed_agent_is_told_each_answer(row: Approval, line: str) -> None:
    request = RunRequest(prompt="go on", resume="s")
    assert line in waiting.told(request, [row]).prompt.splitlines()
    assert waiting.told(request, []) == request
    anew = RunRequest(prompt="the task")
    assert waiting.told(anew, [row]) == anew, "without a session the task begins anew, with its own prompt"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], ""),
        ([asked(approval(), requested=1000)], "asked 5 s ago, no time limit"),
        (
            [asked(approval(), requested=1000 - 7200), asked(question(), requested=1000)],
            "2 approvals, asked 2 h ago, no time limit",
        ),
        ([asked(approval(300), requested=1000 - 95)], "asked 2 min ago, 3 min left"),
        ([asked(approval(300), requested=0)], "asked 17 min ago, 0 s left"),
    ],
)
def test_lists_say_how_long_a_run_waits(rows: list[Approval], words: str) -> None:
    assert waiting.in_words(rows, 1005) == words


def test_a_suspension_is_not_an_attempt() -> None:
    started = events.TurnStarted(turn=1)
    ended = events.TurnEnded(turn=1, is_error=False, reason="success", text="done")
    told: list[tuple[int, events.Event]] = [
        (1, started),
        (1, events.Notice(level="info", code=SUSPENDED, message="")),
        (1, events.AgentExited(exit_code=-9, ended_by="supervisor")),
        (2, started),
        (2, ended),
        (2, events.AgentExited(exit_code=0)),
    ]
    records = [
        events.Recorded("r", attempt, seq, float(seq), "supervisor", event)
        for seq, (attempt, event) in enumerate(told, 1)
    ]
    assert waiting.suspensions(records) == 1
    result = fold(records)
    assert (result.outcome, result.attempts) == ("succeeded", 1)
