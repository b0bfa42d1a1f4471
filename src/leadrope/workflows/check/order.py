"""Checks the order of a workflow's steps: cycles, unreachable steps, and branches that end implicitly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from leadrope.workflows import links, routing
from leadrope.workflows.check.step import StepCheck
from leadrope.workflows.language.model_builder import NOTHING
from leadrope.workflows.model import Step, Workflow
from leadrope.workflows.problems import Findings

RINGS_MOST = 20
"""Cycles reported at most: more would not help a reader."""
LOOP_HINT = (
    "To repeat a step, give it a `loop`; to repeat several, put them into a `group` with a `loop`. A step that should "
    "start at once says `after: []`."
)


def look(workflow: Workflow, findings: Findings, of_steps: StepCheck) -> None:
    """Checks the workflow's own steps; those inside a group are checked as a workflow of their own."""
    found = links.links_of(workflow)
    steps = {step.id: step for step in workflow.steps}
    knotted: set[str] = set()
    for way, back in itertools.islice(_rings(found), RINGS_MOST):
        knotted.update(way)
        findings.add(
            "cycle",
            "these steps wait for each other: " + " -> ".join(way),
            path=("steps", way[0]),
            found=way[0],
            hint=f"{_led_back(back)} {LOOP_HINT}",
        )
    chosen = {name for step in workflow.steps for name in _literals(step)}
    for name in found.unreachable():
        is_told = any(one not in steps for one in steps[name].after or ())
        is_told = is_told or name in chosen or name.lower() in NOTHING or of_steps.is_unreadable(("steps", name))
        if name not in knotted and not is_told and not (knotted & set(_before(name, found))):
            findings.add(
                "unreachable_step",
                f"no way leads to the step {name!r}",
                path=("steps", name),
                found=name,
                hint="Name it in a `next`, or give it an `after`.",
            )
    _ends(workflow.steps, found, findings)


def _ends(every: Sequence[Step], found: links.Links, findings: Findings) -> None:
    """Reports branches that end because another branch of the same choice begins below, which few authors intend."""
    handlers = {step.on_error for step in every}
    pairs = list(itertools.pairwise(step for step in every if step.id not in handlers))
    for chooser in every:
        targets: dict[str | None, set[str]] = {}
        for link in found.out_of[chooser.id]:
            if link.kind == "branch":
                targets.setdefault(link.label, set()).add(link.target)
        for above, below in pairs:
            says_more = above.next is not None or above.branches is not None or below.after is not None
            says_more = says_more or any(link.kind == "after" for link in found.out_of[above.id])
            says_more = says_more or (above.type == "fail" and above.when is None)  # it ends its branch by itself
            if above.id == chooser.id or says_more or not any(below.id in names for names in targets.values()):
                continue
            # Several steps of one branch run in parallel: nothing is lost between them.
            others = set().union(*(names for names in targets.values() if below.id not in names))
            if above.id in found.led_to(others):
                findings.add(
                    "unsaid_end",
                    f"nothing follows {above.id!r}: {below.id!r} below it is another branch of {chooser.id!r}",
                    path=("steps", above.id),
                    found=above.id,
                    hint=f"Write `next: {below.id}` in {above.id!r} to continue there, or `next: end` to stop.",
                )


def _literals(step: Step) -> tuple[str, ...]:
    """Returns the steps named in code; undeclared ones are reported for the code."""
    routes = routing.routes_in(step.parameters) if step.type == "code" else None
    return routes.literals if routes is not None else ()


def _before(name: str, found: links.Links) -> Iterator[str]:
    seen = {name}
    todo = [name]
    while todo:
        for link in found.into[todo.pop()]:
            if link.source not in seen:
                seen.add(link.source)
                todo.append(link.source)
                yield link.source


def _rings(found: links.Links) -> Iterator[tuple[tuple[str, ...], links.Link]]:
    """Yields each cycle of steps that wait for each other, with the link that closes it.

    The search is repeated without these links, which reveals cycles that they hid.
    """
    order = {name: number for number, name in enumerate(found.steps)}
    while ways := found.cycles():
        cut = set()
        for way in ways:
            pair = next(pair for pair in itertools.pairwise(way) if order[pair[0]] > order[pair[1]])
            # A template that depends on a step that is already linked is not what closes the cycle.
            said = sorted(found.out_of[pair[0]], key=lambda link: link.kind == "data")
            yield way, next(link for link in said if link.target == pair[1])
            cut.add(pair)
        out_of = {
            name: tuple(link for link in some if (name, link.target) not in cut) for name, some in found.out_of.items()
        }
        found = msgspec.structs.replace(found, out_of=out_of)


def _led_back(link: links.Link) -> str:
    source, target = link.source, link.target
    if link.kind == "data":
        return f"{target!r} uses ${{{source}…}}, which is there only after it."
    if link.kind == "after":
        return f"{target!r} is `after` {source!r}, which comes after it."
    return f"`{'on-error' if link.kind == 'error' else 'next'}` of {source!r} leads back to {target!r}."
