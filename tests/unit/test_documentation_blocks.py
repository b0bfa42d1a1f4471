"""Every code block of README and docs is executed by a test, or listed here with the reason why it is not."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

import pytest

import leadrope
from leadrope.cli.main import main
from leadrope.core import config as configs
from leadrope.runs import settings
from leadrope.runtime.agents import agent_files
from shell_examples import SHELLS, Fence, fences

ROOT = Path(__file__).parents[2]

SHOWN = ("", "text")
"""Output, grammar and drawings: nothing that a program could read."""
HERE = "tests/unit/test_documentation_blocks.py"
EXECUTED = {
    ("README.md", "markdown"): "tests/e2e/test_shell_examples.py",
    ("README.md", "python"): "tests/e2e/test_readme.py",
    ("docs/agents.md", "markdown"): HERE,
    ("docs/agents.md", "python"): HERE,
    ("docs/agents.md", "toml"): HERE,
    ("docs/budget.md", "toml"): "tests/unit/runtime/limits/test_budget.py",
    ("docs/ci.md", "yaml"): "tests/e2e/test_ci_docs.py",
    ("docs/config.md", "toml"): HERE,
    ("docs/events.md", "json"): "tests/unit/core/universal/test_event_schema.py",
    ("docs/internals/index.md", "python"): "tests/unit/runtime/limits/test_budget.py",
    ("docs/limits.md", "toml"): HERE,
    ("docs/observability.md", "python"): "tests/unit/runs/test_observability_docs.py",
    ("docs/observability.md", "toml"): "tests/unit/runs/test_observability_docs.py",
    ("docs/output.md", "python"): "tests/e2e/test_output_docs.py",
    ("docs/policy.md", "python"): "tests/unit/policy/files/test_policy_files.py",
    ("docs/policy.md", "toml"): "tests/unit/policy/files/test_policy_files.py",
    ("docs/providers.md", "python"): "tests/integration/providers/test_providers_docs.py",
    ("docs/providers.md", "toml"): HERE,
    ("docs/python-reference.md", "python"): HERE,
    ("docs/python.md", "python"): "tests/e2e/test_python_docs.py",
    ("docs/rehearsal.md", "python"): "tests/integration/rehearsal/test_rehearsal_docs.py",
    ("docs/rehearsal.md", "yaml"): "tests/integration/rehearsal/test_rehearsal_docs.py",
    ("docs/runs.md", "python"): "tests/e2e/test_readme.py",
    ("docs/runs.md", "toml"): HERE,
    ("docs/sessions.md", "python"): "tests/e2e/test_sessions_docs.py",
    ("docs/steps.md", "markdown"): "tests/unit/workflows/test_steps_docs.py",
    ("docs/tutorial.md", "markdown"): "tests/e2e/test_tutorial.py",
    ("docs/tutorial.md", "python"): "tests/e2e/test_tutorial.py",
    ("docs/tutorial.md", "toml"): "tests/e2e/test_tutorial.py",
    ("docs/workflows.md", "markdown"): "tests/unit/workflows/test_workflow_docs.py",
    ("docs/workflows.md", "python"): "tests/integration/workflows/test_flow_from_python.py",
    ("docs/workflows.md", "yaml"): "tests/unit/workflows/test_workflow_docs.py",
    ("docs/worktrees.md", "toml"): HERE,
}
"""The page and the language: the test that runs these blocks. Shell examples: tests/e2e/test_shell_examples.py."""
ONLY_READ = {
    "docs/python-reference.md": "they show one call each, without the program around it; `docs/python.md` is executed",
    "docs/agents.md": "the agent of the example does not exist; the saved agents of tests/integration/cli are run",
}
"""Python that is only compiled, and whose names must exist."""


def language(fence: Fence) -> str:
    return fence.info.partition(" ")[0]


def test_every_block_is_executed_somewhere() -> None:
    found = {(one.document, language(one)) for one in fences() if language(one) not in (*SHOWN, *SHELLS)}
    assert sorted(found - set(EXECUTED)) == [], "execute these, or say here why not"
    assert sorted(set(EXECUTED) - found) == [], "these are gone"
    assert {page for (page, kind), test in EXECUTED.items() if kind == "python" and test == HERE} == set(ONLY_READ)


@pytest.mark.parametrize(("page", "test"), sorted({(page, test) for (page, _), test in EXECUTED.items()}))
def test_the_test_reads_the_page(page: str, test: str) -> None:
    text = (ROOT / test).read_text()
    assert Path(page).name in text or "documents()" in text or "fences()" in text


def blocks(kind: str) -> list[object]:
    found = [one for one in fences() if language(one) == kind]
    return [pytest.param(one, id=f"{one.document}:{one.line}") for one in found]


@pytest.mark.parametrize("fence", blocks("toml"))
def test_toml_is_what_a_user_could_write(fence: Fence) -> None:
    text = "\n".join(fence.body)
    table = tomllib.loads(text)
    if "project" in fence.info or "project" in table:
        return  # a repository's own file, and a package's: not a config.toml
    config = configs.parse(text.replace("connections = [", "connections = [] # ["))
    settings.read(config.service, config.budgets, config.source)
    settings.check_others(config)
    assert not config.broken_agents


@pytest.mark.parametrize("fence", blocks("json"))
def test_json_is_json(fence: Fence) -> None:
    for line in "\n".join(fence.body).split("\n\n"):
        json.loads(line)


@pytest.mark.parametrize("fence", blocks("python"))
def test_python_compiles_and_names_what_exists(fence: Fence) -> None:
    tree = compile("\n".join(fence.body), fence.document, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "leadrope":
            assert hasattr(leadrope, node.attr), f"{fence.document}:{fence.line}: leadrope.{node.attr}"


def test_a_step_with_a_saved_agent_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = [one for one in fences() if one.document == "docs/agents.md"]
    (step,) = ["\n".join(one.body) for one in page if language(one) == "markdown" and one.body[0].startswith("### ")]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LEADROPE_HOME", str(tmp_path / "leadrope"))
    monkeypatch.setenv("LEADROPE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[agents.reviewer]\nmode = 'plan'\n")
    change = "### change\n\nThe change.\n\n- type: shell\n- command: git diff\n"
    (tmp_path / "w.flow.md").write_text(f"# Review\n\nReviews.\n\n## Steps\n\n{change}\n{step}\n")
    assert main(["flow", "check", "w.flow.md"]) == 0, capsys.readouterr().out
    (tmp_path / "config.toml").write_text("")
    assert main(["flow", "check", "w.flow.md"]) != 0, "the agent is looked for"


def test_an_agents_file_of_the_documents_is_read() -> None:
    (front,) = [one for one in fences() if one.document == "docs/agents.md" and one.body[0] == "---"]
    told = agent_files.parse("\n".join(front.body), "reviewer.md", stem="reviewer", origin="user")
    assert (told.name, told.agent.mode, told.notices) == ("reviewer", "plan", ())
