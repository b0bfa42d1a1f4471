"""The steps condition, wait and note: which way is taken, patterns that explode, and waiting that can be ended."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Any

import pytest

from leadrope.workflows.language import conditions
from leadrope.workflows.tools import timed_regex
from step_place import Here, do, refused

REPORT = "Looked at 3 files.\n\nVerdict: PASS (score 7)\n\n  \n"


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"text": REPORT, "contains": "pass"}, True),
        ({"text": REPORT, "contains": "pass", "case_sensitive": True}, False),
        ({"text": REPORT, "contains": "PASS", "case_sensitive": True}, True),
        ({"text": REPORT, "contains": "Looked"}, False),
        ({"value": REPORT, "contains": "Looked"}, True),
        ({"text": REPORT, "contains": "pass", "negate": True}, False),
        ({"value": 42, "contains": 4}, True),
        ({"value": ["a", "b"], "contains": '"b"'}, True),
        ({"text": REPORT, "regex": r"score [5-9]"}, True),
        ({"text": REPORT, "regex": r"^verdict: (pass|ok)\b"}, True),
        ({"text": REPORT, "regex": r"^verdict", "case_sensitive": True}, False),
        ({"text": REPORT, "regex": r"^Looked"}, False),
        ({"value": REPORT, "regex": r"(?m)^looked.*files\.$"}, True),
        ({"text": "", "contains": "x"}, False),
        ({"text": "", "regex": "^$"}, True),
        ({"value": "false"}, False),
        ({"value": 0}, False),
        ({"value": "anything"}, True),
        ({"value": None}, False),
        ({"value": None, "negate": True}, True),
        ({"text": "a\nno\n"}, False),
        ({"expression": "1 < 2"}, True),
        ({"text": REPORT, "expression": "line contains 'PASS' and len(text) > 20"}, True),
        ({"value": {"n": 3}, "expression": "value.n >= 3 and not value.n > 3"}, True),
    ],
)
async def test_which_way_a_condition_takes(here: Here, given: dict[str, Any], result: bool) -> None:
    done = await do(here, "condition", **given)
    assert (done.outputs["result"], done.outputs["branch"], done.branch) == (result, *["yes" if result else "no"] * 2)


async def test_an_expression_is_given_values_and_never_their_text(here: Here) -> None:
    scope = {"review": {"result": {"score": 7, "issues": []}, "answer": "x' == 'x"}, "n": "7"}
    for expression, result in (
        ("${review.result.score} > 5 and is_empty(${review.result.issues})", True),
        ("${n} == 7", True),
        ("'${review.answer}' == 'approved'", False),
        ("${review.answer} == 'approved'", False),
        ("${review.missing ?? 0} > 5", False),
    ):
        assert (await do(here, "condition", scope, expression=expression)).outputs["result"] is result
    for bad in ("${review.result.scor} > 5", "${review.result.score} >", "${review.answer} > 5"):
        with pytest.raises(conditions.BadExpression, match="column"):
            await do(here, "condition", scope, expression=bad)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "says nothing"),
        ({"contains": "x"}, "nothing to look at"),
        ({"text": "a", "value": "b", "contains": "x"}, "both"),
        ({"text": "a", "contains": "x", "regex": "x"}, "contains or regex"),
        ({"text": "a", "contains": ""}, "empty"),
        ({"text": "a", "regex": "("}, "column 1"),
        ({"text": "a", "contains": None}, "null is nothing to look for"),
        ({"text": "a", "regex": None}, "null is nothing to look for"),
        ({"text": "a", "expression": None}, "null is nothing to look for"),
        ({"text": "a", "regex": "(a+"}, "column 1"),
        ({"text": "a", "regex": "x" * 10_001}, "10001 characters"),
        ({"value": "a" * 1_000_001, "regex": "a+"}, "1000001 characters"),
    ],
)
async def test_a_condition_that_cannot_be_meant_is_told(here: Here, given: dict[str, Any], told: str) -> None:
    found = await refused(here, "condition", **given)
    assert (found.kind, told in found.message) == ("bad_input", True), found.message


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 40 + "!"),
        (r"^(\w+\s?)*$", "a" * 60 + "!"),
        ("(?:a|a)*b", "a" * 40),
        ("(.*,){20}x", "," * 200),
        ("[\x00-\U0010ffff]" * 300, "abc"),
        ("x*" * 3000 + "y", "x" * 5000),
    ],
)
async def test_a_pattern_that_explodes_is_given_up_and_holds_nobody(here: Here, pattern: str, text: str) -> None:
    """The bound is one second of work; the loop goes on meanwhile, and no process is left."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    busy = asyncio.create_task(others())
    found = await refused(here, "condition", value=text, regex=pattern)
    busy.cancel()
    await asyncio.wait((busy,))
    assert (found.kind, "given up after 1.0 s" in found.message) == ("regex_timeout", True), found.message
    assert found.hint
    assert turns > 10


@pytest.mark.parametrize(
    ("pattern", "ignores_case", "is_safe"),
    [
        ("^(PASS|OK)\\b", False, True),
        ("verdict: (?:pass|ok)$", True, True),
        ("[A-Z]x", False, True),
        ("[A-Z]x", True, False),
        ("a+", False, False),
        (r"\(a\)\1", False, False),
        ("(?i)a", False, False),
        ("a{2}", False, False),
        ("a?" * 7, False, False),
    ],
)
def test_only_patterns_without_repetition_are_matched_without_a_process(
    pattern: str, ignores_case: bool, is_safe: bool
) -> None:
    assert timed_regex.cannot_explode(pattern, ignores_case=ignores_case) is is_safe


async def test_a_condition_can_be_stopped_amid_a_pattern(here: Here) -> None:
    task = asyncio.create_task(do(here, "condition", value="a" * 40 + "!", regex="^(a+)+$"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_the_branch_is_the_way_that_the_workflow_takes(shop: Any) -> None:
    result = await shop.run(
        """## Steps
### review
- type: note
- text: "Fine.\\n\\nVerdict: PASS\\n"
### check
- type: condition
- text: ${review.text}
- contains: "verdict: pass"
- next: {yes: good, else: bad}
### good
- type: note
- text: good
- next: []
### bad
- type: note
- text: bad
"""
    )
    assert {step.id: step.state for step in result.steps} == {
        "review": "succeeded",
        "check": "succeeded",
        "good": "succeeded",
        "bad": "left_out",
    }


# -- wait and note ----------------------------------------------------------------------------------------------------


async def test_a_wait_ends_when_its_time_has_come(here: Here) -> None:
    assert (await do(here, "wait", seconds=0)).outputs["waited_s"] >= 0
    assert (await do(here, "wait", seconds="0.05")).outputs["waited_s"] >= 0.05
    assert here.said == ["waits, 1 s left"]
    here.said.clear()
    await do(here, "wait", until="2001-01-01T00:00Z")
    assert here.said == []
    when = time.time() + 0.5
    await do(here, "wait", until=dt.datetime.fromtimestamp(when, dt.UTC).isoformat())
    assert time.time() >= when - 0.001
    local = dt.datetime.fromtimestamp(time.time() - 1)  # noqa: DTZ006  # a time without a zone is this machine's
    await do(here, "wait", until=local.isoformat())
    assert here.said == ["waits, 1 s left"]


async def test_a_long_wait_says_what_is_left_and_is_ended_at_once(here: Here, until: Any) -> None:
    task = asyncio.create_task(do(here, "wait", seconds=7300))
    await until(lambda: bool(here.said))
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert here.said[0] == "waits, 2 h 1 min left"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"seconds": 1, "until": "2030-01-01"},
        {"seconds": -1},
        {"seconds": 86_401},
        {"seconds": float("nan")},
        {"until": "soon"},
        {"until": ""},
        {"until": "2999-01-01T00:00"},
    ],
)
async def test_a_wait_that_cannot_be_meant_is_told(here: Here, given: dict[str, Any]) -> None:
    found = await refused(here, "wait", **given)
    assert (found.kind, bool(found.hint)) == ("bad_input", True)


async def test_a_wait_longer_than_its_time_out_is_a_failure(shop: Any) -> None:
    result = await shop.run("## Steps\n### long\n- type: wait\n- seconds: 600\n- timeout: 0.2\n")
    assert (result.outcome, result.failures[0].error.kind) == ("failed", "timed_out")


async def test_a_note_gives_its_text(here: Here) -> None:
    assert (await do(here, "note", text="hello")).outputs == {"text": "hello"}
    assert (await do(here, "note")).outputs == {"text": ""}
