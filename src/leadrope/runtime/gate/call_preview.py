"""A tool call as a person sees it before approving it: a command as typed, an edit as a diff, fitted to a screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, NamedTuple

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core.tools import ToolCall
from leadrope.regex import regex
from leadrope.runtime.terminal_text import exact, whole_input

# A diff against a larger file would take longer to compute than a person waits; the new text alone is shown instead.
MOST_BYTES = 256 * 1024
LEAST_ROWS = 8
"""Shown even where the screen is smaller: less than this says too little about a call."""

_EDIT_FIELDS = {
    "Write": ("file_path", "content"),
    "Edit": ("file_path", "old_string", "new_string", "replace_all"),
    "MultiEdit": ("file_path", "edits"),
    "NotebookEdit": ("notebook_path", "new_source"),
}
_CONTEXT = 3
_HUNK = regex(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


class Present(NamedTuple):
    """A file that is about to be changed, as it is now."""

    text: str | None = None
    """None: there is none, or it cannot be shown."""
    note: str = "new file"
    """What to say beside its name; empty where the diff says it all."""


ReadFile = Callable[[str], Present]


class Parts(NamedTuple):
    main: str
    """The command, or the diff: its end is what a person must see."""
    rest: str
    """The other fields of the call."""


class Fitted(NamedTuple):
    lines: list[str]
    hidden: int
    """Characters that are not shown."""


def preview(name: str, input_: dict[str, Any], read_file: ReadFile | None = None) -> str:
    """Everything that the call would do. An edit is shown as a diff, with whatever else the input holds below it.

    `read_file` tells of the file that is about to be changed.
    """
    return "\n".join(part for part in parts(name, input_, read_file) if part)


def parts(name: str, input_: dict[str, Any], read_file: ReadFile | None = None) -> Parts:
    changes = _changes(name, input_, read_file or look_at)
    if changes is not None:
        rest = {field: value for field, value in input_.items() if field not in _EDIT_FIELDS[name]}
        return Parts("\n".join(changes), whole_input(rest) if rest else "")
    if isinstance(command := input_.get("command"), str):
        rest = {field: value for field, value in input_.items() if field != "command"}
        return Parts(exact(command), whole_input(rest) if rest else "")
    return Parts(whole_input(input_), "")


def of_call(call: ToolCall) -> str:
    return preview(call.name, call.input)


def editable(name: str, input_: dict[str, Any]) -> str | None:
    """The field of a call that a person would change: its command, the text it writes. None: all of it, as JSON."""
    fields = {"Write": "content", "Edit": "new_string", "NotebookEdit": "new_source"}
    field = fields.get(name, "command")
    return field if isinstance(input_.get(field), str) else None


def change(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What a person has changed in a call, as the lines of a diff."""
    field = editable(name, before)
    if field is not None and isinstance(after.get(field), str):
        lines = _diff(before[field], after[field])
        if "\n" not in before[field]:
            lines = [line for line in lines if not line.startswith("@@")]
        rest = [{key: value for key, value in each.items() if key != field} for each in (before, after)]
        return lines if rest[0] == rest[1] else [*lines, *_diff(*map(whole_input, rest))]
    return _diff(whole_input(before), whole_input(after))


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
        note = f" ({before.note})" if before.note else ""
        return [f"{exact(path)}{note}", *_diff(before.text or "", content)]
    if name == "NotebookEdit" and isinstance(source := input_.get("new_source"), str):
        return [exact(path), *_diff("", source)]
    edits = input_.get("edits") if name == "MultiEdit" else [input_]
    if not isinstance(edits, list) or not edits:
        return None
    lines = [exact(path)]
    text = read_file(path).text
    for edit in edits:
        old, new = (edit.get("old_string"), edit.get("new_string")) if isinstance(edit, dict) else (None, None)
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        if name == "MultiEdit" and edit.keys() - {"old_string", "new_string", "replace_all"}:
            return None
        if edit.get("replace_all"):
            lines.append("every occurrence:")
        if text is not None and old and text.count(old) == 1:
            lines += _diff_in(text, old, new)
            text = text.replace(old, new)
        else:
            text = None  # what the next edit would find is not known
            lines += _diff(old, new)
    return lines


def _diff_in(text: str, old: str, new: str) -> list[str]:
    """The change of the one place that holds `old`, with the lines around it and their numbers in the file."""
    at = text.index(old)
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at + len(old))
    end = len(text) if end < 0 else end
    for _ in range(_CONTEXT):
        start = text.rfind("\n", 0, max(start - 1, 0)) + 1
        following = text.find("\n", end + 1)
        end = len(text) if following < 0 else following
    return _diff(text[start:end], text[start:at] + new + text[at + len(old) : end], above=text.count("\n", 0, start))


def _diff(before: str, after: str, *, above: int = 0) -> list[str]:
    """Unified, without file names; lines that neither side changes are left out but for three around each change.

    `above` lines of the file stand before both texts.
    """
    if not before:
        return [f"+{exact(line)}" for line in _lines(after)]
    import difflib  # noqa: PLC0415  # only where an edit is shown

    found = list(difflib.unified_diff(_lines(before), _lines(after), lineterm="", n=_CONTEXT))[2:]
    if not found:
        return ["(no change)" if before == after else "(only the end of the last line changes)"]
    return [
        _HUNK.sub(lambda hunk: _moved(hunk, above), line) if line.startswith("@@") else line[:1] + exact(line[1:])
        for line in found
    ]


def _lines(text: str) -> list[str]:
    """A newline at the very end ends the last line, and does not begin another."""
    return text.removesuffix("\n").split("\n")


def _moved(hunk: re.Match[str], above: int) -> str:
    return f"@@ -{int(hunk[1]) + above}{hunk[2] or ''} +{int(hunk[3]) + above}{hunk[4] or ''} @@"


def look_at(path: str) -> Present:
    """A small regular file with its text; what an agent left under that name is neither followed nor waited for."""
    if not path.startswith("/") or "\0" in path:
        return Present(note="")  # relative to where the agent is, which is not told here
    try:
        with Folder.open(PurePath(path).parent, hard_links=True) as folder:
            return Present(folder.read_text(PurePath(path).name, most=MOST_BYTES, errors="replace"), note="")
    except FileNotFoundError:
        return Present()
    except errors.UnsafeFile as error:
        return Present(note=f"what is there now {error.reason}, and is not compared")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return Present(note=f"what is there now is not shown: {why}")


def fit(text: str, *, rows: int, columns: int, least: int = LEAST_ROWS) -> Fitted:
    """The lines that fit, from both ends: the end of a call is always shown, the middle is what is left out."""
    rows = max(rows, least)
    columns = max(columns, 20)
    lines = [line[at : at + columns] for line in text.split("\n") for at in range(0, max(len(line), 1), columns)]
    if len(lines) <= rows:
        return Fitted(text.split("\n"), 0)
    tail = rows // 2
    head = rows - 1 - tail
    hidden = sum(map(len, lines[head : len(lines) - tail]))
    note = f"… {hidden:,} characters in {len(lines) - head - tail:,} lines are not shown …"
    return Fitted([*lines[:head], note, *lines[len(lines) - tail :]], hidden)
