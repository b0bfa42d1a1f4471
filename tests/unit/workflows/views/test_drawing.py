"""The picture of a workflow: nothing overlaps, every sort of line can be told from the others, no text is mark-up."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.workflows import model
from leadrope.workflows.language import markdown
from leadrope.workflows.links import links_of
from leadrope.workflows.views import drawing, drawing_layout, drawing_lines, drawing_mermaid
from leadrope.workflows.views.drawing_layout import Point, Size

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</title><script>alert("1")</script><img src=x onerror=y>&amp;\x1b[31m\u202e\ufffe\x00]]>"\'`#; --> end'
RELEASE = """# Release

## Steps

### build
- type: shell
- command: make
- on-error: tidy
- next: [lint, unit]

### lint
- type: shell
- command: make lint

### unit
- type: shell
- command: make ${item}
- batch: {items: [1, 2], max_concurrent: 2}

### decide
- type: condition
- value: ${unit.count}
- after: [lint, unit]
- next: {"yes": ship, maybe: ship, "no": report}

### ship
- type: approval
- message: Ship?

### report
- type: write-file
- file_path: r.md
- content: ${lint.stdout}
- after: [ship]

### tidy
- type: note
- text: x
- next: []
"""


def workflow(text: str) -> model.Workflow:
    return markdown.read(text).workflow


def svg(of: model.Workflow, **options: bool) -> ET.Element:
    return ET.fromstring(drawing.svg(of, **options))


def boxes(picture: ET.Element) -> dict[str, tuple[float, float, float, float]]:
    found = {}
    for group in picture.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect[@class='box']")
        name = group.find(f"{SVG}text[@class='name']")
        if rect is not None and name is not None:
            x, y, width, height = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
            found[str(name.text)] = (x, y, width, height)
    return found


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    x, y, width, height = one
    left, top, wide, high = other
    return x < left + wide and left < x + width and y < top + high and top < y + height


def lines(of: model.Workflow, **options: bool) -> list[tuple[str, str, str, str]]:
    return [
        (line.source, line.target, line.sort, line.label) for line in drawing_lines.lines_of(links_of(of), **options)
    ]


def test_links_between_the_same_steps_are_one_line_of_each_sort() -> None:
    assert sorted(lines(workflow(RELEASE))) == [
        ("build", "lint", "plain", ""),
        ("build", "tidy", "error", "on error"),
        ("build", "unit", "plain", ""),
        ("decide", "report", "branch", "no"),
        ("decide", "ship", "branch", "yes, maybe"),
        ("lint", "decide", "plain", ""),
        ("ship", "report", "plain", ""),
        ("unit", "decide", "plain", ""),
    ]


def test_a_value_has_a_line_where_the_order_says_nothing_and_else_only_when_asked_for() -> None:
    beside = workflow("### a\n- type: note\n### b\n- type: note\n- after: []\n- text: ${a.text}\n")
    assert lines(beside) == [("a", "b", "data", "")]
    assert ("lint", "report", "data", "") in lines(workflow(RELEASE), all_data=True)
    follows = workflow("### a\n- type: note\n### b\n- type: note\n- text: ${a.text}\n")
    assert lines(follows, all_data=True) == [("a", "b", "plain", "")], "one line is enough between two steps"


def test_every_step_has_a_box_below_those_that_lead_to_it_and_none_overlaps() -> None:
    of = workflow(RELEASE)
    found = boxes(svg(of))
    assert list(found) == [step.id for step in of.steps]
    for one, other in itertools.combinations(found.values(), 2):
        assert not overlap(one, other)
    for source, target, *_ in lines(of):
        assert found[source][1] + found[source][3] < found[target][1]


def test_sorts_of_lines_are_told_apart_and_explained() -> None:
    picture = svg(workflow(RELEASE))
    looks = Counter(str(path.attrib["class"]) for path in picture.iter(f"{SVG}path") if "marker-end" in path.attrib)
    assert looks == {"line ": 5, "line branch": 2, "line error": 1}
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"next", "by its choice", "on error", "yes, maybe", "no"} <= set(words)
    assert "uses a value" not in words


@pytest.mark.parametrize("is_drawn", [True, False])
def test_nothing_that_a_file_says_becomes_markup(is_drawn: bool) -> None:
    step = model.Step(
        id="one",
        type=HOSTILE,
        description=HOSTILE,
        parameters={HOSTILE: HOSTILE},
        branches={HOSTILE: ("two",)},
    )
    of = model.Workflow(
        title=HOSTILE,
        inputs=(model.Input(name=HOSTILE),),
        steps=(step, model.Step(id="two", type="note")),
    )
    if is_drawn:
        text = drawing.svg(of)
        names = {str(element.tag).removeprefix(SVG) for element in ET.fromstring(text).iter()}
        assert names == {"svg", "title", "style", "defs", "marker", "path", "rect", "text", "g"}
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "it asks for nothing"
    else:
        text = drawing_mermaid.mermaid(of)
        assert not re.search(r"<(?!br/>)", text)
        labels = re.findall(r'"([^"]*)"', text.split("flowchart TD")[1])
        assert len(labels) == 3
        assert not any(set("`[]{}()|'&") & set(label) for label in labels)
        assert len(text.splitlines()) == 7
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ufffe]", text)


def test_the_mermaid_text_has_safe_ids_shapes_and_a_style_for_errors() -> None:
    assert drawing_mermaid.mermaid(workflow(RELEASE)).splitlines()[:11] == [
        "---",
        'title: "Release"',
        "---",
        "flowchart TD",
        '  s0["build<br/>shell"]',
        '  s1["lint<br/>shell"]',
        '  s2["unit<br/>shell · batch, 2 at once"]',
        '  s3{{"decide<br/>condition"}}',
        '  s4[/"ship<br/>approval"/]',
        '  s5["report<br/>write-file"]',
        '  s6["tidy<br/>note"]',
    ]
    rest = drawing_mermaid.mermaid(workflow(RELEASE)).splitlines()[11:]
    assert '  s3 -->|"yes, maybe"| s4' in rest
    number = rest.index('  s0 -->|"on error"| s6')
    assert rest[-1] == f"  linkStyle {number} stroke:#c0282d,stroke-dasharray:6 3"


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("\u202e\u200b", " -->"),  # nothing that an eye could see, and mermaid has no empty label
        ("1. now", ' -->|"1#46; now"|'),  # a list in Markdown, which mermaid draws as an error
        ("- now", ' -->|"#45; now"|'),
        ("2.5", ' -->|"2#46;5"|'),
        ("end", ' -->|"end"|'),
    ],
)
def test_the_name_of_a_way_is_no_grammar_of_mermaid(label: str, written: str) -> None:
    steps = (
        model.Step(id="one", type="condition", branches={label: ("two",)}),
        model.Step(id="two", type="note"),
    )
    assert f"  s0{written} s1" in drawing_mermaid.mermaid(model.Workflow(steps=steps)).splitlines()


def test_places_of_the_canvas_are_kept_where_most_steps_have_one() -> None:
    of = workflow(RELEASE)
    layout = {step.id: (300.0 * number, 40.0 * number) for number, step in enumerate(of.steps[:-1])}
    placed = boxes(svg(msgspec.structs.replace(of, settings=model.WorkflowSettings(layout=layout))))
    assert placed["unit"][0] - placed["build"][0] == pytest.approx(600)
    assert placed["unit"][1] - placed["build"][1] == pytest.approx(80)
    assert not any(overlap(placed["tidy"], box) for name, box in placed.items() if name != "tidy")
    few = {"unit": (900.0, 900.0), "gone": (0.0, 0.0)}
    assert boxes(svg(msgspec.structs.replace(of, settings=model.WorkflowSettings(layout=few)))) == boxes(svg(of))


def test_what_is_wrong_is_drawn_all_the_same() -> None:
    around = workflow(
        "### a\n- type: note\n- next: [b]\n### b\n- type: note\n- next: [c]\n### c\n- type: x\n- next: [a]\n"
    )
    assert set(boxes(svg(around))) == {"a", "b", "c"}
    assert boxes(svg(model.Workflow())) == {}
    assert drawing_mermaid.mermaid(model.Workflow()) == "flowchart TD\n"


def test_long_texts_are_cut_and_told_in_full_when_one_points_at_them() -> None:
    name = "a" * 300
    picture = svg(model.Workflow(steps=(model.Step(id=name, type="note"),)))
    ((shown, box),) = boxes(picture).items()
    assert shown.endswith("…")
    assert len(shown) < 40
    assert box[2] < 400
    assert any(name in (title.text or "") for title in picture.iter(f"{SVG}title"))


@st.composite
def meshes(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 12)))]
    pairs = [(one, other) for one, other in itertools.combinations(names, 2)]
    return names, draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []


@given(meshes())
def test_rows_never_overlap_and_lines_end_at_their_boxes(mesh: tuple[list[str], list[tuple[str, str]]]) -> None:
    names, edges = mesh
    sizes = {name: Size(60.0 + 37 * (number % 5), 40.0 + 20 * (number % 2)) for number, name in enumerate(names)}
    plan = drawing_layout.in_rows(sizes, edges, names)
    for one, other in itertools.combinations(plan.boxes.values(), 2):
        assert not one.overlaps(other)
    for (source, target), line in zip(edges, plan.lines, strict=True):
        start, end = plan.boxes[source], plan.boxes[target]
        assert (line[0].start.y, line[-1].end.y) == (start.bottom, end.y)
        assert start.x < line[0].start.x < start.right
        assert end.x < line[-1].end.x < end.right
        for before, after in itertools.pairwise(line):
            assert before.end == after.start
        others = [box for name, box in plan.boxes.items() if name not in (source, target)]
        points = [curve.at(share / 4) for curve in line for share in range(5)]
        for point, box in itertools.product(points, others):
            assert not (box.x < point.x < box.right and box.y < point.y < box.bottom), "no line across a box"


def test_a_box_in_the_way_is_passed_by() -> None:
    sizes = dict.fromkeys("abc", Size(100.0, 50.0))
    places = {"a": Point(0.0, 0.0), "b": Point(200.0, 0.0), "c": Point(400.0, 0.0)}
    plan = drawing_layout.as_placed(sizes, [("a", "c")], places)
    between = plan.boxes["b"]
    points = [curve.at(share / 20) for curve in plan.lines[0] for share in range(21)]
    assert not any(between.x < one.x < between.right and between.y < one.y < between.bottom for one in points)


GROUP = """## Steps

### start
- type: note

### rounds
- type: group
- loop: {max_iterations: 3}

#### write
- type: llm
- prompt: x
- on-error: sorry

#### sorry
- type: note

#### deep
- type: group

##### read
- type: note

### after
- type: note
"""


def test_a_group_is_drawn_around_its_steps() -> None:
    root = svg(workflow(GROUP))
    boxes: dict[str, tuple[float, ...]] = {}

    def walk(element: ET.Element, x: float, y: float) -> None:
        moved = re.match(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        x, y = (x + float(moved[1]), y + float(moved[2])) if moved else (x, y)
        rect, name = element.find(f"{SVG}rect"), element.find(f"{SVG}text[@class='name']")
        if rect is not None and name is not None:
            left, top = x + float(rect.get("x", 0)), y + float(rect.get("y", 0))
            size = float(rect.get("width", 0)), float(rect.get("height", 0))
            boxes[name.text or ""] = (left, top, left + size[0], top + size[1])
        for inner in element:
            walk(inner, x, y)

    walk(root, 0, 0)
    assert set(boxes) == {"start", "rounds", "write", "sorry", "deep", "read", "after"}

    def is_inside(inner: str, outer: str) -> bool:
        a, b = boxes[inner], boxes[outer]
        return b[0] < a[0] and b[1] < a[1] and a[2] < b[2] and a[3] < b[3]

    assert [name for name in boxes if is_inside(name, "rounds")] == ["write", "sorry", "deep", "read"]
    assert [name for name in boxes if is_inside(name, "deep")] == ["read"]
    assert boxes["after"][1] > boxes["rounds"][3]


def test_a_group_is_a_subgraph_of_mermaid() -> None:
    assert drawing_mermaid.mermaid(workflow(GROUP)).splitlines() == [
        "flowchart TD",
        '  s0["start<br/>note"]',
        '  subgraph s1["rounds<br/>group · loop ≤3"]',
        '    s2(["write<br/>llm"])',
        '    s3["sorry<br/>note"]',
        '    subgraph s4["deep<br/>group"]',
        '      s5["read<br/>note"]',
        "    end",
        "  end",
        '  s6["after<br/>note"]',
        "  s0 --> s1",
        "  s1 --> s6",
        "  s2 --> s4",
        '  s2 -->|"on error"| s3',
        "  linkStyle 3 stroke:#c0282d,stroke-dasharray:6 3",
    ]
