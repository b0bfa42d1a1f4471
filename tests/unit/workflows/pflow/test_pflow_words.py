"""pflow's words for steps become leadrope's; what cannot be kept is told."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.workflows import model
from leadrope.workflows.check.check import check_document
from leadrope.workflows.language import markdown
from leadrope.workflows.language.markdown import WorkflowDocument
from leadrope.workflows.pflow import words
from leadrope.workflows.steps import registry


def read(body: str, *, head: str = "") -> WorkflowDocument:
    text = f"{head}## Steps\n\n### a\n\nDoes it.\n\n{body}\n"
    return markdown.read(text, dialect="pflow")


def said(document: WorkflowDocument) -> list[tuple[str, str]]:
    return [(one.severity, one.path[-1]) for one in document.problems]


CODEX = """- type: agent
- backend: codex
- model: gpt-5
- sandbox: read-only
- approval_policy: never
- config: {model_reasoning_effort: high}
- add_dir: [x]
- prompt: go
- mode: edit
"""

PARAMETERS: dict[str, tuple[str, dict[str, Any], list[tuple[str, str]]]] = {
    # name: what the step says; its parameters; what is told of which of them
    "a tool of a server": (
        "- type: mcp-notes-box-add_one\n- a: 1\n- b: ${x}\n- timeout: 9\n- result_format: json_block",
        {
            "result_format": "json_block",
            "tool": "notes-box-add_one",
            "arguments": {"a": 1, "b": "${x}"},
        },
        [],
    ),
    "claude": (
        "- type: agent\n- backend: claude\n- prompt: go\n- mode: edit",
        {"prompt": "go", "mode": "edit", "provider": "claude-code"},
        [],
    ),
    "codex": (
        CODEX,
        {"sandbox": "read-only", "extra_dirs": ["x"], "prompt": "go", "mode": "edit", "effort": "high"},
        [("warning", "backend"), ("warning", "model"), ("warning", "approval_policy")],
    ),
    "an agent that asks": (
        "- type: agent\n- backend: claude\n- prompt: go",
        {"prompt": "go", "provider": "claude-code"},
        [("warning", "type")],
    ),
    "sampling": (
        "- type: llm\n- temperature: 0.1\n- max_tokens: 5\n- reasoning_effort: minimal\n- prompt: go",
        {"prompt": "go", "effort": "low"},
        [("warning", "temperature"), ("warning", "max_tokens"), ("warning", "reasoning_effort")],
    ),
    "a model of Claude": (
        "- type: llm\n- model: anthropic/claude-x\n- prompt: go",
        {"model": "claude-x", "prompt": "go"},
        [],
    ),
    "a model of somebody else": (
        "- type: llm\n- model: openai/gpt-9\n- prompt: go",
        {"prompt": "go"},
        [("warning", "model")],
    ),
    "a model that an item names": (
        "- type: llm\n- model: ${item.model}\n- prompt: go",
        {"model": "${item.model}", "prompt": "go"},
        [],
    ),
    "a request": ("- type: http\n- url: https://a.example", {"url": "https://a.example", "expect": ["2xx"]}, []),
    "a request with a body and a key": (
        "- type: http\n- url: https://a.example\n- body: {a: 1}\n- api_key: ${k}\n- headers: {X: y}",
        {
            "url": "https://a.example",
            "body": {"a": 1},
            "headers": {"X": "y", "X-API-Key": "${k}"},
            "method": "POST",
            "expect": ["2xx"],
        },
        [],
    ),
    "a request with a token": (
        "- type: http\n- url: https://a.example\n- method: put\n- auth_token: t",
        {"url": "https://a.example", "method": "PUT", "auth": "t", "expect": ["2xx"]},
        [],
    ),
    "two files": (
        "- type: copy-file\n- source_path: a\n- dest_path: b",
        {"source": "a", "destination": "b"},
        [],
    ),
    "a command": ("- type: shell\n- command: ls", {"command": "ls", "strip_newlines": "all"}, []),
    "a command that keeps its newline": (
        "- type: shell\n- command: ls\n- strip_newline: false",
        {"command": "ls", "strip_newlines": "none"},
        [],
    ),
    "code": ("- type: code\n- requires: [yaml]\n- code: 1", {"code": 1}, []),
}


def test_images_are_files() -> None:
    assert read("- type: llm\n- prompt: x\n- images: a.png").workflow.steps[0].parameters["images"] == ["a.png"]
    wrong = read("- type: llm\n- prompt: x\n- images: https://a.example/b.png").problems
    assert [(one.kind, one.severity) for one in wrong] == [("wrong_value", "error")]


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    body, parameters, told = PARAMETERS[name]
    document = read(body)
    assert document.workflow.steps[0].parameters == parameters
    assert said(document) == told


def test_what_every_step_says() -> None:
    batch = read("- type: note\n- batch: {items: [1], max_concurrent: 9}").workflow.steps[0]
    assert batch.batch == model.Batch(items=[1], max_concurrent=9, parallel=False)
    assert batch.batch.at_once == 1, "pflow goes one by one unless `parallel` is true"
    tried = read("- type: note\n- batch: {items: [1], max_retries: 3, retry_wait: 2}").workflow.steps[0]
    assert tried.retry == model.Retry(max=3, wait=2)
    loop = read('- type: note\n- loop: {until: "${a.x}"}').workflow.steps[0].loop
    assert loop is not None
    assert loop.max_iterations == 100
    assert read("- type: llm\n- prompt: x").workflow.steps[0].cache is True
    assert read("- type: llm\n- prompt: x\n- cache: false").workflow.steps[0].cache is False
    assert read("- type: shell\n- command: x\n- next: b, c").workflow.steps[0].next == ("b",)
    assert read("- type: shell\n- command: x\n- next: end").workflow.steps[0].next == ()


CACHE = "## Cache\n\n- ttl: 5m\n\n```cache\nThe brief:\n\n${brief}\n\nThe plan:\n\n${plan.response}\n```\n\n"


def test_chunks_of_the_prompt_cache_are_sent() -> None:
    step = read("- type: llm\n- system: Be kind.\n- prompt_cache: [brief, plan.response]\n- prompt: go", head=CACHE)
    assert step.workflow.steps[0].parameters == {
        "system": "Be kind.\n\nThe brief:\n\n${brief}\n\nThe plan:\n\n${plan.response}",
        "prompt": "go",
    }
    wrong = read("- type: llm\n- prompt_cache: [brif]\n- prompt: go", head=CACHE).problems
    assert [(one.kind, one.available) for one in wrong] == [("wrong_value", ("brief", "plan.response"))]


def test_a_deletion_that_is_not_confirmed_is_skipped() -> None:
    document = read("- type: delete-file\n- file_path: x\n- inputs:\n    confirm_delete: ${sure}")
    assert document.workflow.steps[0].when == "${sure}"
    assert document.workflow.steps[0].parameters == {"file_path": "x"}
    assert said(document) == [("warning", "inputs")]


@pytest.mark.parametrize(
    ("value", "is_file"),
    [
        *(("./x.sh", True), ("../p/ask.md", True), ("scripts/run.py", True), ("./run", True)),
        *(("run.py", False), ("./run now", False), ("./${name}.md", False), ("https://a.example/b.md", False)),
        *(("bin/tool", False), ("", False), (5, False), ("./a\n./b", False)),
    ],
)
def test_which_values_are_files(value: Any, is_file: bool) -> None:
    assert words.is_file_reference(value) is is_file


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        ("- type: shell\n- command: ./x.sh", {"command_file": "./x.sh", "strip_newlines": "all"}),
        ("- type: llm\n- prompt: texts/p.md", {"prompt_file": "texts/p.md"}),
        ("- type: agent\n- prompt: ./p.md", {"prompt_file": "./p.md"}),
        ("- type: code\n- code: ./c.py", {"code_file": "./c.py"}),
        (
            "- type: llm\n- prompt: x\n- output_schema: ./s.yaml",
            {"prompt": "x", "output_schema_file": "./s.yaml"},
        ),
    ],
)
def test_a_file_in_place_of_a_text_is_a_file_parameter(body: str, parameters: dict[str, Any]) -> None:
    """pflow puts the text of the file in its place; a model that got the name would answer to that."""
    document = read(body)
    assert document.workflow.steps[0].parameters == parameters
    assert [one for one in document.problems if one.severity == "error"] == []


@pytest.mark.parametrize(
    "body",
    [
        "- type: shell\n- command: ls\n- batch: ./b.yaml",
        "- type: shell\n- command: cat\n- stdin: ./in.json",
        "- type: http\n- url: https://a.example\n- headers: ./headers.yaml",
    ],
)
def test_other_values_from_files_are_refused(body: str) -> None:
    found = check_document(read(body), registry.types_of("pflow"))
    assert [(one.kind, one.severity) for one in found] == [("file_reference", "error")]


def test_places_follow_the_words() -> None:
    document = read("- type: copy-file\n- source_path: ${nothing}\n- dest_path: b")
    found = check_document(document, registry.types_of("pflow"))
    assert [(one.kind, one.line, one.column) for one in found] == [("unknown_template", 8, 16)]


def test_names_for_templates_are_known_to_the_step_alone() -> None:
    first = '- type: shell\n- inputs: {raw: x}\n- command: echo "${raw}"\n'
    second = '\n### b\n\nUses it.\n\n- type: shell\n- command: echo "${raw}"\n'
    found = check_document(read(first + second), registry.types_of("pflow"))
    assert [(one.kind, one.path[1]) for one in found] == [("unknown_template", "b")]


def test_our_own_files_know_none_of_this() -> None:
    text = "### a\n\nDoes it.\n\n- type: http\n- url: https://a.example\n- auth_token: t\n- inputs: {x: 1}\n"
    found = check_document(markdown.read(text), registry.TYPES)
    assert [one.kind for one in found] == ["unknown_parameter", "unknown_parameter"]
    assert [one.kind for one in check_document(markdown.read("### a\n\nx\n\n- type: mcp-a-b\n"), registry.TYPES)] == [
        "unknown_type"
    ]
