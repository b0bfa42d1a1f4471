"""The language of conditions: what each form gives, what is refused with its column, and that no text takes long."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.workflows.language import conditions, templates
from leadrope.workflows.language.conditions import BadExpression

SCOPE: dict[str, Any] = {
    "n": 3,
    "text": "Review: passed",
    "number_text": "3\n",
    "yes": True,
    "nothing": None,
    "items": ["a", "b"],
    "empty": [],
    "my-step": {"result": {"issues": [{"title": "x", "score": 0.5}], "a key": 1}, "stdout": '{"ok": true}'},
    "quote": '" or true or "',
    "doomed": templates.FailedOutputs({"stdout": "half", "error": {"kind": "x"}}),
}

VALUES = [
    ("1 == 1.0", True),
    ("true == 1", False),
    ("null == false", False),
    ("n == 3", True),
    ("n != 3", False),
    ("n >= 3 and n <= 3 and not n > 3", True),
    ("n < 4 or missing.name", True),
    ("n > 4 and missing.name", False),
    ("number_text == 3", True),
    ("number_text > 2.5", True),
    ("number_text == '3'", False),
    ("trim(number_text) == '3'", True),
    ('"true" == yes', True),
    ("'abc' < 'abd'", True),
    ("nothing < 3", False),
    ("nothing > 3", False),
    ("text == 3", False),
    ("text contains 'passed'", True),
    ("text not contains 'passed'", False),
    ("'passed' in text", True),
    ("'c' not in items", True),
    ("items contains 'a'", True),
    ("2 in [1, 2, 3]", True),
    ("'2' in [1, 2]", True),
    ("['2'] == [2]", False),
    ("[1, [2]] == [1.0, [2]]", True),
    ("'result' in my-step", True),
    ("'x' in nothing", False),
    ("my-step.result.issues[0].title == 'x'", True),
    ("my-step.result.issues[-1].score < 1", True),
    ("my-step.result['a key'] == 1", True),
    ('my-step.result["a key"] == 1', True),
    ("my-step.stdout.ok", True),
    ("${my-step.result.issues[0].score} == 0.5", True),
    ('${missing ?? "none"} == "none"', True),
    ("items[${nothing ?? 0}] == 'a'", False),
    ('"${text}" == "Review: passed"', True),
    ('"n is ${n}" == "n is 3"', True),
    ('quote == "x"', False),
    ("${quote} == 'x'", False),
    ("len(items) == 2 and len(text) > 3 and len(nothing) == 0", True),
    ("lower(text) contains 'review' and upper('a') == 'A'", True),
    ("is_empty(nothing) and is_empty('  ') and is_empty([]) and not is_empty(n)", True),
    ("exists(my-step.result)", True),
    ("exists(my-step.reslt) or exists(nowhere)", False),
    ("exists(nothing)", False),
    ("exists(doomed.stdout)", False),
    ("exists(${doomed.stdout})", False),
    ("exists(doomed.error)", True),
    ("doomed.stdout == 'half'", True),
    ("my-step.result.issues[*].title == ['x']", True),
    ("my-step.result.issues[*].title contains 'x'", True),
    ("len(${my-step.result.issues[*].score}) == 1", True),
    ("${missing ?? []} == []", True),
    ("not (n == 3)", False),
    ("not not n", True),
    ("not not not n", False),
    ("(n == 1 or n == 3) and (items)", True),
    ("n == 1 or n == 2 and false or true", True),
    ("true", True),
    ("'no'", "no"),
    ("n", 3),
    ("[1, 'a', null]", [1, "a", None]),
    ("-1.5e2 == -150", True),
    ("n==3", True),
    ("  n\n  ==\t3 ", True),
    ("true_ish", 1),
]


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_what_a_condition_says(text: str, expected: Any) -> None:
    scope = SCOPE if "items[${nothing" not in text else {**SCOPE, "nothing": 1}
    found = conditions.evaluate(conditions.parse(text), {**scope, "true_ish": 1})
    assert found == expected
    assert type(found) is type(expected)


BROKEN = [
    ("", 1, "empty", None),
    ("n = 3", 3, "found `=`", "`==`"),
    ("n === 3", 3, "found `===`", "`==`"),
    ("n <> 3", 3, "found `<>`", "`!=`"),
    ("n == 1 && n == 2", 8, "found `&&`", "`and`"),
    ("n == 1 || n == 2", 8, "found `||`", "`or`"),
    ("!n", 1, "found `!`", "`not`"),
    ("n == 1 AND n == 2", 8, "found `AND`", "`and`"),
    ("n ==", 5, "the end of the condition", None),
    ("(n == 1", 8, "`)` for the `(` of column 1", None),
    ("n == 1)", 7, "found `)`", None),
    ("1 < n < 3", 7, "join a further one with `and`", None),
    ("lenn(n)", 1, "no function lenn()", "len"),
    ("len()", 1, "takes one value, and 0", None),
    ("len(n, n)", 1, "takes one value, and 2", None),
    ("exists('x')", 8, "takes a name", None),
    ("'abc", 1, "never closed", None),
    ("n. == 3", 2, "has no key after it", None),
    ("n[x] == 3", 2, "has no key after it", None),
    ("${n == 3", 1, "expected", None),
    ('"${n" == 3', 1, "expected", None),
    ("[1, 2", 6, "`,` or `]`", None),
    ("1e999 > n", 1, "too large", None),
    ("n n", 3, "found `n`", None),
    ("import os; os", 8, "found `os`", None),
    ("__import__('os')", 1, "no function __import__()", None),
    ("n + 1 == 4", 3, "found `+`", None),
    ("(" * 100 + "n" + ")" * 100, 41, "more than 40 deep", None),
    ("n" * 10_001, 1, "10001 characters", None),
]


@pytest.mark.parametrize(("text", "column", "told", "suggestion"), BROKEN)
def test_what_is_no_condition_is_told_with_its_column(
    text: str, column: int, told: str, suggestion: str | None
) -> None:
    with pytest.raises(BadExpression, match="column") as caught:
        conditions.parse(text)
    assert caught.value.column == column
    assert told in caught.value.message
    assert caught.value.suggestion == suggestion


VALUELESS = [
    ("items > 3", 7, "a list and the number 3 have no order"),
    ("text > 3", 6, 'the text "Review: passed" and the number 3 have no order'),
    ("yes < 3", 5, "true and the number 3 have no order"),
    ("1 in n", 3, "the number 3 holds nothing"),
    ("len(n) > 1", 1, "the number 3 has no length"),
    ("ntext == 1", 1, "did you mean ${text}"),
    ("n == 1 or my-step.reslt", 11, "did you mean ${my-step.result}"),
]


@pytest.mark.parametrize(("text", "column", "told"), VALUELESS)
def test_a_condition_without_a_value_says_why(text: str, column: int, told: str) -> None:
    with pytest.raises(BadExpression) as caught:
        conditions.evaluate(conditions.parse(text), SCOPE)
    assert caught.value.column == column
    assert told in caught.value.message


def test_names_are_told_with_their_places_before_there_are_values() -> None:
    expression = conditions.parse("a.b[0] == 1 and exists(c.d) or \"${e.f}\" in ${g ?? h} and items[${i}] == 'x'")
    found = conditions.names(expression)
    assert [(one.root, one.parts, one.has_fallback, one.offset) for one in found] == [
        ("a", ("b", 0), False, 0),
        ("c", ("d",), True, 23),
        ("e", ("f",), False, 31),
        ("g", (), True, 43),
        ("h", (), False, 43),
        ("items", (), False, 57),
        ("i", (), False, 57),
    ]
    assert not any(one.is_alone for one in found)
    assert conditions.names(conditions.parse("a.b"))[0].is_alone


def test_a_value_is_never_read_as_a_part_of_the_condition() -> None:
    """An agent's answer that looks like a condition stays the text it is."""
    for scope in ({"answer": "x' == 'x"}, {"answer": "true or true"}, {"answer": "${secret}"}):
        assert conditions.holds("${answer} == 'approved'", {**scope, "secret": "approved"}) is False
        assert conditions.holds("'${answer}' == 'approved'", {**scope, "secret": "approved"}) is False


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(_JSON, _JSON, st.sampled_from(("==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains")))
def test_no_two_values_make_it_fail_in_a_way_that_is_not_told(one: Any, other: Any, sign: str) -> None:
    expression = conditions.parse(f"one {sign} other and is_empty(one) or len(other) > 1 or lower(one) == upper(other)")
    try:
        found = conditions.evaluate(expression, {"one": one, "other": other})
    except BadExpression as error:
        told = error.message
    else:
        told = "no order" if isinstance(found, bool) else "no boolean"
    assert any(word in told for word in ("no order", "holds nothing", "no length")), told
    assert conditions.holds("one == other", {"one": one, "other": other}) is conditions.holds(
        "other == one", {"one": one, "other": other}
    )


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab01 ()[]<>=!\"'.,${}-_?|&\\\n", max_size=40))
def test_any_text_is_a_condition_or_a_told_mistake(text: str) -> None:
    try:
        expression = conditions.parse(text)
    except BadExpression as error:
        column = error.column
    else:
        column = 1
        conditions.names(expression)
    assert 1 <= column <= len(text) + 1


def test_the_longest_conditions_take_little_more_than_their_length() -> None:
    """Each would take minutes with one look back too many; the bound is generous for a busy machine."""
    began = time.process_time()
    for unit in ("not ", "(", "[", "${a", "${a} ", "'${", "a.", "a[", '"\\', "a==1 or ", "- ", "a(", "${a ?? "):
        for text in (unit * (10_000 // len(unit)), unit * (10_000 // len(unit) - 1) + "a"):
            with contextlib.suppress(BadExpression):
                conditions.holds(text, {"a": 1})
    assert time.process_time() - began < 10


def test_deep_values_are_told() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadExpression, match="nested too deep"):
        conditions.holds("a == b", {"a": deep, "b": [deep]})
    while deep:  # taken apart by hand: Python's own way is as deep as the value
        deep = deep.pop()
