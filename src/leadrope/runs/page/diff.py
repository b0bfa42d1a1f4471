"""Reconstructs a run's file changes from the inputs of its edits, as unified diffs. Reads no files."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from leadrope.core.secrets import redaction
from leadrope.core.tools import ToolCall, edited_path

MAX_LINES = 400
"""Maximum lines of one side. Comparing similar sides takes quadratic time; longer texts are shown without comparing."""
EDITORS = ("Edit", "MultiEdit", "Write", "NotebookEdit")


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    lines: tuple[str, ...]
    """Each begins with `+`, `-`, `@` or a space."""
    added: int
    removed: int
    edits: int
    is_certain: bool = True
    """False if the record ends before the edit did."""


class Changes:
    """Collects the edits of a run, in order."""

    def __init__(self, redact: Callable[[str], str] = redaction.redact) -> None:
        self._redact = redact
        self._texts: dict[str, str] = {}
        """Full contents of files that were written in this run."""
        self._lines: dict[str, list[str]] = {}
        self._edits: dict[str, int] = {}
        self._uncertain: set[str] = set()

    def add(self, name: str, path: str, input_: dict[str, Any], *, is_certain: bool = True) -> None:
        pieces = list(_pieces(name, input_))
        if not pieces:
            return
        self._edits[path] = self._edits.get(path, 0) + 1
        if not is_certain:
            self._uncertain.add(path)
        for before, after, everywhere in pieces:
            # Redacted before they are split into lines: a multi-line key is recognizable only as a whole.
            old, new = self._redact(before), self._redact(after)
            known = self._texts.get(path)
            if name == "Write":
                self._hunk(path, known or "", new)
                self._texts[path] = new
                continue
            self._hunk(path, old, new)
            if known is not None:
                self._texts[path] = known.replace(old, new, -1 if everywhere else 1) if old else new

    def found(self) -> list[FileDiff]:
        return [
            FileDiff(
                path=path,
                lines=tuple(lines),
                added=sum(line.startswith("+") for line in lines),
                removed=sum(line.startswith("-") for line in lines),
                edits=self._edits[path],
                is_certain=path not in self._uncertain,
            )
            for path, lines in self._lines.items()
        ]

    def _hunk(self, path: str, old: str, new: str) -> None:
        lines = self._lines.setdefault(path, [])
        if lines:
            lines.append("@@")
        lines += unified(old, new)


def unified(old: str, new: str) -> list[str]:
    """Return the lines of a diff of two pieces, without numbers: a piece's position in its file is unknown."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) > MAX_LINES or len(after) > MAX_LINES:
        return [f"-{line}" for line in before] + [f"+{line}" for line in after]
    found = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    # The first header carries no information; later ones mark omitted lines.
    return [line if not line.startswith("@@") else "@@" for line in found][1:]


def of_text(diff: str) -> list[FileDiff]:
    """Parse a diff in git's format, one entry per file."""
    changes: list[FileDiff] = []
    path, lines = "", []  # type: str, list[str]

    def end() -> None:
        if path or lines:
            body = tuple(lines)
            added = sum(line.startswith("+") for line in body)
            removed = sum(line.startswith("-") for line in body)
            changes.append(FileDiff(path=path or "(diff)", lines=body, added=added, removed=removed, edits=1))

    in_hunk = False
    for line in diff.splitlines():
        if line.startswith("diff --git "):
            end()
            # `a/X b/X`: both halves are equal except for their prefix, even if X contains spaces.
            both = line[len("diff --git ") :]
            path, lines, in_hunk = both[len(both) // 2 + 1 :].removeprefix("b/"), [], False
        elif in_hunk or line.startswith("@@"):
            in_hunk = True
            lines.append(line)
        elif line.startswith(("+++ ", "--- ")):
            name = line[4:].split("\t")[0]
            if name != "/dev/null":
                path = name[2:] if name.startswith(("a/", "b/")) else name
        elif line.startswith(("rename ", "new file", "deleted file", "Binary ", "similarity ", "old mode", "new mode")):
            lines.append(f" {line}")
    end()
    return changes


def path_of(name: str, input_: dict[str, Any]) -> str | None:
    """Return the file that a call edits, or None for any other call."""
    if name not in EDITORS:
        return None
    return edited_path(ToolCall(id="", name=name, input=input_))


def _pieces(name: str, input_: dict[str, Any]) -> Iterable[tuple[str, str, bool]]:
    """Yield old text, new text, and whether all occurrences are replaced; input that is not text is skipped."""
    if name == "Write" and isinstance(input_.get("content"), str):
        yield "", input_["content"], False
    elif name == "NotebookEdit" and isinstance(input_.get("new_source"), str):
        yield "", input_["new_source"], False
    elif name == "Edit":
        yield from _edit(input_)
    elif name == "MultiEdit" and isinstance(input_.get("edits"), list):
        for edit in input_["edits"]:
            if isinstance(edit, dict):
                yield from _edit(edit)


def _edit(edit: dict[str, Any]) -> Iterable[tuple[str, str, bool]]:
    old, new = edit.get("old_string"), edit.get("new_string")
    if isinstance(old, str) and isinstance(new, str):
        yield old, new, bool(edit.get("replace_all"))
