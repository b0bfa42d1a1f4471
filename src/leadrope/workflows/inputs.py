"""Resolves a workflow's inputs from command-line text or a program's values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from leadrope import errors
from leadrope.workflows.language import schema_match, templates
from leadrope.workflows.model import Input, Workflow
from leadrope.workflows.problems import nearest

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def read_words(words: Iterable[str]) -> dict[str, str]:
    """Parse `name=value` words; each name may occur once."""
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise errors.BadValue("input", f"{word!r} is not of the form name=value")
        if name in found:
            raise errors.BadValue("input", f"{name} is given twice")
        found[name] = value
    return found


def values_of(
    workflow: Workflow,
    given: Mapping[str, Any],
    *,
    stdin: str | None = None,
    are_texts: bool = False,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return every input of the workflow with its value; raises an error that lists all mistakes.

    `are_texts`: the values come from a command line, so `3` may be a number. `stdin` fills the input that takes it,
    `environ` those that name a variable; it contains only variables that the user allowed.
    """
    variables = environ or {}
    wrong: list[str] = []
    known = {one.name: one for one in workflow.inputs}
    for name in given:
        if name not in known:
            near = nearest(name, known)
            there = ", ".join(known) or "none"
            wrong.append(
                f"{name}: there is no such input" + (f"; did you mean {near}?" if near else f" (it has: {there})")
            )
    found: dict[str, Any] = {}
    for one in workflow.inputs:
        if one.name in given:
            value = given[one.name]
        elif one.stdin and stdin is not None:
            value = stdin.rstrip("\r\n") if workflow.dialect == "pflow" else stdin
        elif one.env in variables:
            value = variables[one.env]
        elif one.default is not UNSET:
            found[one.name] = one.default
            continue
        elif one.required:
            wrong.append(_missing(one))
            continue
        else:
            found[one.name] = None
            continue
        is_text = isinstance(value, str) and (are_texts or one.name not in given)
        try:
            found[one.name] = _typed(one, value) if is_text else _checked(one, value)
        except ValueError as error:
            wrong.append(f"{one.name}: {error}")
    if wrong:
        raise errors.BadValue("inputs", "; ".join(wrong), hint=_hint(workflow))
    return found


def _missing(one: Input) -> str:
    what = f" ({one.description.splitlines()[0]})" if one.description else ""
    way = ", or pipe it in" if one.stdin else ""
    way += f", or set {one.env}" if one.env else ""
    return f"{one.name}: is required{what}; write {one.name}=…{way}"


def _hint(workflow: Workflow) -> str:
    words = takes(workflow.inputs)
    return f"It takes: {words}" if words else "It takes no inputs."


def takes(inputs: Iterable[Input]) -> str:
    """Describe how to pass the inputs: `topic=… count=<integer>`."""
    return " ".join(f"{one.name}=" + ("…" if one.type == "any" else f"<{one.type}>") for one in inputs)


def _checked(one: Input, value: Any) -> Any:
    if one.type == "any" or (value is None and not one.required):
        return value
    if one.type in ("array", "object"):
        value = templates.opened(value)
    misfits = schema_match.misfits(value, {"type": one.type})
    if misfits:
        raise ValueError(misfits[0].message)
    return value


def _typed(one: Input, text: str) -> Any:
    match one.type:
        case "string":
            return text
        case "boolean":
            word = text.strip().lower()
            if word not in (*_TRUE, *_FALSE):
                raise ValueError(f"{text!r} is neither true nor false")
            return word in _TRUE
        case "any":
            try:
                return json.loads(text)
            except ValueError:
                return text
        case _:
            try:
                value = json.loads(text)
            except ValueError:
                raise ValueError(
                    f"{text[:60]!r} is not {schema_match.spoken(frozenset((one.type,)))} in JSON"
                ) from None
            return _checked(one, value)
