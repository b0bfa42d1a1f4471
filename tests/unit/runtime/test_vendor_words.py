"""The runtime knows agents by the values of providers/base.py, never by the names and shapes of one vendor."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import leadrope

RUNTIME = Path(leadrope.__file__).parent / "runtime"
WORDS = ("AskUserQuestion", "ExitPlanMode", "multiSelect", "allowedPrompts", "CLAUDE_", "claudecode", "claude-code")
IMPORTS = "leadrope.providers.claude_code"
KNOWS_ITS_FILES = {
    # What a repository's files for Claude Code would start: they are judged whichever agent runs.
    "trust/files.py",
}
KNOWS_ITS_WIRE = {
    # The header by which a request to the model names the subagent that makes it.
    "broker/broker.py",
    # A usage example.
    "complete.py",
}
KNOWS_ITS_PROGRAM = {
    # `doctor` looks whether the program that config.toml names is there.
    "agents/config_paths.py",
}


def modules() -> list[str]:
    return sorted(str(path.relative_to(RUNTIME)) for path in RUNTIME.rglob("*.py"))


@pytest.mark.parametrize("name", modules())
def test_no_word_of_one_vendor(name: str) -> None:
    text = (RUNTIME / name).read_text(encoding="utf-8")
    found = [word for word in WORDS if word in text]
    assert bool(found) is (name in KNOWS_ITS_FILES | KNOWS_ITS_WIRE), found


@pytest.mark.parametrize("name", modules())
def test_no_import_of_one_provider(name: str) -> None:
    tree = ast.parse((RUNTIME / name).read_text(encoding="utf-8"))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found = [module for module in imported if module.startswith(IMPORTS)]
    assert bool(found) is (name in KNOWS_ITS_PROGRAM), found
