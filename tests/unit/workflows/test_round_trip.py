"""Markdown, model and canvas graph: each becomes the other without loss."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.workflows import model
from leadrope.workflows.check.check import check_document
from leadrope.workflows.check.step import StepType
from leadrope.workflows.language import markdown, markdown_writer
from leadrope.workflows.links import links_of
from leadrope.workflows.problems import BadWorkflow
from leadrope.workflows.views import graph
from workflow_strategies import TRICKY, workflows

NAMES = [
    *("generate.flow.md", "review.flow.md", "security.pflow.md", "refactor.flow.md"),
    *("api_key.flow.md", "everything.flow.md"),
]


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_read_and_checked(name: str, examples: dict[str, str], types: dict[str, StepType]) -> None:
    document = markdown.read(examples[name], dialect=markdown.dialect_of(name))
    assert [one for one in check_document(document, types) if one.severity == "error"] == []
    assert document.workflow.steps
    assert markdown.is_workflow_file(name)


@pytest.mark.parametrize("name", NAMES)
def test_examples_go_round(name: str, examples: dict[str, str]) -> None:
    dialect = markdown.dialect_of(name)
    first = markdown.read(examples[name], dialect=dialect).workflow
    assert first.dialect == dialect
    written = markdown_writer.write(first)
    assert markdown.read(written, dialect=dialect).workflow == first, written
    drawn = json.loads(json.dumps(graph.to_graph(first)))
    again = graph.from_graph(drawn)
    assert again == first
    assert graph.to_graph(again) == drawn
    assert markdown_writer.write(again) == written


def test_an_example_says_what_it_says(examples: dict[str, str]) -> None:
    workflow = markdown.read(examples["everything.flow.md"]).workflow
    assert workflow.title == "Nightly review"
    assert workflow.prose.endswith("are prose up here.")
    assert workflow.section_prose == {"steps": "What happens, in order."}
    assert [one.name for one in workflow.inputs] == ["files", "depth"]
    assert workflow.inputs[0] == model.Input(
        name="files", type="array", required=False, default=[], description="Paths, one per line.", stdin=True
    )
    review = workflow.step("review")
    assert review.retry == model.Retry(max=2, wait=5, backoff="exponential")
    assert review.batch == model.Batch(items="${files}", as_="file", max_concurrent=4, error_handling="continue")
    assert review.on_error == "tell"
    assert review.policy == {"blocked_commands": ["terraform"]}
    assert workflow.step("decide").branches == {"yes": ("polish", "measure"), "else": ("report",)}
    assert workflow.step("decide").description == "Are there findings?"
    polish = workflow.step("polish")
    assert polish.parameters["prompt"] == 'Better than: ${best ?? "nothing"}'
    assert polish.parameters["prompt_notes"] == '```python\nprint("a fence in a fence")\n```'
    assert polish.loop == model.Loop(
        until="${polish.result.good}", max_iterations=3, carry={"best": "${polish.result.text}"}
    )
    assert workflow.step("report").approval is True
    assert workflow.step("tell").next == ()
    assert workflow.settings == model.WorkflowSettings(budget=5, concurrency=4, layout={"review": (10, 20.5)})
    assert workflow.outputs[0].source == "${review.results}"


NOTED = """---
created_at: 2026-01-01
---

# Noted

What it does.

## Steps

### one

Does it.

- type: note
- text: hello

## Notes

Why it does it:

- a list, with `### headings`

### and a heading

```markdown
## Steps
```
"""


def test_notes_and_frontmatter_are_kept_and_mean_nothing() -> None:
    document = markdown.read(NOTED)
    assert document.problems == ()
    workflow = document.workflow
    assert (workflow.title, workflow.prose, workflow.frontmatter) == (
        "Noted",
        "What it does.",
        "created_at: 2026-01-01",
    )
    assert [step.id for step in workflow.steps] == ["one"]
    assert [note.title for note in workflow.notes] == ["Notes"]
    assert workflow.notes[0].text.endswith("```markdown\n## Steps\n```")
    assert markdown_writer.write(workflow) == NOTED


def test_what_stands_between_two_rules_with_steps_in_it_is_no_frontmatter() -> None:
    workflow = markdown.read("---\n### a\n- type: note\n\n---\n").workflow
    assert [step.id for step in workflow.steps] == ["a"]


def test_a_pflow_file_may_have_any_other_section() -> None:
    document = markdown.read(NOTED.replace("## Notes", "## Design decisions"), dialect="pflow")
    assert document.problems == ()
    assert [note.title for note in document.workflow.notes] == ["Design decisions"]
    near = markdown.read(NOTED.replace("## Notes", "## Output"), dialect="pflow")
    assert [(one.kind, one.severity, one.suggestion) for one in near.problems] == [
        ("unknown_section", "warning", "Outputs")
    ]


def test_understood_links(examples: dict[str, str]) -> None:
    found = {
        (one.source, one.target, one.kind)
        for one in links_of(markdown.read(examples["everything.flow.md"]).workflow).all
    }
    assert {one for one in found if one[2] == "order"} == {
        ("list-files", "review", "order"),
        ("review", "decide", "order"),
    }
    assert ("review", "tell", "error") in found
    assert ("decide", "polish", "branch") in found


def test_places_are_no_part_of_the_model(examples: dict[str, str]) -> None:
    text = examples["review.flow.md"]
    assert markdown.read(text).workflow == markdown.read("\n\n\n" + text).workflow


def test_an_edge_that_the_order_does_not_explain_becomes_an_after() -> None:
    drawn = graph.to_graph(markdown.read("### a\n- type: note\n### b\n- type: note\n### c\n- type: note\n").workflow)
    assert [(one["source"], one["target"]) for one in drawn["edges"]] == [("a", "b"), ("b", "c")]
    drawn["edges"][1]["source"] = "a"
    moved = graph.from_graph(drawn)
    assert [step.after for step in moved.steps] == [None, None, ("a",)]
    drawn["edges"] = []
    assert [step.after for step in graph.from_graph(drawn).steps] == [None, (), ()]


def test_only_a_placed_node_keeps_its_place() -> None:
    drawn = graph.to_graph(markdown.read("### a\n- type: note\n### b\n- type: note\n").workflow)
    assert [node["position"] for node in drawn["nodes"]] == [{"x": 0.0, "y": 0.0}, {"x": 280.0, "y": 0.0}]
    drawn["nodes"][1].update(position={"x": 5, "y": -7.5}, placed=True, width=300)
    moved = graph.from_graph(drawn)
    assert moved.settings.layout == {"b": (5.0, -7.5)}
    assert markdown.read(markdown_writer.write(moved)).workflow == moved


GROUPS = """## Steps

### a

- type: note

### g

- type: group

#### b

- type: note
- text: ${a.text}

#### h

- type: group

##### c

- type: note

### d

- type: note
- text: ${g.b.text}
"""


def test_steps_inside_a_group_are_nodes_that_name_their_parent() -> None:
    workflow = markdown.read(GROUPS).workflow
    drawn = graph.to_graph(workflow)
    assert [(node["id"], node.get("parent")) for node in drawn["nodes"]] == [
        ("a", None),
        ("g", None),
        ("b", "g"),
        ("h", "g"),
        ("c", "h"),
        ("d", None),
    ]
    assert [(edge["source"], edge["target"], edge["kind"]) for edge in drawn["edges"]] == [
        ("a", "g", "order"),
        ("g", "d", "order"),
        ("a", "g", "data"),
        ("g", "d", "data"),
        ("b", "h", "order"),
    ]
    assert graph.from_graph(drawn) == workflow
    assert markdown.read(markdown_writer.write(workflow)).workflow == workflow
    drawn["nodes"][4]["parent"] = "g"
    drawn["edges"].append({"source": "h", "target": "c", "kind": "order"})
    assert [step.id for step in graph.from_graph(drawn).step("g").steps] == ["b", "h", "c"]


@pytest.mark.parametrize("parent", ["gone", "a", "g", "c"])
def test_a_parent_that_cannot_be_one_is_refused(parent: str) -> None:
    drawn = graph.to_graph(markdown.read(GROUPS).workflow)
    drawn["nodes"][1]["parent"] = parent
    with pytest.raises(BadWorkflow) as caught:
        graph.from_graph(drawn)
    assert {one.kind for one in caught.value.problems} == {"bad_parent"}


def test_a_heading_below_another_step_is_a_line_of_its_description() -> None:
    text = "### a\n\nWords.\n\n#### More words\n\n- type: note\n\n#### And more\n"
    (step,) = markdown.read(text).workflow.steps
    assert (step.description, step.steps) == ("Words.\n\n#### More words\n\n\n#### And more", ())
    group = markdown.read("### g\n- type: group\n#### b\n- type: note\n\\#### no step\n").workflow.step("b")
    assert group.description == "#### no step"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"nodes": 5}, "wrong_type"),
        ({"nodes": [{"id": "a b", "type": "note"}]}, "bad_id"),
        ({"nodes": [{"id": "a", "type": "note"}, {"id": "a", "type": "note"}]}, "duplicate_id"),
        ({"nodes": [{"id": "a"}]}, "no_type"),
        ({"nodes": [{"id": "a", "type": "note", "position": {"x": "left"}}]}, "bad_position"),
        ({"nodes": [{"id": "a", "type": "note", "data": {"parameters": {"after": 1}}}]}, "reserved_parameter"),
        ({"nodes": [{"id": "a", "type": "note", "data": {"retri": {}}}]}, "unknown_key"),
        ({"nodes": [{"id": "a", "type": "note", "data": {"retry": {"max": 99}}}]}, "wrong_type"),
        ({"edges": [{"source": "a", "target": "b", "kind": "nxt"}]}, "bad_edge"),
        ({"edges": [{"source": "a", "kind": "next"}]}, "bad_edge"),
        ({"edges": [{"source": "a", "target": "b", "kind": "branch"}]}, "bad_edge"),
        ({"settings": {"budget": -1}}, "wrong_type"),
        ({"title": 5}, "wrong_type"),
        ({"section_prose": {"stps": "x"}}, "unknown_section"),
        ({"inputs": [{"name": "a", "type": "strng"}]}, "wrong_type"),
        ({"outputs": [{"name": "a"}]}, "no_source"),
        ({"notes": [{"title": "Steps"}]}, "bad_note"),
        ({"notes": [{"title": "Appendix"}]}, "bad_note"),
        ({"notes": [{"title": "Two\n## Steps"}], "dialect": "pflow"}, "bad_note"),
        ({"frontmatter": "a: 1\n---"}, "bad_frontmatter"),
    ],
)
def test_what_is_no_graph_is_refused(change: dict[str, Any], kind: str) -> None:
    with pytest.raises(BadWorkflow) as caught:
        graph.from_graph({"nodes": [], "edges": [], **change})
    assert [one.kind for one in caught.value.problems] == [kind]


def _same(first: model.Workflow, second: model.Workflow) -> bool:
    # As JSON, because 1 == 1.0 == True in Python; the order of maps on a canvas is free.
    return first == second and msgspec.json.encode(first, order="sorted") == msgspec.json.encode(second, order="sorted")


@settings(max_examples=60, deadline=None)
@given(workflows(), st.sampled_from(["flow", "pflow"]))
def test_any_workflow_goes_round(workflow: model.Workflow, dialect: model.Dialect) -> None:
    workflow = msgspec.structs.replace(workflow, dialect=dialect)
    if dialect == "pflow":  # what its words leave unsaid is said once it has been read
        workflow = markdown.read(markdown_writer.write(workflow), dialect=dialect).workflow
    text = markdown_writer.write(workflow)
    document = markdown.read(text, dialect=dialect)
    assert not document.has_errors, (document.problems, text)
    assert _same(document.workflow, workflow), text
    drawn = graph.to_graph(workflow)
    back = graph.from_graph(msgspec.json.decode(msgspec.json.encode(drawn)))
    assert _same(back, workflow)
    assert markdown_writer.write(graph.from_graph(graph.to_graph(document.workflow))) == text
    assert graph.to_graph(back) == drawn


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            TRICKY, st.sampled_from(["### a\n", "## Steps\n", "- type: x\n", "```yaml k\n", "```\n", "  b: c\n"])
        ),
        max_size=12,
    )
)
def test_any_text_is_read_and_what_is_read_goes_round(pieces: list[str]) -> None:
    for dialect in ("flow", "pflow"):
        document = markdown.read("".join(pieces), dialect=dialect)
        again = markdown.read(markdown_writer.write(document.workflow), dialect=dialect)
        if not document.has_errors:
            assert again.workflow == document.workflow
