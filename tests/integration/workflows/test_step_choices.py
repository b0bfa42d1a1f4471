"""The steps switch, set and fail: the branch that is taken, values under names, and failures on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope import errors
from leadrope.workflows import library
from step_place import Here, do, refused

ROUTES = """## Inputs

### score

- type: integer

## Steps

### route

- type: switch
- cases: {good: "${score} > 8", fair: "${score} > 5", odd: "${score} in [1, 3]"}
- next: {good: publish, fair: [revise, tell], else: reject}

### publish

- type: note
- text: published
- next: end

### revise

- type: note
- text: revised
- next: end

### tell

- type: note
- text: told
- next: end

### reject

- type: fail
- message: "rejected: ${route.case} (${score})"
- code: 7
- kind: low_score
"""


@pytest.mark.parametrize(
    ("score", "case", "ran", "outcome"),
    [
        (9, "good", {"publish"}, "succeeded"),
        (8, "fair", {"revise", "tell"}, "succeeded"),
        (4, "else", {"reject"}, "failed"),
        (3, "odd", {"reject"}, "failed"),
    ],
)
async def test_the_first_case_that_holds_is_taken(
    shop: Any, score: int, case: str, ran: set[str], outcome: str
) -> None:
    result = await shop.run(ROUTES, {"score": score})
    states = {step.id: step.state for step in result.steps}
    assert result.outcome == outcome
    assert {name for name, state in states.items() if state != "left_out"} == {"route", *ran}
    (route,) = [one for one in await shop.outcomes(result.execution_id) if one.step == "route"]
    assert (route.outputs, route.branch) == ({"case": case}, case)


async def test_a_workflow_that_fails_on_purpose_says_why(shop: Any) -> None:
    result = await shop.run(ROUTES, {"score": 4})
    (failed,) = result.failures
    assert failed.error is not None
    assert (failed.error.kind, failed.error.message, failed.error.code) == ("low_score", "rejected: else (4)", 7)
    assert result.code == 7


async def test_conditions_after_the_one_that_holds_are_not_evaluated(here: Here) -> None:
    cases = {"one": "${a} == 1", "two": "${gone.x} == 1"}
    assert (await do(here, "switch", {"a": 1}, cases=cases)).branch == "one"
    with pytest.raises(errors.RequestError, match="gone"):
        await do(here, "switch", {"a": 2}, cases=cases)


async def test_an_answer_cannot_become_a_part_of_a_case(here: Here) -> None:
    cases = {"yes": "${said} == 'approved'"}
    assert (await do(here, "switch", {"said": "x' == 'x"}, cases=cases)).branch == "else"


async def test_values_keep_their_types_and_are_known_by_name(shop: Any) -> None:
    text = """## Steps

### vars

- type: set
- values: {total: 3, names: [a, b], greeting: "Hello ${vars2.who}"}

### vars2

- type: set
- after: []
- values: {who: you}

## Outputs

### all

- source: ["${vars.total}", "${vars.names[1]}", "${vars.greeting}"]
"""
    result = await shop.run(text)
    assert result.outputs == {"all": [3, "b", "Hello you"]}


async def test_a_handler_takes_over_from_a_failure_on_purpose(shop: Any) -> None:
    text = """## Steps

### stop

- type: fail
- message: not today
- kind: too_late
- on-error: sorry

### sorry

- type: note
- text: "${stop.error.kind}: ${stop.error.message}"

## Outputs

### said

- source: ${sorry.text}
"""
    result = await shop.run(text)
    assert (result.outcome, result.outputs, result.code) == ("degraded", {"said": "too_late: not today"}, None)


async def test_the_code_of_a_workflow_inside_is_kept(shop: Any) -> None:
    shop.write("## Steps\n\n### stop\n\n- type: fail\n- message: deep down\n- code: 42\n", "in.flow.md")
    result = await shop.run("## Steps\n\n### call\n\n- type: workflow\n- workflow: in.flow.md\n")
    assert (result.outcome, result.code) == ("failed", 42)
    assert "deep down" in result.failures[0].error.message


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("- type: switch\n- cases: {a: '${n} >'}", "the condition of 'a' cannot be read"),
        ("- type: switch\n- cases: {a: n > 1}", "n must be written ${n}"),
        ("- type: switch\n- cases: {else: '${n} > 1'}", "`else` is not a case"),
        ("- type: switch\n- cases: {a: null}", "the case 'a' has no condition"),
        ("- type: switch\n- cases: {}", "cases"),
        ("- type: switch", "needs the parameter 'cases'"),
        ("- type: switch\n- cases: {a: '${n} > 1'}\n- next: {b: end}", "never chooses 'b'"),
        ("- type: set\n- values: {}", "values"),
        ("- type: set\n- values: {a: '${x.b}'}\n- after: []", "gives no 'b'"),
        ("- type: fail", "needs the parameter 'message'"),
        ("- type: fail\n- message: x\n- code: 0", "code"),
        ("- type: fail\n- message: x\n- code: 126", "code"),
        ("- type: terminate\n- message: x", "did you mean fail"),
        ("- type: route\n- cases: {a: '${n} > 1'}", "did you mean switch"),
    ],
)
def test_mistakes_are_found_before_anything_runs(shop: Any, step: str, told: str) -> None:
    text = (
        "## Inputs\n\n### n\n\n- type: integer\n\n## Steps\n\n### x\n\n- type: set\n- values: {n: '${n}'}\n\n"
        f"### it\n\n{step}\n"
    )
    with pytest.raises(errors.RequestError) as caught:
        library.load(shop.write(text))
    assert told in str(caught.value)


async def test_the_usual_kind_and_code(here: Here) -> None:
    found = await refused(here, "fail", {"why": "because"}, message="${why}")
    assert (found.kind, found.message, found.code) == ("failed", "because", 1)
