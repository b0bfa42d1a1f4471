"""The texts of called workflows, stored with the execution so that edits to the files do not affect it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.workflows import library, model
from leadrope.workflows.check.subworkflow_check import literal_name
from leadrope.workflows.library import Loaded


class CalledTexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    files: dict[str, str] = {}
    """Path -> text of the file."""
    calls: dict[str, dict[str, str]] = {}
    """Folder of the caller -> name as written there -> path."""

    def find(self, name: str, folder: Path) -> Loaded | None:
        """Return the workflow as it was when the execution began; None if its name was unknown then (it came from a
        template).
        """
        path = self.calls.get(str(folder), {}).get(name)
        if path is None:
            return None
        return library.read(self.files[path], name=library.name_of(Path(path)), file=path)


def gather(workflow: model.Workflow, folder: Path, leadrope_home: Path) -> CalledTexts:
    """Collect every workflow that is reachable by literal names. Files that cannot be read are reported by the step
    that calls them.
    """
    files: dict[str, str] = {}
    calls: dict[str, dict[str, str]] = {}
    todo = [(workflow, folder)]
    while todo:
        caller, place = todo.pop()
        for step in caller.every_step:
            name = literal_name(step)
            if name is None or name in calls.get(str(place), {}):
                continue
            try:
                path = library.find(name, folder=place, leadrope_home=leadrope_home)
                text = files.get(str(path)) or library.whole_text_of(path)
            except errors.BadValue:
                continue
            if text is None:
                continue
            calls.setdefault(str(place), {})[name] = str(path)
            if str(path) not in files:
                files[str(path)] = text
                todo.append((library.parsed(text, file=path.name), path.parent))
    return CalledTexts(files=files, calls=calls)
