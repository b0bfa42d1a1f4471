"""Connects and disconnects two steps; each connection is written in the entry of one of them."""

from __future__ import annotations

from typing import Any, Literal

from leadrope import errors
from leadrope.workflows import links, model
from leadrope.workflows.edit import model_edits
from leadrope.workflows.edit.source import Source
from leadrope.workflows.edit.steps import set_value
from leadrope.workflows.language import markdown_writer

Kind = Literal["after", "next", "branch", "error"]


def connect(
    text: str,
    source: str,
    target: str,
    *,
    kind: Kind = "after",
    label: str | None = None,
    dialect: model.Dialect = "flow",
) -> str:
    """Makes the target start after the source.

    `after` is written in the target, and adds a connection to its existing ones, including the implicit one to the step
    above. `next`, `branch` (with its `label`) and `error` are written in the source.
    """
    read = Source(text, dialect)
    before, behind = _pair(read, source, target)
    if kind == "after":
        return set_value(text, target, "after", _names((*_comes_after(read, behind), source)), dialect=dialect)
    if kind == "error":
        return set_value(text, source, "on-error", target, dialect=dialect)
    if kind == "branch":
        if label is None:
            raise errors.BadValue("label", "a branch needs the name of the choice that leads to it")
        branches = dict(before.branches or {})
        branches[label] = (*branches.get(label, ()), target)
        return set_value(text, source, "next", _branches(branches), dialect=dialect)
    if before.branches is not None:
        raise errors.BadValue("kind", f"{source!r} chooses between branches", hint="Connect it as a branch.")
    return set_value(text, source, "next", _names((*(before.next or ()), target)), dialect=dialect)


def disconnect(
    text: str,
    source: str,
    target: str,
    *,
    kind: Kind | None = None,
    label: str | None = None,
    dialect: model.Dialect = "flow",
) -> str:
    """Removes the connection; without a kind, every explicit or implicit one between the two.

    A step with nothing left to start after gets `after: []`. A template that uses the other step's outputs stays, and
    so does the dependency.
    """
    read = Source(text, dialect)
    before, behind = _pair(read, source, target)
    found = text
    if kind in (None, "after") and source in _comes_after(read, behind):
        left = tuple(name for name in _comes_after(read, behind) if name != source)
        found = set_value(found, target, "after", _names(left), dialect=dialect)
    if kind in (None, "next") and target in (before.next or ()):
        left = tuple(name for name in before.next or () if name != target)
        found = set_value(found, source, "next", _names(left), dialect=dialect)
    if kind in (None, "branch") and any(target in names for names in (before.branches or {}).values()):
        branches = {
            name: tuple(one for one in names if one != target or label not in (None, name))
            for name, names in (before.branches or {}).items()
        }
        found = set_value(found, source, "next", _branches(branches), dialect=dialect)
    if kind in (None, "error") and before.on_error == target:
        found = set_value(found, source, "on-error", dialect=dialect)
    if found == text:
        what = f"connection of kind {kind}" if kind else "connection"
        raise errors.BadValue(
            "connection",
            f"there is no {what} from {source!r} to {target!r}",
            hint="A template of the one that uses the other is a part of its parameters.",
        )
    return found


def _pair(read: Source, source: str, target: str) -> tuple[model.Step, model.Step]:
    first, second = read.step(source), read.step(target)
    if source == target:
        raise errors.BadValue("target", f"{source!r} cannot start after itself", hint="To do it again, give it a loop.")
    if first.group != second.group:
        raise errors.BadValue(
            "target", f"{source!r} and {target!r} are not in the same group", hint="Connect the group itself."
        )
    return read.workflow.step(source), read.workflow.step(target)


def _comes_after(read: Source, step: model.Step) -> tuple[str, ...]:
    """Returns the steps that it explicitly starts after, or the step above that it follows implicitly."""
    if step.after is not None:
        return step.after
    found = links.links_between(model_edits.siblings(read.workflow, read.step(step.id).group), read.dialect)
    return tuple(link.source for link in found.into[step.id] if link.kind == "order")


def _names(names: tuple[str, ...]) -> Any:
    return markdown_writer.names_value(tuple(dict.fromkeys(names)))


def _branches(branches: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    return {name: _names(names) for name, names in branches.items()}
