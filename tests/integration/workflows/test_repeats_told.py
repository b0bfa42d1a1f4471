"""What a batch or a loop says of the units that went wrong: which, and why the first."""

from __future__ import annotations

from typing import Any

import pytest


def batch(code: str, items: str, *more: str) -> str:
    lines = ["- type: code", f"- code: {code}", f"- batch: {{items: {items}, error_handling: continue}}", *more]
    return "\n".join(["## Steps", "### each", *lines, ""])


@pytest.mark.parametrize(
    ("code", "count", "told"),
    [
        ("result = 1 / (__index__ - 2)", 5, "1 of 5 items failed: item 2 (counted from 0): "),
        (
            "result = 1 / (__index__ % 2)",
            5,
            "3 of 5 items failed: item 0, item 2, item 4 (counted from 0). The first: ",
        ),
        ("result = 1 / (__index__ == 3)", 13, "item 8, item 9, item 10 (counted from 0) and 2 more. The first: "),
    ],
)
async def test_items_that_failed_are_named_with_the_first_reason(shop: Any, code: str, count: int, told: str) -> None:
    text = batch('"' + code.replace("__index__", "n") + '"', str(list(range(count))), "- inputs: {n: '${__index__}'}")
    result = await shop.run(text)
    assert result.outcome == "degraded"
    (warning,) = result.steps[0].warnings
    assert warning.kind == "batch.items_failed"
    before, _, why = warning.message.partition(told)
    assert why, warning.message
    assert "ZeroDivisionError" in why
    numbers = [one.item for one in await shop.outcomes(result.execution_id) if one.status == "failed"]
    assert f"item {min(numbers)}" in before + told


async def test_a_long_reason_is_bounded(shop: Any) -> None:
    result = await shop.run(batch("\"result = 1 if n else {}['x' * 5000]\"", "[0, 1]", "- inputs: {n: '${item}'}"))
    (warning,) = result.steps[0].warnings
    assert "xxx" in warning.message
    assert len(warning.message) < 300


async def test_failed_items_are_told_beside_soft_failures(shop: Any) -> None:
    """Each says its own: one item's warning does not hide that another one failed."""
    text = """## Steps
### each
- type: shell
- command: ${item}
- batch: {items: ["exit 3", "printf '\\\\377'"], error_handling: continue}
"""
    result = await shop.run(text)
    assert [one.kind for one in result.steps[0].warnings] == ["batch.items_failed", "not_text"]
    assert result.steps[0].warnings[0].message.startswith("1 of 2 items failed: item 0 (counted from 0): ")


async def test_of_a_batch_in_turns_the_turn_is_told_too(shop: Any) -> None:
    """The failure is in the first turn, and the last one is whole."""
    text = batch(
        '"result = 1 / (turn + n)"',
        "[1, 0]",
        "- inputs: {n: '${item}', turn: '${__iteration__}'}",
        "- loop: {max_iterations: 2}",
    )
    result = await shop.run(text)
    (warning,) = result.steps[0].warnings
    assert warning.message.startswith("1 of 4 items failed: turn 1, item 1 (counted from 0): ")


async def test_a_loop_with_a_batch_that_was_cut_says_so_and_names_no_item(shop: Any) -> None:
    text = batch("result = 1", "[1, 0]", "- loop: {until: 'false', max_iterations: 2}")
    result = await shop.run(text)
    (warning,) = result.steps[0].warnings
    assert (warning.kind, warning.message) == (
        "loop.not_finished",
        "its condition still wanted another turn after 2 turns",
    )


async def test_a_loop_that_was_soft_on_its_way_was_not_cut(shop: Any) -> None:
    text = """## Steps
### again
- type: shell
- command: "[ ${__iteration__} = 1 ] || printf '\\\\377'"
- loop: {max_iterations: 2}
"""
    result = await shop.run(text)
    assert result.outcome == "degraded"
    assert [one.kind for one in result.steps[0].warnings] == ["not_text"]
