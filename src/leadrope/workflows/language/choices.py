"""Evaluates `when`, `while` and `until`: a value that is true, or a condition with templates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from leadrope.workflows.language import template_syntax as syntax
from leadrope.workflows.language import templates


def holds(said: Any, scope: Mapping[str, Any]) -> bool:
    """Whether the value is true (`${a.ok}`), or the condition holds (`${a.count} > 3 and not ${done}`).

    A template never becomes part of the condition's text, only one of its values.
    """
    if isinstance(said, str) and is_condition(said):
        from leadrope.workflows.language import conditions  # noqa: PLC0415  # most are a single template

        return conditions.holds(said, scope)
    return templates.is_true(templates.resolve(said.strip() if isinstance(said, str) else said, scope))


def is_condition(said: str) -> bool:
    """Whether the text is a condition, and not a single template or a plain word such as `yes` or `false`."""
    pieces, problems = syntax.scan(said.strip())
    if problems or (len(pieces) == 1 and isinstance(pieces[0], syntax.Expression)):
        return False
    return len(said.split()) > 1 or any(isinstance(piece, syntax.Expression) for piece in pieces)


def mistake(said: Any, *, own: Collection[str] = ()) -> str | None:
    """Returns why it can never be evaluated, without running anything. `own` are names known without a template."""
    if not isinstance(said, str) or not (own or is_condition(said)):
        return None
    from leadrope.workflows.language import conditions  # noqa: PLC0415  # most steps have none

    try:
        found = conditions.parse(said)
    except conditions.BadExpression as error:
        return error.message
    # The steps to wait for are found by their templates; a bare name would be looked up too early.
    bare = [one.source for one in conditions.names(found) if f"${{{one.source}" not in said and one.root not in own]
    return f"{bare[0]} must be written ${{{bare[0]}}}" if bare else None
