"""Finds the values that the Python code of a step assigns to the variable `next`, without running it."""

from __future__ import annotations

import ast

import msgspec

from leadrope.process.command_pool import code_runner


class Routes(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a piece of code assigns to `next`."""

    literals: tuple[str, ...] = ()
    """The literal names in the code, in order."""
    is_dynamic: bool = False
    """It also assigns values that are known only at run time."""


def routes(code: str) -> Routes | None:
    """Returns None for code that does not set `next`; a declaration alone, or the function `next()`, does not."""
    tree = ast.parse(code)
    if not code_runner.stores(tree, "next"):
        return None
    nodes = code_runner.own_nodes(tree)
    literals: dict[str, None] = {}
    settled: set[int] = set()
    assigned = [node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign)]
    for node in sorted(assigned, key=lambda one: one.lineno):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        found = _literals(node.value) if node.value is not None else []
        if found is not None and any(map(_is_next, targets)):
            literals.update(dict.fromkeys(found))
            settled.update(id(one) for one in targets)
    is_dynamic = any(_is_next(node) and id(node) not in settled for node in nodes)
    return Routes(literals=tuple(literals), is_dynamic=is_dynamic)


def _is_next(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "next" and isinstance(node.ctx, ast.Store)


def _literals(value: ast.expr) -> list[str] | None:
    """Returns the texts that an expression may have as its value; None if other values are possible."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    if isinstance(value, ast.IfExp):
        first, second = _literals(value.body), _literals(value.orelse)
        return [*first, *second] if first is not None and second is not None else None
    return None
