"""Checks before anything runs that the files named by steps are in the workspace; opens none of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from leadrope import errors
from leadrope.confined import real_path
from leadrope.workflows.language import templates
from leadrope.workflows.language.markdown import WorkflowDocument
from leadrope.workflows.model import Step
from leadrope.workflows.problems import Findings, WorkflowProblem

_NAMED: Mapping[str, tuple[str, ...]] = {
    "agent": ("attachments",),
    "claude-code": ("attachments",),
    "llm": ("images",),
    "email": ("attachments",),
    "read-file": ("file_path",),
    "write-file": ("file_path",),
    "delete-file": ("file_path",),
    "copy-file": ("source", "destination"),
    "move-file": ("source", "destination"),
}
"""Parameters that name files of the workspace, by step type."""
_HINT = "Steps use files of the workspace only; copy it there, or start the workflow in another folder."


def look(document: WorkflowDocument, *, workspace: Path) -> tuple[WorkflowProblem, ...]:
    """Returns a problem for each name that the step would refuse, whichever links exist by then."""
    findings = Findings(document.places)
    base = real_path(workspace)
    for step in document.workflow.every_step:
        for parameter, name in _names(step):
            path = ("steps", step.id, parameter)
            if path not in document.unreadable and _is_outside(name, base):
                findings.add(
                    "outside_workspace",
                    f"{parameter}: {name!r} is outside of the workspace {base}",
                    path=path,
                    found=name,
                    hint=_HINT,
                )
    return tuple(findings)


def _names(step: Step) -> Iterator[tuple[str, str]]:
    known = templates.settled(step.parameters)
    for parameter in _NAMED.get(step.type, ()):
        value = known.get(parameter)
        # A text as `attachments` of a mail is a list in another form, which only that step splits.
        names = value if isinstance(value, list) else [value] if parameter != "attachments" else []
        yield from ((parameter, name) for name in names if isinstance(name, str))


def _is_outside(name: str, base: str) -> bool:
    """Judges the text and the current links: an earlier step may still put another link in its place."""
    if not name.strip() or "\0" in name or name.startswith("~"):
        return False  # the step reports what is wrong with it
    joined = Path(base, name)
    if _is_below(os.path.normpath(joined), base):
        return False
    try:
        return not _is_below(real_path(joined), base)
    except (OSError, errors.UnsafeFile):
        return True  # no resolvable link leads back


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(base.rstrip("/") + "/")
