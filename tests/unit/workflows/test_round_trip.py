"""Markdown, model and canvas graph: each becomes the other without loss."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.workflows import graph, markdown, markdown_writer, model
from leadrope.workflows.check import check_document
from leadrope.workflows.check_step import StepType
from leadrope.workflows.links import links_of
from leadrope.workflows.problems import BadWorkflow

NAMES = [
    *("generate.flow.md", "review.flow.md", "security.pflow.md", "refactor.flow.md"),
    *("api_key.flow.md", "everything.flow.md"),
]


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_read_and_checked(name: str, examples: dict[str, str], types: dict[str, StepType]) -> None:
    document = markdown.read(examples[name])
    assert [one for one in check_document(document, types) if one.severity == "error"] == []
    assert document.workflow.steps
    assert markdown.is_workflow_file(name)


@pytest.mark.parametrize("name", NAMES)
def test_examples_go_round(name: str, examples: dict[str, str]) -> None:
    first = markdown.read(examples[name]).workflow
    written = markdown_writer.write(first)
    assert markdown.read(written).workflow == first, written
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
    assert workflow.settings == model.Settings(budget=5, concurrency=4, layout={"review": (10, 20.5)})
    assert workflow.outputs[0].source == "${review.results}"


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
    ],
)
def test_what_is_no_graph_is_refused(change: dict[str, Any], kind: str) -> None:
    with pytest.raises(BadWorkflow) as caught:
        graph.from_graph({"nodes": [], "edges": [], **change})
    assert [one.kind for one in caught.value.problems] == [kind]


IDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,6}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TRICKY = st.sampled_from(
    [
        *(
            "${a.b}",
            '${a ?? "x: y"}',
            "a: b",
            "# x",
            " #",
            "- a",
            "```",
            "~~~\n",
            "### x",
            "null",
            "true",
            "1e3",
            "0x1F",
        ),
        *(
            "yes",
            "a\nb",
            "\n",
            " a ",
            "|",
            "> x",
            "\\- x",
            "\\",
            "[${a}, b]",
            "{",
            '"',
            "'",
            "a #b",
            "---",
            "...",
            "\ufeff",
        ),
        *(
            "\u2028",
            "\x85",
            "\x7f",
            "\x00",
            "\r\n",
            "\ue041",
            "end",
            "````\n```\n",
            "  ```py\n",
            "@x",
            "%x",
            "&a",
            "*a",
            "!x",
        ),
    ]
)
ANY_TEXT = st.one_of(TRICKY, TEXTS, st.lists(st.one_of(TRICKY, TEXTS), max_size=3).map("\n".join))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), ANY_TEXT)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY_TEXT, inner, max_size=4)),
    max_leaves=8,
)
PROSE = ANY_TEXT.map(model.tidied)
KEYS = st.one_of(
    IDS, ANY_TEXT.filter(bool), st.sampled_from(["text", "json", "prompt", "policy-x", "output_schema"])
).filter(lambda key: model.attribute(key) is None)
POSITIVE = st.floats(min_value=0.001, max_value=1e6)
MAPS = st.dictionaries(ANY_TEXT, VALUES, max_size=3)


@st.composite
def workflows(draw: st.DrawFn) -> model.Workflow:
    ids = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    some = st.lists(st.sampled_from(ids), max_size=3, unique=True).map(tuple)
    steps = []
    for name in ids:
        led = draw(st.sampled_from(["", "next", "branches"]))
        steps.append(
            model.Step(
                id=name,
                type=draw(IDS),
                description=draw(PROSE),
                parameters=draw(st.dictionaries(KEYS, VALUES, max_size=4)),
                after=draw(st.none() | some),
                next=draw(some) if led == "next" else None,
                branches=draw(st.dictionaries(ANY_TEXT, some, min_size=1, max_size=3)) if led == "branches" else None,
                on_error=draw(st.none() | st.sampled_from(ids)),
                when=draw(VALUES),
                batch=draw(
                    st.none() | st.builds(model.Batch, items=VALUES, as_=IDS, max_concurrent=st.integers(1, 100))
                ),
                loop=draw(
                    st.none() | st.builds(model.Loop, until=VALUES, carry=MAPS, max_iterations=st.integers(1, 9))
                ),
                retry=draw(st.none() | st.builds(model.Retry, max=st.integers(1, 10), wait=st.floats(0, 60))),
                timeout=draw(st.none() | POSITIVE | st.just("${x.y}")),
                cache=draw(st.none() | st.booleans()),
                approval=draw(st.booleans()),
                budget=draw(st.none() | POSITIVE),
                policy=draw(st.none() | MAPS),
            )
        )
    inputs = st.builds(
        model.Input,
        name=IDS,
        type=st.sampled_from(model.INPUT_TYPES),
        required=st.booleans(),
        default=st.just(msgspec.UNSET) | VALUES,
        description=PROSE,
        stdin=st.booleans(),
    )
    outputs = st.builds(model.Output, name=IDS, source=VALUES.filter(lambda one: one is not None), description=PROSE)
    at = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
    return model.Workflow(
        title=draw(st.from_regex(r"([A-Za-z][A-Za-z0-9:#' -]{0,20}[a-z])?", fullmatch=True)),
        prose=draw(PROSE),
        inputs=tuple(draw(st.lists(inputs, max_size=2, unique_by=lambda one: one.name))),
        steps=tuple(steps),
        outputs=tuple(draw(st.lists(outputs, max_size=2, unique_by=lambda one: one.name))),
        settings=model.Settings(
            policy=draw(st.none() | MAPS),
            budget=draw(st.none() | POSITIVE),
            concurrency=draw(st.none() | st.integers(1, 100)),
            layout=draw(st.dictionaries(st.sampled_from(ids), at)),
        ),
        section_prose=draw(st.dictionaries(st.sampled_from(model.SECTIONS), PROSE.filter(bool), max_size=2)),
    )


def _same(first: model.Workflow, second: model.Workflow) -> bool:
    # As JSON, because 1 == 1.0 == True in Python; the order of maps on a canvas is free.
    return first == second and msgspec.json.encode(first, order="sorted") == msgspec.json.encode(second, order="sorted")


@settings(max_examples=60, deadline=None)
@given(workflows())
def test_any_workflow_goes_round(workflow: model.Workflow) -> None:
    text = markdown_writer.write(workflow)
    document = markdown.read(text)
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
    document = markdown.read("".join(pieces))
    again = markdown.read(markdown_writer.write(document.workflow))
    if not document.has_errors:
        assert again.workflow == document.workflow
