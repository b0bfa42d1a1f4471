"""JSON in what somebody wrote: where it is found, and what is not taken for it."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.core.output.json_in_text import values_in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', [{"a": 1}]),
        ("  [1, 2]\n", [[1, 2]]),
        ("42", [42]),
        ('"high"', ["high"]),
        ("null", [None]),
        ("high", []),
        ("", []),
        ('Here it is:\n```json\n{"a": 1}\n```\nDone.', [{"a": 1}]),
        ("```\n[1]\n```", [[1]]),
        ("~~~json\n[1]\n~~~", [[1]]),
        ('```python\n{"not": "it"}\n```\n```json\n{"a": 2}\n```', [{"a": 2}, {"not": "it"}]),
        ('```json\n{"a": 1}\n```\nNo, better:\n```json\n{"a": 2}\n```', [{"a": 2}, {"a": 1}]),
        ("```json\n3\n```", [3]),
        ("See:\r\n```json\r\n3\r\n```\r\n", [3]),
        ("````json\n3\n````\n```json\n4\n```", [4, 3]),
        ("```json\n3\n~~~\n4\n```", []),
        ("```text\n```json\n3\n```", []),
        ("```json\n```\nso [1]", [[1]]),
        ("  ~~~ JSON5 of mine\n 3 \n  ~~~", [3]),
        ("```json\n3", []),
        ('The answer is {"a": {"b": [1]}}, I think.', [{"a": {"b": [1]}}]),
        ('First {"a": 1}, then {"a": 2}.', [{"a": 2}, {"a": 1}]),
        ('Use {braces} or [brackets], and {"a": "}"} too.', [{"a": "}"}]),
        ('A set {1, 2} and {"a": 1}', [{"a": 1}]),
        ('{"a": {"b": 1}, "c": ', []),
        ('The result: {"a": [{"b": 1}, {"b": 2}', []),
        ('{"n": 9007199254740993}', [{"n": 9007199254740993}]),
        ('{"n": 123456789012345678901234567890}', [{"n": 123456789012345678901234567890}]),
        ('{"n": NaN}', []),
        ('so {"n": NaN} it is', []),
        ('{"n": 1e400}', []),
        ('so {"n": 1e400} it is', []),
        ('so {"s": "\\ud800"} it is', []),
        ("{'a': 1}", []),
        ('{"a": 1,}', []),
    ],
)
def test_values_in(text: str, expected: list[Any]) -> None:
    assert values_in(text) == expected


def test_a_number_is_not_taken_for_a_truth() -> None:
    assert values_in("[1] [true] [1.0]") == [[1.0], [True], [1]]


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 200_000, "{" * 200_000, "[1," * 100_000, '{"a":' * 50_000, "```\n" * 50_000),
        *("```a\n" * 100_000, "~~~x\n~~~~\n" * 50_000, (" " * 50 + "```x\n") * 20_000),
    ],
)
def test_a_text_of_openings_is_not_read_again_from_each_of_them(text: str) -> None:
    """That would take hours, and the suite's time-out would end it."""
    assert values_in(text) == []
