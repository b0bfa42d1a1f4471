"""Problems of a workflow, each with position, what was found and what would be valid. Independent of formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.core.text import yaml_values
from leadrope.spelling import close_matches

LISTED = 24
"""Maximum names listed in a message. More does not help a reader; the problem itself has all of them."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A position in a file, both counted from 1."""

    line: int
    column: int = 1
    next_column: int | None = None
    """Set if the value's text is written verbatim in the file: the column at which its further lines begin."""
    quotes: int = 0
    """1 if a quote is here, followed by the text."""

    def at(self, text: str, offset: int) -> Position:
        """Return the position of a character in `text`, which begins here."""
        if self.next_column is None:
            return Position(line=self.line, column=self.column)
        before = text[:offset]
        down = before.count("\n")
        if not down:
            return Position(line=self.line, column=self.column + self.quotes + offset)
        return Position(line=self.line + down, column=self.next_column + offset - before.rindex("\n") - 1)


Path = tuple[str, ...]
Places = Mapping[Path, Position]
"""Positions by path: ("steps", "review", "prompt"). A missing path has the position of its parent."""

KEY = yaml_values.KEY
"""Appended to a path: the position of the key itself; the path alone is the position of its value."""

UNKNOWN = Position(line=0, column=0)


def move(places: MutableMapping[Path, Position], old: Path, new: Path) -> None:
    """The places of a value that has another path now, and of all that is inside it."""
    for path in [path for path in places if path[: len(old)] == old]:
        places.setdefault((*new, *path[len(old) :]), places[path])


class WorkflowProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error or warning in a workflow; its text says where it is, what is wrong and how to fix it."""

    kind: str
    """A stable identifier: unknown_parameter, cycle, yaml, …"""
    message: str
    severity: Literal["error", "warning"] = "error"
    line: int = 0
    """0 if the workflow did not come from a file."""
    column: int = 0
    path: Path = ()
    found: str | None = None
    available: tuple[str, ...] = ()
    suggestion: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}: " if self.line else (".".join(self.path) + ": " if self.path else "")
        text = f"{where}{self.severity}: {self.message}"
        if self.suggestion is not None:
            text += f"; did you mean {self.suggestion}?"
        if self.available:
            more = len(self.available) - LISTED
            names = ", ".join(self.available[:LISTED])
            text += f" (available: {names}" + (f" and {more} more)" if more > 0 else ")")
        return f"{text}{'' if text.endswith('?') else '.'} {self.hint}" if self.hint else text


class BadWorkflow(errors.RequestError):
    """Carries all problems of a workflow, including warnings."""

    kind = "bad_workflow"

    def __init__(self, name: str, problems: Iterable[WorkflowProblem]) -> None:
        self.problems = tuple(problems)
        wrong = [str(problem) for problem in self.problems if problem.severity == "error"]
        count = "1 error" if len(wrong) == 1 else f"{len(wrong)} errors"
        super().__init__(f"{name} has {count}:\n" + "\n".join(f"  {line}" for line in wrong))


class Findings:
    """Collects problems without duplicates."""

    def __init__(self, places: Places | None = None) -> None:
        self._places = {} if places is None else places
        self._found: dict[tuple[object, ...], WorkflowProblem] = {}

    def __iter__(self) -> Iterator[WorkflowProblem]:
        return iter(sorted(self._found.values(), key=lambda problem: (problem.line, problem.column)))

    def add(
        self,
        kind: str,
        message: str,
        place: Position | None = None,
        *,
        path: Path = (),
        found: str | None = None,
        available: Iterable[str] = (),
        hint: str | None = None,
        warns: bool = False,
        suggestion: str | None = None,
        at_key: bool = False,
    ) -> WorkflowProblem:
        names = tuple(dict.fromkeys(available))
        where = place or self.place((*path, KEY) if at_key else path)
        problem = WorkflowProblem(
            kind=kind,
            message=message,
            severity="warning" if warns else "error",
            line=where.line,
            column=where.column,
            path=path,
            found=found,
            available=names,
            suggestion=suggestion or (nearest(found, names) if found is not None else None),
            hint=hint,
        )
        return self._found.setdefault((kind, message, problem.line, problem.column, path), problem)

    def place(self, path: Path) -> Position:
        for length in range(len(path), 0, -1):
            if path[:length] in self._places:
                return self._places[path[:length]]
        return UNKNOWN


def nearest(word: str, available: Iterable[str]) -> str | None:
    """Return the name that was probably meant, or None."""
    names = list(available)
    folded = {_folded(name): name for name in reversed(names)}
    close = close_matches(_folded(word), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def _folded(word: str) -> str:
    # Long texts are used as names only by mistake, and difflib is not linear.
    return word[:100].lower().replace("-", "_")
