"""The example of the documentation is a workflow without mistakes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from leadrope.workflows.check.check import check, check_document
from leadrope.workflows.check.step import StepType
from leadrope.workflows.language import markdown, markdown_writer
from leadrope.workflows.model import STEP_KEYS, Step, Workflow, WorkflowSettings
from leadrope.workflows.steps import registry

ROOT = Path(__file__).parents[3]


def test_the_example_is_read(types: dict[str, StepType]) -> None:
    text = (ROOT / "docs/workflows.md").read_text()
    example = re.findall(r"^````markdown\n(.*?)^````$", text, re.DOTALL | re.MULTILINE)[0]
    document = markdown.read(example)
    found = check_document(document, types)
    assert [(one.kind, one.path) for one in found] == [("no_description", ("steps", "report"))]
    assert markdown.read(markdown_writer.write(document.workflow)).workflow == document.workflow


def test_the_steps_that_are_shown_alone_have_no_mistake() -> None:
    """They may use steps and inputs that are not shown."""
    text = (ROOT / "docs/workflows.md").read_text()
    shown = re.findall(r"^( *)(`{3,4})markdown\n(.*?)^ *\2$", text, re.DOTALL | re.MULTILINE)
    steps = [textwrap.dedent(example) for _, _, example in shown if example.lstrip().startswith("### ")]
    assert len(steps) >= 4
    for example in steps:
        found = check_document(markdown.read(example), registry.TYPES)
        wrong = [one for one in found if one.severity == "error"]
        assert [str(one) for one in wrong if one.kind not in ("unknown_template", "unknown_step")] == []


def test_every_key_of_a_step_is_described() -> None:
    text = (ROOT / "docs/workflows.md").read_text()
    for key in (*STEP_KEYS, *WorkflowSettings.__struct_fields__):
        assert f"`{key.replace('_', '-') if key == 'on_error' else key}`" in text, key


def test_a_model_that_came_from_no_file_is_checked_too(types: dict[str, StepType]) -> None:
    steps = (
        Step(id="a", type="shell", parameters={"command": ["ls", 5]}),
        Step(id="a", type="note", parameters={"text": "${b}"}),
    )
    found = check(Workflow(steps=steps), types)
    assert [(one.kind, one.line) for one in found] == [
        ("duplicate_id", 0),
        ("wrong_type", 0),
        ("unknown_template", 0),
    ]
    assert str(found[1]).startswith("steps.a.command.1: error: command.1: expected text, found 5")
