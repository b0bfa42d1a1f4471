"""The page on steps says what the kinds themselves say: every kind, parameter and output, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from leadrope.workflows.check.check import check_document
from leadrope.workflows.language import markdown
from leadrope.workflows.steps import registry

PAGE = Path(__file__).parents[3] / "docs" / "steps.md"
MIB = 1024 * 1024
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


def type_of(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return type_of(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"] if one is not None)
    if some := schema.get("anyOf"):
        words = dict.fromkeys(type_of(one, definitions) for one in some if one.get("type") != "null")
        return " or ".join(words)
    kind = schema.get("type", "any")
    inner = type_of(schema["items"], definitions) if schema.get("items") else ""
    word = {"array": f"list of {inner}" if inner and " or " not in inner else "list", "object": "map"}.get(kind, kind)
    return f"{word}{bounds_of(schema)}"


def bounds_of(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {told(low)} to {told(high)}"
    return ", above 0" if "exclusiveMinimum" in schema else ""


def default_of(name: str, schema: Mapping[str, Any], required: list[str]) -> str:
    if name in required:
        return "required"
    usual = schema.get("default")
    if usual in (None, "", [], {}):
        return ""
    return f"`{told(usual)}`"


def told(value: Any) -> str:
    """As people write it: sizes in MiB, words without quotes."""
    if isinstance(value, bool | str):
        return json.dumps(value).strip('"')
    return (
        f"{value // MIB} MiB"
        if value >= MIB and value % MIB == 0
        else f"{value:,g}"
        if value < 10_000
        else f"{value:,}"
    )


def parameters(kind: str) -> list[str]:
    shape = registry.TYPES[kind].parameters
    return [
        f"| `{name}` | {type_of(schema, shape['$defs'])} | {default_of(name, schema, shape.get('required', []))} "
        f"| {schema.get('description', '')} |"
        for name, schema in shape["properties"].items()
    ]


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
