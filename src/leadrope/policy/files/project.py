"""A project's own leadrope.toml: it may tighten the rules and set model and prompt defaults. All else is left aside.

A repository is written by strangers. What it says about where the model is, which program is the agent, what it may see
or who pays, is listed as ignored and never used from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from leadrope.core.request import OPTIONS
from leadrope.policy.files.document import Key, TomlDocument, shown
from leadrope.policy.files.policy_file import PolicyFile, PolicyReader

NAME = "leadrope.toml"
RUN_KEYS = tuple(name for name, option in OPTIONS.items() if option.project)
"""What `[run]` of a project may set."""


class Ignored(msgspec.Struct, frozen=True, kw_only=True):
    """A key that a project may not set."""

    file: str
    line: int | None
    key: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key} is ignored: a project's own file cannot set it"


class ProjectFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    policy: PolicyFile
    run: dict[str, str] = {}
    """Defaults for the request: model and prompt."""
    ignored: tuple[Ignored, ...] = ()


def read_project(folder: Path, *, try_examples: bool = True) -> ProjectFile | None:
    """The file in this folder, or None. A file that cannot be used stops the run: a broken rule is not no rule."""
    path = folder / NAME
    try:
        document = TomlDocument.read(path, inside=folder)
    except FileNotFoundError:
        return None
    reader = PolicyReader(inside=folder, try_examples=try_examples)
    policy = reader.table(document, ("policy",))
    run: dict[str, str] = {}
    ignored: list[Key] = [*reader.ignored, *((key,) for key in document.data if key not in ("policy", "run"))]
    given: Any = document.data.get("run", {})
    for key, value in given.items() if isinstance(given, dict) else ():
        if key not in RUN_KEYS:
            ignored.append(("run", key))
        elif isinstance(value, str):
            run[key] = value
        else:
            reader.problems.append(document.problem(("run", key), "must be a text"))
    if not isinstance(given, dict):
        reader.problems.append(document.problem(("run",), "is not a table"))
    reader.finish(policy)
    found = tuple(Ignored(file=str(path), line=document.line(key), key=shown(key)) for key in ignored)
    return ProjectFile(path=str(path), policy=policy, run=run, ignored=found)
