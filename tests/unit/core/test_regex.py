"""Patterns are compiled when they are first used, and all of them can be."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import leadrope
from leadrope.regex import regex

SOURCES = Path(leadrope.__file__).parent
# The package of the rehearsed agent runs without leadrope.
APART = "leadrope.rehearsal"


def modules() -> Iterator[str]:
    for module in pkgutil.walk_packages([str(SOURCES)], "leadrope."):
        if not module.name.startswith(APART):
            yield module.name


def test_it_answers_as_a_compiled_pattern_does() -> None:
    late, compiled = regex(r"(?P<a>x)\d", re.IGNORECASE), re.compile(r"(?P<a>x)\d", re.IGNORECASE)
    assert late.sub("-", "X1 x2 y3") == compiled.sub("-", "X1 x2 y3") == "- - y3"
    assert (late.pattern, late.flags, late.groupindex) == (compiled.pattern, compiled.flags, compiled.groupindex)
    assert regex(rb"\d").findall(b"1a2") == [b"1", b"2"]
    with pytest.raises(AttributeError):
        _ = late.nothing  # type: ignore[attr-defined]


def test_every_pattern_of_a_module_can_be_compiled() -> None:
    kind = type(regex(""))
    found = [
        value.pattern
        for name in modules()
        if name != "leadrope.__main__"
        for value in vars(importlib.import_module(name)).values()
        if type(value) is kind
    ]
    assert len(found) > 200


def test_no_module_compiles_a_pattern_when_it_is_imported() -> None:
    hasty = []
    for path in SOURCES.rglob("*.py"):
        if "rehearsal" in path.relative_to(SOURCES).parts:
            continue
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                calls = [ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
                hasty += [f"{path.name}:{statement.lineno}" for called in calls if called == "re.compile"]
    assert hasty == []
