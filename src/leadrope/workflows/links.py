"""The links between steps, explicit or implied: what each waits for and leads to. Pure; independent of outcomes.

A step implicitly follows the one above it, unless that one has `next`, the step itself has `after`, it handles errors,
or it is one of several targets of a `next`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from leadrope.workflows import routing
from leadrope.workflows.language import templates
from leadrope.workflows.model import LITERAL, Dialect, Step, Workflow, each_of

OWN_INPUTS = ("code", "workflow")
"""Types whose `inputs` go to their own program; in pflow's files, those of other types are names for templates."""

Kind = Literal["order", "after", "next", "branch", "error", "data"]


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    source: str
    target: str
    kind: Kind
    label: str | None = None
    """The branch."""
    is_optional: bool = False
    """For data links: the template has a fallback."""


class Links(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[str, ...]
    all: tuple[Link, ...]
    into: Mapping[str, tuple[Link, ...]]
    out_of: Mapping[str, tuple[Link, ...]]
    starts: frozenset[str]
    """The first step, and those with `after: []`."""
    sorted: tuple[str, ...]
    """Topological order, without steps that wait for each other."""
    choices: Mapping[str, frozenset[str]] = {}
    """For each step that chooses, all possible choices, including those that nothing follows."""

    def descendants(self, name: str) -> frozenset[str]:
        """Return all direct and indirect successors."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for link in self.out_of.get(todo.pop(), ()):
                if link.target not in found:
                    found.add(link.target)
                    todo.append(link.target)
        return frozenset(found - {name})

    def after_error(self, name: str) -> frozenset[str]:
        """Return the step's error handler and the steps reachable only through it."""
        handlers = {link.target for link in self.out_of.get(name, ()) if link.kind == "error"}
        others = {link.target for link in self.out_of.get(name, ()) if link.kind not in ("error", "data")}
        return frozenset(handlers | (self.led_to(handlers) - self.led_to(others)))

    def led_to(self, names: Iterable[str]) -> set[str]:
        """Return these steps and all their successors, ignoring data links."""
        found: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += [link.target for link in self.out_of.get(name, ()) if link.kind != "data"]
        return found

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Return one cycle for each group of steps that wait for each other."""
        return tuple(_way_round(knot, self.out_of) for knot in _knots(self.steps, self.out_of))

    def unreachable(self) -> tuple[str, ...]:
        """Return the steps that no path reaches."""
        reached = self.led_to(self.starts)
        return tuple(name for name in self.steps if name not in reached)


def links_of(workflow: Workflow) -> Links:
    """Return the links of the top-level steps; those inside a group have their own (`links_between`)."""
    return links_between(workflow.steps, workflow.dialect)


def links_between(every: Sequence[Step], dialect: Dialect) -> Links:
    """Return the links between these steps; links to others are omitted, and `check` reports them."""
    steps = {step.id: step for step in every}
    found = [
        link
        for link in (*_order(every, dialect), *_said(every, dialect), *_data(every))
        if link.source in steps and link.target in steps and link.source != link.target
    ]
    into: dict[str, list[Link]] = {name: [] for name in steps}
    out_of: dict[str, list[Link]] = {name: [] for name in steps}
    for link in dict.fromkeys(found):
        into[link.target].append(link)
        out_of[link.source].append(link)
    free = [name for name, some in into.items() if not any(link.kind != "data" for link in some)]
    return Links(
        steps=tuple(steps),
        all=tuple(dict.fromkeys(found)),
        into={name: tuple(some) for name, some in into.items()},
        out_of={name: tuple(some) for name, some in out_of.items()},
        starts=frozenset((*free[:1], *(name for name in free if steps[name].after == ()))),
        sorted=_sorted(into, out_of),
        choices={
            name: frozenset(ways) for name, step in steps.items() if (ways := routing.ways(step, dialect)) is not None
        },
    )


def _sorted(into: Mapping[str, list[Link]], out_of: Mapping[str, list[Link]]) -> tuple[str, ...]:
    left = {name: len(some) for name, some in into.items()}
    found = [name for name, count in left.items() if count == 0]
    for name in found:
        for link in out_of[name]:
            left[link.target] -= 1
            if left[link.target] == 0:
                found.append(link.target)
    return tuple(found)


def needs(step: Step) -> tuple[templates.Reference, ...]:
    """Return every reference in a step's templates, and the references of nested steps to names outside of it."""
    found = templates.references(templated(step))
    if not step.steps:
        return found
    inside = {inner.id for inner in each_of(step.steps)}
    lifted = [one for inner in step.steps for one in needs(inner) if one.root not in scope_names(inner)]
    return tuple(one for one in (*found, *lifted) if one.root not in inside)


def templated(step: Step) -> dict[str, Any]:
    """Return the parts of a step that may contain templates, by key."""
    literal = LITERAL.get(step.type, ())
    values: dict[str, Any] = {name: value for name, value in step.parameters.items() if name not in literal}
    for key in ("when", "timeout", "budget"):
        if getattr(step, key) is not None:
            values[key] = getattr(step, key)
    if step.batch is not None:
        values["batch"] = {"items": step.batch.items}
    if step.loop is not None:
        values["loop"] = {
            "while": step.loop.while_,
            "until": step.loop.until,
            "carry": step.loop.carry,
            "max_iterations": step.loop.max_iterations,
            "wait": step.loop.wait,
            "max_seconds": step.loop.max_seconds,
        }
    return values


def _said(steps: Iterable[Step], dialect: Dialect) -> Iterable[Link]:
    for step in steps:
        ways = routing.ways(step, dialect)
        for name in step.after or ():
            yield Link(source=name, target=step.id, kind="after")
        for name in step.next or () if ways is None else ():
            yield Link(source=step.id, target=name, kind="next")
        for label, names in (ways or {}).items():
            for name in names:
                yield Link(source=step.id, target=name, kind="branch", label=label)
        if step.on_error is not None:
            yield Link(source=step.id, target=step.on_error, kind="error")


def _order(every: Sequence[Step], dialect: Dialect) -> Iterable[Link]:
    handlers = {step.on_error for step in every if step.on_error is not None}
    choosers = {step.id: ways for step in every if (ways := routing.ways(step, dialect)) is not None}
    fans: set[str] = set()
    for step in every:
        targets = {*(step.next or ()), *(name for names in choosers.get(step.id, {}).values() for name in names)}
        if len(targets) > 1 or step.id in choosers:
            fans |= targets
    above: Step | None = None
    for step in every:
        if step.id in handlers:
            continue
        if above is not None and above.id in choosers and dialect == "pflow" and above.branches is None:
            yield _unchosen(above, step)
        elif above is not None and above.next is None and above.id not in choosers and step.after is None:
            yield from [Link(source=above.id, target=step.id, kind="order")] if step.id not in fans else ()
        above = step


def _unchosen(chooser: Step, below: Step) -> Link:
    """Return what follows pflow code that does not set `next`: its only declared step, or the one below it."""
    declared = chooser.next or ()
    target = declared[0] if len(declared) == 1 else below.id
    return Link(source=chooser.id, target=target, kind="branch", label=routing.DEFAULT)


def _data(steps: Iterable[Step]) -> Iterable[Link]:
    every = tuple(steps)
    names = {step.id for step in every}
    for step in every:
        required: dict[str, bool] = {}
        own = scope_names(step)
        for reference in needs(step):
            if reference.root in names and reference.root not in own:
                required[reference.root] = required.get(reference.root, False) or not reference.has_fallback
        for name, is_required in required.items():
            yield Link(source=name, target=step.id, kind="data", is_optional=not is_required)


def scope_names(step: Step) -> tuple[str, ...]:
    """Return the names that only this step's templates can use."""
    names: list[str] = []
    if step.batch is not None:
        names += [step.batch.as_, "__index__"]
    if step.loop is not None:
        names += ["__iteration__", *step.loop.carry]
    return (*names, *named_inputs(step))


def named_inputs(step: Step) -> tuple[str, ...]:
    """Return the names that a step of a pflow file defines for its own templates."""
    given = step.parameters.get("inputs")
    return tuple(given) if step.type not in OWN_INPUTS and isinstance(given, Mapping) else ()


def _knots(steps: Iterable[str], out_of: Mapping[str, tuple[Link, ...]]) -> list[list[str]]:
    """Return the strongly connected components with more than one step (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    held: set[str] = set()
    knots: list[list[str]] = []
    for root in steps:
        if root in number:
            continue
        work = [(root, iter(out_of.get(root, ())))]
        number[root] = low[root] = len(number)
        stack.append(root)
        held.add(root)
        while work:
            name, rest = work[-1]
            link = next(rest, None)
            if link is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == number[name]:
                    knot = []
                    while True:
                        one = stack.pop()
                        held.discard(one)
                        knot.append(one)
                        if one == name:
                            break
                    if len(knot) > 1:
                        knots.append(knot[::-1])
            elif link.target not in number:
                number[link.target] = low[link.target] = len(number)
                stack.append(link.target)
                held.add(link.target)
                work.append((link.target, iter(out_of.get(link.target, ()))))
            elif link.target in held:
                low[name] = min(low[name], number[link.target])
    return knots


def _way_round(knot: list[str], out_of: Mapping[str, tuple[Link, ...]]) -> tuple[str, ...]:
    inside = set(knot)
    way = [knot[0]]
    while True:
        following = next(link.target for link in out_of[way[-1]] if link.target in inside)
        if following in way:
            return (*way[way.index(following) :], following)
        way.append(following)
