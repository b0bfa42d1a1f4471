"""Names in code that nothing defines are found before it runs, and nothing else is."""

from __future__ import annotations

import ast

import pytest

from leadrope.workflows.check import code_names
from leadrope.workflows.check.check import check_document
from leadrope.workflows.language import markdown
from leadrope.workflows.steps import registry

FINE = [
    "x: int\nresult = x + 1",
    "value: Any\nother: Optional[str]\nresult = value",
    "import json as j, os.path\nresult = j.dumps(os.sep)",
    "def f(a, *b, c=1, **d):\n    return a, b, c, d\nresult = f(1)",
    "result = [y for y in range(3) if (z := y)]\nprint(z)",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    result = str(error)",
    "match x:\n    case {'a': a, **rest}:\n        result = a\n    case [first, *others]:\n        result = others",
    "class A:\n    b = 1\nresult = A.b",
    "for i, (p, q) in enumerate([(1, 2)]):\n    result = p",
    "with open('x') as file:\n    result = file.read()",
    "from math import *\nresult = sqrt(4)",
    "exec('made = 1')\nresult = made",
    "result = lambda n: n",
    "def later():\n    return set_below\nset_below = 1\nresult = later()",
    "total: int = 0\nresult = total",
    "next: str = 'end'\nresult = 1",
    "return __name__",
]


@pytest.mark.parametrize("source", FINE)
def test_nothing_is_told_of_what_is_fine(source: str) -> None:
    assert list(code_names.undefined(ast.parse(source), {"x", "value", "other"})) == []


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("return undefined_name", [(1, "'undefined_name' is not defined")]),
        ("items: list\nresult = len(itmes)", [(2, "'itmes' is not defined; did you mean items?")]),
        ("d: List[str]\nresult = d", [(1, "'List' is not defined")]),
        ("result = json.dumps(1)\nprint(json, zzz)", [(1, "'json' is not defined"), (2, "'zzz' is not defined")]),
    ],
)
def test_what_nothing_defines(source: str, told: list[tuple[int, str]]) -> None:
    assert list(code_names.undefined(ast.parse(source), {"items"})) == told


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("a: int\nresult = a", []),
        ("b: int\nb = 1\nresult = b", []),
        ("c: int = 1\nresult = c", []),
        ("amount: int\nresult = amount", [(1, "the input 'amount' is declared and not given (given: a)")]),
        ("def f():\n    inner: int\nresult = f()", []),
    ],
)
def test_inputs_that_are_not_given(source: str, told: list[tuple[int, str]]) -> None:
    assert list(code_names.not_given(ast.parse(source), ["a"])) == told


def test_check_tells_of_them_unless_a_template_gives_the_inputs() -> None:
    step = "### a\n\nDoes it.\n\n- type: code\n- inputs: {0}\n\n```python code\nx: int\nresult = y\n```\n"
    found = check_document(markdown.read(step.format("{z: 1}")), registry.TYPES)
    assert [(one.line, one.severity) for one in found] == [(9, "error"), (9, "error")]
    assert "line 1: the input 'x' is declared and not given" in found[0].message
    assert "line 2: 'y' is not defined" in found[1].message
    given = markdown.read("## Inputs\n\n### all\n\nAll.\n\n## Steps\n\n" + step.format("${all}"))
    assert check_document(given, registry.TYPES) == ()
