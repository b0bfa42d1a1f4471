"""Decides what may start now, from a workflow's links and the outcomes so far, and how the workflow ends.

Pure. A step is ready once all its predecessors are settled, none has failed, and at least one path to it was taken. It
is blocked if a predecessor failed without a handler, and left out if no path to it was taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from leadrope.workflows.links import Link, Links

Status = Literal["succeeded", "degraded", "failed", "skipped"]
"""degraded: done, with a soft failure. skipped: its `when` was false; the steps after it continue."""

Ending = Literal["succeeded", "degraded", "failed"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one step ended."""

    status: Status
    branch: str | None = None
    """The branch that a step chose; `else` if the choice is not among its branches."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    ready: tuple[str, ...] = ()
    """May start now, in the order of the file; running steps are excluded."""
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    """Will not run because a predecessor failed."""
    left_out: tuple[str, ...] = ()
    """Will not run because no path leads to them any more."""
    ending: Ending | None = None
    """None while something is ready, running or waiting."""
    handled: tuple[str, ...] = ()
    """Failed steps whose handler took over."""

    @property
    def is_finished(self) -> bool:
        return self.ending is not None


_Fate = Literal["ready", "running", "waiting", "done", "blocked", "left_out"]
_State = Literal["pending", "taken", "not_taken", "failed"]


def plan(links: Links, outcomes: Mapping[str, Outcome], running: Collection[str] = ()) -> Plan:
    """Return the state of every step without an outcome.

        plan(links_of(workflow), {}).ready == ("first-step",)

    Steps in `running` are not returned as ready.
    """
    return PlanProgress(links, outcomes, running).plan()


class PlanProgress:
    """An incremental version of `plan`.

        progress = PlanProgress(links_of(workflow))
        for name in progress.ready: progress.start(name)
        progress.settle("first-step", Outcome(status="succeeded"))

    An outcome updates only the steps after it.
    """

    def __init__(
        self, links: Links, outcomes: Mapping[str, Outcome] | None = None, running: Collection[str] = ()
    ) -> None:
        self._links = links
        self._outcomes = dict(outcomes or {})
        self._running = set(running)
        self._index = {name: number for number, name in enumerate(links.steps)}
        # `check` rejects steps that wait for each other; here they must still come to an end.
        self._fates: dict[str, _Fate] = dict.fromkeys(links.steps, "blocked")
        self._counts: Counter[_Fate] = Counter({"blocked": len(links.steps)})
        self._ready: set[str] = set()
        for name in links.sorted:
            self._put(name, self._judged(name))

    @property
    def ready(self) -> tuple[str, ...]:
        """Steps that may start now, in the order of the file."""
        return tuple(sorted(self._ready, key=self._index.__getitem__))

    @property
    def is_finished(self) -> bool:
        return not (self._counts["ready"] or self._counts["running"] or self._counts["waiting"])

    def start(self, name: str) -> None:
        if self._fates[name] != "ready":
            raise ValueError(f"the step {name!r} is {self._fates[name]} and cannot start")
        self._running.add(name)
        self._put(name, "running")

    def settle(self, name: str, outcome: Outcome) -> None:
        """Record a step's only outcome; calling it twice is a bug in the caller."""
        if name in self._outcomes:
            raise ValueError(f"the step {name!r} has an outcome already")
        self._running.discard(name)
        self._outcomes[name] = outcome
        self._put(name, "done")
        todo = [link.target for link in self._links.out_of[name]]
        while todo:
            at = todo.pop()
            fate = self._judged(at) if self._fates[at] == "waiting" else "waiting"
            if fate != "waiting":
                self._put(at, fate)
                if fate in ("blocked", "left_out"):
                    todo += [link.target for link in self._links.out_of[at]]

    def _put(self, name: str, fate: _Fate) -> None:
        self._counts[self._fates[name]] -= 1
        self._counts[fate] += 1
        self._fates[name] = fate
        (self._ready.add if fate == "ready" else self._ready.discard)(name)

    def plan(self) -> Plan:
        groups: dict[_Fate, list[str]] = {}
        for name in self._links.steps:
            groups.setdefault(self._fates[name], []).append(name)
        failed = [name for name in self._links.steps if self._status(name) == "failed"]
        handled = tuple(name for name in failed if self._has_handler(name))
        is_degraded = handled or any(one.status == "degraded" for one in self._outcomes.values())
        has_failed = len(failed) > len(handled) or groups.get("blocked")
        ending: Ending = "failed" if has_failed else "degraded" if is_degraded else "succeeded"
        return Plan(
            ready=tuple(groups.get("ready", ())),
            running=tuple(groups.get("running", ())),
            waiting=tuple(groups.get("waiting", ())),
            blocked=tuple(groups.get("blocked", ())),
            left_out=tuple(groups.get("left_out", ())),
            handled=handled,
            ending=ending if self.is_finished else None,
        )

    def _status(self, name: str) -> Status | None:
        outcome = self._outcomes.get(name)
        return outcome.status if outcome else None

    def _has_handler(self, name: str) -> bool:
        return any(link.kind == "error" for link in self._links.out_of[name])

    def _judged(self, name: str) -> _Fate:
        if name in self._outcomes:
            return "done"
        if name in self._running:
            return "running"
        # Control links first, then data. In this order a decision is final: a step that is left out stays so even if a
        # step whose values it would have used fails later.
        ways = [self._state(link) for link in self._links.into[name] if link.kind != "data"]
        if "failed" in ways:
            return "blocked"
        if all(state == "not_taken" for state in ways) and name not in self._links.starts:
            return "left_out"
        if "pending" in ways:
            return "waiting"
        data = [self._state(link) for link in self._links.into[name] if link.kind == "data"]
        if "failed" in data:
            return "blocked"
        return "waiting" if "pending" in data else "ready"

    def _state(self, link: Link) -> _State:
        outcome = self._outcomes.get(link.source)
        if outcome is None:
            fate = self._fates[link.source]
            if fate == "blocked":
                return "not_taken" if link.kind == "data" and link.is_optional else "failed"
            return "not_taken" if fate == "left_out" else "pending"
        if outcome.status == "failed":
            if self._has_handler(link.source):
                return "taken" if link.kind == "error" else "not_taken"
            return "not_taken" if link.kind == "data" and link.is_optional else "failed"
        if link.kind == "error":
            return "not_taken"
        if link.kind == "branch":
            return "taken" if link.label == self._branch(link.source, outcome) else "not_taken"
        return "taken"

    def _branch(self, name: str, outcome: Outcome) -> str | None:
        return outcome.branch if outcome.branch in self._links.choices.get(name, ()) else "else"
