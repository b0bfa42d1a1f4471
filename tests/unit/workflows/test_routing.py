"""What code sets `next` to, and the ways that a step has by it."""

from __future__ import annotations

import pytest

from leadrope.workflows import routing
from leadrope.workflows.model import Step

ROUTES: list[tuple[str, tuple[str, ...], bool] | tuple[str, None, None]] = [
    ("result = 1", None, None),
    ("result = next(iter([1]))", None, None),
    ("next: str\nresult = 1", None, None),
    ("def f():\n    next = 'a'\n    return next\nresult = f()", None, None),
    ("result = [next for next in [1]]", None, None),
    ("this is not Python, next", None, None),
    ("next = 'a'", ("a",), False),
    ("next: str = 'a'", ("a",), False),
    ("if x:\n    next: str = 'a'\nelse:\n    next: str = 'b'", ("a", "b"), False),
    ("next = 'a' if x else 'end'", ("a", "end"), False),
    ("next = x", (), True),
    ("next = 'a' if x else y", (), True),
    ("next = 'a'\nnext = x", ("a",), True),
    ("result = next = 'a'", ("a",), False),
    ("(result, next) = 1, 'a'", (), True),
    ("for next in x:\n    pass", (), True),
    ("next += 'a'", (), True),
    ("next: str\nnext = 'a'", ("a",), False),
]


@pytest.mark.parametrize(("code", "literals", "is_dynamic"), ROUTES)
def test_what_code_sets_next_to(code: str, literals: tuple[str, ...] | None, is_dynamic: bool | None) -> None:
    found = routing.routes_in({"code": code})
    assert (found and found.literals, found and found.is_dynamic) == (literals, is_dynamic)


def step(code: str, following: tuple[str, ...] | None = None, **branches: tuple[str, ...]) -> Step:
    return Step(id="s", type="code", parameters={"code": code}, next=following, branches=branches or None)


def test_the_ways_of_a_step_by_what_it_can_choose() -> None:
    assert routing.ways(step("result = 1", ("a", "b")), "flow") is None
    assert routing.ways(step("next = 'a'"), "flow") is None, "what it does not declare it cannot choose"
    assert routing.ways(step("next = x", ("a", "end")), "flow") == {"end": (), "a": ("a",)}
    assert routing.ways(step("next = 'c'", ("a",)), "flow") == {"end": (), "a": ("a",)}
    assert routing.ways(step("next = x", big=("a", "b")), "flow") == {"end": (), "big": ("a", "b")}
    assert routing.ways(step("next = 'c'", ("a",)), "pflow") == {"end": (), "default": (), "a": ("a",), "c": ("c",)}
