"""Names that a loop carries: without a value in the first turn, templates need a fallback for them."""

from __future__ import annotations

from collections.abc import Collection

from leadrope.workflows import links
from leadrope.workflows.language import templates
from leadrope.workflows.model import Step, each_of
from leadrope.workflows.problems import Findings


def look(step: Step, outer: Collection[str], findings: Findings) -> None:
    """Reports templates without one. `outer` are names with a value before the loop, which seed carried names."""
    carried = set(step.loop.carry if step.loop is not None else ()) - {*outer, *links.named_inputs(step)}
    if not carried:
        return
    _tell(step, carried, findings, is_certain=True)
    for inner in each_of(step.steps):
        # The first turn may not reach this step.
        _tell(inner, carried - set(links.scope_names(inner)), findings, is_certain=False)


def _tell(step: Step, carried: Collection[str], findings: Findings, *, is_certain: bool) -> None:
    for key, value in links.templated(step).items():
        for one in templates.references(value):
            is_asked = "exists(" in one.text  # it checks whether there is a value
            if one.root in carried and not one.has_fallback and not is_asked:
                path = ("steps", step.id, key, *map(str, one.path))
                findings.add(
                    "no_first_value",
                    f"${{{one.source}}} has no value in the first turn; the loop carries {one.root!r} to the next",
                    findings.place(path).at(one.text, one.offset),
                    path=path,
                    found=f"${{{one.source}}}",
                    suggestion=f'${{{one.source} ?? ""}}',
                    warns=not is_certain,
                )
