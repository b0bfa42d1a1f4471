"""A tool call as a person sees it before approving it: a command as typed, an edit as a diff, fitted to a screen."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Callable
from typing import Any, NamedTuple

from leadrope.core.tools import ToolCall
from leadrope.runtime.shown import exact, whole_input

# A diff against a larger file would take longer to compute than a person waits; the new text alone is shown instead.
MOST_BYTES = 256 * 1024
LEAST_ROWS = 12
"""Shown even where the screen is smaller: less than this says too little about a call."""

ReadFile = Callable[[str], str | None]
_EDIT_FIELDS = {
    "Write": ("file_path", "content"),
    "Edit": ("file_path", "old_string", "new_string", "replace_all"),
    "MultiEdit": ("file_path", "edits"),
    "NotebookEdit": ("notebook_path", "new_source"),
}


class Fitted(NamedTuple):
    lines: list[str]
    hidden: int
    """Characters that are not shown."""


def preview(name: str, input_: dict[str, Any], read_file: ReadFile | None = None) -> str:
    """Everything that the call would do. An edit is shown as a diff, with whatever else the input holds below it.

    `read_file` gives the present content of a file that is about to be overwritten, or None.
    """
    changes = _changes(name, input_, read_file or read_present)
    if changes is None:
        return whole_input(input_)
    known = _EDIT_FIELDS[name]
    rest = {field: value for field, value in input_.items() if field not in known}
    return "\n".join([*changes, *([whole_input(rest)] if rest else [])])


def of_call(call: ToolCall) -> str:
    return preview(call.name, call.input)


def is_edit(name: str) -> bool:
    """Its preview is a diff."""
    return name in _EDIT_FIELDS


def _changes(name: str, input_: dict[str, Any], read_file: ReadFile) -> list[str] | None:
    """The lines of the diff; None where the input is not what an edit tool takes, and is shown as it came."""
    path = input_.get("notebook_path" if name == "NotebookEdit" else "file_path")
    if name not in _EDIT_FIELDS or not isinstance(path, str):
        return None
    if name == "Write" and isinstance(content := input_.get("content"), str):
        before = read_file(path)
        return [f"{exact(path)}{'' if before is not None else ' (new file)'}", *_diff(before or "", content)]
    if name == "NotebookEdit" and isinstance(source := input_.get("new_source"), str):
        return [exact(path), *_diff("", source)]
    edits = input_.get("edits") if name == "MultiEdit" else [input_]
    if not isinstance(edits, list) or not edits:
        return None
    lines = [exact(path)]
    for edit in edits:
        old, new = (edit.get("old_string"), edit.get("new_string")) if isinstance(edit, dict) else (None, None)
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        if name == "MultiEdit" and edit.keys() - {"old_string", "new_string", "replace_all"}:
            return None
        if edit.get("replace_all"):
            lines.append("every occurrence:")
        lines += _diff(old, new)
    return lines


def _diff(before: str, after: str) -> list[str]:
    """Unified, without file names; lines that neither side changes are left out but for three around each change."""
    old, new = before.split("\n"), after.split("\n")
    if not before:
        return [f"+{exact(line)}" for line in new]
    found = list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
    return [line if line.startswith("@@") else line[:1] + exact(line[1:]) for line in found] or ["(no change)"]


def read_present(path: str) -> str | None:
    """The text of a regular file, if it is small and there; what an agent left under that name is never waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return None
        return os.read(fd, MOST_BYTES).decode(errors="replace")
    finally:
        os.close(fd)


def fit(text: str, *, rows: int, columns: int) -> Fitted:
    """The lines that fit, from both ends: the end of a call is always shown, the middle is what is left out."""
    rows = max(rows, LEAST_ROWS)
    columns = max(columns, 20)
    lines = [line[at : at + columns] for line in text.split("\n") for at in range(0, max(len(line), 1), columns)]
    if len(lines) <= rows:
        return Fitted(text.split("\n"), 0)
    tail = rows // 2
    head = rows - 1 - tail
    hidden = sum(map(len, lines[head : len(lines) - tail]))
    note = f"… {hidden:,} characters in {len(lines) - head - tail:,} lines are not shown …"
    return Fitted([*lines[:head], note, *lines[len(lines) - tail :]], hidden)
