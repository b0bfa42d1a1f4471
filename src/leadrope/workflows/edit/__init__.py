"""Edits of a workflow's Markdown: one step is changed, and every other line stays as it is, to the byte.

    text = edit.set_value(text, "review", "model", "opus")
    text = edit.rename(text, "review", "second-review")

All functions are pure: the text of a file in, the new text out. What cannot be done raises an error that says why, and
a result that would not read back as what was asked for is never returned.
"""

from leadrope.workflows.edit.links import connect, disconnect
from leadrope.workflows.edit.renaming import rename
from leadrope.workflows.edit.steps import add, describe, move, place, remove, set_value

__all__ = ["add", "connect", "describe", "disconnect", "move", "place", "remove", "rename", "set_value"]
