"""What a person may type at a workflow's question: only what is clearly an answer is one."""

from __future__ import annotations

import pytest

from leadrope.cli.flow_people import Answers, NotOffered, title_of
from leadrope.workflows.steps.base import Asked, Word

COLOURS = ("red", "Dark blue")


@pytest.mark.parametrize(
    ("choices", "said", "word"),
    [
        ((), "yes", Word(approved=True)),
        ((), "Y", Word(approved=True)),
        ((), "1", Word(approved=True)),
        ((), "2", Word(approved=False)),
        ((), "3", None),
        ((), "no", Word(approved=False)),
        ((), "n", Word(approved=False)),
        ((), "deny", Word(approved=False)),
        ((), "no: too risky: really", Word(approved=False, reason="too risky: really")),
        ((), "N : not today", Word(approved=False, reason="not today")),
        ((), "later", None),
        ((), "l", None),
        (COLOURS, "red", Word(approved=True, choice="red")),
        (COLOURS, "dark BLUE", Word(approved=True, choice="Dark blue")),
        (COLOURS, "2", Word(approved=True, choice="Dark blue")),
        (COLOURS, "3", Word(approved=False)),
        (COLOURS, "4", None),
        (("Red", "red"), "red", Word(approved=True, choice="red")),
        (("Yes", "No"), "no", Word(approved=True, choice="No")),
        (("Yes", "No"), "deny", Word(approved=False)),
        (("Yes", "No"), "3", Word(approved=False)),
        (("later", "now"), "later", Word(approved=True, choice="later")),
        (("no", "deny", "Denied"), "4", Word(approved=False)),
        (("2", "1"), "1", Word(approved=True, choice="1")),
    ],
)
def test_an_answer_is_what_it_says(choices: tuple[str, ...], said: str, word: Word | None) -> None:
    assert Answers(choices).read(said) == word


@pytest.mark.parametrize(
    ("choices", "said", "told"),
    [
        ((), "ye", "did you mean yes?"),
        ((), "", "Nothing was typed"),
        ((), "no way", "type a number or a word of this list"),
        ((), "nope", "no answer to this"),
        ((), "0", "There is no 0; type 1 to 3"),
        (("red", "green"), "gren", "did you mean green?"),
        (COLOURS, "yes", "no answer to this"),
        (("Yes", "No"), "n", "no answer to this"),
        (("RED", "Red"), "red", "no answer to this"),
        (("2", "1"), "3", "type the words of this list"),
    ],
)
def test_whatever_else_is_typed_decides_nothing(choices: tuple[str, ...], said: str, told: str) -> None:
    with pytest.raises(NotOffered) as raised:
        Answers(choices).read(said)
    assert told in str(raised.value)


def test_the_list_and_the_line_below_say_what_can_be_typed() -> None:
    assert [line.partition(":")[0] for line in Answers(COLOURS).lines()] == [
        "1. red",
        "2. Dark blue",
        "3. no",
        "4. later",
    ]
    assert Answers(()).how() == (
        "type a number or a word of this list (y, n, l will do); `no: why` says no with a reason"
    )
    taken = Answers(("No", "Later", "7"))
    assert [line.partition(":")[0] for line in taken.lines()] == ["· No", "· Later", "· 7", "· deny", "· put aside"]
    assert taken.how() == "type the words of this list; `deny: why` says no with a reason"


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
    assert title_of(Asked(kind="approval", title=title), place) == shown
