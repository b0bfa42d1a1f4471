"""Analyses code steps that choose the next step by setting the variable `next`. Pure; runs no code."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadrope.regex import regex
from leadrope.workflows.model import Dialect, Step

if TYPE_CHECKING:
    from leadrope.workflows.check.code_routes import Routes

END = "end"
"""The value of `next` after which nothing follows."""
DEFAULT = "default"
"""In pflow's files: the branch of code that does not set `next`."""
_MAY_SET = regex(r"\bnext\b(?!\s*\()")


def routes_in(parameters: Mapping[str, Any]) -> Routes | None:
    """Return the values that a step's code assigns to `next`; None if it assigns none."""
    code = parameters.get("code")
    return _routes(code) if isinstance(code, str) and _MAY_SET.search(code) else None


@functools.lru_cache(maxsize=256)
def _routes(code: str) -> Routes | None:
    from leadrope.workflows.check import code_routes  # noqa: PLC0415  # only where code may set it

    try:
        return code_routes.routes(code)
    except (SyntaxError, ValueError, RecursionError):
        return None  # reported as a syntax error elsewhere


def ways(step: Step, dialect: Dialect) -> Mapping[str, tuple[str, ...]] | None:
    """Return the following steps by branch; None for a step that chooses nothing.

    In leadrope's files a code step declares its branches under `next`, as a map or as a list of steps. In pflow's, the
    names in the code count as branches too.
    """
    found = routes_in(step.parameters) if step.type == "code" else None
    if found is None:
        return step.branches
    if step.branches is not None:
        return {END: (), **step.branches}
    declared = {name: (name,) for name in step.next or () if name != END}
    if dialect == "flow":
        return {END: (), **declared} if step.next else None
    return {END: (), DEFAULT: (), **declared, **{name: (name,) for name in found.literals if name != END}}
