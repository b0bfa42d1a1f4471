"""What a workflow's file requests besides its workspace, and whether that was granted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core import home as homes
from leadrope.core.request_parts import extra_dirs
from leadrope.runtime.sandboxing import access as accesses
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import model
from leadrope.workflows.language import templates

if TYPE_CHECKING:
    from leadrope.workflows.library import Loaded


AGENT_STEPS = ("agent", "claude-code")


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    access: Access
    """Folders, and variables for the workflow's commands."""
    inputs: dict[str, str] = {}
    """The variables that fill inputs, by input."""

    @property
    def is_nothing(self) -> bool:
        return self.access == Access() and not self.inputs


def asked_by(workflow: model.Workflow, *, workspace: Path, environ: Mapping[str, str], leadrope_home: Path) -> Access:
    """Returns the access requested by the file's settings and agents.

    Raises BadValue for what no file may request, BadDirectory for a missing folder.
    """
    settings = workflow.settings
    for name in settings.env:
        accesses.check_asked_variable(name, "env")
    folders = [
        accesses.asked_folder(text, base=workspace, environ=environ, leadrope_home=leadrope_home)
        for text in (*settings.folders, *_agent_folders(workflow, workspace, environ))
    ]
    return Access(folders=tuple(dict.fromkeys(folders)), variables=settings.env)


def _agent_folders(workflow: model.Workflow, workspace: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yields `cwd` and `extra_dirs` of agent steps outside of the workspace.

    Templates are filled, and the result is judged, when the step runs.
    """
    for step in workflow.every_step:
        if step.type not in AGENT_STEPS:
            continue
        cwd, more = step.parameters.get("cwd"), step.parameters.get("extra_dirs")
        texts = [extra_dirs.spell(cwd, is_read_only=False)] if isinstance(cwd, str) else []
        texts += [text for text in more if isinstance(text, str)] if isinstance(more, list) else []
        for text in texts:
            if text and not any(templates.references(text)) and outside(text, workspace, environ) is not None:
                yield text


def outside(text: str, workspace: Path, environ: Mapping[str, str]) -> accesses.SharedFolder | None:
    """Returns the folder meant by a step's `DIR` or `DIR:ro` if it is outside of the workspace."""
    name, is_read_only = extra_dirs.parse(text)
    real = Path(real_path(folder_of(name, workspace, environ)))
    if real.is_relative_to(real_path(workspace)):
        return None
    return accesses.SharedFolder(path=str(real), is_read_only=is_read_only)


def folder_of(name: str, workspace: Path, environ: Mapping[str, str]) -> Path:
    """Resolves a folder named by a step, relative to the workspace or with `~`."""
    if name == "~" or name.startswith("~/"):
        return homes.user_home(environ) / name[2:]
    return workspace / name


def refuse_uncovered(
    loaded: Loaded, access: Access, *, workspace: Path, environ: Mapping[str, str], leadrope_home: Path
) -> None:
    """Raises RequestError if the file requests more than was granted."""
    asked = asked_by(loaded.workflow, workspace=workspace, environ=environ, leadrope_home=leadrope_home)
    lacks = access.lacks(asked)
    if lacks != Access():
        raise errors.RequestError(
            f"{loaded.name} asks for {described(lacks)}, which it has not been given",
            hint=f"Give it by hand ({flags(lacks)}), or review the file and run `leadrope trust {loaded.file}`.",
        )


def refuse_unknown_secrets(
    loaded: Loaded, allowed: Collection[str], *, environ: Mapping[str, str], leadrope_home: Path
) -> None:
    """Checks before anything runs that each secret referred to by a step is allowed and set."""
    names = secret_names(loaded.workflow)
    for name in names:
        if name not in allowed:
            raise errors.RequestError(
                f"{loaded.name} uses the secret {name}, which it has not been given",
                hint=f"Give it with --secret {name}, or list it in forward_env of your config.toml.",
            )
    accesses.secret_values(names, environ, leadrope_home)


def described(access: Access) -> str:
    folders = [f"the folder {one.path}{' (read-only)' if one.is_read_only else ''}" for one in access.folders]
    return ", ".join((*folders, *(f"the variable {name}" for name in access.variables)))


def flags(access: Access) -> str:
    """Returns the command-line options that grant exactly this access."""
    return " ".join((*(f"--add-dir {one}" for one in access.folders), *(f"--var {one}" for one in access.variables)))


def secret_names(workflow: model.Workflow) -> tuple[str, ...]:
    """Returns the secrets that the workflow's steps refer to."""
    taken = {*(one.name for one in workflow.inputs), *(step.id for step in workflow.every_step)}
    if model.SECRET in taken:
        return ()
    found = [
        str(one.parts[0])
        for step in workflow.every_step
        for one in templates.references(step.parameters)
        if one.root == model.SECRET and one.parts
    ]
    return tuple(dict.fromkeys(found))
