"""Which turn answers which request: order, repetition, subagents, branches, expectations, requests on the side."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.rehearsal.casting import Casting, Cue, NoTurn, all_text, newest_results, side_request, unmet
from leadrope.rehearsal.script import Expect, ToolResultExpect, load


def said(casting: Casting, body: dict[str, Any] | None = None, agent: str | None = None) -> str:
    cue = casting.take(body or {}, agent)
    return cue.reason if isinstance(cue, NoTurn) else f"{cue.place} {cue.answer.text}"


def result(text: str = "", *, is_error: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "t", "content": text, "is_error": is_error}
    return {"messages": [{"role": "user", "content": [block]}]}


def test_turns_are_taken_in_order_and_then_over() -> None:
    casting = Casting(load([{"text": "a"}, {"text": "b", "repeat": 2}]))
    assert [said(casting) for _ in range(4)] == [
        "turns[0] a",
        "turns[1] b",
        "turns[1] b",
        "turns is over after 3 requests",
    ]


def test_a_turn_can_repeat_forever() -> None:
    casting = Casting(load([{"text": "a"}, {"text": "b", "repeat": "forever"}]))
    assert [said(casting) for _ in range(4)] == ["turns[0] a", *["turns[1] b"] * 3]
    assert casting.unused() == []


def test_subagents_take_their_own_turns_by_first_appearance() -> None:
    casting = Casting(
        load({"turns": [{"text": "main"}], "subagents": [[{"text": "a"}, {"text": "b"}], [{"text": "c"}]]})
    )
    order = ["x", "y", "x", None, "z"]
    assert [said(casting, agent=agent) for agent in order] == [
        "subagents[0][0] a",
        "subagents[1][0] c",
        "subagents[0][1] b",
        "turns[0] main",
        "the script has 2 subagents and this is number 3 (id z)",
    ]


def test_unused_turns_are_told_unless_optional() -> None:
    script: list[dict[str, Any]] = [
        {"text": "a", "repeat": 3},
        {"text": "b", "optional": True},
        {"tool": {"name": "Bash"}},
        {"error": {"status": 429}, "repeat": "forever"},
    ]
    casting = Casting(load(script))
    casting.take({}, None)
    assert casting.unused() == [
        "turns[0] was not used (1 of 3 times): text 'a'",
        "turns[2] was not used: tool Bash",
        "turns[3] was not used: error 429",
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [({}, "good"), (result("fine"), "good"), (result("no", is_error=True), "bad"), ({"messages": []}, "good")],
)
def test_a_turn_can_say_something_else_after_a_failed_or_denied_call(body: dict[str, Any], text: str) -> None:
    casting = Casting(load([{"text": "good", "if_error": "bad"}]))
    assert said(casting, body) == f"turns[0] {text}"


def test_an_optional_turn_that_does_not_fit_is_skipped_for_good() -> None:
    script = [{"text": "a", "optional": True, "expect": {"contains": "magic"}}, {"text": "b", "repeat": 2}]
    casting = Casting(load(script))
    magic = {"messages": [{"role": "user", "content": "magic"}]}
    assert [said(casting), said(casting, magic)] == ["turns[1] b", "turns[1] b"]


def test_a_turn_that_must_fit_and_does_not_says_why() -> None:
    cue = Casting(load([{"text": "a", "expect": {"model": "x"}}])).take({"model": "y"}, None)
    assert isinstance(cue, Cue)
    assert cue.failed == ("expect.model: 'x' was expected, 'y' was asked for",)


BODY = {
    "model": "m",
    "system": [{"type": "text", "text": "be kind"}],
    "tools": [{"name": "Bash"}],
    "messages": [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "boom"}],
                    "is_error": True,
                },
                {"type": "tool_result", "tool_use_id": "u", "content": "ok"},
            ],
        },
    ],
}

EXPECTATIONS: list[tuple[Expect, int]] = [
    (Expect(contains="hello"), 0),
    (Expect(contains=("be kind", "ls", "boom")), 0),
    (Expect(contains=("hello", "absent", "missing")), 2),
    (Expect(lacks="absent"), 0),
    (Expect(lacks=("hello",)), 1),
    (Expect(model="m"), 0),
    (Expect(model="n"), 1),
    (Expect(tools=("Bash",)), 0),
    (Expect(tools=("Bash", "Write")), 1),
    (Expect(tool_result=ToolResultExpect(contains="boom", is_error=True)), 0),
    (Expect(tool_result=ToolResultExpect(contains="ok", is_error=False)), 0),
    (Expect(tool_result=ToolResultExpect(contains="ok", is_error=True)), 1),
    (Expect(tool_result=ToolResultExpect()), 0),
]


@pytest.mark.parametrize(("expect", "failures"), EXPECTATIONS)
def test_expectations(expect: Expect, failures: int) -> None:
    assert len(list(unmet(expect, BODY))) == failures


def test_an_expected_tool_result_that_is_not_there_is_told() -> None:
    assert "no tool result" in next(unmet(Expect(tool_result=ToolResultExpect()), {"messages": []}))


def test_what_a_model_would_read_is_found_wherever_it_stands() -> None:
    assert all_text(BODY).splitlines() == ["be kind", "hello", "ls", "boom", "ok"]
    assert [found.is_error for found in newest_results(BODY)] == [True, False]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}], "max_tokens": 9}, "no web"),
        ({"tools": [], "output_config": {"format": {"type": "json_schema"}}}, "title"),
        ({"max_tokens": 1}, "."),
        ({"tools": [], "max_tokens": 9}, None),
        (BODY, None),
    ],
)
def test_requests_on_the_side_are_known(body: dict[str, Any], words: str | None) -> None:
    answer = side_request(body)
    assert (answer is None) if words is None else (answer is not None and words in (answer.text or ""))
