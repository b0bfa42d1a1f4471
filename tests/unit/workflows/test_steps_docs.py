"""The page on steps says what the kinds themselves say: every kind, parameter and output, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadrope.workflows.check.check import check_document
from leadrope.workflows.language import markdown
from leadrope.workflows.steps import registry
from step_tables import parameters

PAGE = Path(__file__).parents[3] / "docs" / "steps.md"
OPEN = frozenset({"unknown_template", "unknown_step"})
"""What an example may do that shows one step: speak of others that are not shown."""


def sections() -> dict[str, str]:
    """What stands below each heading that names kinds."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {
        name: text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
        for name in re.findall(r"`([a-z-]+)`", title)
    }


def table(text: str, head: str) -> list[str]:
    """The rows of the one table with this head; none where it is missing."""
    found = re.findall(rf"^\| {re.escape(head)} \|\n\|[-|]+\|\n((?:\|.*\n)*)", text, re.MULTILINE)
    assert len(found) <= 1, f"{len(found)} tables with the head {head}"
    return found[0].splitlines() if found else []


def test_every_kind_has_its_place_and_no_other_has_one() -> None:
    assert list(sections()) == list(registry.KINDS)


@pytest.mark.parametrize("kind", registry.KINDS)
def test_parameters_are_those_of_the_kind(kind: str) -> None:
    assert table(sections()[kind], "parameter | type | default | meaning") == parameters(kind)


@pytest.mark.parametrize("kind", registry.KINDS)
def test_outputs_are_those_of_the_kind(kind: str) -> None:
    rows = table(sections()[kind], "output | value")
    assert [re.match(r"\| `(\w+)` \|", row)[1] for row in rows] == list(registry.TYPES[kind].outputs)  # type: ignore[index]  # a row that is none fails here


@pytest.mark.parametrize("kind", registry.KINDS)
def test_every_parameter_is_described(kind: str) -> None:
    shape = registry.TYPES[kind].parameters
    assert [name for name, schema in shape["properties"].items() if not schema.get("description")] == []


@pytest.mark.parametrize("kind", registry.KINDS)
def test_the_example_of_a_kind_is_a_step_of_it(kind: str) -> None:
    examples = re.findall(r"^(`{3,})markdown\n(.*?)^\1$", sections()[kind], re.MULTILINE | re.DOTALL)
    assert examples
    types = set()
    for _, text in examples:
        document = markdown.read(text)
        types |= {step.type for step in document.workflow.steps}
        assert [str(one) for one in check_document(document, registry.TYPES) if one.kind not in OPEN] == []
    assert types & {kind, {"claude-code": "agent"}.get(kind, kind)}
