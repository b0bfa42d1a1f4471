"""The workflows that a workflow calls, as texts that are kept with its execution: a changed file changes nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.workflows import library, model
from leadrope.workflows.check.subworkflow_check import literal_name
from leadrope.workflows.library import Loaded


class CalledTexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    files: dict[str, str] = {}
    """Path -> text."""
    calls: dict[str, dict[str, str]] = {}
    """The folder of the caller -> the name as it is written there -> path."""

    def find(self, name: str, folder: Path) -> Loaded | None:
        """As it was when the execution began; None for a name that was not known then, because a template gave it."""
        path = self.calls.get(str(folder), {}).get(name)
        if path is None:
            return None
        return library.read(self.files[path], name=library.name_of(Path(path)), file=path)


def gather(workflow: model.Workflow, folder: Path, leadrope_home: Path) -> CalledTexts:
    """All that can be come to by names that stand in the files. What cannot be read is told where it is called."""
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
