"""The links between steps, said or understood: what each waits for and what it leads to. Pure; knows no outcomes.

Understood is that a step follows the one above it, except where that one says `next`, where it says `after` itself,
where it is there for errors, and where it is one of several that a `next` leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from leadrope.workflows import templates
from leadrope.workflows.model import LITERAL, Step, Workflow

Kind = Literal["order", "after", "next", "branch", "error", "data"]


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    source: str
    target: str
    kind: Kind
    label: str | None = None
    """The branch."""
    is_optional: bool = False
    """Of data: a template that has something else to fall back on."""


class Links(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[str, ...]
    all: tuple[Link, ...]
    into: Mapping[str, tuple[Link, ...]]
    out_of: Mapping[str, tuple[Link, ...]]
    starts: frozenset[str]
    """The first step, and those that say `after: []`."""
    sorted: tuple[str, ...]
    """Each step behind all that lead to it; without those that wait for each other."""

    def descendants(self, name: str) -> frozenset[str]:
        """The steps that come after it in any way."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for link in self.out_of.get(todo.pop(), ()):
                if link.target not in found:
                    found.add(link.target)
                    todo.append(link.target)
        return frozenset(found - {name})

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Each knot of steps that wait for each other, as one way round in it."""
        return tuple(_way_round(knot, self.out_of) for knot in _knots(self.steps, self.out_of))

    def unreachable(self) -> tuple[str, ...]:
        """Steps that no way leads to."""
        reached: set[str] = set()
        todo = list(self.starts)
        while todo:
            name = todo.pop()
            if name not in reached:
                reached.add(name)
                todo += [link.target for link in self.out_of.get(name, ()) if link.kind != "data"]
        return tuple(name for name in self.steps if name not in reached)


def links_of(workflow: Workflow) -> Links:
    """Links to steps that do not exist are left out; `check` tells of them."""
    steps = {step.id: step for step in workflow.steps}
    found = [
        link
        for link in (*_order(workflow.steps), *_said(workflow.steps), *_data(workflow.steps))
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
    """Every name that the templates of a step use."""
    return templates.references(templated(step))


def templated(step: Step) -> dict[str, Any]:
    """The parts of a step that may hold templates, by the key they are written under."""
    literal = LITERAL.get(step.type, ())
    values: dict[str, Any] = {name: value for name, value in step.parameters.items() if name not in literal}
    for key in ("when", "timeout", "budget"):
        if getattr(step, key) is not None:
            values[key] = getattr(step, key)
    if step.batch is not None:
        values["batch"] = {"items": step.batch.items}
    if step.loop is not None:
        values["loop"] = {"while": step.loop.while_, "until": step.loop.until, "carry": step.loop.carry}
    return values


def _said(steps: Iterable[Step]) -> Iterable[Link]:
    for step in steps:
        for name in step.after or ():
            yield Link(source=name, target=step.id, kind="after")
        for name in step.next or ():
            yield Link(source=step.id, target=name, kind="next")
        for label, names in (step.branches or {}).items():
            for name in names:
                yield Link(source=step.id, target=name, kind="branch", label=label)
        if step.on_error is not None:
            yield Link(source=step.id, target=step.on_error, kind="error")


def _order(steps: Iterable[Step]) -> Iterable[Link]:
    every = tuple(steps)
    handlers = {step.on_error for step in every if step.on_error is not None}
    fans: set[str] = set()
    for step in every:
        targets = {*(step.next or ()), *(name for names in (step.branches or {}).values() for name in names)}
        if len(targets) > 1 or step.branches is not None:
            fans |= targets
    above: Step | None = None
    for step in every:
        if step.id in handlers:
            continue
        is_led = above is not None and above.next is None and above.branches is None
        if above is not None and is_led and step.after is None and step.id not in fans:
            yield Link(source=above.id, target=step.id, kind="order")
        above = step


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
    """The names that only this step's templates know."""
    names: list[str] = []
    if step.batch is not None:
        names += [step.batch.as_, "__index__"]
    if step.loop is not None:
        names += ["__iteration__", *step.loop.carry]
    return tuple(names)


def _knots(steps: Iterable[str], out_of: Mapping[str, tuple[Link, ...]]) -> list[list[str]]:
    """Tarjan's strongly connected components with more than one step, without recursion."""
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
