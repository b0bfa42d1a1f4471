"""Edits a workflow's Markdown: changes one step, and keeps every other line byte for byte.

    text = edit.set_value(text, "review", "model", "opus")
    text = edit.rename(text, "review", "second-review")

All functions are pure: they take the text of a file and return the new text. An impossible edit raises an error with
the reason, and a result that would not read back as requested is never returned.
"""

from leadrope.workflows.edit.links import connect, disconnect
from leadrope.workflows.edit.renaming import rename
from leadrope.workflows.edit.steps import add, describe, move, place, remove, set_value

__all__ = ["add", "connect", "describe", "disconnect", "move", "place", "remove", "rename", "set_value"]
