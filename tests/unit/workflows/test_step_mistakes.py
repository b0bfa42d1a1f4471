"""What the real kinds of steps know to be wrong before anything runs: told at its place, and never of a template."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope.workflows.check.check import check_document
from leadrope.workflows.language import markdown
from leadrope.workflows.problems import WorkflowProblem
from leadrope.workflows.steps.registry import TYPES

HEAD = "## Inputs\n### any\n- type: any\n## Steps\n### a\n\nx ${any}\n\n"  # 8 lines
END = "\n## Outputs\n### o\n- source: ${any}\n"


def problems(step: str) -> list[WorkflowProblem]:
    return list(check_document(markdown.read(HEAD + step + END), TYPES))


WRONG: list[tuple[str, int, int, str]] = [
    # step, line and column, a part of the message
    ("- type: agent\n- prompt: ' '\n", 10, 11, "prompt: it is empty"),
    ("- type: agent\n- prompt: x\n- max_turns: 1\n- output_schema: ${any}\n", 11, 14, "at least 2 turns"),
    ("- type: agent\n- prompt: x\n- output_schema: {type: objekt}\n", 11, 18, "is not a valid JSON Schema"),
    ("- type: agent\n- prompt: x\n- sandbox: {enable: true}\n", 11, 13, "did you mean enabled?"),
    ("- type: agent\n- prompt: x\n- sandbox: {enabled: maybe}\n", 11, 22, "sandbox.enabled: expected true or false"),
    ("- type: agent\n- prompt: x\n- sandbox: {excludedCommands: docker}\n", 11, 31, "expected a list"),
    ("- type: agent\n- prompt: x\n- sandbox: {excludedCommands: [[a]]}\n", 11, 32, "expected text"),
    ("- type: agent\n- prompt: x\n- sandbox: {network: true}\n", 11, 22, "sandbox.network: expected a map"),
    ("- type: agent\n- prompt: x\n- sandbox: {network: {allowLocalBindings: true}}\n", 11, 23, "allowLocalBinding?"),
    ("- type: agent\n- prompt: x\n- sandbox: {network: {allowLocalBinding: 5}}\n", 11, 42, "expected true or false"),
    ("- type: agent\n- prompt: x\n- sandbox: {network: {httpProxyPort: x}}\n", 11, 38, "expected a whole number"),
    ("- type: agent\n- prompt: x\n- allowed_tools: [Read, 'Bash(']\n", 11, 18, "Close the parenthesis."),
    ("- type: agent\n- prompt: x\n- allowed_tools: [Raed]\n", 11, 18, "no tool 'Raed'. Did you mean Read?"),
    ("- type: agent\n- prompt: x\n- allowed_tools: ['Bahs(git:*)']\n", 11, 18, "Did you mean Bash(git *)?"),
    ("- type: agent\n- prompt: x\n- allowed_tools: ['Bash(:*)']\n", 11, 18, "is not supported here"),
    ("- type: agent\n- prompt: x\n- disallowed_tools: [bash]\n", 11, 21, "Did you mean Bash?"),
    ("- type: agent\n- prompt: x\n- disallowed_tools: ['Bash(a; b)']\n", 11, 21, "Write one pattern per program."),
    ("- type: agent\n- prompt: x\n- disallowed_tools: ['Bash(a && b:*)']\n", 11, 21, "can never match"),
    ("- type: agent\n- prompt: x\n- cwd: /etc/ssh\n", 11, 8, "cwd: directory '/etc/ssh' belongs to the system"),
    ("- type: agent\n- prompt: x\n- cwd: /\n", 11, 8, "belongs to the system"),
    ("- type: agent\n- prompt: x\n- cwd: /tmp/../usr\n", 11, 8, "belongs to the system"),
    ("- type: agent\n- prompt: x\n- resume: ''\n", 11, 11, "resume: it is empty. Name a session"),
    ("- type: agent\n- prompt: x\n- model: ' '\n", 11, 10, "model: it is empty. Name a tier"),
    ("- type: llm\n- prompt: x\n- model: ''\n", 11, 10, "model: it is empty"),
    ("- type: structure\n- text: x\n- mode: ai\n- model: ''\n", 12, 10, "model: it is empty"),
    ("- type: agent\n- prompt: x\n- provider: claud-code\n", 11, 13, "did you mean claude-code?"),
    ("- type: agent\n- prompt: x\n- allowed_tools: Read, Grep\n", 11, 18, "A list is written [Read, Grep]."),
    ("- type: llm\n- prompt: x\n- output_schema: {}\n", 11, 18, "is empty: every answer would fit"),
    ("- type: code\n- code: 'def ('\n", 10, 9, "it is not Python: line 1"),
    ("- type: code\n- code: result = lenn([1])\n", 10, 9, "line 1: 'lenn' is not defined"),
    ("- type: code\n\n```python code\nx: Lst\nresult = x\n```\n- inputs: {x: 1}\n", 12, 1, "'Lst' is not defined"),
    ("- type: code\n- code: result = 1\n- inputs: {a b: 1}\n", 11, 11, "'a b' cannot be the name of a variable"),
    ("- type: output\n- content: x\n- name: My Report\n", 11, 9, "holds a space. Allowed are letters, digits"),
    ("- type: output\n- content: x\n- name: ../up\n", 11, 9, "begins with a dot"),
    ("- type: wait\n", 9, 9, "wait takes `seconds` or `until`"),
    ("- type: wait\n- seconds: 86401\n", 10, 12, "86401 is out of range"),
    ("- type: wait\n- until: soon\n", 10, 10, "'soon' is not a time"),
    ("- type: wait\n- until: 2030-01-01\n- seconds: 1\n", 10, 10, "one of them"),
    ("- type: condition\n", 9, 9, "the condition says nothing"),
    ("- type: condition\n- text: x\n- regex: '(('\n", 11, 10, "not a regular expression: missing )"),
    ("- type: condition\n- text: x\n- contains: a\n- regex: b\n", 12, 10, "both are given"),
    ("- type: condition\n- text: x\n- contains: null\n", 11, 13, "null is nothing to look for"),
    ("- type: condition\n- value: 1\n- expression: value = 1\n", 11, 15, "did you mean `==`?"),
    ("- type: condition\n- expression: any > 1\n", 10, 15, "any must be written ${any}"),
    ("- type: structure\n- text: x\n- columns: ['price: numbr']\n", 11, 12, "Did you mean number?"),
    ("- type: structure\n- text: x\n- mode: ai\n- provider: gtp\n", 12, 13, "there is no 'gtp'"),
    ("- type: http\n- url: ftp://example.com\n", 10, 8, "only http and https"),
    ("- type: http\n- url: ${any}\n- body: a\n- form: {a: b}\n", 12, 9, "body and form are both given"),
    ("- type: http\n- url: ${any}\n- expect: [2xy]\n", 11, 11, "'2xy' is not a status"),
    ("- type: email\n- to: nobody\n- subject: x\n- body: x\n", 10, 7, "'nobody' is not a mail address"),
    ("- type: email\n- to: 5\n- subject: x\n- body: x\n", 10, 7, "'5' is not a mail address"),
    ("- type: email\n- to: a@b.de\n- subject: x\n", 9, 9, "the mail says nothing"),
    ("- type: email\n- to: a@b.de\n- body: x\n- subject: " + "x" * 256 + "\n", 12, 12, "it has 256 characters"),
    (
        "- type: email\n- subject: x\n- body: x\n- to: [" + ", ".join(f"a{n}@b.de" for n in range(51)) + "]\n",
        12,
        7,
        "51 addresses are more than 50",
    ),
    ("- type: approval\n- message: x\n- choices: [a, b, a]\n", 11, 12, "'a' is there twice"),
    ("- type: approval\n- message: x\n- choices: [go, denied]\n", 11, 12, "`denied` is the branch of a no"),
    ("- type: approval\n- message: x\n- choices: [1]\n", 11, 13, 'In quotes it is a text: "1".'),
    ("- type: approval\n- message: x\n- next: {approved: [], no: []}\n", 11, 24, "never chooses 'no'"),
    (
        "- type: approval\n- message: x\n- choices: [later]\n- next: {latr: [], denied: []}\n",
        12,
        10,
        "did you mean later?",
    ),
    ("- type: condition\n- value: 1\n- next: {yess: [], no: []}\n", 11, 10, "did you mean yes?"),
    ("- type: shell\n- command: x\n- next: {yes: []}\n", 11, 10, "a step of the type 'shell' chooses no branch"),
    ("- type: shell\n- command: eval ${any}\n", 10, 12, "reads its words as code"),
    ("- type: note\n- text: 1.10\n", 10, 9, 'In quotes it is a text: "1.10".'),
    ("- type: note\n- text: 007\n", 10, 9, 'In quotes it is a text: "007".'),
]


@pytest.mark.parametrize(("step", "line", "column", "told"), WRONG)
def test_what_cannot_be_meant_is_told_at_its_place(step: str, line: int, column: int, told: str) -> None:
    (found,) = problems(step)
    assert (found.line, found.column, found.severity) == (line, column, "error"), str(found)
    assert told in str(found)


def test_a_link_into_a_folder_of_the_system_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (found,) = problems(f"- type: agent\n- prompt: x\n- cwd: {tmp_path}/link\n")
    assert "belongs to the system" in str(found)


FITTING = [
    "- type: shell\n- command: true\n",
    "- type: shell\n- command: 42\n",
    "- type: note\n- text: 42\n",
    "- type: note\n- text: false\n",
    "- type: agent\n- prompt: ${any}\n- output_schema: ${any}\n- sandbox: ${any}\n- provider: ${any}\n",
    "- type: agent\n- prompt: x\n- allowed_tools: ['Bash(git:*)', 'Bash(git push *)', mcp__docs, NewTool]\n",
    "- type: agent\n- prompt: x\n- disallowed_tools: ['WebFetch(domain:example.com)', 'Bash(npm run test:*)', Task]\n",
    "- type: agent\n- prompt: x\n- allowed_tools: ${any}\n- disallowed_tools: ['${any}']\n",
    "- type: agent\n- prompt: x\n- cwd: ${any}\n- resume: ${any}\n- model: ${any}\n",
    "- type: agent\n- prompt: x\n- cwd: nowhere\n",
    '- type: agent\n- prompt: x\n- cwd: "/a\\0b"\n',
    "- type: agent\n- prompt: x\n- cwd: /nowhere/etc\n",
    "- type: agent\n- prompt: x\n- sandbox: {enabled: '${any}', network: '${any}', excludedCommands: [docker]}\n",
    "- type: agent\n- prompt: x\n- sandbox: {network: {allowUnixSockets: [/s], allowLocalBinding: true}}\n",
    "- type: wait\n- seconds: ${any}\n",
    "- type: output\n- content: x\n- name: a b ${any}\n",
    "- type: output\n- content: x\n- name: Übersicht_2024.Q1\n",
    "- type: condition\n- text: ${any}\n- regex: ${any}\n- next: {yes: [], no: []}\n",
    "- type: condition\n- value: ${any}\n- expression: value > 3 and line contains ${any}\n- next: {else: []}\n",
    "- type: structure\n- text: ${any}\n- columns: ['${any}']\n",
    "- type: http\n- url: ${any}\n- expect: ['${any}']\n",
    "- type: email\n- to: ['${any}']\n- subject: ${any}\n- html: ${any}\n",
    "- type: approval\n- message: x\n- choices: ${any}\n- next: {this: [], that: []}\n",
    "- type: code\n- code: 'return 1'\n- inputs: ${any}\n",
    "- type: code\n- code: 'print 1'\n- python: /usr/bin/python2\n",
]


@pytest.mark.parametrize("step", FITTING)
def test_what_is_not_yet_known_is_not_judged(step: str) -> None:
    assert not problems(step)


@pytest.mark.parametrize(
    ("step", "line", "column", "text"),
    [
        ("- type: shell\n- command: x\n- env: {VERSION: 1.10}\n", 11, 18, "1.10"),
        ("- type: shell\n- command: [x, 007]\n", 10, 16, "007"),
        ("- type: http\n- url: ${any}\n- headers: {X-On: True}\n", 11, 19, "True"),
    ],
)
def test_a_number_that_would_be_written_another_way_is_a_warning(step: str, line: int, column: int, text: str) -> None:
    (found,) = problems(step)
    assert (found.kind, found.line, found.column, found.severity) == ("respelt", line, column, "warning")
    assert f'In quotes it is a text: "{text}".' in str(found)
