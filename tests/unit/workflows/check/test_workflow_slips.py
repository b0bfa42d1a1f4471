"""Slips: a parameter that slid into the value above it, forgotten marks, rings; each is told once and in words."""

from __future__ import annotations

import pytest

from leadrope.workflows.check.check import check_document
from leadrope.workflows.check.order import RINGS_MOST
from leadrope.workflows.check.step import StepType
from leadrope.workflows.language import markdown

OK = "### one\n\nDoes it.\n\n- type: shell\n- command: echo\n\n"  # 7 lines

SLIPS: dict[str, tuple[str, list[tuple[str, int, int, str | None]]]] = {
    # name: text, [(kind, line, column, suggestion)]
    "a parameter indented below a command": (
        OK[:-1] + "  - timeout: 5\n",
        [("indented_parameter", 7, 3, "- timeout: 5")],
    ),
    "without a dash": (OK[:-1] + "   timeout: 5\n", [("indented_parameter", 7, 4, "- timeout: 5")]),
    "behind an empty line": (OK + "  retry: 3\n", [("indented_parameter", 8, 3, "- retry: 3")]),
    "below a value in quotes": (
        OK[:-1].replace("echo", '"echo"') + "  - cwd: x\n",
        [("indented_parameter", 7, 3, "- cwd: x")],
    ),
    "below a type": ("### a\n\nx\n\n- type: shell\n  - command: x\n", [("indented_parameter", 6, 3, "- command: x")]),
    "below a number": (
        OK + "- timeout: 5\n  - retry: {max: 2}\n    cwd: x\n",
        [("indented_parameter", 9, 3, "- retry: {max: 2}")],
    ),
    "below a list": (
        OK + "### b\n\nx\n\n- type: email\n- to: [x]\n  - subject: x\n",
        [("indented_parameter", 14, 3, "- subject: x")],
    ),
    "what is needed below a text": (
        "### a\n\nx\n\n- type: write-file\n- content: x\n  file_path: y\n",
        [("indented_parameter", 7, 3, "- file_path: y")],
    ),
    "below an input's type": (
        "## Inputs\n### a\n- type: string\n  - default: x\n## Steps\n" + OK.replace("echo", "${a}"),
        [("indented_parameter", 4, 3, "- default: x")],
    ),
    "a source below a description": (
        OK + "## Outputs\n### x\n- description: y\n  source: ${one.stdout}\n",
        [("indented_parameter", 11, 3, "- source: ${one.stdout}")],
    ),
    "below a setting": (
        OK + "## Settings\n- budget: 2\n  concurrency: 3\n",
        [("indented_parameter", 10, 3, "- concurrency: 3")],
    ),
    "source without its marks": (
        OK + "## Outputs\n### a\n- source: one\n### b\n- source: one.stdout\n### c\n- source: '{{one.results[0]}}'\n",
        [
            ("no_template", 10, 11, "${one}"),
            ("no_template", 12, 11, "${one.stdout}"),
            ("no_template", 14, 11, "${one.results[0]}"),
        ],
    ),
    "source that names an input": (
        "## Inputs\n### n\n## Steps\n" + OK.replace("echo", "${n}") + "## Outputs\n### a\n- source: n\n",
        [("no_template", 13, 11, "${n}")],
    ),
    "items that are a number": (OK + "- batch: {items: 3}\n", [("wrong_type", 8, 18, None)]),
    "items that are a map": (OK + "- batch: {items: {a: [1]}}\n", [("wrong_type", 8, 18, None)]),
    "items without their marks": (
        OK + "### b\n\nx\n\n- type: note\n- batch: {items: one.stdout}\n",
        [("wrong_type", 13, 18, "${one.stdout}")],
    ),
    "items from a number": (
        OK + "### b\n\nx\n\n- type: note\n- batch: {items: '${one.exit_code}'}\n",
        [("wrong_type", 13, 19, None)],
    ),
    "items from words": (
        OK + "### b\n\nx\n\n- type: note\n- batch: {items: 'all ${one.stdout}'}\n",
        [("wrong_type", 13, 18, None)],
    ),
    "a batch with a mistake, and what would come of it": (
        (
            "### a\n\nx\n\n- type: shell\n- command: ${item} ${__index__}\n- batch: {items: [1], max_concurrent: 0}\n\n"
            "### b\n\nx\n\n- type: shell\n- command: echo ${a.results[0]}\n"
        ),
        [("wrong_type", 7, 39, None)],
    ),
    "a loop with a mistake, and what would come of it": (
        (
            "### a\n\nx\n\n- type: shell\n- command: echo ${said}\n- loop: {carry: {said: x}, max_iterations: 0}\n\n"
            "### b\n\nx\n\n- type: shell\n- command: echo ${a.iterations}\n"
        ),
        [("wrong_type", 7, 44, None)],
    ),
    "a name under as": (OK + '- batch: {items: [1], as: "a b"}\n', [("wrong_type", 8, 27, None)]),
    "inside a step of a name that is taken": (
        OK + "- next: []\n\n### one\n\nx\n\n- type: shell\n- comand: x ${oen.stdout}\n",
        [
            ("duplicate_id", 10, 1, None),
            ("unknown_parameter", 15, 3, "command"),
            ("unknown_template", 15, 13, "${one.stdout}"),
        ],
    ),
    "inside an input of a name that is taken": (
        "## Inputs\n### a\n### a\n- type: strng\n## Steps\n" + OK.replace("echo", "${a}"),
        [("duplicate_id", 3, 1, None), ("wrong_type", 4, 9, "string")],
    ),
    "a ring inside a ring": (
        (
            "### a\n\nx\n\n- type: note\n\n### b\n\nx\n\n- type: note\n- next: [a, c]\n\n"
            "### c\n\nx\n\n- type: note\n- after: b\n\n### d\n\nx\n\n- type: note\n- next: [c, a]\n"
        ),
        [("cycle", 1, 1, None), ("cycle", 1, 1, None), ("cycle", 14, 1, None)],
    ),
    "templates in quotes": (
        OK + '### b\n\nx\n\n- type: http\n- url: \'a ${c}\'\n- headers: {x: "y ${d}", z: "\\t${e}"}\n',
        [("unknown_template", 13, 11, None), ("unknown_template", 14, 19, None), ("unknown_template", 14, 29, None)],
    ),
    "the only block names a language": (
        "### a\n\nx\n\n- type: shell\n\n```bash\nls\n```\n",
        [("untagged_fence", 7, 1, "```shell command")],
    ),
    "the only block names nothing": (
        "### a\n\nx\n\n- type: agent\n\n```\nls\n```\n",
        [("untagged_fence", 7, 1, "```prompt")],
    ),
    "a block of values is not text": (
        "### a\n\nx\n\n- type: agent\n\n```yaml\ntype: object\n```\n",
        [("missing_parameter", 1, 1, None), ("untagged_fence", 7, 1, None)],
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_each_slip_is_told_once_with_its_place(name: str, types: dict[str, StepType]) -> None:
    text, expected = SLIPS[name]
    found = check_document(markdown.read(text), types)
    assert [(one.kind, one.line, one.column, one.suggestion) for one in found] == expected, told(text, types)
    assert all(one.severity == "error" for one in found)


MEANT = [
    "- type: http\n- url: x\n- headers:\n    timeout: 5\n    method: x\n",
    "- type: http\n- url: x\n- headers: {timeout: 5,\n    method: x}\n",
    "- type: http\n- url: x\n- body:\n  - timeout: 5\n  - retry: 3\n",
    "- type: note\n- batch:\n    items:\n      - type: x\n        timeout: 5\n    as: one\n",
    "- type: agent\n- prompt: x\n- output_schema:\n    type: object\n    properties:\n      timeout: {type: integer}\n",
    "- type: shell\n- command: |\n    timeout: 5\n    - retry: 3\n",
    "- type: agent\n- prompt: >\n    timeout: 5\n",
    '- type: agent\n- prompt: "one\n    timeout: 5"\n',
    "- type: agent\n- prompt: Write this\n    server:\n      timeout: 5\n",
    "- type: agent\n- prompt: Write this\n    whatever: 5\n    - other: 3\n",
    "- type: agent\n- prompt: see timeout: 5\n    and the timeout: 6\n",
    "- type: shell\n\n```shell command\ncat\n  - timeout: 5\n  retry: 3\n```\n",
    "- type: agent\n- prompt: x\n\n```yaml output_schema\ntype: object\ndescription: x\n```\n",
    "- type: note\n- batch: {items: '[1, 2]'}\n",
    "- type: note\n- batch: {items: '[${1}]'}\n",
    "- type: note\n- batch: {items: []}\n",
]


@pytest.mark.parametrize("step", MEANT)
def test_what_is_meant_is_told_by_nothing(step: str, types: dict[str, StepType]) -> None:
    assert not check_document(markdown.read(f"### a\n\nx\n\n{step}"), types)


def told(text: str, types: dict[str, StepType]) -> str:
    return "\n".join(str(one) for one in check_document(markdown.read(text), types))


def test_an_indented_type_is_read_as_what_stands_on_its_line(types: dict[str, StepType]) -> None:
    document = markdown.read("### a\n\nx\n\n- type: shell\n  - command: x\n- cdw: x\n")
    assert document.workflow.steps[0].type == "shell"
    assert [one.kind for one in check_document(document, types)] == ["indented_parameter", "unknown_parameter"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OK + "## Settings\n- budget: 0\n", "settings.budget: must be more than 0, found 0"),
        (OK + "- batch: {items: 3}\n", "batch.items: expected a list, or a template that gives one, found 3"),
        (
            OK + '- batch: {items: [1], as: "a b"}\n',
            "batch.as: 'a b' is no name. A name starts with a letter or _, followed",
        ),
        ("### five six\n\nx\n\n- type: note\n", "; did you mean five-six? A name starts"),
        (OK.replace("echo", "${one.x[0}"), "expected `]`, found `}`"),
        (OK.replace("echo", "${one.x[0"), "expected `]`, found the end of the text"),
        (OK.replace("echo", "${one.x[0.5]}"), "expected a whole number"),
        (OK.replace("echo", "${zzz}") + "- batch: {items: [1], as: one}\n", "(available: one, __index__)"),
        (OK + "## Outputs\n### a\n- source: one.stdout\n", 'The text itself is written `${"one.stdout"}`.'),
        (OK + "## Outputs\n### a\n- source: done\n", "the output 'a' is always 'done': its source has no template"),
        (
            OK + "### two\n\nx\n\n- type: shell\n- command: ${one.stdout}\n- next: one\n",
            "one -> two -> one. `next` of 'two' leads back to 'one'.",
        ),
        (OK + "- after: two\n\n### two\n\nx\n\n- type: note\n", "'one' is `after` 'two', which comes after it."),
        (
            "### a\n\nx\n\n- type: shell\n- command: ${b.stdout}\n\n" + OK.replace("one", "b"),
            "'a' uses ${b…}, which is there only after it.",
        ),
        (
            OK + "### two\n\nx\n\n- type: note\n- after: one\n- on-error: one\n",
            "`on-error` of 'two' leads back to 'one'.",
        ),
    ],
)
def test_the_words(text: str, words: str, types: dict[str, StepType]) -> None:
    assert words in told(text, types)


def test_many_rings_are_told_up_to_a_bound(types: dict[str, StepType]) -> None:
    steps = [
        f"### s{n}\n\nx\n\n- type: note\n- next: [{', '.join(f's{m}' for m in range(40) if m != n)}]\n"
        for n in range(40)
    ]
    found = check_document(markdown.read("\n".join(steps)), types)
    assert sum(one.kind == "cycle" for one in found) == RINGS_MOST
