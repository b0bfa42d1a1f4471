"""A link to itself ends no command with a traceback: `Path.resolve` raises RuntimeError for one before Python 3.13."""

from __future__ import annotations

import ast
from pathlib import Path

import leadrope
from leadrope.confined import real_path

PACKAGE = Path(leadrope.__file__).parent


def test_a_link_to_itself_leads_nowhere(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    assert real_path(link) == str(link)
    assert real_path(link / "below") == str(link / "below")


def test_nothing_else_resolves_paths_that_may_not_exist() -> None:
    """Where one must exist, `resolve(strict=True)` is told from methods of the same name by its keyword."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "resolve"
        and not node.args
        and not node.keywords
    ]
    assert found == [], "use leadrope.confined.real_path"
