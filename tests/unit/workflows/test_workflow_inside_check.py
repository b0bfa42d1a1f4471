"""A workflow that calls others, checked before it runs: the table of what can be known of those, and what is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.workflows import library
from leadrope.workflows.check.check import check_document
from leadrope.workflows.check.subworkflow_check import CalledWorkflow
from leadrope.workflows.language import markdown
from leadrope.workflows.model import Input
from leadrope.workflows.problems import BadWorkflow, WorkflowProblem
from leadrope.workflows.steps import registry

INNER = """# Inner

## Inputs

### n

How many.

- type: integer

### name

Whose.

- type: string
- default: you

### tags

Which.

- type: array
- required: false

## Steps

### say

Says it.

- type: note
- text: ${n} ${name} ${tags}

## Outputs

### text

- source: ${say.text}
"""
SILENT = "### say\n\nSays it.\n\n- type: note\n- text: x\n"
SAYS = f"\n{SILENT}- after: []\n"
CALLS = "### call\n\nCalls.\n\n- type: workflow\n- workflow: {}\n"
USES = "\n### use\n\nUses it.\n\n- type: note\n- text: {}\n"
FILES = {
    "in.flow.md": INNER,
    "sub/deep.flow.md": CALLS.format("beside.flow.md"),
    "sub/beside.flow.md": SILENT,
    "workflows/named.flow.md": SILENT,
    "silent.flow.md": SILENT,
    "broken.flow.md": "### a\n\nA.\n\n- type: shel\n\n### b\n\nB.\n\n- type: note\n- txt: x\n",
    "unclosed.flow.md": SILENT + "\n```text text\nnever closed\n",
    "around.flow.md": CALLS.format("broken.flow.md"),
    "around-missing.flow.md": CALLS.format("nowhere.flow.md"),
    "one.flow.md": CALLS.format("two.flow.md"),
    "two.flow.md": CALLS.format("one.flow.md"),
    "calls-outer.flow.md": CALLS.format("outer.flow.md"),
    "calls-outer-if.flow.md": CALLS.format("outer.flow.md") + "- when: ${say.text}\n" + SAYS,
    "text.txt": SILENT,
}
SAVED = {"kept.flow.md": SILENT, "in.flow.md": SILENT}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder, files in (("ws", FILES), ("home/workflows", SAVED)):
        for name, text in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (tmp_path / "ws/latin.flow.md").write_bytes(b"### a\n\n- type: note\n- text: \xe4\n")
    for number in range(1, 12):
        deeper = CALLS.format(f"deep{number + 1}.flow.md") if number < 11 else SILENT
        (tmp_path / f"ws/deep{number}.flow.md").write_text(deeper)
    return tmp_path


def judged(place: Path, text: str) -> list[WorkflowProblem]:
    path = place / "ws/outer.flow.md"
    path.write_text(text)
    return list(library.judged(path, leadrope_home=place / "home")[1])


def call(name: str, *more: str, after: str = "") -> str:
    return CALLS.format(name) + "".join(f"{line}\n" for line in more) + after


GIVEN = "- inputs: {n: 1}"
FINE: dict[str, str] = {
    "all inputs": call("in.flow.md", "- inputs: {n: 1, name: me, tags: [a]}"),
    "only the required one": call("in.flow.md", GIVEN),
    "null where none is required": call("in.flow.md", "- inputs: {n: 1, tags: null}"),
    "a whole float for a whole number": call("in.flow.md", "- inputs: {n: 2.0}"),
    "an input from a template": call("in.flow.md", "- inputs: {n: '${say.text}'}", after=SAYS),
    "a list that is a text in JSON": call("in.flow.md", """- inputs: {n: 1, tags: '["a"]'}"""),
    "a list that becomes one with its values": call(
        "in.flow.md", """- inputs: {n: 1, tags: '["${say.text}"]'}""", after=SAYS
    ),
    "all inputs from a template": call("in.flow.md", "- inputs: ${say.text}", after=SAYS),
    "the name from a template": call("${say.text}", after=SAYS + USES.format("${call.anything.x}")),
    "a part of the name from a template": call("${say.text}.flow.md", after=SAYS),
    "an output that it declares": call("in.flow.md", GIVEN, after=USES.format("${call.text}")),
    "inside an output of an unknown type": call("in.flow.md", GIVEN, after=USES.format("${call.text.a[0]}")),
    "all outputs": call("in.flow.md", GIVEN, after=USES.format("all: ${call}")),
    "outputs of a batch": call(
        "in.flow.md", "- inputs: {n: '${item}'}", "- batch: {items: [1]}", after=USES.format("${call.results[0].text}")
    ),
    "iterations": call("in.flow.md", GIVEN, "- loop: {until: yes}", after=USES.format("${call.iterations}")),
    "the error": call("silent", "- on-error: use", after=USES.format("${call.error.message}")),
    "a plain name in a folder of workflows": call("named"),
    "a saved one": call("kept"),
    "beside before saved": call("in", GIVEN),
    "a file below, and what that calls beside itself": call("sub/deep.flow.md"),
    "the same one twice": call("silent") + "\n### more\n\nAgain.\n\n- type: workflow\n- workflow: silent\n",
    "ten inside each other": call("deep3.flow.md"),
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_what_can_be_called_is_no_problem(place: Path, text: str) -> None:
    assert [str(one) for one in judged(place, text)] == []


Case = tuple[str, list[tuple[str, str, str | None, list[str]]]]
AT_NAME = "6:13"
WRONG: dict[str, Case] = {
    "no such file": (
        call("inn.flow.md"),
        [("unknown_workflow", AT_NAME, "in.flow.md", ["there is no file", "inn.flow.md", "available: "])],
    ),
    "no such file below": (
        call("sub/deeper.flow.md"),
        [("unknown_workflow", AT_NAME, "sub/deep.flow.md", ["there is no file"])],
    ),
    "no such name": (call("namd"), [("unknown_workflow", AT_NAME, "named", ["there is no workflow 'namd'", "kept"])]),
    "a folder": (call("sub/"), [("unknown_workflow", AT_NAME, None, ["there is no workflow 'sub/'"])]),
    "a name that no file can have": (call("x" * 300), [("unknown_workflow", AT_NAME, None, ["File name too long"])]),
    "a home that nobody has": (call("~nobody-here/x"), [("unknown_workflow", AT_NAME, None, ["~nobody-here"])]),
    "no text": (call("latin.flow.md"), [("bad_inner_workflow", AT_NAME, None, ["is not UTF-8 text"])]),
    "its own errors, once": (
        call("broken.flow.md") + "\n### more\n\nAgain.\n\n- type: workflow\n- workflow: broken\n",
        [
            (
                "bad_inner_workflow",
                AT_NAME,
                None,
                ["has 2 errors", "the first: broken.flow.md:5:9: ", "'shel'", "shell?"],
            )
        ],
    ),
    "what is not read whole is not judged": (
        call("unclosed.flow.md", after=USES.format("${call.text}")),
        [("bad_inner_workflow", AT_NAME, None, ["unclosed.flow.md has 2 errors; the first: unclosed.flow.md:8:1: "])],
    ),
    "errors further inside": (
        call("around.flow.md"),
        [("bad_inner_workflow", AT_NAME, None, ["around.flow.md has 1 error: broken.flow.md:5:9: ", "'shel'"])],
    ),
    "missing further inside": (
        call("around-missing.flow.md"),
        [("bad_inner_workflow", AT_NAME, None, ["around-missing.flow.md:6:13: ", "no file", "nowhere.flow.md"])],
    ),
    "an input is missing": (
        call("in.flow.md"),
        [("missing_input", "1:1", None, ["in.flow.md needs the input 'n'", "n=<integer>"])],
    ),
    "an input is missing among others": (
        call("in.flow.md", "- inputs: {name: me}"),
        [("missing_input", "7:11", None, ["needs the input 'n'"])],
    ),
    "an unknown input": (
        call("in.flow.md", "- inputs: {n: 1, nam: x}"),
        [("unknown_input", "7:18", "name", ["in.flow.md has no input 'nam'", "available: n, name, tags"])],
    ),
    "a misspelt one is not missing too": (
        call("in.flow.md", "- inputs: {N: 1}"),
        [("unknown_input", "7:12", "n", ["no input 'N'"])],
    ),
    "any input where it has none": (
        call("silent", "- inputs: {a: 1}"),
        [("unknown_input", "7:12", None, ["silent.flow.md has no input 'a'", "It takes no inputs."])],
    ),
    "types": (
        call("in.flow.md", "- inputs: {n: x, name: 1.10, tags: a}"),
        [
            ("wrong_type", "7:15", None, ["inputs.n: expected a whole number, found x"]),
            ("wrong_type", "7:24", None, ["inputs.name: expected text", '"1.10"']),
            ("wrong_type", "7:36", None, ["inputs.tags: expected a list"]),
        ],
    ),
    "null for a required one": (
        call("in.flow.md", "- inputs: {n: null}"),
        [("wrong_type", "7:15", None, ["expected a whole number, found null"])],
    ),
    "text around a template for a number": (
        call("in.flow.md", "- inputs: {n: 'a ${say.text}'}", after=SAYS),
        [("wrong_type", "7:15", None, ["expected a whole number, found text"])],
    ),
    "an output that it does not declare": (
        call("in.flow.md", GIVEN, after=USES.format("${call.txt} ${call.result.x}")),
        [
            ("unknown_template", "14:9", "${call.text}", ["'call' (workflow) gives no 'txt'", "available: text"]),
            ("unknown_template", "14:21", None, ["gives no 'result'", "available: text"]),
        ],
    ),
    "no outputs at all": (
        call("silent", after=USES.format("${call.x}")),
        [("unknown_template", "13:9", None, ["gives no 'x'", "silent.flow.md declares no outputs."])],
    ),
    "itself": (call("outer.flow.md"), [("contains_itself", AT_NAME, None, ["outer -> outer"])]),
    "itself, where something else calls it": (
        call("calls-outer.flow.md"),
        [("contains_itself", AT_NAME, None, ["outer -> calls-outer -> outer"])],
    ),
    "others that contain each other": (
        call("one.flow.md"),
        [("bad_inner_workflow", AT_NAME, None, ["one.flow.md has 1 error: one.flow.md:6:13: ", "one -> two -> one"])],
    ),
    "eleven inside each other": (
        call("deep2.flow.md"),
        [("too_deep", AT_NAME, None, ["11 workflows inside each other", "at most 10"])],
    ),
    "everything at once": (
        call("in.flow.md", "- inputs: {m: 1, name: [x]}", "- txt: x", after=USES.format("${call.no} ${nothing}")),
        [
            ("missing_input", "7:11", None, []),
            ("unknown_input", "7:12", None, []),
            ("wrong_type", "7:24", None, []),
            ("unknown_parameter", "8:3", None, []),
            ("unknown_template", "15:9", None, []),
            ("unknown_template", "15:20", None, []),
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_called_is_told_once_at_its_place(place: Path, text: str, expected: Any) -> None:
    found = judged(place, text)
    told = [(one.kind, f"{one.line}:{one.column}", one.suggestion) for one in found]
    wanted = [(kind, at, near) for kind, at, near, _ in expected]
    assert told == wanted, "\n".join(map(str, found))
    assert {one.severity for one in found} == {"error"}
    for one, (*_, words) in zip(found, expected, strict=True):
        assert [word for word in words if word not in str(one)] == [], str(one)


WARNED: dict[str, tuple[str, str]] = {
    "itself under a condition": (call("outer.flow.md", "- when: ${say.text}", after=SAYS), "contains_itself"),
    "itself per item": (
        call("outer.flow.md", "- batch: {items: '${say.text}'}", after=SAYS),
        "contains_itself",
    ),
    "itself, where the other calls it under a condition": (call("calls-outer-if.flow.md"), "contains_itself"),
    "perhaps eleven": (call("deep2.flow.md", "- when: ${say.text}", after=SAYS), "too_deep"),
    "a file that a step before may write": (
        "### make\n\nMakes it.\n\n- type: write-file\n- file_path: made.flow.md\n- content: x\n\n"
        + call("made.flow.md"),
        "unknown_workflow",
    ),
    "a name that a step before may write": (
        "### make\n\nMakes it.\n\n- type: shell\n- command: gen > workflows/made.flow.md\n\n" + call("made"),
        "unknown_workflow",
    ),
}


@pytest.mark.parametrize(("text", "kind"), WARNED.values(), ids=WARNED)
def test_what_may_come_out_well_is_a_warning(place: Path, text: str, kind: str) -> None:
    assert [(one.kind, one.severity) for one in judged(place, text)] == [(kind, "warning")]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read_is_told(place: Path) -> None:
    (place / "ws/silent.flow.md").chmod(0)
    (found,) = judged(place, call("silent"))
    assert (found.kind, "cannot be read" in found.message) == ("bad_inner_workflow", True)


def test_a_circle_that_can_end_hides_nothing_that_is_wrong_in_it(place: Path) -> None:
    inner = FILES["calls-outer-if.flow.md"] + "\n" + CALLS.format("broken.flow.md").replace("call", "other", 1)
    (place / "ws/both.flow.md").write_text(inner)
    found = judged(place, call("both.flow.md"))
    assert sorted((one.kind, one.severity) for one in found) == [
        ("bad_inner_workflow", "error"),
        ("contains_itself", "warning"),
    ]
    assert any("broken.flow.md:5:9: " in one.message for one in found)


def test_files_that_all_call_each_other_are_read_once_each(place: Path) -> None:
    """Every way through them would be more than any machine can go."""
    names = [f"knot{number}" for number in range(14)]
    for name in names:
        steps = (f"### to-{other}\n\nX.\n\n- type: workflow\n- workflow: {other}\n" for other in names)
        (place / f"ws/{name}.flow.md").write_text("\n".join(steps))
    (found,) = judged(place, call("knot0"))
    assert "knot0.flow.md has 14 errors" in found.message


def test_a_long_row_of_files_is_no_limit_of_the_reader(place: Path) -> None:
    for number in range(400):
        (place / f"ws/row{number}.flow.md").write_text(call(f"row{number + 1}"))
    every = "\n".join(f"### c{n}\n\nX.\n\n- type: workflow\n- workflow: row{n}\n" for n in range(400))
    assert {one.kind for one in judged(place, every)} == {"too_deep", "bad_inner_workflow"}


def test_the_check_itself_reads_no_file() -> None:
    called = CalledWorkflow(name="x", file="x.flow.md", inputs=(Input(name="a", type="integer"),), outputs=("b",))
    text = call("x", after=USES.format("${call.c}"))
    found = check_document(markdown.read(text), registry.TYPES, {"call": called})
    assert [one.kind for one in found] == ["missing_input", "unknown_template"]
    assert check_document(markdown.read(text), registry.TYPES) == ()


def test_outputs_that_results_of_a_batch_would_hide_are_told() -> None:
    called = CalledWorkflow(name="x", file="x.flow.md", inputs=(), outputs=("item", "b"))
    alone, batch = call("x"), call("x", "- batch: {items: [1]}\n")
    assert check_document(markdown.read(alone), registry.TYPES, {"call": called}) == ()
    (found,) = check_document(markdown.read(batch), registry.TYPES, {"call": called})
    assert (found.kind, found.severity, found.found) == ("hidden_output", "warning", "item")


def test_a_workflow_without_others_pays_nothing_for_them(place: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from leadrope.workflows import library\n"
        "library.load(Path(sys.argv[1]), leadrope_home=Path('home'))\n"
        "print([name for name in sys.modules if 'inside' in name])"
    )
    words = (sys.executable, "-c", script, str(place / "ws/silent.flow.md"))
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_load_tells_it_where_the_home_is_known_and_leaves_it_to_the_run_elsewhere(place: Path) -> None:
    path = place / "ws/outer.flow.md"
    path.write_text(call("nowhere"))
    assert library.load(path).workflow.steps[0].id == "call"
    with pytest.raises(BadWorkflow, match="there is no workflow 'nowhere'"):
        library.load(path, leadrope_home=place / "home")


def test_a_problem_inside_is_a_value_as_any_other(place: Path) -> None:
    (found,) = judged(place, call("inn.flow.md"))
    assert msgspec.json.decode(msgspec.json.encode(found))["path"] == ["steps", "call", "workflow"]
