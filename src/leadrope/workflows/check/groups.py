"""The groups of a workflow: which steps they contain, which names are visible where, and what a group cannot have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leadrope.workflows.model import GROUP, Step
from leadrope.workflows.problems import Findings, Path

RESERVED = ("iterations", "loop_stopped", "results", "count", "errors", "error")
"""Outputs of a group itself, in addition to those named after its steps."""
_SEEN_BY_LOOP = ("while", "until", "carry", "wait")


class Groups:
    """The groups that contain each step."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._around: dict[str, tuple[str, ...]] = {}
        self._enter(steps, ())

    def _enter(self, steps: Iterable[Step], around: tuple[str, ...]) -> None:
        for step in steps:
            self._around.setdefault(step.id, around)
            self._enter(step.steps, (*around, step.id))

    def around(self, name: str) -> tuple[str, ...]:
        """Returns the groups that contain a step, outermost first."""
        return self._around.get(name, ())

    def beside(self, name: str, user: str) -> str | None:
        """Returns the step, or the group around it, on the level of another one; None if there is none."""
        level = self.around(name)
        every = (*self.around(user), user)
        return every[len(level)] if every[: len(level)] == level and len(every) > len(level) else None

    def can_see(self, path: Path, name: str) -> bool:
        """Whether a template at this path can use the step, which must be in a surrounding group or in none."""
        groups = self.around(name)
        if not groups:
            return True
        user = path[1] if path[0] == "steps" else ""
        if user == groups[-1]:
            # The group's own conditions are evaluated after a turn, its other values before its steps begin.
            return path[2:3] == ("loop",) and path[3:4] != () and path[3] in _SEEN_BY_LOOP
        return groups[-1] in self.around(user)

    def told(self, name: str) -> str:
        """Returns the beginning of a template that reaches the step from outside of all groups."""
        return ".".join((*self.around(name), name))


def look(step: Step, findings: Findings) -> None:
    path = ("steps", step.id)
    if step.type != GROUP:
        return
    if not step.steps:
        findings.add(
            "empty_group",
            f"the group {step.id!r} has no steps",
            path=path,
            hint="Write them below it, with one more `#` than its own heading has.",
        )
    for key, advice in (
        ("retry", "It would do again what is done. Give `retry` to steps inside, or a `loop` to the group."),
        ("cache", "Give `cache` to steps inside."),
    ):
        if getattr(step, key):
            findings.add("unfit_key", f"a group takes no {key!r}", path=(*path, key), found=key, hint=advice)
    for inner in step.steps:
        if inner.id in RESERVED:
            findings.add(
                "bad_id",
                f"no step inside a group can be called {inner.id!r}: the group has an output of that name",
                path=("steps", inner.id),
                found=inner.id,
                suggestion=f"{inner.id}-step",
            )


def outputs_of(step: Step) -> Mapping[str, Any] | None:
    """Returns a group's outputs: those of each step inside, under the step's name."""
    return {inner.id: {"type": "object"} for inner in step.steps} if step.type == GROUP else None
