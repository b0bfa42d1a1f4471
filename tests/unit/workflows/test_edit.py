"""Edits of a file change the lines of one step and no others, and read back as what was asked for."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from leadrope import errors
from leadrope.workflows import edit, links, model
from leadrope.workflows.language import markdown, markdown_writer
from leadrope.workflows.views import graph
from workflow_strategies import IDS, PROSE, VALUES, workflows

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.flow.md"))
MESSY = """# A file that a person wrote   ##

Prose with a list:

- type: no parameter here
- `## Steps` neither

## Inputs
### n
- type: integer     # how many
## Steps
Words about the steps.

### first   ###
   Indented words.
- type: shell
- command: "echo ${n} \\"${n ?? \\"none\\"}\\""   # a comment

<!-- a comment of HTML -->

### second
- "type": code
- inputs:
    a:   ${first.stdout}
    b: ["${first.exit_code}", "${first.stdout ?? \\"x\\"}"]   # two

  # indented, and a comment of YAML
- on-error:   sorry
~~~python code
# ${first.stdout} is not a template here
### nor is this a heading
result = a
~~~

Words below the code.

- next: {first: sorry,  third: [third]}

### sorry
- type: note
- text: |
    about ${second.error.message}
      and first

### third

- type: group
- loop:
    until: ${inner.text} == 'first'
    carry: {first-word: "${inner.text}"}

#### inner
- type: note
- text: ${first.stdout} ${item ?? 'first'}
- batch: {items: ["${first.stdout}"], as: item}
#### last
- type: set
- after: inner
- values: {first: "${inner.results[0].text}"}

## Outputs
### out
- source: ["${third.last.first}", "${third['last'].first}", "${first.stdout}"]
## Settings
- budget: 2   # dollars
- layout:
    first: [1, 2]   # left
    third: [3, 4]
"""
FILES: dict[str, str] = {
    **{path.name: path.read_text() for path in EXAMPLES},
    "messy": MESSY,
    "messy with CRLF": MESSY.replace("\n", "\r\n"),
    "messy without an end": "\ufeff" + MESSY.rstrip("\n"),
    "bare": "### a\n- type: note\n### b\n- type: note\n- text: ${a.text}",
}


class Region(msgspec.Struct, frozen=True):
    name: str
    level: int
    start: int
    end: int
    own_end: int


def regions(text: str) -> list[Region]:
    """The entries of a file by their headings, found without the code under test."""
    headings: list[tuple[str, int, int]] = []
    groups: dict[int, bool] = {}
    fence = ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        found = re.fullmatch(r"(#{2,6}) +(.*?)( +#+)? *\r?", line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark and headings:
            fence = mark[1]
        elif found and (len(found[1]) < 4 or groups.get(len(found[1]) - 1)):
            headings.append((found[2], len(found[1]), number))
            groups = {level: is_group for level, is_group in groups.items() if level < len(found[1])}
        elif headings and re.fullmatch(r"- type: group\s*", line):
            groups[headings[-1][1]] = True
    found_regions = []
    for number, (name, level, start) in enumerate(headings):
        after = headings[number + 1 :]
        end = next((line for _, other, line in after if other <= level), len(lines))
        found_regions.append(Region(name, level, start, end, after[0][2] if after else len(lines)))
    return found_regions


def region(text: str, name: str) -> Region:
    steps = {step.id for step in markdown.read(text).workflow.every_step}
    is_steps = "## Steps" not in text
    for one in regions(text):
        is_steps = one.name.lower() == "steps" if one.level == 2 else is_steps
        if is_steps and one.name == name and name in steps and one.level > 2:
            return one
    raise AssertionError(name)


def changed(before: str, after: str) -> tuple[set[int], set[int]]:
    """The lines that only one of two texts has."""
    one, other = before.split("\n"), after.split("\n")
    old: set[int] = set()
    new: set[int] = set()
    for tag, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            old |= set(range(a, b))
            new |= set(range(c, d))
    return old, new


def read(text: str) -> model.Workflow:
    document = markdown.read(text)
    assert not document.has_errors, document.problems
    return document.workflow


def same(one: model.Workflow, other: model.Workflow) -> None:
    assert msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    assert graph.to_graph(one) == graph.to_graph(other)


def only_within(before: str, after: str, name: str) -> None:
    """Every line outside of the entry is there as it was, to the byte."""
    entry = region(before, name)
    lines, found = before.split("\n"), after.split("\n")
    rest = len(lines) - entry.own_end
    assert found[: entry.start] == lines[: entry.start]
    assert found[len(found) - rest :] == lines[entry.own_end :] if rest else True


def replaced(workflow: model.Workflow, name: str, **values: Any) -> model.Workflow:
    def walk(steps: tuple[model.Step, ...]) -> tuple[model.Step, ...]:
        return tuple(
            msgspec.structs.replace(step, **({"steps": walk(step.steps)} | (values if step.id == name else {})))
            for step in steps
        )

    return msgspec.structs.replace(workflow, steps=walk(workflow.steps))


def names_of(text: str) -> list[str]:
    return [step.id for step in read(text).every_step]


def each_step(test: Callable[[str, str], None]) -> Callable[[str], None]:
    """The test for every step of a file, as one test: there are hundreds."""

    @pytest.mark.parametrize("file", FILES)
    def for_file(file: str) -> None:
        for name in names_of(FILES[file]):
            test(file, name)

    for_file.__doc__ = test.__doc__
    return for_file


TEXTS = ("one line", "two\nlines", "- a: b\n\n```\n### x\n```\n", "x" * 200)
OTHERS: tuple[Any, ...] = (["a", {"b": None}], 5, True)


def some(file: str, values: tuple[Any, ...], most: int = 2) -> tuple[Any, ...]:
    """All of them for the files that are hard to edit, a few for the many steps of the examples."""
    return values[:most] if file.endswith(".flow.md") else values


@each_step
def test_set_changes_only_its_entry(file: str, name: str) -> None:
    text = FILES[file]
    workflow = read(text)
    step = workflow.step(name)
    values: list[tuple[str, Any, dict[str, Any]]] = [
        ("when", "${n ?? 1} == 1", {"when": "${n ?? 1} == 1"}),
        ("timeout", 90, {"timeout": 90}),
        ("retry", {"max": 2, "wait": 3}, {"retry": model.Retry(max=2, wait=3.0)}),
        ("approval", "required", {"approval": True}),
    ]
    own = next((key for key in step.parameters if key != "cases"), "text")
    for value in (*some(file, TEXTS), *some(file, OTHERS, 1)):
        values.append((own, value, {"parameters": {**step.parameters, own: value}}))
    for key, value, expected in values:
        after = edit.set_value(text, name, key, value)
        same(read(after), replaced(workflow, name, **expected))
        only_within(text, after, name)
        again = edit.set_value(after, name, key, value)
        assert again == after, "the same once more changes nothing"
    if step.type != "group" and own in step.parameters:
        gone = edit.set_value(text, name, own, UNSET)
        same(read(gone), replaced(workflow, name, parameters={k: v for k, v in step.parameters.items() if k != own}))
        only_within(text, gone, name)


@each_step
def test_set_of_what_is_set_already_changes_one_parameter(file: str, name: str) -> None:
    """The other lines of the entry are untouched as well: comments, order and blocks."""
    text = FILES[file]
    step = read(text).step(name)
    for key, value in step.parameters.items():
        other = f"{value} and more" if isinstance(value, str) else [value]
        after = edit.set_value(text, name, key, other)
        old, new = changed(text, after)
        entry = region(text, name)
        kept = [line for number, line in enumerate(text.split("\n")) if number not in old]
        assert kept == [line for number, line in enumerate(after.split("\n")) if number not in new]
        heads = [n for n in range(entry.start, entry.own_end) if re.match(r" {0,3}- \S|```|~~~", text.split("\n")[n])]
        blocks = sum(bool(re.match("```|~~~", text.split("\n")[n])) for n in heads if n in old)
        assert len([n for n in heads if n in old]) - (blocks == 2) <= 1, "another parameter was changed too"


@each_step
def test_describe_changes_only_its_entry(file: str, name: str) -> None:
    text = FILES[file]
    for words in ("Other words.", "Two\n\nparagraphs, and\n- a list\n#### x\n", ""):
        after = edit.describe(text, name, words)
        same(read(after), replaced(read(text), name, description=model.tidied(words)))
        only_within(text, after, name)


@each_step
def test_remove_takes_only_its_entry(file: str, name: str) -> None:
    text = FILES[file]
    after = edit.remove(text, name)
    entry = region(text, name)
    lines = text.split("\n")
    assert after.split("\n") == [*lines[: entry.start], *(lines[entry.end :] or [""])]

    def without(steps: tuple[model.Step, ...]) -> tuple[model.Step, ...]:
        return tuple(msgspec.structs.replace(one, steps=without(one.steps)) for one in steps if one.id != name)

    workflow = read(text)
    left = msgspec.structs.replace(workflow, steps=without(workflow.steps))
    known = {step.id for step in left.every_step}
    layout = {step: at for step, at in workflow.settings.layout.items() if step in known}
    expected = msgspec.structs.replace(left, settings=msgspec.structs.replace(workflow.settings, layout=layout))
    found = markdown.read(after)
    assert {one.kind for one in found.problems if one.severity == "error"} <= {"no_steps"}
    same(found.workflow, expected)


NEW = model.Step(id="brand-new", type="shell", description="Does it.", parameters={"command": "a\nb", "cwd": "x"})


@each_step
def test_add_only_adds_lines(file: str, name: str) -> None:
    text = FILES[file]
    after = edit.add(text, NEW, below=name)
    _only_added(text, after)
    order = [step.id for step in _level(read(after), name)]
    assert order[order.index(name) + 1] == NEW.id
    assert read(after).step(NEW.id) == NEW
    assert [one for one in names_of(after) if one != NEW.id] == names_of(text)


@pytest.mark.parametrize("file", FILES)
def test_add_at_the_end_of_the_file_and_of_a_group(file: str) -> None:
    text = FILES[file]
    after = edit.add(text, NEW)
    _only_added(text, after)
    assert read(after).steps[-1] == NEW
    for group in [step.id for step in read(text).every_step if step.steps]:
        inside = edit.add(text, NEW, group=group)
        _only_added(text, inside)
        assert read(inside).step(group).steps[-1] == NEW


def _only_added(before: str, after: str) -> None:
    newline = "\r\n" if "\r\n" in before else "\n"
    assert after.count("\r\n") == (after.count("\n") if newline == "\r\n" else 0)
    lines, found = before.split("\n"), after.split("\n")
    at = next(
        (n for n, (a, b) in enumerate(zip(lines, found, strict=False)) if a.rstrip("\r") != b.rstrip("\r")), len(lines)
    )
    more = len(found) - len(lines)
    # Where the same line stands on both sides of the new ones, they may be told apart one line later.
    assert any(lines == [*found[:n], *found[n + more :]] for n in range(max(0, at - 1), at + 1)) or after.startswith(
        before
    )


def _level(workflow: model.Workflow, name: str) -> tuple[model.Step, ...]:
    for steps in (workflow.steps, *(step.steps for step in workflow.every_step)):
        if any(step.id == name for step in steps):
            return steps
    raise AssertionError(name)


@each_step
def test_move_carries_its_lines_and_touches_no_other(file: str, name: str) -> None:
    text = FILES[file]
    workflow = read(text)
    level = [step.id for step in _level(workflow, name)]
    for below in some(file, (None, *(other for other in reversed(level) if other != name)), 3):
        group = next((step.id for step in workflow.every_step if name in [one.id for one in step.steps]), None)
        after = edit.move(text, name, below=below, group=group)
        others = [other for other in level if other != name]
        index = others.index(below) + 1 if below is not None else 0
        assert [step.id for step in _level(read(after), name)] == [*others[:index], name, *others[index:]]
        assert read(after).step(name) == workflow.step(name)
        assert _without(after, name) == _without(text, name)
        assert _entry(after, name) == _entry(text, name)


def _without(text: str, name: str) -> list[str]:
    """The lines that are not empty, without those of one entry."""
    entry = region(text, name)
    lines = text.replace("\r\n", "\n").split("\n")
    return [line for line in (*lines[: entry.start], *lines[entry.end :]) if line.strip()]


def _entry(text: str, name: str) -> str:
    entry = region(text, name)
    return "\n".join(text.replace("\r\n", "\n").split("\n")[entry.start : entry.end]).rstrip()


@pytest.mark.parametrize("text", ["", "# Title\n\n## Outputs\n\n### o\n\n- source: x\n", "## Steps\n", "## Inputs"])
def test_a_first_step_can_be_put_into_a_file_that_has_none(text: str) -> None:
    after = edit.add(text, NEW)
    assert read(after).steps == (NEW,)
    left = edit.remove(after, NEW.id)
    assert markdown.read(left).workflow == markdown.read(text).workflow
    assert edit.add(left, NEW).count("## Steps") == 1


def test_move_into_a_group_and_out_of_it_changes_only_its_headings() -> None:
    inside = edit.move(MESSY, "first", group="third")
    assert [step.id for step in read(inside).step("third").steps] == ["first", "inner", "last"]
    assert "#### first   ###\n   Indented words.\n- type: shell\n" in inside
    assert _without(inside, "first") == _without(MESSY, "first")
    out = edit.move(MESSY, "last", below="sorry")
    assert "\n### last\n- type: set\n- after: inner\n" in out
    assert [step.id for step in read(out).steps] == ["first", "second", "sorry", "last", "third"]
    deep = edit.add(edit.add(MESSY, model.Step(id="g1", type="group")), model.Step(id="g2", type="group"), group="g1")
    with pytest.raises(errors.BadValue, match="inside more than 3 groups"):
        edit.move(edit.add(deep, model.Step(id="g3", type="group"), group="g2"), "third", group="g3")
    with pytest.raises(errors.BadValue, match="into itself"):
        edit.move(deep, "g1", group="g2")


@each_step
def test_rename_changes_its_heading_and_its_references(file: str, name: str) -> None:
    text = FILES[file]
    workflow = read(text)
    after = edit.rename(text, name, "renamed")
    found = read(after)
    assert [step.id for step in found.every_step] == [
        step.id if step.id != name else "renamed" for step in workflow.every_step
    ]
    drawn, again = graph.to_graph(workflow), graph.to_graph(found)
    named = {name: "renamed"}
    wanted = [
        (named.get(e["source"], e["source"]), named.get(e["target"], e["target"]), e["kind"]) for e in drawn["edges"]
    ]
    assert [(e["source"], e["target"], e["kind"]) for e in again["edges"]] == wanted
    lines, others = text.split("\n"), after.split("\n")
    assert len(lines) == len(others)
    for line, other in zip(lines, others, strict=True):
        assert line == other or (name in line and "renamed" in other), (line, other)
    assert edit.rename(after, "renamed", name) == text, "and back it is the same file"


def test_rename_leaves_alone_what_only_looks_like_the_step() -> None:
    after = edit.rename(MESSY, "first", "one")
    assert '- command: "echo ${n} \\"${n ?? \\"none\\"}\\""   # a comment' in after
    assert '    b: ["${one.exit_code}", "${one.stdout ?? \\"x\\"}"]   # two' in after
    assert "# ${first.stdout} is not a template here" in after
    assert "- next: {first: sorry,  third: [third]}" in after, "a branch is no step"
    assert "carry: {first-word:" in after
    assert '- values: {first: "${inner.results[0].text}"}' in after
    assert "${item ?? 'first'}" in after
    assert "    one: [1, 2]   # left" in after
    last = edit.rename(MESSY, "last", "final")
    assert """- source: ["${third.final.first}", "${third['final'].first}", "${first.stdout}"]""" in last


@pytest.mark.parametrize(
    ("new", "told"),
    [("second", "already"), ("n", "already"), ("a b", "no step"), ("end", "no step"), ("item", "a batch or a loop")],
)
def test_a_name_that_cannot_be_one_is_refused(new: str, told: str) -> None:
    with pytest.raises(errors.BadValue, match=told):
        edit.rename(MESSY, "first", new)


@pytest.mark.parametrize("file", FILES)
def test_connect_and_disconnect_change_one_entry(file: str) -> None:
    text = FILES[file]
    workflow = read(text)
    for steps in (workflow.steps, *(step.steps for step in workflow.every_step if len(step.steps) > 1)):
        for source, target in _pairs(steps):
            before = {
                (link.source, link.target) for link in links.links_between(steps, "flow").all if link.kind != "data"
            }
            after = edit.connect(text, source, target)
            only_within(text, after, target)
            found = links.links_between(_level(read(after), target), "flow")
            assert {(link.source, link.target) for link in found.all if link.kind != "data"} == {
                *before,
                (source, target),
            }
            apart = edit.disconnect(after, source, target, kind="after")
            assert source not in (read(apart).step(target).after or ())
            only_within(after, apart, target)
            handled = edit.connect(text, source, target, kind="error")
            only_within(text, handled, source)
            assert read(handled).step(source).on_error == target
            calm = edit.disconnect(handled, source, target, kind="error")
            assert read(calm).step(source).on_error is None
            only_within(handled, calm, source)


def _pairs(steps: tuple[model.Step, ...]) -> Iterator[tuple[str, str]]:
    for first, second in itertools.pairwise(steps):
        yield first.id, second.id
    if len(steps) > 2:
        yield steps[0].id, steps[-1].id
        yield steps[-1].id, steps[0].id


def test_ways_on_and_branches() -> None:
    text = "### a\n- type: condition\n- value: 1\n### b\n- type: note\n### c\n- type: note\n"
    onward = edit.connect(text, "a", "c", kind="next")
    assert onward == text.replace("- value: 1\n", "- value: 1\n- next: c\n")
    both = edit.connect(onward, "a", "b", kind="next")
    assert read(both).step("a").next == ("c", "b")
    assert read(edit.disconnect(both, "a", "c")).step("a").next == ("b",)
    assert read(edit.disconnect(onward, "a", "c")).step("a").next == ()
    choice = edit.connect(edit.connect(text, "a", "b", kind="branch", label="yes"), "a", "c", kind="branch", label="no")
    assert read(choice).step("a").branches == {"yes": ("b",), "no": ("c",)}
    assert read(edit.disconnect(choice, "a", "c")).step("a").branches == {"yes": ("b",), "no": ()}
    assert read(edit.disconnect(text, "a", "b")).step("b").after == ()
    refused: tuple[Callable[[], str], ...] = (
        lambda: edit.connect(choice, "a", "c", kind="next"),
        lambda: edit.connect(text, "a", "b", kind="branch"),
        lambda: edit.connect(text, "a", "a"),
        lambda: edit.connect(text, "a", "gone"),
        lambda: edit.disconnect(text, "a", "c"),
        lambda: edit.connect(MESSY, "first", "inner"),
    )
    for wrong in refused:
        with pytest.raises(errors.BadValue):
            wrong()


@pytest.mark.parametrize("file", FILES)
def test_place_changes_the_layout_and_nothing_else(file: str) -> None:
    text = FILES[file]
    name = names_of(text)[-1]
    after = edit.place(text, name, 10, -2.5)
    workflow = read(text)
    layout = {**workflow.settings.layout, name: (10.0, -2.5)}
    same(
        read(after),
        msgspec.structs.replace(workflow, settings=msgspec.structs.replace(workflow.settings, layout=layout)),
    )
    old, _ = changed(text, after)
    assert all(
        "layout" in text.split("\n")[n] or "[" in text.split("\n")[n] for n in old if text.split("\n")[n].strip()
    )
    moved = edit.place(after, name, 0, 0)
    assert read(moved).settings.layout[name] == (0, 0)


def test_what_cannot_be_read_is_not_edited() -> None:
    for text in ("### a\n- type: note\n### a\n- type: note\n", "### a\n- type: note\n```prompt\n"):
        with pytest.raises(errors.RequestError):
            edit.set_value(text, "a", "text", "x")
    with pytest.raises(errors.RequestError, match="retry"):
        edit.set_value("### a\n- type: note\n", "a", "retry", {"max": 99})
    with pytest.raises(errors.BadValue, match="Did you mean alpha"):
        edit.set_value("### alpha\n- type: note\n", "alpah", "text", "x")


OPERATIONS = st.sampled_from(
    ["set", "unset", "describe", "remove", "add", "move", "rename", "connect", "disconnect", "place"]
)


@settings(max_examples=25, deadline=None)
@given(workflows(), st.data())
def test_any_edit_of_any_workflow_reads_back_and_leaves_the_rest(workflow: model.Workflow, data: st.DataObject) -> None:
    for _ in range(4):  # one workflow takes longer to make up than to edit
        _edit(workflow, data)


def _edit(workflow: model.Workflow, data: st.DataObject) -> None:
    text = markdown_writer.write(workflow)
    name = data.draw(st.sampled_from([step.id for step in workflow.every_step]))
    step = workflow.step(name)
    match data.draw(OPERATIONS):
        case "set":
            key = data.draw(st.sampled_from([*step.parameters, "fresh", "when"]))
            value = data.draw(VALUES)
            after = edit.set_value(text, name, key, value)
            if key == "when":
                same(read(after), replaced(workflow, name, when=value))
            else:
                same(read(after), replaced(workflow, name, parameters={**step.parameters, key: value}))
            only_within(text, after, name)
        case "unset" if step.parameters:
            key = data.draw(st.sampled_from([*step.parameters]))
            after = edit.set_value(text, name, key)
            rest = {one: value for one, value in step.parameters.items() if one != key}
            same(read(after), replaced(workflow, name, parameters=rest))
            only_within(text, after, name)
        case "describe":
            words = data.draw(PROSE)
            after = edit.describe(text, name, words)
            same(read(after), replaced(workflow, name, description=words))
            only_within(text, after, name)
        case "remove":
            after = edit.remove(text, name)
            gone = {one.id for one in model.each_of((step,))}
            left = [one.id for one in workflow.every_step if one.id not in gone]
            assert [one.id for one in markdown.read(after).workflow.every_step] == left
        case "add":
            after = edit.add(text, NEW, below=name)
            assert read(after).step(NEW.id) == NEW
            _only_added(text, after)
        case "move":
            level = [one.id for one in _level(workflow, name)]
            group = next((one.id for one in workflow.every_step if name in [inner.id for inner in one.steps]), None)
            below = data.draw(st.sampled_from([None, *(one for one in level if one != name)]))
            after = edit.move(text, name, below=below, group=group)
            assert sorted(one.id for one in _level(read(after), name)) == sorted(level)
            assert read(after).step(name) == step
            assert _without(after, name) == _without(text, name)
        case "rename":
            new = data.draw(IDS.filter(lambda one: one.lower() not in ("end", "none", "nothing")))
            try:
                after = edit.rename(text, name, new)
            except errors.BadValue:
                return
            assert [one.id for one in read(after).every_step] == [
                one.id if one.id != name else new for one in workflow.every_step
            ]
        case "connect" | "disconnect" as which:
            others = [one.id for one in _level(workflow, name) if one.id != name]
            if others:
                _connect(text, data.draw(st.sampled_from(others)), name, which)
        case "place":
            assert read(edit.place(text, name, 1.5, 2)).settings.layout[name] == (1.5, 2)
        case _:
            pass


def _connect(text: str, source: str, target: str, which: str) -> None:
    operation: Callable[..., str] = edit.connect if which == "connect" else edit.disconnect
    try:
        after = operation(text, source, target, kind="after")
    except errors.BadValue:
        assert which == "disconnect"
        return
    assert (source in (read(after).step(target).after or ())) == (which == "connect")
    only_within(text, after, target)


def test_a_file_of_pflow_is_edited_in_its_own_dialect() -> None:
    text = (
        "## Steps\n\n### first\n\nSays it.\n\n- type: shell\n- command: echo a # b\n\n"
        "### second\n\nSays more.\n\n- type: llm\n- prompt: ${first.stdout} # c\n"
    )
    after = edit.set_value(text, "first", "command", "echo x # y", dialect="pflow")
    assert after == text.replace("echo a # b", "echo x # y")
    assert markdown.read(after, dialect="pflow").workflow.step("first").parameters["command"] == "echo x # y"
    renamed = edit.rename(text, "first", "one", dialect="pflow")
    assert renamed == text.replace("### first", "### one").replace("${first.", "${one.")
    moved = edit.move(text, "second", dialect="pflow")
    assert [step.id for step in markdown.read(moved, dialect="pflow").workflow.steps] == ["second", "first"]
    assert edit.connect(text, "first", "second", kind="error", dialect="pflow").count("on-error: second") == 1
