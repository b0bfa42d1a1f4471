"""Words of other workflow programs: `check` answers with the word that leadrope has."""

from __future__ import annotations

import pytest

from leadrope.workflows.check.check import check_document
from leadrope.workflows.language import markdown
from leadrope.workflows.problems import WorkflowProblem
from leadrope.workflows.steps import registry

HEAD = """## Inputs

### topic

What.

## Steps

### first

Says it.

- type: shell
- command: echo ${topic}

"""


def problems(steps: str) -> list[WorkflowProblem]:
    document = markdown.read(HEAD + steps)
    return list(check_document(document, registry.TYPES))


def one(steps: str) -> WorkflowProblem:
    found = problems(steps)
    assert len(found) == 1, [str(problem) for problem in found]
    return found[0]


KEYS = {
    "needs: [first]": ("after", "`after: [build, test]`"),
    "depends_on: first": ("after", "waits for"),
    "dependsOn: first": ("after", "waits for"),
    "if: ${topic}": ("when", "`when:"),
    "for_each: ${topic}": ("batch", "${item}"),
    "foreach: [1]": ("batch", "${item}"),
    "matrix: {a: [1]}": ("batch", "${item}"),
    "while: ${topic}": ("loop", "`loop: {while:"),
    "max_iterations: 3": ("loop", "`loop: {while:"),
    "retries: 3": ("retry", "`retry: {max: 3"),
    "with: {a: 1}": ("env", None),
    "uses: actions/checkout": ("type", "`leadrope flow steps`"),
    "then: first": ("next", None),
    "on_failure: first": ("on-error", "takes over"),
    "continue-on-error: true": ("ignore_errors", None),
    "working-directory: src": ("cwd", None),
    "timeout-minutes: 5": ("timeout", "seconds"),
    "environment: {A: b}": ("env", None),
    "name: second": (None, "heading"),
    "outputs: {a: b}": (None, "${step.key}"),
    "comand: true": ("command", "Every step also takes after, next, on-error, when, batch, loop, retry, timeout"),
    "zzzz: 1": (None, "Every step also takes after, next, on-error, when, batch, loop, retry, timeout"),
}


@pytest.mark.parametrize("line", KEYS)
def test_a_key_of_another_program_gets_our_word(line: str) -> None:
    suggestion, hint = KEYS[line]
    found = one(f"### second\n\nDoes it.\n\n- type: shell\n- command: 'true'\n- {line}\n")
    assert (found.kind, found.suggestion) == ("unknown_parameter", suggestion)
    assert (hint or "") in str(found)


def test_the_word_is_one_that_the_type_takes() -> None:
    found = one("### second\n\nDoes it.\n\n- type: mcp\n- server: s\n- tool: t\n- with: {a: 1}\n")
    assert found.suggestion == "arguments"
    found = one("### second\n\nDoes it.\n\n- type: shell\n- run: echo\n")
    assert (found.kind, found.suggestion) == ("unknown_parameter", "command"), (
        "that it needs `command` is the same mistake"
    )
    found = one("### second\n\nDoes it.\n\n- type: code\n- run: print()\n")
    assert found.suggestion == "code"


def test_a_step_without_a_type() -> None:
    found = one("### second\n\nDoes it.\n\n- uses: shell\n")
    assert (found.kind, found.suggestion, found.found) == ("no_type", "type", "uses")
    found = one("### second\n\nDoes it.\n\n- run: ls\n")
    assert found.hint == "Write `- type: shell` below its heading."


@pytest.mark.parametrize(("title", "suggestion"), [("Jobs", "Steps"), ("Variables", "Inputs"), ("Usage", "Notes")])
def test_sections_of_other_programs(title: str, suggestion: str) -> None:
    found = [problem for problem in problems(f"## {title}\n") if problem.kind == "unknown_section"]
    assert [problem.suggestion for problem in found] == [suggestion]


TEMPLATES = {
    # a command: severity, suggestion
    "echo {{ topic }}": ("error", "${topic}"),
    "echo {{topic}}": ("error", "${topic}"),
    "echo ${{ inputs.topic }}": ("error", "${topic}"),
    "echo '{{ steps.first.outputs.stdout }}'": ("error", "${first.stdout}"),
    "echo {{ first.stdout | trim }}": ("error", "${first.stdout}"),
    "echo {{ $json.name }}": ("warning", "${json.name}"),
    "echo {{ unknown }}": ("warning", "${unknown}"),
    "echo ${steps.first.outputs.stdout}": ("error", "${first.stdout}"),
    "echo ${inputs.topic}": ("error", "${topic}"),
    "echo ${needs.first.outputs.exit_code}": ("error", "${first.exit_code}"),
}


@pytest.mark.parametrize("command", TEMPLATES)
def test_templates_of_other_programs(command: str) -> None:
    severity, suggestion = TEMPLATES[command]
    found = one(f"### second\n\nDoes it.\n\n- type: shell\n- command: {command}\n")
    assert (found.severity, found.suggestion) == (severity, suggestion), str(found)


def test_what_only_looks_like_a_template_is_let_be() -> None:
    for command in ("docker inspect --format '{{.Id}}'", "gh api --template '{{range .}}x{{end}}'", "echo '{{'"):
        assert problems(f"### second\n\nDoes it.\n\n- type: shell\n- command: {command}\n") == []
    code = "### second\n\nDoes it.\n\n- type: code\n\n```python code\nresult = f'{{topic}}'\n```\n"
    assert problems(code) == []


def test_a_prompt_in_braces_is_told_once() -> None:
    found = one("### second\n\nDoes it.\n\n- type: llm\n- prompt: {{ first.stdout }}\n")
    assert (found.kind, found.suggestion) == ("foreign_template", "${first.stdout}")
    found = one("### second\n\nDoes it.\n\n- type: shell\n- command: 'true'\n- env:\n    A: {{ topic }}\n")
    assert (found.kind, found.hint) == ("yaml", "A template is written `${name}`.")


def test_the_environment_is_not_read_by_templates() -> None:
    found = one("### second\n\nDoes it.\n\n- type: llm\n- prompt: ${env.HOME}\n")
    assert '"$NAME"' in str(found)


URLS = {
    "http://localhost:8080/x": False,
    "http://127.0.0.1/": False,
    "http://[::1]/": False,
    "http://10.0.0.7/${topic}": False,
    "http://localhost:${topic}/x": False,
    "http://169.254.169.254/latest": False,
    "https://example.com/${topic}": True,
    "https://${topic}.example.com/": True,
    "http://${topic}/": True,
    "${topic}/x": True,
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_would_be_refused_is_found_before_anything_runs(url: str) -> None:
    step = f"### second\n\nDoes it.\n\n- type: http\n- url: {url}\n"
    if URLS[url]:
        assert problems(step) == []
        return
    found = one(step)
    assert (found.kind, found.severity) == ("wrong_value", "error")
    assert "allow_private" in str(found)


def test_a_url_that_the_step_allows_is_let_be() -> None:
    step = "### second\n\nDoes it.\n\n- type: http\n- url: http://127.0.0.1:8000/\n- allow_private: "
    assert problems(step + "127.0.0.1\n") == []
    assert problems(step + "true\n") == []
    assert problems(step + "${topic}\n") == []
    assert len(problems(step + "10.0.0.0/8\n")) == 1


AGENT = "### second\n\nDoes it.\n\n- type: agent\n- prompt: go\n- "


def test_a_parameter_of_an_earlier_version_is_read_and_told() -> None:
    told = "22:3: warning: 'walls' will be removed; use 'sandbox'"
    document = markdown.read(f"{HEAD}{AGENT}walls: off\n")
    assert document.workflow.steps[1].parameters == {"prompt": "go", "sandbox": "off"}
    assert [str(problem) for problem in check_document(document, registry.TYPES)] == [told]
    assert [problem.line for problem in problems(f"{AGENT}walls: offf\n")] == [22, 22], "the line of what is written"


def test_an_earlier_name_beside_the_new_one_is_refused() -> None:
    found = one(f"{AGENT}walls: off\n- sandbox: read-only\n")
    assert (found.kind, found.suggestion) == ("unknown_parameter", "sandbox")
    shell = one("### second\n\nDoes it.\n\n- type: shell\n- command: ls\n- walls: off\n")
    assert shell.kind == "unknown_parameter", "only agent steps had it"
