"""What a person may type at a workflow's question: only what is clearly an answer is one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import UNSET

from leadrope.cli.flow.people import NotOffered, TypedAnswers, title_of, typed
from leadrope.runs.approvals.forms import FormField
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows.steps.base import StepQuestion

COLOURS = ("red", "Dark blue")


@pytest.mark.parametrize(
    ("choices", "said", "word"),
    [
        ((), "yes", Answer(approved=True)),
        ((), "Y", Answer(approved=True)),
        ((), "1", Answer(approved=True)),
        ((), "2", Answer(approved=False)),
        ((), "3", None),
        ((), "no", Answer(approved=False)),
        ((), "n", Answer(approved=False)),
        ((), "deny", Answer(approved=False)),
        ((), "no: too risky: really", Answer(approved=False, reason="too risky: really")),
        ((), "N : not today", Answer(approved=False, reason="not today")),
        ((), "later", None),
        ((), "l", None),
        (COLOURS, "red", Answer(approved=True, choice="red")),
        (COLOURS, "dark BLUE", Answer(approved=True, choice="Dark blue")),
        (COLOURS, "2", Answer(approved=True, choice="Dark blue")),
        (COLOURS, "3", Answer(approved=False)),
        (COLOURS, "4", None),
        (("Red", "red"), "red", Answer(approved=True, choice="red")),
        (("Yes", "No"), "no", Answer(approved=True, choice="No")),
        (("Yes", "No"), "deny", Answer(approved=False)),
        (("Yes", "No"), "3", Answer(approved=False)),
        (("later", "now"), "later", Answer(approved=True, choice="later")),
        (("no", "deny", "Denied"), "4", Answer(approved=False)),
        (("2", "1"), "1", Answer(approved=True, choice="1")),
        (("publish", "revise"), "revise: shorter", Answer(approved=True, choice="revise", reason="shorter")),
        (("publish", "Revise"), "REVISE:  a: b", Answer(approved=True, choice="Revise", reason="a: b")),
        (
            ("publish", "revise", "revise: now"),
            "revise: now: it",
            Answer(approved=True, choice="revise: now", reason="it"),
        ),
        (("publish", "revise", "revise: now"), "revise: now", Answer(approved=True, choice="revise: now")),
        (("publish", "revise"), "no: wrong text", Answer(approved=False, reason="wrong text")),
        ((), "yes: but tell them", Answer(approved=True, reason="but tell them")),
    ],
)
def test_an_answer_is_what_it_says(choices: tuple[str, ...], said: str, word: Answer | None) -> None:
    assert TypedAnswers(choices).read(said) == word


@pytest.mark.parametrize(
    ("choices", "said", "told"),
    [
        ((), "ye", "did you mean yes?"),
        ((), "", "Nothing was typed"),
        ((), "no way", "type y, n or l"),
        (COLOURS, "no way", "type a number or a word of this list (or n, l)"),
        ((), "nope", "not an answer to this"),
        ((), "0", "There is no 0; type 1 to 3"),
        (("red", "green"), "gren", "did you mean green?"),
        (COLOURS, "yes", "not an answer to this"),
        (("Yes", "No"), "n", "not an answer to this"),
        (("RED", "Red"), "red", "not an answer to this"),
        (("2", "1"), "3", "type the words of this list"),
    ],
)
def test_whatever_else_is_typed_decides_nothing(choices: tuple[str, ...], said: str, told: str) -> None:
    with pytest.raises(NotOffered) as raised:
        TypedAnswers(choices).read(said)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("field", "said", "value"),
    [
        (FormField(name="v"), "1.4", "1.4"),
        (FormField(name="v", default="x"), "", UNSET),
        (FormField(name="v", required=False), "", UNSET),
        (FormField(name="v", type="number"), "3", 3),
        (FormField(name="v", type="boolean"), "Y", True),
        (FormField(name="v", type="choice", choices=("red", "blue")), "2", "blue"),
        (FormField(name="v", type="choice", choices=("red", "blue")), "RED", "red"),
        (FormField(name="v", type="choice", choices=("2", "1")), "1", "1"),
    ],
)
def test_a_field_takes_what_was_typed_as_its_type(field: FormField, said: str, value: Any) -> None:
    assert typed(field, said) == value


@pytest.mark.parametrize(
    ("field", "said", "told"),
    [
        (FormField(name="v", label="Version"), "", "Version is required."),
        (FormField(name="v", type="number"), "three", "'three' is not a number"),
        (FormField(name="v", type="boolean"), "maybe", "neither yes nor no"),
        (FormField(name="v", type="choice", choices=("red", "blue")), "3", "There is no 3; type 1 to 2"),
        (FormField(name="v", type="choice", choices=("red", "blue")), "green", "not one of: red, blue"),
    ],
)
def test_what_does_not_fit_a_field_is_asked_again(field: FormField, said: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        typed(field, said)


def test_the_list_and_the_line_below_say_what_can_be_typed() -> None:
    assert [line.partition(":")[0] for line in TypedAnswers(COLOURS).lines()] == [
        "1. red",
        "2. Dark blue",
        "3. no",
        "4. later",
    ]
    assert TypedAnswers(()).how() == "type y, n or l; `no: why` denies with a reason"
    taken = TypedAnswers(("No", "Later", "7"))
    assert [line.partition(":")[0] for line in taken.lines()] == ["· No", "· Later", "· 7", "· deny", "· put aside"]
    assert taken.how() == "type the words of this list; `WORD: text` adds a text to the answer"


@pytest.mark.parametrize(
    ("title", "place", "shown"),
    [
        ("ask", "ask", "ask"),
        ("ask", "sub[1]/ask", "sub[1]/ask"),
        ("go (shell) is to start", "in/go[3]", "in/go[3] (shell) is to start"),
        ("go: Bash", "", "go: Bash"),
        ("another title", "in/go", "in/go: another title"),
    ],
)
def test_a_question_is_headed_by_the_place_of_its_step(title: str, place: str, shown: str) -> None:
    assert title_of(StepQuestion(kind="step", title=title), place) == shown
