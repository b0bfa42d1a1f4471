"""The values of a `.pflow.md` are those that pflow reads, also where a `.flow.md` means something else."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.workflows.language import markdown
from leadrope.workflows.language.markdown import WorkflowDocument
from leadrope.workflows.model import Dialect

HEAD = "## Steps\n\n### a\n\nDoes it.\n\n- type: note\n"

LINES: dict[str, tuple[Any, Any]] = {
    # what stands behind `- text: `: in a .flow.md, in a .pflow.md
    "yes": ("yes", True),
    "Off": ("Off", False),
    "TRUE": (True, True),
    "~": (None, None),
    "007": (7, 7),
    "1e3": (1000.0, "1e3"),
    "1.5e10": (1.5e10, 1.5e10),
    "0x1F": (31, "0x1F"),
    "12:30": ("12:30", "12:30"),
    ".inf": (".inf", ".inf"),
    "see issue #5": ("see issue", "see issue #5"),
    "Review this: now": ("Review this: now", "Review this: now"),
    '"a" and "b"': ('"a" and "b"', 'a" and "b'),
    r'"two\nlines"': ("two\nlines", "two\nlines"),
    r'"caf\u00e9"': ("café", r"caf\u00e9"),
    "'it''s'": ("it's", "it's"),
    "{on: yes, mode: 0755}": ({"on": "yes", "mode": 755}, {"on": True, "mode": 493}),
    "[${a}, ${b}]": (["${a}", "${b}"], ["${a}", "${b}"]),
    '${a ?? "x: y"}': ('${a ?? "x: y"}', '${a ?? "x: y"}'),
}

BLOCKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "- text: |\n    one\n    two\n": ({"text": "one\ntwo\n"}, {"text": "one\ntwo"}),
    "- text:\n    day: 2024-01-31\n    time: 12:30\n    many: 1_000\n": (
        {"text": {"day": "2024-01-31", "time": "12:30", "many": "1_000"}},
        {"text": {"day": "2024-01-31", "time": 750, "many": 1000}},
    ),
    "```json text\n[1]\n```\n": ({"text": [1]}, {"text": "[1]"}),
    "```yaml text\na: |\n  x\n```\n": ({"text": {"a": "x\n"}}, {"text": {"a": "x"}}),
    "```yaml text theme={null}\na: 1\n```\n": ({"text": {"a": 1}}, {"text": {"a": 1}}),
    "```mylang text\nx\n```\n": ({"mylang": "x"}, {"text": "x"}),
}


def read(body: str, dialect: Dialect) -> WorkflowDocument:
    return markdown.read(HEAD + body, dialect=dialect)


@pytest.mark.parametrize("line", LINES)
def test_a_value_on_one_line(line: str) -> None:
    for dialect, expected in zip(("flow", "pflow"), LINES[line], strict=True):
        found = read(f"- text: {line}\n", dialect).workflow.steps[0].parameters["text"]  # type: ignore[arg-type]  # the two names
        assert (found, type(found)) == (expected, type(expected)), dialect


@pytest.mark.parametrize("body", BLOCKS)
def test_values_over_several_lines(body: str) -> None:
    for dialect, expected in zip(("flow", "pflow"), BLOCKS[body], strict=True):
        assert read(body, dialect).workflow.steps[0].parameters == expected, dialect  # type: ignore[arg-type]  # the same


def test_what_pflow_takes_and_a_flow_refuses() -> None:
    below = read("- text: hello\n  other: 5\n", "pflow")
    assert below.workflow.steps[0].parameters == {"text": "hello", "other": 5}
    assert below.problems == ()
    assert below.places["steps", "a", "other"].line == 9
    tight = read("- text:hello\n", "pflow")
    assert tight.workflow.steps[0].parameters == {"text": "hello"}
    twice = read("- text: one\n- text: two\n", "pflow")
    assert twice.workflow.steps[0].parameters == {"text": "two"}
    assert [one.severity for one in twice.problems] == ["warning"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (HEAD + "- text: one\nand prose right below\n", "loose_text"),
        ("# One\n\n# Two\n\n" + HEAD, "second_title"),
        (HEAD.replace("## Steps\n", "## Steps\n\n- a: 1\n"), "outside_entry"),
    ],
)
def test_what_pflow_leaves_aside_is_a_warning(text: str, kind: str) -> None:
    assert [(one.kind, one.severity) for one in markdown.read(text).problems] == [(kind, "error")]
    assert [(one.kind, one.severity) for one in markdown.read(text, dialect="pflow").problems] == [(kind, "warning")]


@pytest.mark.parametrize(
    "body", ["- text: one\n\n```text text\ntwo\n```\n", "- text: a\n  b: c: d\n", "```\nx\n```\n", "- no key\n"]
)
def test_what_pflow_refuses_too(body: str) -> None:
    assert read(body, "pflow").has_errors
