"""Whether an answer fits what was asked, before it counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leadrope import Answer, errors, events
from leadrope.core.tools import ToolCall
from leadrope.runs.approvals import answers
from leadrope.runs.approvals.forms import FormField
from leadrope.runs.approvals.requests import CallRequest, StepRequest
from leadrope.runs.records.values import Approval

CALL = events.ApprovalRequested(
    approval_id="approval-1",
    call=ToolCall(id="t", name="Bash", input={"command": "npm test"}),
    reason="",
    expires_s=0,
    pattern="Bash(npm test *)",
)
QUESTION = events.QuestionRequested(
    question_id="question-1",
    kind="question",
    questions=(events.Question(question="Which?"), events.Question(question="Why?")),
)
PLAN = events.QuestionRequested(question_id="question-2", kind="plan", plan="1. go")


STEP = StepRequest(title="ask", detail="Ship it?")
CHOICE = StepRequest(title="ask", choices=("now", "later"))
COMMAND = CallRequest(call=CALL.call, is_editable=False)
FORM = StepRequest(
    title="ask",
    fields=(
        FormField(name="version"),
        FormField(name="count", type="number", default=3),
        FormField(name="where", type="choice", choices=("staging", "production"), required=False),
        FormField(name="notify", type="boolean", default=True),
    ),
)


def asked(request: Any) -> Approval:
    kind: Any = "step"
    if isinstance(request, events.ApprovalRequested | CallRequest):
        kind = "tool_call"
    elif isinstance(request, events.QuestionRequested):
        kind = request.kind
    return Approval(
        id="a-1",
        kind=kind,
        state="pending",
        run_id="" if isinstance(request, StepRequest | CallRequest) else "r",
        outermost_id="e" if isinstance(request, StepRequest | CallRequest) else "",
        fingerprint="f",
        requested=0.0,
        asked=msgspec.json.encode(request),
    )


BOTH = {"Which?": "this", "Why?": "so"}


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (CALL, {"approved": True}),
        (CALL, {"approved": False, "reason": "no"}),
        (CALL, {"approved": True, "edited": {"command": "npm ci"}, "scope": "run"}),
        (CALL, {"approved": True, "pattern": "Bash(npm test *)"}),
        (CALL, {"approved": True, "fingerprint": "f"}),
        (QUESTION, {"approved": True, "answers": BOTH}),
        (QUESTION, {"approved": False}),
        (PLAN, {"approved": True}),
        (PLAN, {"approved": False, "reason": "longer"}),
        (COMMAND, {"approved": True}),
        (STEP, {"approved": True, "reason": "fine"}),
        (STEP, {"approved": False}),
        (CHOICE, {"approved": True, "choice": "later", "reason": "busy"}),
        (CHOICE, {"approved": False}),
        (FORM, {"approved": False, "reason": "not today"}),
    ],
)
def test_an_answer_that_fits(request_: Any, answer: dict[str, Any]) -> None:
    assert answers.checked(asked(request_), Answer(**answer)) == Answer(**answer)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"version": "1.4"}, {"version": "1.4", "count": 3, "where": None, "notify": True}),
        (
            {"version": "1.4", "count": "7", "where": "Staging", "notify": "no"},
            {"version": "1.4", "count": 7, "where": "staging", "notify": False},
        ),
        (
            {"version": "1=4\n", "count": 2.5, "where": "production", "notify": False},
            {"version": "1=4\n", "count": 2.5, "where": "production", "notify": False},
        ),
    ],
)
def test_a_form_is_filled_in_with_values_of_its_types(given: dict[str, Any], values: dict[str, Any]) -> None:
    assert answers.checked(asked(FORM), Answer(approved=True, answers=given)).answers == values


@pytest.mark.parametrize(
    ("request_", "answer", "told"),
    [
        (CALL, {"approved": True, "choice": "blue"}, "choice: a tool call takes none"),
        (CALL, {"approved": True, "answers": BOTH}, "answers: a tool call takes none"),
        (CALL, {"approved": True, "pattern": "Bash(*)"}, "was not offered"),
        (CALL, {"approved": True, "pattern": ""}, "was not offered"),
        (CALL, {"approved": False, "pattern": "Bash(npm test *)"}, "as it was asked"),
        (CALL, {"approved": True, "edited": {"command": "x"}, "pattern": "Bash(npm test *)"}, "as it was asked"),
        (CALL, {"approved": False, "edited": {"command": "x"}}, "denied call cannot be edited"),
        (CALL, {"approved": True, "fingerprint": "g"}, "has changed since it was shown"),
        (QUESTION, {"approved": True}, "the answer to 'Which?' is missing"),
        (QUESTION, {"approved": True, "answers": {"Which?": "this"}}, "the answer to 'Why?' is missing"),
        (QUESTION, {"approved": True, "answers": {**BOTH, "When?": "now"}}, "'When?' was not asked"),
        (QUESTION, {"approved": True, "answers": {**BOTH, "Why?": 5}}, "is not a text"),
        (QUESTION, {"approved": True, "answers": BOTH, "edited": {"x": 1}}, "edited: a question takes none"),
        (QUESTION, {"approved": True, "answers": BOTH, "fingerprint": "g"}, "has changed since it was shown"),
        (PLAN, {"approved": True, "answers": BOTH}, "answers: a plan takes none"),
        (COMMAND, {"approved": True, "edited": {"command": "x"}}, "can only run the call as it is"),
        (COMMAND, {"approved": True, "scope": "run"}, "a step has one call"),
        (STEP, {"approved": True, "choice": "now"}, "choice: 'now' is not offered\nThe answer is yes or no."),
        (STEP, {"approved": True, "answers": {"a": "b"}}, "a step without fields takes none"),
        (STEP, {"approved": True, "edited": {"a": "b"}}, "edited: a step takes none"),
        (CHOICE, {"approved": True}, "choice: is missing\nChoose one of: now, later."),
        (CHOICE, {"approved": True, "choice": "never"}, "'never' is not offered"),
        (CHOICE, {"approved": False, "choice": "now"}, "choice: a denial takes none"),
        (STEP, {"approved": True, "fingerprint": "g"}, "has changed since it was shown"),
        (FORM, {"approved": True}, "version: is required"),
        (FORM, {"approved": True, "answers": {"version": " "}}, "version: is empty"),
        (FORM, {"approved": True, "answers": {"version": 5}}, "version: 5 is not a text"),
        (FORM, {"approved": True, "answers": {"version": "x" * 100_001}}, "100,001 characters"),
        (FORM, {"approved": True, "answers": {"version": "1", "count": "many"}}, "count: 'many' is not a number"),
        (FORM, {"approved": True, "answers": {"version": "1", "count": True}}, "count: True is not a number"),
        (FORM, {"approved": True, "answers": {"version": "1", "count": "nan"}}, "count: 'nan' is not a number"),
        (FORM, {"approved": True, "answers": {"version": "1", "count": "9" * 400}}, "is not a number"),
        (FORM, {"approved": True, "answers": {"version": "1", "where": "prod"}}, "not one of: staging, production"),
        (FORM, {"approved": True, "answers": {"version": "1", "notify": "maybe"}}, "neither yes nor no"),
        (FORM, {"approved": True, "answers": {"version": "1", "colour": "red"}}, "colour: is not a field of this form"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(request_: Any, answer: dict[str, Any], told: str) -> None:
    with pytest.raises((errors.BadValue, errors.StaleAnswer)) as raised:
        answers.checked(asked(request_), Answer(**answer))
    assert told in str(raised.value)
