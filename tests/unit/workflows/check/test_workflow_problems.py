"""Bad files: every mistake is told once, with its line and column and what was probably meant."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.workflows.check.check import check_document
from leadrope.workflows.check.step import StepType
from leadrope.workflows.language import markdown
from leadrope.workflows.problems import BadWorkflow

S = "## Steps\n\n"
OK = "### one\n\nDoes it.\n\n- type: shell\n- command: echo\n\n"  # 7 lines

BAD: dict[str, tuple[str, list[tuple[str, int, int, str | None]]]] = {
    # name: text, [(kind, line, column, suggestion)]
    "empty file": ("", [("no_steps", 1, 1, None)]),
    "only a title": ("# Title\n\nProse.\n", [("no_steps", 1, 1, None)]),
    "empty section": ("# T\n\n## Steps\n", [("no_steps", 3, 1, None)]),
    "unknown section": (OK + "## Outpts\n", [("unknown_section", 8, 1, "Outputs")]),
    "unknown section, far": (OK + "## Appendix\n", [("unknown_section", 8, 1, None)]),
    "notes misspelt are no steps": (OK + "## Note\n\nBuy milk.\n", [("unknown_section", 8, 1, "Notes")]),
    "misspelt Steps still read": (
        "## Stpes\n\n### a\n\nx\n\n- type: shel\n- command: x\n",
        [("unknown_section", 1, 1, "Steps"), ("unknown_type", 7, 9, "shell")],
    ),
    "section twice": (S + OK + "## Steps\n\n### two\n\nx\n\n- type: note\n", [("duplicate_section", 10, 1, None)]),
    "title twice": ("# A\n# B\n" + OK, [("second_title", 2, 1, None)]),
    "title below steps": (OK + "# Late\n", [("late_title", 8, 1, None)]),
    "duplicate step": (OK + "### one\n\nx\n\n- type: note\n", [("duplicate_id", 8, 1, None)]),
    "duplicate input": (
        "## Inputs\n### a\n### a\n## Steps\n" + OK.replace("echo", "${a}"),
        [("duplicate_id", 3, 1, None)],
    ),
    "input and step of one name": (
        "## Inputs\n### one\n## Steps\n" + OK,
        [("duplicate_id", 4, 1, None)],
    ),
    "step name with spaces": (
        "### My Step\n\nx\n\n- type: note\n",
        [("bad_id", 1, 1, "my-step")],
    ),
    "step without a name": ("###\n\nx\n\n- type: note\n", [("bad_id", 1, 1, None)]),
    "no type": ("### a\n\nx\n\n- command: x\n", [("no_type", 1, 1, None)]),
    "type misspelt": ("### a\n\nx\n\n- tpye: shell\n", [("no_type", 5, 3, "type")]),
    "unknown type": ("### a\n\nx\n\n- type: claude_cod\n- prompt: x\n", [("unknown_type", 5, 9, "claude-code")]),
    "type is a list": ("### a\n\nx\n\n- type: [shell]\n", [("wrong_type", 5, 9, None)]),
    "unknown parameter": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n- max-turn: 3\n",
        [("unknown_parameter", 7, 3, "max_turns")],
    ),
    "unknown parameter in a block": (
        "### a\n\nx\n\n- type: shell\n\n```shell comand\nls\n```\n",
        [("unknown_parameter", 7, 1, "command")],
    ),
    "what every step may say, misspelt": (
        OK + "- retyr: {max: 2}\n- on-eror: two\n",
        [("unknown_parameter", 8, 3, "retry"), ("unknown_parameter", 9, 3, "on-error")],
    ),
    "missing parameter": ("### a\n\nx\n\n- type: shell\n", [("missing_parameter", 1, 1, None)]),
    "parameter twice": (OK + "- command: again\n", [("duplicate_parameter", 8, 3, None)]),
    "parameter and block": (OK + "```shell command\nls\n```\n", [("duplicate_parameter", 8, 1, None)]),
    "on-error twice": (
        "### a\n\nx\n\n- type: note\n- on-error: b\n- on_error: b\n\n### b\n\nx\n\n- type: note\n",
        [("duplicate_parameter", 7, 3, None)],
    ),
    "unclosed fence": (
        "### a\n\nx\n\n- type: shell\n\n```shell command\nls\n",
        [("unclosed_fence", 7, 1, None)],
    ),
    "unclosed fence before another": (
        "### a\n\nx\n\n- type: shell\n\n```shell command\nls\n\n### b\n\nx\n\n- type: code\n\n```python code\n1\n```\n",
        [("unclosed_fence", 7, 1, None)],
    ),
    "fence without a parameter": (OK + "```\nls\n```\n", [("untagged_fence", 8, 1, None)]),
    "fence with a language only": (OK + "```python\nls\n```\n", [("untagged_fence", 8, 1, None)]),
    "YAML error in a block": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n\n```yaml output_schema\ntype: object\nproperties: [a\n```\n",
        [("yaml", 11, 1, None)],
    ),
    "key twice in a block": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n\n```yaml sandbox\nenabled: true\nenabled: false\n```\n",
        [("yaml", 10, 1, None)],
    ),
    "alias": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n\n```yaml output_schema\na: &x [1]\nb: *x\n```\n",
        [("yaml", 9, 4, None)],
    ),
    "tag": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n\n```yaml output_schema\na: !!python/name:os.system x\n```\n",
        [("yaml", 9, 4, None)],
    ),
    "YAML error below a key": (
        "### a\n\nx\n\n- type: http\n- url: x\n- headers:\n    a: b: c\n",
        [("yaml", 8, 9, None)],
    ),
    "bullet that is no parameter": (OK + "- just words\n", [("not_a_parameter", 8, 1, None)]),
    "text right below a parameter": (
        "### a\n\nx\n\n- type: shell\n- command: a\nb\n",
        [("loose_text", 7, 1, None)],
    ),
    "parameter outside a step": ("## Steps\n- type: shell\n\n" + OK, [("outside_entry", 2, 3, None)]),
    "wrong type of a parameter": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n- max_turns: many\n",
        [("wrong_type", 7, 14, None)],
    ),
    "out of bounds": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n- max_turns: 101\n- timeout: 5\n",
        [("wrong_type", 7, 14, None), ("wrong_type", 8, 12, None)],
    ),
    "wrong type deep inside": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n\n```yaml sandbox\nenabled: true\nexcludedCommands:\n  - 5\n```\n",
        [("wrong_type", 11, 5, None)],
    ),
    "unknown key deep inside": (
        "### a\n\nx\n\n- type: agent\n- prompt: x\n- sandbox: {enable: true}\n",
        [("wrong_type", 7, 13, "enabled")],
    ),
    "value of an enum": (
        "### a\n\nx\n\n- type: http\n- url: x\n- method: PSOT\n",
        [("wrong_type", 7, 11, "POST")],
    ),
    "list that is no YAML": (
        '### a\n\nx\n\n- type: agent\n- prompt: x\n- allowed_tools: ["Read"\n',
        [("not_yaml", 7, 18, None), ("wrong_type", 7, 18, None)],
    ),
    "batch with an unknown key": (
        OK + "- batch:\n    items: [1]\n    max_concurent: 4\n",
        [("unknown_key", 10, 5, "max_concurrent")],
    ),
    "batch without items": (OK + "- batch: {as: x}\n", [("wrong_type", 8, 10, None)]),
    "batch too wide": (OK + "- batch:\n    items: [1]\n    max_concurrent: 101\n", [("wrong_type", 10, 21, None)]),
    "retry that is no map": (OK + "- retry: 3\n", [("wrong_type", 8, 10, None)]),
    "a retry that is none": (OK + "- retry: {max: 1}\n", [("no_retry", 8, 16, None)]),
    "a retry of exit codes that is not asked for": (
        OK + "- retry: {max: 3}\n",
        [("exit_code_not_retried", 8, 10, None)],
    ),
    "retry on what is no exit code": (
        OK + "- retry: {max: 3, retry_on: [exit_cod]}\n",
        [("wrong_type", 8, 30, "exit_code")],
    ),
    "too many retries": (OK + "- retry: {max: 11}\n", [("wrong_type", 8, 16, None)]),
    "loop with two ends": (OK + "- loop: {while: a, until: b}\n", [("wrong_type", 8, 9, None)]),
    "time-out in words": (OK + "- timeout: soon\n", [("wrong_type", 8, 12, None)]),
    "approval misspelt": (OK + "- approval: requierd\n", [("wrong_type", 8, 13, "required")]),
    "after an unknown step": (OK + "### two\n\nx\n\n- type: note\n- after: on\n", [("unknown_step", 13, 10, "one")]),
    "next is an unknown step": (
        OK + "- next: tow\n\n### two\n\nx\n\n- type: note\n- after: one\n",
        [("unknown_step", 8, 9, "two")],
    ),
    "on-error is an unknown step": (OK + "- on-error: fix\n", [("unknown_step", 8, 13, None)]),
    "step after itself": (OK + "- next: one\n", [("cycle", 8, 9, None)]),
    "cycle": (
        OK + "- after: two\n\n### two\n\nx\n\n- type: note\n",
        [("cycle", 1, 1, None)],
    ),
    "cycle through a template": (
        "### a\n\nx\n\n- type: shell\n- command: ${b.stdout}\n\n### b\n\nx\n\n- type: shell\n- command: x\n",
        [("cycle", 1, 1, None)],
    ),
    "unreachable": (
        OK + "- next: three\n\n### two\n\nx\n\n- type: note\n\n### three\n\nx\n\n- type: note\n- after: []\n",
        [("unreachable_step", 10, 1, None)],
    ),
    "unknown template": (
        OK + "### two\n\nx\n\n- type: shell\n- command: echo ${oen.stdout}\n",
        [("unknown_template", 13, 17, "${one.stdout}")],
    ),
    "unknown template in a block": (
        OK + "### two\n\nx\n\n- type: shell\n\n```shell command\ntrue\necho ${noe.stdout}\n```\n",
        [("unknown_template", 16, 6, "${one.stdout}")],
    ),
    "unknown output": (
        OK + "### two\n\nx\n\n- type: shell\n- command: echo ${one.stdot}\n",
        [("unknown_template", 13, 17, "${one.stdout}")],
    ),
    "a path into a number": (
        OK + "### two\n\nx\n\n- type: shell\n- command: echo ${one.exit_code.x}\n",
        [("unknown_template", 13, 17, None)],
    ),
    "a path into an input that is a number": (
        "## Inputs\n### n\n- type: int\n## Steps\n" + OK.replace("echo", "echo ${n.x}"),
        [("unknown_template", 10, 17, None)],
    ),
    "a key of a list": (
        OK + "- batch: {items: [1]}\n\n### two\n\nx\n\n- type: shell\n- command: echo ${one.results.stdout}\n",
        [("unknown_template", 15, 17, "${one.results[*].stdout}")],
    ),
    "a path into a number of the schema": (
        (
            "### a\n\nx\n\n- type: agent\n- prompt: x\n- output_schema: {properties: {n: {$ref: '#/$defs/N'}}, "
            "$defs: {N: {type: integer}}}\n\n### b\n\nx\n\n- type: shell\n- command: echo ${a.result.n.x}\n"
        ),
        [("unknown_template", 14, 17, None)],
    ),
    "output of a batch": (
        OK + "- batch: {items: [1]}\n\n### two\n\nx\n\n- type: shell\n- command: echo ${one.stdout}\n",
        [("unknown_template", 15, 17, None)],
    ),
    "a step called end": (
        OK + "- next: end\n\n### end\n\nx\n\n- type: note\n",
        [("bad_id", 10, 1, "end-step")],
    ),
    "a branch that is never chosen": (
        (
            "### a\n\nx\n\n- type: condition\n- value: 1\n- next: {yess: b, else: c}\n\n"
            "### b\n\nx\n\n- type: note\n- next: end\n\n### c\n\nx\n\n- type: note\n"
        ),
        [("unknown_branch", 7, 10, "yes")],
    ),
    "a branch that ends where another begins": (
        (
            "### a\n\nx\n\n- type: condition\n- value: 1\n- next: {yes: b, no: d}\n\n### b\n\nx\n\n- type: note\n\n"
            "### c\n\nx\n\n- type: note\n\n### d\n\nx\n\n- type: note\n\n### e\n\nx\n\n- type: note\n"
        ),
        [("unsaid_end", 15, 1, None)],
    ),
    "branches that a step below joins": (
        (
            "### a\n\nx\n\n- type: condition\n- value: 1\n- next: {yes: b, no: c}\n\n### b\n\nx\n\n- type: note\n\n"
            "### c\n\nx\n\n- type: note\n\n### d\n\nx\n\n- type: note\n- after: [b, c]\n"
        ),
        [],
    ),
    "code that chooses without saying among what": (
        "### a\n\nx\n\n- type: code\n- code: next = 'b'\n\n### b\n\nx\n\n- type: note\n",
        [("undeclared_next", 6, 9, None)],
    ),
    "code that chooses what is not declared": (
        "### a\n\nx\n\n- type: code\n- code: next = 'c'\n- next: [b, end]\n\n### b\n\nx\n\n- type: note\n",
        [("unknown_branch", 6, 9, None)],
    ),
    "code that chooses for each item": (
        "### a\n\nx\n\n- type: code\n- code: next = 'b'\n- batch: {items: []}\n- next: b\n### b\n\nx\n\n- type: note\n",
        [("batch_chooses", 6, 9, None)],
    ),
    "code whose branches end unsaid": (
        (
            "### a\n\nx\n\n- type: code\n- code: next = input()\n- next: [b, c]\n\n### b\n\nx\n\n- type: note\n\n"
            "### c\n\nx\n\n- type: note\n"
        ),
        [("unsaid_end", 9, 1, None)],
    ),
    "a name of every item": (
        OK + "- batch: {items: [1]}\n\n### two\n\nx\n\n- type: shell\n- command: echo ${one.results[*].stdot}\n",
        [("unknown_template", 15, 17, "${one.results[*].stdout}")],
    ),
    "every item of a number": (
        OK + "\n### two\n\nx\n\n- type: shell\n- command: echo ${one.exit_code[*]}\n",
        [("unknown_template", 14, 17, None)],
    ),
    "a step that runs although another failed": (
        OK + "- on-error: two\n\n### two\n\nx\n\n- type: note\n- next: three\n\n### three\n\nx\n\n- type: shell\n"
        "- command: echo ${one.stdout} ${one.stdout ?? 'none'}\n",
        [("may_be_missing", 22, 17, None)],
    ),
    "a branch of a step that chooses none": (
        OK + "- next: {yes: two}\n\n### two\n\nx\n\n- type: note\n",
        [("unknown_branch", 8, 10, None)],
    ),
    "shell variable": (
        "### a\n\nx\n\n- type: shell\n- command: echo ${HOME:-x}\n",
        [("bad_template", 6, 17, None)],
    ),
    "item outside a batch": (
        "### a\n\nx\n\n- type: shell\n- command: echo ${item}\n",
        [("unknown_template", 6, 17, None)],
    ),
    "not in the schema": (
        (
            "### a\n\nx\n\n- type: agent\n- prompt: x\n- output_schema: {type: object, properties: {issues: {}}}\n\n"
            "### b\n\nx\n\n- type: shell\n- command: echo ${a.result.isues}\n"
        ),
        [("unknown_template", 14, 17, "${a.result.issues}")],
    ),
    "template of the wrong type": (
        OK + "### two\n\nx\n\n- type: email\n- subject: x\n- to: ${one.exit_code}\n",
        [("wrong_type", 14, 7, None)],
    ),
    "text for a list": (
        OK + "### two\n\nx\n\n- type: email\n- subject: x\n- to: all ${one.stdout}\n",
        [("wrong_type", 14, 7, None)],
    ),
    "input of an unknown type": (
        "## Inputs\n### a\n- type: strng\n## Steps\n" + OK.replace("echo", "${a}"),
        [("wrong_type", 3, 9, "string")],
    ),
    "input with an unknown key": (
        "## Inputs\n### a\n- requird: true\n## Steps\n" + OK.replace("echo", "${a}"),
        [("unknown_parameter", 3, 3, "required")],
    ),
    "default of the wrong type": (
        "## Inputs\n### a\n- type: int\n- default: x\n## Steps\n" + OK.replace("echo", "echo ${a}"),
        [("wrong_type", 4, 12, None)],
    ),
    "two inputs from stdin": (
        "## Inputs\n### a\n- stdin: true\n### b\n- stdin: true\n## Steps\n" + OK.replace("echo", "${a} ${b}"),
        [("second_stdin", 5, 10, None)],
    ),
    "output without a source": (OK + "## Outputs\n### x\n", [("no_source", 9, 1, None)]),
    "output with an unknown template": (
        OK + "## Outputs\n### x\n- source: ${one.sdtout}\n",
        [("unknown_template", 10, 11, "${one.stdout}")],
    ),
    "unknown setting": (OK + "## Settings\n- concurency: 4\n", [("unknown_key", 9, 3, "concurrency")]),
    "several settings": (
        OK + "## Settings\n- concurrency: 0\n- budget: much\n- concurency: 1\n",
        [("wrong_type", 9, 16, None), ("wrong_type", 10, 11, None), ("unknown_key", 11, 3, "concurrency")],
    ),
    "several keys of a batch": (
        OK + "- batch: {items: [1], max_concurrent: 0, error_handling: continu}\n",
        [("wrong_type", 8, 39, None), ("wrong_type", 8, 58, "continue")],
    ),
    "rules that are none": (
        OK + "- policy: {blocked_comands: [x], workspace_only: 3}\n## Settings\n- policy: {on_ask: maybe}\n",
        [("bad_policy", 8, 12, "blocked_commands"), ("bad_policy", 8, 50, None), ("bad_policy", 10, 20, None)],
    ),
    "a rule with an entry that is none": (
        OK + "- policy: {blocked_commands: ['']}\n",
        [("bad_policy", 8, 11, None)],
    ),
    "a type by another name": ("### a\n\nx\n\n- type: bash\n- command: x\n", [("unknown_type", 5, 9, "shell")]),
    "setting out of bounds": (OK + "## Settings\n- concurrency: 0\n", [("wrong_type", 9, 16, None)]),
    "step below settings": (OK + "## Settings\n### x\n", [("unexpected_entry", 9, 1, None)]),
    "several at once": (
        (
            "### a\n\nx\n\n- type: shel\n- command: ${x}\n\n### a\n\n"
            "### b\n\nx\n\n- type: shell\n- comand: y\n- after: c\n"
        ),
        [
            ("unknown_type", 5, 9, "shell"),
            ("unknown_template", 6, 12, None),
            ("duplicate_id", 8, 1, None),
            ("unknown_parameter", 15, 3, "command"),
            ("unknown_step", 16, 10, None),
        ],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_told_once_with_its_place(name: str, types: dict[str, StepType]) -> None:
    text, expected = BAD[name]
    found = check_document(markdown.read(text), types)
    told = [(one.kind, one.line, one.column, one.suggestion) for one in found if one.kind != "no_description"]
    assert told == expected, "\n".join(map(str, found))


def test_the_table_is_long_enough() -> None:
    assert len(BAD) >= 30


def test_the_message_says_what_was_found_and_what_there_is(types: dict[str, StepType]) -> None:
    found = check_document(markdown.read("### a\n\nx\n\n- type: shel\n"), types)
    assert str(found[0]).startswith("5:9: error: there is no step type 'shel'; did you mean shell? (available: agent,")
    with pytest.raises(BadWorkflow, match=r"a\.flow\.md has 1 error"):
        markdown.read("## Steps\n\n### a b\n\nx\n\n- type: note\n").checked("a.flow.md")


WARNINGS: list[tuple[str, str, int]] = [
    ("### a\n- type: note\n", "no_description", 1),
    ("### a\n\nx\n\n- type: note\n- text: fix #3 now\n", "comment", 6),
    ('### a\n\nx\n\n- type: note\n- text: "a" b\n', "not_yaml", 6),
    ("## Inputs\n### i\n## Steps\n### a\n\nx\n\n- type: note\n", "unused_input", 2),
    (OK + "## Outputs\n### a\n- source: all done\n", "constant_output", 10),
    (OK + "## Outputs\n### a\n- source: 3\n", "constant_output", 10),
    # A text may hold a line that reads like a parameter.
    ("### a\n\nx\n\n- type: agent\n- prompt: Write\n    - model: x\n    - that: y\n", "indented_parameter", 7),
    ("### a\n\nx\n\n- type: shell\n- command: cat <<E\n    cwd: 5\n    E\n", "indented_parameter", 7),
    ('### a\n\nx\n\n- type: shell\n- command: echo "a\n    cwd: 5"\n', "indented_parameter", 7),
    (OK + "## Outputs\n### x\n- source: a ${one.stdout}\n  description: y\n", "indented_parameter", 11),
]


@pytest.mark.parametrize(("text", "kind", "line"), WARNINGS)
def test_warnings_stop_nothing(text: str, kind: str, line: int, types: dict[str, StepType]) -> None:
    (found,) = check_document(markdown.read(text), types)
    assert (found.kind, found.line, found.severity) == (kind, line, "warning")


GOOD: list[tuple[str, Any]] = [
    ("text", "text"),
    ("Review this: ${x.y}", "Review this: ${x.y}"),
    ("12", 12),
    ("-1.5", -1.5),
    ("1e3", 1000.0),
    ("true", True),
    ("yes", "yes"),
    ("null", None),
    ("", None),
    ("2024-01-31", "2024-01-31"),
    ("12:30", "12:30"),
    ("007", 7),
    ('"12"', "12"),
    ("'it''s'", "it's"),
    ("[a, 1, ${x}]", ["a", 1, "${x}"]),
    ("{a: ${x.y[0]}, b: [1]}", {"a": "${x.y[0]}", "b": [1]}),
    ('${x ?? "a: b"}', '${x ?? "a: b"}'),
    ("[urgent] fix it", "[urgent] fix it"),
    ("a: b: c", "a: b: c"),
    ("@home", "@home"),
    ("50% done", "50% done"),
    ("|\n    two\n    lines", "two\nlines\n"),
    ("one\n  two", "one two"),
    ("see: this\n  and: that", "see: this\nand: that"),
    ("\n    a: 1\n    b: [2]", {"a": 1, "b": [2]}),
    ("\n  a: 1", {"a": 1}),
    ("\n  - 1\n\n  - 2", [1, 2]),
    ("{1: a, true: b}", {"1": "a", "true": "b"}),
]


@pytest.mark.parametrize(("written", "value"), GOOD)
def test_values(written: str, value: Any) -> None:
    document = markdown.read(f"### a\n\nx\n\n- type: note\n- k: {written}\n")
    assert not document.has_errors, document.problems
    assert document.workflow.steps[0].parameters == {"k": value}


@pytest.mark.parametrize(
    ("fence", "key", "value"),
    [
        ("```prompt\na\n\nb\n```", "prompt", "a\n\nb"),
        ("```prompt theme={null} more\na\n```", "prompt", "a"),
        ("```yaml output_schema theme={null}\na: 1\n```", "output_schema", {"a": 1}),
        ('```json body\n{"a": 1e2}\n```', "body", {"a": 100.0}),
        ("```shell command\n# a comment\n### not a step\n```", "command", "# a comment\n### not a step"),
        ("~~~python code\n```\n~~~", "code", "```"),
        ("````markdown prompt\n```\nx\n```\n````", "prompt", "```\nx\n```"),
        ("  ```prompt\n  a\n    b\n  ```", "prompt", "a\n  b"),
        ("```prompt\n```", "prompt", ""),
    ],
)
def test_blocks(fence: str, key: str, value: Any) -> None:
    document = markdown.read(f"### a\r\n\r\nx\r\n\r\n- type: note\r\n\r\n{fence}\n")
    assert not document.problems
    assert document.workflow.steps[0].parameters == {key: value}


def test_a_deep_or_long_file_is_refused_and_breaks_nothing() -> None:
    deep = "### a\n\nx\n\n- type: note\n\n```yaml k\n" + "[" * 100_000 + "\n```\n"
    assert markdown.read(deep).has_errors
    assert markdown.read("x" * (markdown.CHARS_LIMIT + 1)).problems[0].kind == "too_long"
