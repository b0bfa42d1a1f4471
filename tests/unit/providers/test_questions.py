"""What Claude Code asks a person is a value of ours, and the answers go back in its own shape."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.core.events import Option, Question
from leadrope.core.request import RunRequest
from leadrope.core.tools import ToolCall
from leadrope.providers import base
from leadrope.providers.claude_code.session import ClaudeSession

ASKED = {
    "question": "Which?",
    "header": "Colour",
    "multiSelect": True,
    "options": [{"label": "Red", "description": "warm"}, "Blue"],
}
OPTIONS = (Option(label="Red", description="warm"), Option(label="Blue"))
READ = Question(question="Which?", header="Colour", multi_select=True, options=OPTIONS)


def session() -> ClaudeSession:
    return ClaudeSession(RunRequest(prompt="go"))


def question(input_: dict[str, Any]) -> ToolCall:
    return ToolCall(id="q", name="AskUserQuestion", input=input_)


def plan(**input_: Any) -> ToolCall:
    return ToolCall(id="p", name="ExitPlanMode", input=input_)


@pytest.mark.parametrize(
    ("input_", "questions"),
    [
        ({"questions": [ASKED]}, (READ,)),
        ({"questions": [ASKED, {"question": "Why?"}]}, (READ, Question(question="Why?"))),
        ({"questions": ["Why?"]}, (Question(question="Why?"),)),
        ({"question": "Why?"}, (Question(question="Why?"),)),
        ({"questions": [{"question": 3, "options": "none", "multiSelect": "yes"}]}, (Question(question="3"),)),
        ({"questions": []}, ()),
    ],
)
def test_a_question_is_a_value_of_ours(input_: dict[str, Any], questions: tuple[Question, ...]) -> None:
    """What is malformed is shown as it came rather than lost."""
    assert session().asks(question(input_)) == base.Asking(kind="question", questions=questions)


def test_the_answers_go_back_in_its_own_input() -> None:
    call = question({"questions": [ASKED]})
    assert session().answered(call, {"Which?": "Red"}) == {"questions": [ASKED], "answers": {"Which?": "Red"}}


def test_a_plan_is_shown_from_the_call_where_the_request_comes_without_it() -> None:
    talk = session()
    talk.requested(plan(plan="1. paint", allowedPrompts=[{"tool": "Bash", "prompt": "run brushes"}, "more"]))
    asking = talk.asks(plan())
    assert asking == base.Asking(kind="plan", plan="1. paint", allowed_prompts=("Bash: run brushes", "more"))
    assert talk.asks(plan(plan="2. sand")).plan == "2. sand"
    assert talk.answered(plan(plan="2. sand"), {}) == {"plan": "2. sand"}


def test_it_says_by_which_tools_it_asks() -> None:
    assert isinstance(session(), base.AskingSession)
    assert session().asking_tools == {"AskUserQuestion", "ExitPlanMode"}
