"""Workflows for programs: load, check, run and resume them. `leadrope` exports what is here.

loaded = leadrope.load_workflow("release.flow.md")
async with leadrope.Service() as service:
result = await leadrope.run_workflow(service, loaded, {"version": "1.4.0"})
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadrope.core import home
from leadrope.workflows import library
from leadrope.workflows.library import Loaded
from leadrope.workflows.problems import WorkflowProblem
from leadrope.workflows.report import ExecutionResult

if TYPE_CHECKING:
    from leadrope.runs.service import Service
    from leadrope.runtime.gate.approvers import Answer


def load_workflow(
    workflow: str | os.PathLike[str],
    *,
    workspace: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """A workflow that has passed its check, with its warnings.

    `workflow` is a path, the name of a file in `workspace` (default: the current directory), or the name of a saved
    workflow. Raises BadWorkflow, with every problem, if it has errors.
    """
    path, own, folder = _found(workflow, workspace, environ)
    return library.load(path, leadrope_home=own, workspace=folder)


def check_workflow(
    workflow: str | os.PathLike[str],
    *,
    workspace: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[WorkflowProblem, ...]:
    """Every error and warning of a workflow, as `leadrope flow check` reports them; empty if there are none."""
    path, own, folder = _found(workflow, workspace, environ)
    return library.judged(path, leadrope_home=own, workspace=folder)[1]


async def run_workflow(
    service: Service,
    workflow: Loaded | str | os.PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    *,
    workspace: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> ExecutionResult:
    """Run a workflow to its end, or until it waits for an approval.

    `workspace` is the folder that its steps work in (default: the current directory). The options are those of
    `leadrope.workflows.start.start.started`: `show`, `people`, `on_ask`, `access`, `secrets`, `labels` and others.
    Cancelling it stops the execution, which can be resumed.
    """
    from leadrope.workflows.start.start import started  # noqa: PLC0415  # loading a workflow needs no engine

    around = dict(os.environ if environ is None else environ)
    folder = Path.cwd() if workspace is None else Path(workspace)
    if not isinstance(workflow, Loaded):
        # Reading files, perhaps many, must not block the loop that serves other runs.
        workflow = await asyncio.to_thread(load_workflow, workflow, workspace=folder, environ=around)
    values = workflow.inputs(inputs or {}, environ=around)
    async with started(service, workflow, values, workspace=folder, environ=around, **options) as execution:
        return await execution.run()


async def resume_workflow(
    service: Service,
    name: str,
    *,
    answer: Answer | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> ExecutionResult:
    """Continue an execution that waits, was stopped or was interrupted; steps that are done are not run again.

    `name` is the id of the execution, or of an approval that `answer` answers. The options are those of
    `leadrope.workflows.start.start.resumed`: `show`, `people`, `on_ask`, `takes_change` and others.
    """
    from leadrope.workflows.start.start import resumed  # noqa: PLC0415  # as above

    around = dict(os.environ if environ is None else environ)
    async with resumed(service, name, environ=around, answer=answer, **options) as execution:
        return await execution.run()


def _found(
    workflow: str | os.PathLike[str],
    workspace: str | os.PathLike[str] | None,
    environ: Mapping[str, str] | None,
) -> tuple[Path, Path, Path]:
    own = home.leadrope_home(os.environ if environ is None else environ)
    folder = Path.cwd() if workspace is None else Path(workspace)
    return library.find(os.fspath(workflow), folder=folder, leadrope_home=own), own, folder
