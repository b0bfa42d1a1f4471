"""Finds undefined names in the Python code of a step, without running it.

Only certain errors: names that no statement binds in any scope, and that are neither builtins nor inputs.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator

from leadrope.workflows.problems import nearest

GIVEN = frozenset(("Any", "Optional", "typing"))
"""Type names that code can use without importing them."""
_OF_MODULES = frozenset(("__name__", "__doc__", "__file__", "__builtins__", "__annotations__", "__spec__"))


def undefined(tree: ast.Module, inputs: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yields each such name once, with the line of its first use and what was probably meant."""
    bound = {*inputs, *_bound(tree)}
    if "*" in bound:
        return
    known = {*bound, *GIVEN, *_OF_MODULES, *dir(builtins)}
    seen: set[str] = set()
    loads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    for node in sorted(loads, key=lambda node: (node.lineno, node.col_offset)):
        if node.id not in known and node.id not in seen:
            seen.add(node.id)
            near = nearest(node.id, bound)
            yield node.lineno, f"{node.id!r} is not defined" + (f"; did you mean {near}?" if near else "")


def not_given(tree: ast.Module, inputs: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yields inputs that the code declares (`name: type`) without a value from `inputs` or a statement."""
    bare = [
        one
        for one in tree.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is None
    ]
    set_elsewhere = set(_bound(tree, without=[one.target for one in bare]))
    for one in bare:
        name = one.target.id if isinstance(one.target, ast.Name) else ""
        if name not in inputs and name not in set_elsewhere:
            near = nearest(name, inputs)
            meant = f"; did you mean {near}?" if near else f" (given: {', '.join(inputs) or 'none'})"
            yield one.lineno, f"the input {name!r} is declared and not given{meant}"


def _bound(tree: ast.Module, without: Collection[ast.expr] = ()) -> Iterator[str]:
    """Yields the names that some statement binds; `*` if that cannot be determined."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()) if node not in without:
                yield node.id
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.alias():
                yield node.asname or node.name.partition(".")[0]
            case (
                ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
            ):
                yield name
            case ast.MatchMapping(rest=str() as name):
                yield name
            case ast.Global() | ast.Nonlocal():
                yield from node.names
            case ast.Call(func=ast.Name(id="exec" | "globals" | "locals" | "vars")) | ast.Name(id="NameError"):
                yield "*"  # code that handles NameError works without the name
